"""A checkout as the stand-ins make it: files of a given text in a git repository with one commit."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

WHO = ("-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "protocol.file.allow=always")


def git(folder: Path, *words: str) -> str:
    """What git says in `folder`, without the line's end."""
    done = subprocess.run(
        ["git", "-C", str(folder), *WHO, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def write_checkout(root: Path, files: Mapping[str, str]) -> Path:
    """`root` with `files` (path below it, text), committed."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "stand-in")):
        git(root, *words)
    return root
