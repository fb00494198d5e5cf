"""A checkout as the stand-ins make it: files of a given text in a git repository with one commit."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path


def write_checkout(root: Path, files: Mapping[str, str]) -> Path:
    """`root` with `files` (path below it, text), committed."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "stand-in"]):
        subprocess.run([*git, *words], check=True)
    return root
