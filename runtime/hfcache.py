"""Reads the Hugging Face hub cache layout and plain folders, and says what is wrong with them.

Only reading: copying is `transfer`, publishing is `stage`. Standard library only, Python 3.9.

Layout: `models--org--name/{refs/<branch>,snapshots/<commit>/<file>,blobs/<etag>}`; a snapshot's files are
links to blobs, and a blob's name is the sha256 of an LFS file or the git blob sha1 of any other.
Source: huggingface_hub 2.4.0, "Understand caching"; git-hash-object(1) for the blob hash.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import stat
import struct
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from jobspec.finding import Finding, error, fail, warning

SHA256 = "sha256"
GIT_SHA1 = "git-sha1"
UNKNOWN = ""

# Bound on a safetensors header; the format's own limit (safetensors 0.8.0, `MAX_HEADER_SIZE`).
MAX_HEADER_BYTES = 100_000_000
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack")
_SHA256_NAME = re.compile(r"[0-9a-f]{64}\Z")
_SHA1_NAME = re.compile(r"[0-9a-f]{40}\Z")
_COMMIT_PREFIX = re.compile(r"[0-9a-f]{4,40}\Z")


@dataclass(frozen=True)
class FileEntry:
    """One file of a source. `digest` is what its bytes must hash to, empty where nothing says so.

    `name` is relative with `/`; `path` is where the bytes are, links resolved.
    """

    name: str
    path: str
    size: int
    mtime_ns: int
    mode: int
    algorithm: str = UNKNOWN
    digest: str = ""


@dataclass(frozen=True)
class Listing:
    """What a source holds. `commit` and `refs` are empty for a plain folder or file.

    `root` is the folder that the names are relative to; `single` marks a source that is one file.
    `refs` are the names that point to `commit`. `dangling` are names whose bytes are not there.
    """

    root: str
    files: Tuple[FileEntry, ...]
    commit: str = ""
    refs: Tuple[str, ...] = ()
    repo_folder: str = ""
    single: bool = False
    dangling: Tuple[str, ...] = ()
    incomplete: Tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self.files)


def new_hash(algorithm: str, size: int) -> Any:
    """A hash object for `algorithm`, fed with git's blob header where that is part of the hash."""
    if algorithm == GIT_SHA1:
        return hashlib.sha1(b"blob %d\0" % size)
    return hashlib.sha256()


def hash_file(path: str, algorithm: str = SHA256, chunk_bytes: int = 256 << 10) -> str:
    """The hex digest of a file's bytes. Raises: OSError."""
    with open(path, "rb", buffering=0) as stream:
        state = new_hash(algorithm, os.fstat(stream.fileno()).st_size)
        for chunk in iter(lambda: stream.read(chunk_bytes), b""):
            state.update(chunk)
    return str(state.hexdigest())


def expected_hash(blob_name: str) -> Tuple[str, str]:
    """(algorithm, digest) that a blob's name promises; two empty strings for any other name."""
    if _SHA256_NAME.match(blob_name):
        return SHA256, blob_name
    if _SHA1_NAME.match(blob_name):
        return GIT_SHA1, blob_name
    return UNKNOWN, ""


def repo_folder_name(repo_id: str, kind: str = "model") -> str:
    """`models--org--name` for `org/name`."""
    return "--".join([kind + "s", *repo_id.split("/")])


def read_refs(repo: str) -> Dict[str, str]:
    """Branch or tag name -> commit. Names may contain `/` (`refs/pr/1`)."""
    root = os.path.join(repo, "refs")
    refs = {}
    for folder, _, names in os.walk(root, onerror=_raise_unless_absent):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as stream:
                refs[os.path.relpath(path, root).replace(os.sep, "/")] = stream.read().strip()
    return refs


def _raise_unless_absent(problem: OSError) -> None:
    """os.walk and os.path.isdir take a forbidden folder for an empty one: a wrong thing to report."""
    if not isinstance(problem, FileNotFoundError):
        raise problem


