"""Copies what the plan asks for from one node to `artifacts/`: bounded, redacted, never through links out.

Smallest files first, so that one huge file does not crowd out the logs that explain it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Set, Tuple

from jobspec.runtime.base.events import FORMAT_VERSION, write_json
from jobspec.runtime.base.full_disk import refusal
from jobspec.runtime.base.redact import Redactor
from jobspec.runtime.base.safe_write import replacing, write_bytes

CHUNK_BYTES = 1 << 20
MAX_NAME_BYTES = 255  # of one file, on all usual file systems
SNIFF_BYTES = 8192  # a NUL byte in here: not text, copied as it is
RAY_LOG_BYTES = 4 << 20  # of each of Ray's own logs, its end is kept
RAY_LOG_FILES = 60
BETWEEN_STARS = re.compile(r"\*([^*/]+)(?=\*(?!\*))")
TOLD = 3  # names of files that were not copied
REDACT_BYTES = 64 << 20  # larger files that a program wrote itself are not rewritten


@dataclass(frozen=True)
class Folders:
    """Where relative patterns are looked for, in this order. Empty: not on this node."""

    attempt: str
    checkpoint: str
    scratch: str
    cwds: Tuple[str, ...] = ()

    def existing(self) -> List[Path]:
        named = [self.attempt, *self.cwds, self.checkpoint, self.scratch]
        return [Path(folder) for folder in dict.fromkeys(named) if folder and Path(folder).is_dir()]


@dataclass(frozen=True)
class Copied:
    """One file in `artifacts/`."""

    path: str
    bytes: int
    sha256: str
    source: str


@dataclass
class Collected:
    """What one node copied, and whether a bound cut it short."""

    files: List[Copied] = field(default_factory=list)
    truncated: bool = False
    skipped: List[str] = field(default_factory=list)
    failed: List[str] = field(default_factory=list)  # with why
    fix: str = ""  # where it was the disk that failed

    def to_json(self, artifacts: Path, node: str) -> Dict[str, Any]:
        rows = [
            {
                "path": str(Path(file.path).relative_to(artifacts)),
                "bytes": file.bytes,
                "sha256": file.sha256,
                "node": node,
                "source": file.source,
            }
            for file in self.files
        ]
        return {
            "files": rows,
            "truncated": self.truncated,
            "skipped": self.skipped[:TOLD],
            "left_out": len(self.skipped),
            "failed": self.failed[:TOLD],
            "failures": len(self.failed),
            "fix": self.fix,
        }


def collect(
    patterns: Sequence[str],
    folders: Folders,
    target: Path,
    redactor: Redactor,
    *,
    max_bytes: int,
    deadline_s: float,
) -> Collected:
    """Copy every file that a pattern matches below one of the folders; absolute patterns as they are.

    `**` crosses folders, a pattern that names a folder means all of it. A file beyond `max_bytes` in
    all, or after `deadline_s`, is named in `skipped`, one that could not be copied in `failed`.
    """
    end = time.monotonic() + deadline_s
    result = Collected()
    used = 0
    written: Set[Path] = set()
    matches = list(_find(patterns, folders, target, end))
    for base, relative, real, size in sorted(matches, key=lambda row: row[3]):
        path = os.path.join(base, relative)  # noqa: PTH118
        if used + size > max_bytes or time.monotonic() > end:
            result.truncated = True
            result.skipped.append(redactor.text(path))
            continue
        try:
            goal = _goal(base, redactor.text(relative), target, written)
            copied = _copy(real, goal, redactor, redactor.text(path))
        except FileNotFoundError:
            continue  # what a command has left running still removes files
        except OSError as problem:
            why, fix = refusal(problem, target)
            result.failed.append(redactor.text(f"`{path}`: {why}"))
            result.fix = result.fix or fix
            continue
        used += copied.bytes
        result.files.append(copied)
    result.truncated = result.truncated or time.monotonic() > end
    return result


def write_manifest(artifacts: Path, rows: List[Dict[str, Any]], node: str, redactor: Redactor) -> None:
    """List what all nodes have copied, and what lay in `artifacts` already, which `rows` get as well."""
    artifacts.mkdir(parents=True, exist_ok=True)
    rows.extend(already_there(artifacts, [row["path"] for row in rows], node, redactor))
    listed = {"v": FORMAT_VERSION, "files": sorted(rows, key=lambda row: str(row["path"]))}
    write_json(artifacts / "manifest.json", listed)


def matcher(pattern: str) -> re.Pattern[str]:
    """A glob with `**` as a regular expression over a `/` path; a folder's name matches what is in it.

    Of two `*` in one name the first takes as little as it can, once: else many of them take for ever.
    """
    pattern = re.sub(r"(?<!\*)(?:\*\*/)+", "**/", pattern)
    text = ""
    index = groups = 0
    while index < len(pattern):
        between = BETWEEN_STARS.match(pattern, index)
        if pattern.startswith("**/", index):
            text, index = text + "(?:[^/]+/)*", index + 3
        elif pattern.startswith("**", index):
            text, index = text + ".*", index + 2
        elif between:
            groups += 1
            text += f"(?=(?P<g{groups}>[^/]*?{_plain(between[1])}))(?P=g{groups})"
            index = between.end()
        elif pattern[index] == "*":
            text, index = text + "[^/]*", index + 1
        else:
            text, index = text + _plain(pattern[index]), index + 1
    return re.compile(text.rstrip("/") + r"(?:/.*)?\Z", re.DOTALL)


def _plain(text: str) -> str:
    return "".join("[^/]" if char == "?" else re.escape(char) for char in text)


def _find(
    patterns: Sequence[str], folders: Folders, target: Path, end: float
) -> Iterator[Tuple[Path, str, str, int]]:
    """(folder, file below it, the file's real path, bytes) of every match, each file once.

    Paths are texts here, since there may be a hundred thousand. What is no link has its folder's real path.
    """
    inodes: Set[Tuple[int, int]] = set()
    for base, pattern in _places(patterns, folders):
        expression, root = matcher(pattern), os.path.realpath(base)
        start = len(str(base).rstrip("/")) + 1
        for folder, names in _walk(base / _literal_prefix(pattern), target, end):
            real_folder = os.path.realpath(folder)
            for name in names:
                path = os.path.join(folder, name)  # noqa: PTH118
                if not expression.match(path[start:]):
                    continue
                real = os.path.join(real_folder, name)  # noqa: PTH118
                real = os.path.realpath(path) if os.path.islink(path) else real  # noqa: PTH114
                info = _regular(real, root)
                if info is not None and (info.st_dev, info.st_ino) not in inodes:
                    inodes.add((info.st_dev, info.st_ino))
                    yield base, path[start:], real, info.st_size


def _places(patterns: Sequence[str], folders: Folders) -> Iterator[Tuple[Path, str]]:
    for pattern in patterns:
        if pattern.startswith("/"):
            fixed = Path("/") / _literal_prefix(pattern[1:])
            base = fixed if fixed.is_dir() and fixed != Path("/") else fixed.parent
            yield base, pattern[len(str(base).rstrip("/")) + 1 :]
        elif ".." not in Path(pattern).parts:
            for base in folders.existing():
                yield base, pattern


def _literal_prefix(pattern: str) -> str:
    """The leading parts of a pattern that hold no wildcard: where the walk starts."""
    parts: List[str] = []
    for part in pattern.split("/"):
        if any(char in part for char in "*?"):
            break
        parts.append(part)
    return "/".join(parts)


def _walk(start: Path, target: Path, end: float) -> Iterator[Tuple[str, List[str]]]:
    """Folders, and the names of the files in each."""
    if not start.is_dir():
        yield str(start.parent), [start.name]
        return
    for folder, names, files in os.walk(start):
        if time.monotonic() > end:
            return
        # Never collect what was collected, nor links to folders: they may lead anywhere, or in circles.
        names[:] = sorted(name for name in names if Path(folder, name) != target)
        yield folder, sorted(files)


def _regular(real: str, root: str) -> Any:
    """The stat of a regular file whose real path is below the real path `root`; None for anything else."""
    if not real.startswith(root.rstrip("/") + "/"):
        return None
    try:
        info = os.stat(real)  # noqa: PTH116
    except OSError:
        return None
    return info if stat.S_ISREG(info.st_mode) else None


def _goal(base: Path, relative: str, target: Path, written: Set[Path]) -> Path:
    """Where the file goes: what another folder has under the same name does not replace it."""
    goal = target / relative
    if goal in written:
        goal = target / base.name / relative
    written.add(goal)
    return goal


def _copy(real: str, goal: Path, redactor: Redactor, source: str) -> Copied:
    digest = hashlib.sha256()
    size = 0
    with open(_open_regular(real), "rb") as file, replacing(goal, sync=False) as sink:
        for chunk in _clean(file.read, redactor):
            sink.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    return Copied(str(goal), size, digest.hexdigest(), source)


def _open_regular(path: str) -> int:
    """Open the real file; a link or FIFO that was put in its place meanwhile is refused. Raises: OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "not a regular file", path)
    return handle


