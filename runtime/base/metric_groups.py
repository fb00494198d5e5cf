"""Whose metrics a file holds, where several trainings of one run log the same names.

What lies below a folder `@NAME` of the metrics is NAME's: its metrics are read as `NAME/train/loss`.
"""

from __future__ import annotations

from pathlib import Path

MARK = "@"


def group_prefix(path: Path, folder: Path) -> str:
    """`NAME/` for a file below `folder/@NAME`, else empty; it goes before its metrics' names. Pure."""
    parts = path.relative_to(folder).parts
    grouped = len(parts) > 1 and parts[0].startswith(MARK) and parts[0] != MARK
    return f"{parts[0][len(MARK) :]}/" if grouped else ""