def resolve_revision(repo: str, revision: str = "") -> str:
    """The commit that `revision` names in the cache folder `repo`.

    `revision` is a name in `refs`, a full commit, or a prefix that only one snapshot has; empty means
    `main`, or the only snapshot there is. Raises: JobspecError naming what is there; OSError.
    """
    commits = sorted(os.listdir(os.path.join(repo, "snapshots"))) if "snapshots" in os.listdir(repo) else []
    refs = read_refs(repo)
    wanted = refs.get(revision or "main", revision)
    if not wanted and len(commits) == 1:
        return commits[0]
    matches = [c for c in commits if c == wanted]
    if not matches and _COMMIT_PREFIX.match(wanted):
        matches = [c for c in commits if c.startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    have = (
        ", ".join([f"{name} -> {commit[:12]}" for name, commit in sorted(refs.items())] + commits)
        or "nothing"
    )
    if len(matches) > 1:
        raise fail(
            "stage.revision",
            f"revision `{revision}` of `{repo}` names {len(matches)} snapshots",
            f"it begins {', '.join(matches)}",
            "write more digits of the commit",
        )
    raise fail(
        "stage.revision",
        f"revision `{revision or 'main'}` is not in `{repo}`",
        f"the cache has {have}"
        + (f"; the ref names {wanted}, whose snapshot is missing" if wanted in refs.values() else ""),
        "name one of these, or download the revision to shared storage first (`jobspec stage SPEC`)",
    )


def selected(name: str, allow: Sequence[str], ignore: Sequence[str]) -> bool:
    """Whether a file takes part: in `allow` (or that is empty) and not in `ignore`. Case counts."""
    if allow and not matches_any(name, allow):
        return False
    return not matches_any(name, ignore)


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """fnmatch on the whole relative name, as huggingface_hub does; `dir/` means everything below."""
    return any(fnmatch.fnmatchcase(name, p + "*" if p.endswith("/") else p) for p in patterns)


def list_hf(repo: str, revision: str = "", allow: Sequence[str] = (), ignore: Sequence[str] = ()) -> Listing:
    """The selected files of one snapshot with the hashes that they must have.

    Raises: JobspecError for an unknown revision; OSError where the folder cannot be read.
    """
    commit = resolve_revision(repo, revision)
    root = os.path.join(repo, "snapshots", commit)
    files, dangling = _collect(root, allow, ignore, hashes=True)
    refs = tuple(sorted(name for name, target in read_refs(repo).items() if target == commit))
    incomplete = _incomplete(os.path.join(repo, "blobs"))
    return Listing(
        root, files, commit, refs, os.path.basename(os.path.normpath(repo)), False, dangling, incomplete
    )


def list_plain(source: str, allow: Sequence[str] = (), ignore: Sequence[str] = ()) -> Listing:
    """The selected files of a folder, or the one file that `source` is. Raises: OSError."""
    info = os.stat(source)
    if stat.S_ISREG(info.st_mode):
        name = os.path.basename(source)
        return Listing(os.path.dirname(source), (_entry(name, source, info, False),), single=True)
    files, dangling = _collect(source, allow, ignore, hashes=False)
    return Listing(source, files, dangling=dangling, incomplete=_incomplete(source))


def _collect(
    root: str, allow: Sequence[str], ignore: Sequence[str], hashes: bool
) -> Tuple[Tuple[FileEntry, ...], Tuple[str, ...]]:
    files: List[FileEntry] = []
    dangling: List[str] = []
    for name, path in _walk(root):
        if not selected(name, allow, ignore):
            continue
        try:
            info = os.stat(path)
        except FileNotFoundError:
            dangling.append(name)
            continue
        if not stat.S_ISREG(info.st_mode):
            raise fail(
                "stage.not-a-file",
                f"`{path}` is neither a file nor a folder",
                "only files can be staged",
                f"remove it, or list `{name}` under ignore",
            )
        files.append(_entry(name, path, info, hashes))
    return tuple(files), tuple(dangling)


def _walk(root: str, prefix: str = "", above: Tuple[Tuple[int, int], ...] = ()) -> Iterator[Tuple[str, str]]:
    """(relative name, path) of everything that is not a folder, links to folders followed, sorted.

    `.git`, huggingface_hub's own `.cache` and unfinished downloads are no part of a model.
    """
    info = os.stat(root)
    here = (info.st_dev, info.st_ino)
    if here in above:
        raise fail(
            "stage.link-loop", f"`{root}` links back to a folder that contains it", "", "remove the link"
        )
    with os.scandir(root) as scan:
        entries = sorted(scan, key=lambda entry: entry.name)
    for entry in entries:
        name = prefix + entry.name
        if entry.is_dir():
            if entry.name != ".git" and name != ".cache":
                yield from _walk(entry.path, name + "/", (*above, here))
        elif not entry.name.endswith(".incomplete"):
            yield name, entry.path


def _entry(name: str, path: str, info: os.stat_result, hashes: bool) -> FileEntry:
    algorithm, digest = expected_hash(_blob_name(path)) if hashes else (UNKNOWN, "")
    return FileEntry(
        name, os.path.realpath(path), info.st_size, info.st_mtime_ns, info.st_mode, algorithm, digest
    )


def _blob_name(path: str) -> str:
    """The name that a snapshot's link gives to its blob: the first link into a `blobs` folder.

    The blob may itself be a link (stores that share blobs): its own name is the promise, not the target's.
    """
    for _ in range(8):
        if not os.path.islink(path):
            return ""
        path = os.path.join(os.path.dirname(path), os.readlink(path))
        if os.path.basename(os.path.dirname(path)) == "blobs":
            return os.path.basename(path)
    return ""


def _incomplete(folder: str) -> Tuple[str, ...]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return ()
    return tuple(sorted(name for name in names if name.endswith(".incomplete")))


def check_listing(
    listing: Listing,
    kind: str = "model",
    require: Sequence[str] = (),
    allow: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Tuple[Finding, ...]:
    """Every fault that names, sizes and headers show; no file is read further than its header."""
    names = {entry.name for entry in listing.files}
    findings = list(_check_names(listing, sorted(names), require))
    if not names and not listing.dangling:
        why = f"allow {list(allow)}, ignore {list(ignore)}" if allow or ignore else "the folder is empty"
        fix = "name the folder that holds the files, or correct the patterns"
        what = f"`{listing.root}` holds no file to stage"
        findings.insert(0, error("stage.empty", what, why, fix, file=listing.root))
    for entry in listing.files:
        if entry.name.endswith(".safetensors"):
            findings.extend(check_safetensors(entry))
        elif entry.name.endswith(".safetensors.index.json"):
            findings.extend(_check_index(entry, names, allow, ignore))
    findings.extend(_check_incomplete(listing, kind, names, bool(findings)))
    return tuple(findings)


def _check_names(listing: Listing, names: Sequence[str], require: Sequence[str]) -> Iterator[Finding]:
    for name in listing.dangling:
        path = os.path.join(listing.root, name)
        what = f"`{name}` is a link to a file that is not there"
        fix = "finish the download, or remove the link"
        yield error("stage.dangling", what, f"`{path}` -> `{_target(path)}`", fix, file=listing.root)
    for pattern in require:
        if not any(matches_any(name, [pattern]) for name in names):
            why = f"`{listing.root}` holds {_some(names)}"
            fix = "complete the source, or correct require"
            yield error("stage.require", f"no file matches `{pattern}`", why, fix, file=listing.root)


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
        return (_truncated(entry, f"its header promises {expected} bytes, it has {entry.size}"),)
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
            raise ValueError(f"it has {size} bytes, a header takes 8 or more")
        if length > min(MAX_HEADER_BYTES, size - 8):
            raise ValueError(f"its first 8 bytes promise a header of {length} bytes, the file has {size}")
        try:
            header = json.loads(stream.read(length))
            ends = [v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"]
            return 8 + int(length) + max((int(end) for end in ends), default=0)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise ValueError("its header is not the JSON of a safetensors file") from None


def _check_index(
    entry: FileEntry, names: Iterable[str], allow: Sequence[str], ignore: Sequence[str]
) -> Iterator[Finding]:
    folder = entry.name.rpartition("/")[0]
    try:
        with open(entry.path, encoding="utf-8") as stream:
            shards = sorted(set(json.load(stream)["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        yield error(
            "stage.corrupt",
            f"`{entry.name}` is not a safetensors index",
            f"{type(problem).__name__}: {problem}",
            "download the file again to shared storage",
            file=entry.path,
        )
        return
    wanted = [f"{folder}/{shard}" if folder else shard for shard in shards]
    missing = [name for name in wanted if name not in set(names) and selected(name, allow, ignore)]
    if missing:
        yield error(
            "stage.shards",
            f"{len(missing)} of {len(wanted)} shards are missing: {_some(missing)}",
            f"`{entry.name}` names them",
            "finish the download to shared storage",
            file=entry.path,
        )


def verify(entry: FileEntry) -> Optional[Finding]:
    """None, or the finding where the bytes at `entry.path` do not hash to what its name promises."""
    if not entry.digest:
        return None
    found = hash_file(entry.path, entry.algorithm)
    return None if found == entry.digest else corrupt(entry, found)


def corrupt(entry: FileEntry, found: str) -> Finding:
    """The finding for bytes that are not what the cache's blob name promises."""
    return error(
        "stage.corrupt",
        f"`{entry.name}` does not hold the bytes that its name in the cache promises",
        f"expected {entry.algorithm} {entry.digest}, found {found} ({entry.size} bytes)",
        "delete the blob and download the file again to shared storage",
        file=entry.path,
    )


def _target(path: str) -> str:
    return os.readlink(path) if os.path.islink(path) else path


def _some(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return (shown or "nothing") + (f" and {len(names) - most} more" if len(names) > most else "")