def _clean(read: Any, redactor: Redactor) -> Iterator[bytes]:
    """The chunks of a file, secrets replaced when it is text."""
    stream = redactor.stream()
    chunk = read(CHUNK_BYTES)
    text = b"\0" not in chunk[:SNIFF_BYTES]
    while chunk:
        yield stream.feed(chunk) if text else chunk
        chunk = read(CHUNK_BYTES)
    yield stream.flush()


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(CHUNK_BYTES), b""):
            digest.update(chunk)
    return digest.hexdigest()


def redact_in_place(path: Path, redactor: Redactor) -> None:
    """Rewrite a text that its program wrote itself, when a secret is in it; up to 64 MiB."""
    try:
        info = path.stat()
        mode = stat.S_IMODE(info.st_mode) & 0o755
        if info.st_size > REDACT_BYTES:
            return
        data = path.read_bytes()
        if b"\0" in data[:SNIFF_BYTES]:
            return
    except OSError:
        return
    clean = redactor.clean(data)
    if clean != data:
        write_bytes(path, clean, mode)


def copy_ray_logs(temp_dir: Path, target: Path, redactor: Redactor, since: float = 0.0) -> None:
    """Ray's own logs, after a failure: their ends, the newest files first, before Ray's folder goes.

    Those that were written before `since` are of other runs.

    Ray still runs and turns its logs over. Whatever cannot be copied is left out: Ray is to be ended next.
    """
    logs: List[Tuple[float, int, Path]] = []
    with contextlib.suppress(OSError):
        for path in (temp_dir / "session_latest" / "logs").iterdir():
            info = _regular(os.path.realpath(path), os.path.realpath(path.parent))
            if info is not None and info.st_size and info.st_mtime >= since:
                logs.append((info.st_mtime, info.st_size, path))
    for _, size, path in sorted(logs, reverse=True)[:RAY_LOG_FILES]:
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(max(0, size - RAY_LOG_BYTES))
            write_bytes(target / path.name, redactor.clean(file.read(RAY_LOG_BYTES)))


