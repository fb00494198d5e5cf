"""Placeholder until the matcher lands in this commit series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from jobspec.triage.match import Match


def scan_files(files: Sequence[tuple[Path, str, str]]) -> list[Match]:
    """Nothing yet."""
    return []


def scan_lines(lines: Iterable[str], name: str = "<stdin>") -> list[Match]:
    """Nothing yet."""
    return []
