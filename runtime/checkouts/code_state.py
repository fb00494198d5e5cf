"""What a checkout holds beside its commit, file by file, and how that differs from what was submitted.

Contents are compared, not patches: the text of a patch depends on git's version and the user's settings.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Sequence, Tuple

from jobspec.finding import JobspecError
from jobspec.runtime.checkouts.git import (
    NAMES_PER_CALL,
    NO_PROGRAMS,
    belongs_in_patch,
    branch_of,
    git_in,
    is_private,
    root_of,
    submodules,
)

# The run executes the checkout's code anyway, and its files may belong to another user in the container.
TRUSTED = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
MAX_CHANGES = 5000  # files; more are no edits but outputs that nobody has told git to ignore
NEW = "new "  # in front of an untracked file's mark
PRIVATE = "private"  # the mark of a file whose content is not looked at
TAKEN = (".py", ".so")  # what an import takes from a folder without being told of it
# Untracked files that count: the others are logs, tables and weights, which a run itself writes.
SOURCES = (
    *TAKEN,
    *(".pyi", ".pyx", ".pxd", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".sh"),
    *(".yaml", ".yml", ".toml", ".cfg", ".ini", ".jinja", ".j2"),
)


@dataclass(frozen=True)
class CodeState:
    """A checkout as it is now. `changes` maps each file that differs from `commit` to a mark of its content.

    `unknown` says why nothing can be told; the rest is empty then.
    """

    commit: str = ""
    branch: str = ""
    changes: Mapping[str, str] = field(default_factory=dict)
    unknown: str = ""

    @property
    def changes_sha256(self) -> str:
        """One digest of all that is not committed; empty where all is."""
        rows = "".join(f"{name}\0{mark}\0" for name, mark in sorted(self.changes.items()))
        return hashlib.sha256(rows.encode()).hexdigest() if rows else ""


def code_state(path: str, env: Mapping[str, str] | None = None) -> CodeState:
    """The state of the checkout at `path`, with those of its submodules. Never raises."""
    if not os.path.isdir(path):
        return CodeState(unknown=f"`{path}` is not there")
    try:
        return _read(path, env or {})
    except JobspecError as problem:
        return CodeState(unknown=problem.findings[0].what)
    except OSError as problem:
        return CodeState(
            unknown=f"`{problem.filename or path}` cannot be read: {problem.strerror or problem}"
        )


def differences(commit: str, changes: Mapping[str, str], now: CodeState, path: str) -> Tuple[str, ...]:
    """The files of the checkout at `path` that are not as they were with `commit` and `changes`.

    A new untracked file counts where an import could take it.
    """
    names = {name for name in {*changes, *now.changes} if changes.get(name) != now.changes.get(name)}
    names -= {
        name
        for name in names - set(changes)
        if now.changes[name].startswith(NEW) and not name.endswith(TAKEN)
    }
    if commit != now.commit:
        between = git_in(
            path, "diff", *NO_PROGRAMS, "--name-only", "--no-renames", "-z", commit, now.commit, env=TRUSTED
        )
        names.update(map(_printable, _words(between.stdout)))
    return tuple(sorted(names))


def unlike(commit: str, changes: Mapping[str, str], copy: str) -> str:
    """What is not as it was in a copy of a checkout; empty when all is. Private files are not in a copy."""
    made = code_state(copy)
    if made.unknown:
        return made.unknown
    names = [name for name in differences(commit, changes, made, copy) if changes.get(name) != PRIVATE]
    return ", ".join(names[:5]) or ("" if made.commit == commit else f"it is at {made.commit}")


def _read(path: str, env: Mapping[str, str]) -> CodeState:
    head = git_in(path, "rev-parse", "--verify", "HEAD^{commit}", env=env)
    if head.returncode != 0:
        return CodeState(unknown=_first_line(head.stderr) or f"`{path}` has no commit")
    changes = {_printable(name): mark for name, mark in _changes(root_of(path, env), env).items()}
    if len(changes) > MAX_CHANGES:
        return CodeState(unknown=f"`{path}` has more than {MAX_CHANGES} uncommitted files")
    return CodeState(head.stdout.decode().strip(), branch_of(path, env), changes)


def _changes(root: str, env: Mapping[str, str]) -> Dict[str, str]:
    """The mark of every changed file below `root`, submodules included."""
    status = git_in(
        root,
        *("-c", "core.excludesFile=/dev/null"),  # the user's own, which no container has
        "status",
        "--porcelain=v2",
        "-z",
        "--no-renames",
        "--untracked-files=all",
        "--ignore-submodules=dirty",  # git itself must not look into one: it may name programs to run
        env=env,
    )
    if status.returncode != 0:
        raise OSError(0, _first_line(status.stderr), root)
    marks: Dict[str, str] = {}
    tracked: List[str] = []
    for untracked, moved, name in _entries(status.stdout):
        place = f"{root}/{name}"
        if os.path.isdir(place) and not os.path.islink(place):
            if moved:
                marks[name] = (NEW if untracked else "") + _commit_of(place, env)
            marks.update({f"{name}/{inner}": mark for inner, mark in _changes(place, env).items()})
        elif not untracked:
            tracked.append(name)
        elif name.endswith(SOURCES) and belongs_in_patch(Path(place), name):
            marks[name] = NEW + _mark(place, name)
    listed = {name for _, _, name in _entries(status.stdout)}
    for name in submodules(root, env):
        if name not in listed:  # at its commit, perhaps with changes
            marks.update({f"{name}/{inner}": mark for inner, mark in _changes(f"{root}/{name}", env).items()})
    filtered = _filtered(root, tracked, env)
    marks.update({name: _mark(f"{root}/{name}", name) for name in tracked if name not in filtered})
    return marks


def _entries(status: bytes) -> Iterator[Tuple[bool, bool, str]]:
    """Of each entry of `git status --porcelain=v2 -z --no-renames`: untracked, another commit, its name."""
    fields = {"1": 8, "u": 10}
    for entry in _words(status):
        kind = entry[:1]
        if kind == "?":
            yield True, True, entry[2:].rstrip("/")
        elif kind in fields:
            parts = entry.split(" ", fields[kind])
            yield False, parts[1][0] != "." or "C" in parts[2], parts[-1]


def _filtered(root: str, names: Sequence[str], env: Mapping[str, str]) -> frozenset[str]:
    """Files that a filter such as Git LFS writes: without the filter git takes each for changed."""
    found: set[str] = set()
    for start in range(0, len(names), NAMES_PER_CALL):
        part = names[start : start + NAMES_PER_CALL]
        words = _words(git_in(root, "check-attr", "-z", "filter", "--", *part, env=env).stdout)
        found.update(words[at] for at in range(0, len(words), 3) if words[at + 2] != "unspecified")
    return frozenset(found)


def _mark(place: str, name: str) -> str:
    """A short digest of a file's content and kind; a private file is only told to be there."""
    try:
        mode = os.lstat(place).st_mode
        if is_private(name):
            return PRIVATE
        if stat.S_ISLNK(mode):
            return "link " + _short(os.fsencode(os.readlink(place)))
        if not stat.S_ISREG(mode):  # opening a pipe would wait for its other end
            return "no file"
        kind = "x " if mode & stat.S_IXUSR else ""
        digest = hashlib.sha256()
        with open(place, "rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
        return kind + digest.hexdigest()[:16]
    except FileNotFoundError:
        return "gone"


def _commit_of(place: str, env: Mapping[str, str]) -> str:
    return "commit " + git_in(place, "rev-parse", "HEAD", env=env).stdout.decode().strip()[:40]


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _words(output: bytes) -> List[str]:
    return [word for word in output.decode(errors="surrogateescape").split("\0") if word]


def _printable(name: str) -> str:
    """The name as a JSON file can hold it."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def _first_line(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[0] if lines else ""