def already_there(
    artifacts: Path, listed: Iterable[str], node: str, redactor: Redactor
) -> List[Dict[str, Any]]:
    """Manifest rows of files that the program itself wrote to `artifacts/`, redacted where they are.

    A file with a secret in its name gets another one: the manifest and every report would tell it.
    """
    known = set(listed)
    rows: List[Dict[str, Any]] = []
    for folder, _, names in list(os.walk(artifacts)):  # before any of them has another name
        for name in sorted(names):
            path = Path(folder, name)
            relative = path.relative_to(artifacts).as_posix()
            if relative in known or relative == "manifest.json" or path.is_symlink() or not path.is_file():
                continue
            try:
                path, relative = _renamed(artifacts, relative, redactor)
                redact_in_place(path, redactor)
                size, digest = path.stat().st_size, _sha256(path)
            except FileNotFoundError:
                continue  # what a command has left running still removes files
            rows.append({"path": relative, "bytes": size, "sha256": digest, "node": node, "source": ""})
    return rows


def _renamed(artifacts: Path, relative: str, redactor: Redactor) -> Tuple[Path, str]:
    path, clean = artifacts / relative, redactor.text(relative)
    if clean == relative:
        return path, relative
    goal = artifacts / clean
    if goal.exists() or len(os.fsencode(goal.name)) > MAX_NAME_BYTES:
        goal = goal.with_name(f"[redacted name {os.urandom(4).hex()}]")
        clean = goal.relative_to(artifacts).as_posix()
    goal.parent.mkdir(parents=True, exist_ok=True)
    path.rename(goal)
    with contextlib.suppress(OSError):  # other files are in it, which are renamed next
        path.parent.rmdir()
    return goal, clean
