"""Checkouts: files of a given text with one commit, as the stand-ins make it, or with unpushed work."""

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


def unpushed_work(root: Path, files: Mapping[str, str]) -> Path:
    """`root/work`, a clone of `root/server.git` that has `files`.

    `x` of its module `mod` is 1 in the commit of the server, 2 in one that was never pushed, and 3 now.
    """
    work = root / "work"
    git(root, "init", "-q", "--bare", "-b", "main", "server.git")
    git(root, "clone", "-q", f"file://{root}/server.git", "work")
    git(work, "checkout", "-q", "-B", "main")
    for name, text in {"mod.py": "x = 1\n", **files}.items():
        (work / name).write_text(text)
    git(work, "add", ".")
    git(work, "commit", "-qm", "pushed")
    git(work, "push", "-q", "origin", "main")
    (work / "mod.py").write_text("x = 2\n")
    git(work, "commit", "-qam", "never pushed")
    (work / "mod.py").write_text("x = 3\n")
    return work
