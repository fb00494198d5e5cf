"""Finds the logs below a path, compressed ones too, for runs that jobspec did not launch.

The folder may have any shape: names without a suffix, rotated and compressed logs, links in circles, binary
junk, unreadable files. A finding names each file or folder that is left out though it may hold evidence.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from jobspec.evidence.read import CHECKPOINT_NAME
from jobspec.finding import Finding, warning
from jobspec.runtime.base.run_files import open_file
from jobspec.triage.gunzip import Budget, Gunzip, left_out

# `x.log`, `x.log.1`, `run.log.mcore_1step`, `x.err.gz`, `slurm-7.out`, PBS' `x.o123`, `stdout`, `driver`;
# others are data.
LOG_NAME = re.compile(
    r"(?:\.log(?:[.-](?!gz$|jsonl?$|ya?ml$)\w+)*|\.(?:out|err|txt|stdout|stderr|[oe]\d+)(?:[.-]\d+)*|(?:^|/)[^.]+(?:\.\d+)?)(?:\.gz)?$",
    re.IGNORECASE,
)
OTHER_NAMES = re.compile(
    r"^(?:licen[cs]e|readme|makefile|dockerfile|requirements.*|events\.out\.tfevents.*)$", re.I
)
SNIFF_BYTES = 8192
MAX_CONTROL_SHARE = 0.05  # of the first bytes; progress bars and colours use a few
TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b\x00")  # NUL: a log that was truncated while open starts with them
MAX_NUL_SHARE = 0.3
CHUNK = 1024**2


@dataclass(frozen=True)
class FoundLog:
    """A log: `path` holds its text, `name` is for people. A compressed log has its text elsewhere."""

    path: Path
    name: str


def find_logs(place: Path, unpack_to: Path) -> tuple[list[FoundLog], list[Finding]]:
    """Logs at or below `place`, by name; compressed ones are unpacked below `unpack_to`. Never raises."""
    problems: list[Finding] = []
    root = place if place.is_dir() else place.parent
    candidates = _walk(place, problems) if place.is_dir() else iter((place,))
    budget = Budget()
    logs: dict[tuple[int, int], FoundLog] = {}
    for path in candidates:
        name = path.relative_to(root).as_posix()
        log = _as_log(path, name, unpack_to, problems, budget, named=path == place)
        if log is not None:
            stat = path.stat()
            logs.setdefault((stat.st_dev, stat.st_ino), log)  # once, however many links lead to it
    return sorted(logs.values(), key=lambda item: item.name), problems


def _walk(folder: Path, problems: list[Finding]) -> Iterator[Path]:
    """Files by name, outside hidden folders and checkpoints; links to folders are not followed."""

    def unreadable(why: OSError) -> None:
        problems.append(_not_read(Path(why.filename or folder), folder, why))

    for base, folders, names in os.walk(folder, onerror=unreadable):
        for name in sorted(folders):
            if Path(base, name).is_symlink() and not _leads_into(Path(base, name), folder):
                problems.append(_link(Path(base, name), folder))
        folders[:] = sorted(n for n in folders if not n.startswith(".") and not CHECKPOINT_NAME.match(n))
        yield from (Path(base, name) for name in sorted(names) if LOG_NAME.search(name))


def _as_log(
    path: Path, name: str, unpack_to: Path, problems: list[Finding], budget: Budget, named: bool
) -> FoundLog | None:
    if not path.is_file() or (not named and OTHER_NAMES.match(path.name)):
        return None
    try:
        if path.suffix.lower() == ".gz":
            return _unpacked(path, name, unpack_to, problems, budget)
        with open_file(path) as stream:
            head = stream.read(SNIFF_BYTES)
    except OSError as why:
        problems.append(_not_read(path, path.parents[name.count("/")], why))
        return None
    return FoundLog(path, name) if is_text(head) else None


def _unpacked(
    path: Path, name: str, unpack_to: Path, problems: list[Finding], budget: Budget
) -> FoundLog | None:
    """The unpacked log; of a torn log the text before the tear. None for data that is no text."""
    target = unpack_to / name.removesuffix(path.suffix)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as text:
        try:
            with open_file(path) as packed, Gunzip(packed, budget) as stream:
                # `read1`: what comes before a tear must not be lost.
                while chunk := stream.read1(CHUNK):
                    text.write(chunk)
                problems += left_out(cast(BinaryIO, stream), name)
        except (OSError, EOFError, zlib.error) as why:
            problems.append(_not_read(path, path.parents[name.count("/")], why))
    with target.open("rb") as stream:
        head = stream.read(SNIFF_BYTES)
    return FoundLog(target, name) if head and is_text(head) else None


def is_text(head: bytes) -> bool:
    """Whether a file that starts with `head` is readable text; an empty file is."""
    if not head:
        return True
    controls = sum(byte < 32 and byte not in TEXT_CONTROLS for byte in head)
    undecodable = head.decode("utf-8", "replace").count("\ufffd")
    few_nul = head.count(0) <= MAX_NUL_SHARE * len(head) or not head.strip(b"\0")
    return few_nul and controls + undecodable <= MAX_CONTROL_SHARE * len(head) + 1


def _not_read(path: Path, root: Path, why: Exception) -> Finding:
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    reason = getattr(why, "strerror", None) or str(why) or type(why).__name__
    fix = "make the file readable; until then its content counts as not proved"
    return warning("judge.unreadable", f"`{name}` cannot be read in full", reason, fix, file=name)


def _leads_into(link: Path, folder: Path) -> bool:
    """Whether a link leads to a part of `folder`, which is read anyway, such as wandb's `latest-run`."""
    try:
        return link.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a circle of links
        return False


def _link(path: Path, root: Path) -> Finding:
    name = path.relative_to(root).as_posix()
    fix = "judge the target folder if the run's files are there"
    why = "a link may lead in a circle or to another run"
    return warning("judge.link", f"`{name}` is a link to a folder and was not followed", why, fix, file=name)
