"""What the names, sizes and headers of a source's files show to be wrong with it, before a byte is copied.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Callable, Iterable, Iterator, Sequence, Tuple

from jobspec.finding import Finding, error, warning
from jobspec.runtime.staging.hfcache import FileEntry, Listing, is_remote, matches_any, selected

# Bound on a safetensors header; the format's own limit (safetensors 0.8.0, `MAX_HEADER_SIZE`).
MAX_HEADER_BYTES = 100_000_000
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack")


ReadText = Callable[[FileEntry], str]


def _read_local(entry: FileEntry) -> str:
    with open(entry.path, encoding="utf-8") as stream:
        return stream.read()


def check_listing(
    listing: Listing,
    kind: str = "model",
    require: Sequence[str] = (),
    allow: Sequence[str] = (),
    ignore: Sequence[str] = (),
    read: ReadText = _read_local,
) -> Tuple[Finding, ...]:
    """Every fault that names, sizes and headers show; no file is read further than its header.

    `read` gives the text of an index or a required JSON file. Headers of files at a web address are not read.
    """
    names = {entry.name for entry in listing.files}
    findings = list(_check_names(listing, sorted(names), require, read))
    if not names and not listing.dangling:
        why = f"allow {list(allow)}, ignore {list(ignore)}" if allow or ignore else "the folder is empty"
        fix = "name the folder that holds the files, or correct the patterns"
        what = f"`{listing.root}` holds no file to stage"
        findings.insert(0, error("stage.empty", what, why, fix, file=listing.root))
    for entry in listing.files:
        if entry.name.endswith(".safetensors") and not is_remote(entry):
            findings.extend(check_safetensors(entry))
        elif entry.name.endswith(".safetensors.index.json"):
            findings.extend(_check_index(entry, names, allow, ignore, read))
    findings.extend(_check_incomplete(listing, kind, names, bool(findings)))
    return tuple(findings)


def _check_names(
    listing: Listing, names: Sequence[str], require: Sequence[str], read: ReadText
) -> Iterator[Finding]:
    for name in listing.dangling:
        path = os.path.join(listing.root, name)
        what = f"`{name}` is a link to a file that is not there"
        fix = "finish the download, or remove the link"
        yield error("stage.dangling", what, f"`{path}` -> `{_target(path)}`", fix, file=listing.root)
    for pattern in require:
        if not any(matches_any(name, [pattern]) for name in names):
            yield from _check_required(listing, names, pattern, read)


def _check_required(
    listing: Listing, names: Sequence[str], pattern: str, read: ReadText
) -> Iterator[Finding]:
    """Findings for a missing requirement: `FILE:KEY` needs a value in a JSON file, any other text a file."""
    name, colon, key = pattern.rpartition(":")
    entry = next((entry for entry in listing.files if colon and entry.name == name), None)
    if entry is None:
        why = f"`{listing.root}` holds {_some(names)}"
        fix = "complete the source, or correct require"
        yield error("stage.require", f"no file matches `{name or pattern}`", why, fix, file=listing.root)
        return
    try:
        data = json.loads(read(entry))
    except ValueError as problem:
        what = f"`{name}` is no JSON file, so it has no `{key}`"
        yield error("stage.require", what, str(problem), "correct require", file=entry.path)
        return
    if not (isinstance(data, dict) and data.get(key)):
        fix = "use a model that has it, or correct require"
        yield error("stage.require", f"`{name}` has no `{key}`", "", fix, file=entry.path)


def _check_incomplete(listing: Listing, kind: str, names: Iterable[str], faulty: bool) -> Iterator[Finding]:
    """An unfinished download is an error where something is missing, else it may be another revision's."""
    if not listing.incomplete:
        return
    weightless = kind == "model" and not any(name.endswith(WEIGHT_SUFFIXES) for name in names)
    make = error if faulty or weightless else warning
    yield make(
        "stage.incomplete",
        f"{len(listing.incomplete)} unfinished downloads: {_some(listing.incomplete)}",
        "a download to the source has not ended, or was cut off",
        "let it end, or repeat it; remove the `.incomplete` files if they are left over",
        file=listing.root,
    )


def check_safetensors(entry: FileEntry) -> Tuple[Finding, ...]:
    """A finding where the header is not one, or promises another size than the file has."""
    try:
        expected = safetensors_bytes(entry.path, entry.size)
    except ValueError as problem:
        return (_truncated(entry, str(problem)),)
    if expected != entry.size:
        return (_truncated(entry, f"its header promises {expected} bytes, the file has {entry.size}"),)
    return ()


def _truncated(entry: FileEntry, why: str) -> Finding:
    return error(
        "stage.corrupt",
        f"`{entry.name}` is not a whole safetensors file",
        why,
        "download the file again to shared storage",
        file=entry.path,
    )


def safetensors_bytes(path: str, size: int) -> int:
    """The size that a safetensors file must have by its header.

    Raises: ValueError saying what is wrong with the header; OSError.
    Source: safetensors 0.8.0, README "Format": u64 little endian length, JSON, data.
    """
    with open(path, "rb") as stream:
        if hasattr(os, "posix_fadvise"):  # a header is all that is wanted: read-ahead may be megabytes
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else -1
        if length < 0:
            raise ValueError(f"the file has {size} bytes, a header takes 8 or more")
        if length > min(MAX_HEADER_BYTES, size - 8):
            raise ValueError(f"its first 8 bytes promise a header of {length} bytes, the file has {size}")
        try:
            header = json.loads(stream.read(length))
            ends = [v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"]
            return 8 + int(length) + max((int(end) for end in ends), default=0)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise ValueError("its header is not the JSON of a safetensors file") from None


def _check_index(
    entry: FileEntry, names: Iterable[str], allow: Sequence[str], ignore: Sequence[str], read: ReadText
) -> Iterator[Finding]:
    folder = entry.name.rpartition("/")[0]
    try:
        shards = sorted(set(json.loads(read(entry))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        yield error(
            "stage.corrupt",
            f"`{entry.name}` is not a safetensors index",
            f"{type(problem).__name__}: {problem}",
            "name another `revision`" if is_remote(entry) else "download the file again to shared storage",
            file=entry.path,
        )
        return
    needed = [f"{folder}/{shard}" if folder else shard for shard in shards]
    missing = [name for name in needed if name not in set(names) and selected(name, allow, ignore)]
    if missing:
        yield error(
            "stage.shards",
            f"{len(missing)} of {len(needed)} shards are missing: {_some(missing)}",
            f"`{entry.name}` names them",
            "name another `revision`: this one of the hub is not whole"
            if is_remote(entry)
            else "finish the download to shared storage",
            file=entry.path,
        )


def _target(path: str) -> str:
    return os.readlink(path) if os.path.islink(path) else path


def _some(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return (shown or "nothing") + (f" and {len(names) - most} more" if len(names) > most else "")
