"""Files of a checkpoint that only a listing names: `ls -l`, `ls -R`, `find`, `du`, `tree`, kept as a text.

People copy logs and small files of a run, and what `ls` says of the weights. A listing shows names, and often
sizes; it shows no content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Checkpoint, Evidence

MAX_LISTING = 64 * 1024
NAMES = ("*.txt", "*.lst", "ls*", "listing*", "files*", "find*", "tree*")
HEADING = re.compile(r"(?:^|\s)ls (?:.* )?(\S+)$|^(\S+):$")
INSIDE = re.compile(r"(?!/|~|\.\.|(?:\./)?checkpoint-\d)")  # a heading of a folder's own `ls -R`, below it
MODE = re.compile(r"[-dl][rwxsStT-]{2,9}[.+@]?$")  # of `ls -l`, `find -ls`
NUMBER = re.compile(r"[\d.,:+TZ-]+[KMGTkB]?(?:iB|B)?$")  # sizes, dates, times
LONG = re.compile(r"(?:^|\s)[-dl][rwxsStT-]{9}[.+@]?\s+\d+\s+\S+\s+\S+\s+(\d\S*)\s")
BRANCH = re.compile(r"^[\s│|]*[├└|`+][─-]{1,3}\s+")  # of `tree`


@dataclass(frozen=True)
class Listing:
    """The file that holds it, and the files of one checkpoint that it names and does not call empty."""

    name: str = ""
    files: tuple[str, ...] = ()


def with_listed(evidence: Evidence, saved: Checkpoint) -> tuple[Checkpoint, Listing]:
    """The checkpoint with files that a listing in its folder or above it names; and the listing."""
    for path in _texts(evidence.root, Path(saved.path)):
        with suppress(OSError):
            with path.open("rb") as file:  # any text may lie beside a run, such as a whole log
                text = file.read(MAX_LISTING).decode("utf-8", "replace")
            folder = Path(saved.path)
            own = path.parent == folder or path.stem.endswith(folder.name)
            files = tuple(sorted({*_files(text, folder, own)} - {*saved.files}))
            if files:
                whole = tuple(sorted((*saved.files, *files)))
                return replace(saved, files=whole), Listing(path.name, files)
    return saved, Listing()


def only_listed(saved: Checkpoint, listing: Listing) -> str:
    """The limitation of what rests on a listing."""
    return (
        f"that `{Path(saved.path).name}` is whole rests on `{listing.name}`:"
        " jobspec did not see all its files"
    )


def _texts(root: Path, folder: Path) -> Iterator[Path]:
    """The texts that may be listings: in the checkpoint's folder, then in each above it up to the run's."""
    names = (*NAMES, f"{folder.name}.*")
    for place in (folder, *(above for above in folder.parents if above.is_relative_to(root))):
        yield from sorted({path for name in names for path in place.glob(name) if path.is_file()})


def _files(text: str, folder: Path, own: bool) -> Iterable[str]:
    """The files of the folder; of several of its name in the listing those whose parent has its parent's."""
    found: dict[str, list[str]] = {}
    for parent, file in _named(text, folder.name, own):
        found.setdefault(PurePosixPath(parent).name, []).append(file)
    return next(iter(found.values())) if len(found) == 1 else found.get(folder.parent.name, [])


def _named(text: str, folder: str, own: bool) -> Iterator[tuple[str, str]]:
    """(path above the folder, file in it) of each line that lists a file which is not empty."""
    above, below, depth = "", "" if own else None, 0
    for raw in text.splitlines():
        line, branch = raw.strip(), BRANCH.match(raw)
        if head := None if branch else HEADING.search(line):
            place = head[1] or head[2]
            above, below = _split(place, folder)
            if below is None and own and INSIDE.match(place):
                below = str(PurePosixPath(place))
            continue
        if not line:
            below = "" if own else None
            continue
        name = _listed(line[len(branch[0].lstrip()) :] if branch else line)
        if branch and depth and len(branch[0]) <= depth:
            below, depth = None, 0
        if branch and name.rstrip("/") == folder:
            above, below, depth = "", "", len(branch[0])
        elif folder in PurePosixPath(name).parts[:-1]:
            before, inner = _split(name, folder)
            yield before, inner or ""
        elif name and below is not None:
            yield above, str(PurePosixPath(below, name)) + "/" * name.endswith("/")


def _split(path: str, folder: str) -> tuple[str, str | None]:
    """What stands before the folder in a path, and behind it; None where it does not name the folder."""
    parts = PurePosixPath(path).parts
    if folder not in parts:
        return "", None
    at = parts.index(folder)
    return "/".join(parts[:at]), "/".join(parts[at + 1 :])


def _listed(line: str) -> str:
    """The file that a line of a listing names; "" for other lines, and for a file of no bytes."""
    words = re.sub(r"[][]", " ", line.split(" -> ")[0]).split() or [""]
    name, others = (words[0], words[1:]) if NUMBER.match(words[-1]) else (words[-1], words[:-1])
    if name == "total" or (not all(map(NUMBER.match, others)) and not any(map(MODE.match, others))):
        return ""
    size = LONG.search(line)
    shown = size[1] if size else others[0] if len(others) == 1 else ""
    return "" if shown == "0" else name
