"""What a checkout changes since another commit: its files, with their added and removed lines."""

from __future__ import annotations

from pathlib import Path

from jobspec.finding import fail
from jobspec.runtime.checkouts.git import NO_PROGRAMS, git_in

SHOWN = 200_000  # lines of one untracked file that are looked at


def changes_since(folder: Path, ref: str) -> dict[str, list[str]]:
    """The changed files since the checkout left `ref`, uncommitted and untracked ones included.

    Raises: JobspecError for a folder that is no checkout and for a ref that it does not have.
    """
    root = _git(folder, "rev-parse", "--show-toplevel")
    if root is None:
        raise fail("repo.not-git", f"`{folder}` is no git checkout", fix="name a checkout of Megatron-Bridge")
    top = Path(root.strip())
    base = _git(top, "merge-base", ref, "HEAD")
    if base is None:
        what = f"`{folder}` has no commit `{ref}` in common with what is checked out"
        raise fail(
            "repo.ref-unknown", what, fix=f"fetch it (`git -C {folder} fetch origin {ref}`), or name another"
        )
    diff = _git(top, "diff", *NO_PROGRAMS, "--no-color", "--no-renames", "-U0", base.strip()) or ""
    changes = _lines(diff)
    for name in (_git(top, "ls-files", "-z", "--others", "--exclude-standard") or "").split("\0"):
        if name:
            changes[name] = _text(top / name).splitlines()[:SHOWN]
    return changes


def _lines(diff: str) -> dict[str, list[str]]:
    """Added and removed lines of each file of a diff without context."""
    changes: dict[str, list[str]] = {}
    current: list[str] = []
    for line in diff.split("\n"):
        if line.startswith("diff --git a/"):
            # Without renames both names are the same, so either half of the line has it.
            name = line[len("diff --git ") :]
            current = changes.setdefault(name[len(name) // 2 + 1 :].removeprefix("b/"), [])
        elif line.startswith(("+", "-")) and not line.startswith(("+++ ", "--- ")):
            current.append(line[1:])
    return changes


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:  # a socket, a broken link: its name has changed all the same
        return ""


def _git(folder: Path, *words: str) -> str | None:
    """What git prints; None when it refuses."""
    done = git_in(str(folder), *words)
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
