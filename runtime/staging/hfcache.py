"""Reads the Hugging Face hub cache layout and plain folders.

This module only reads: `listing_checks` finds what is wrong with a listing, `transfer` copies, `publish`
publishes. Standard library only, Python 3.9.

Layout: `models--org--name/{refs/<branch>,snapshots/<commit>/<file>,blobs/<etag>}`; a snapshot's files are
links to blobs, and a blob's name is the sha256 of an LFS file or the git blob sha1 of any other.
Source: huggingface_hub 2.4.0, "Understand caching"; git-hash-object(1) for the blob hash.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, List, Sequence, Tuple

from jobspec.finding import fail
from jobspec.plan import StagePlan
from jobspec.runtime.staging.hashing import UNKNOWN, expected_hash

_COMMIT_PREFIX = re.compile(r"[0-9a-f]{4,40}\Z")


@dataclass(frozen=True)
class FileEntry:
    """One file of a source. `digest` is what its bytes must hash to, empty where nothing says so.

    `name` is relative with `/`; `path` is where the bytes are, links resolved, or their web address.
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

    def key(self, entry: FileEntry) -> str:
        """The key of a copied file: in a cache folder its hash, which two names may share, else its name."""
        return entry.digest if self.repo_folder and entry.digest else entry.name


def is_remote(entry: FileEntry) -> bool:
    """Whether the bytes are at a web address."""
    return entry.path.startswith(("http://", "https://"))


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
    """Raise what os.walk and os.path.isdir hide: they take a forbidden folder for an empty one."""
    if not isinstance(problem, FileNotFoundError):
        raise problem


def resolve_revision(repo: str, revision: str = "") -> str:
    """The commit that `revision` names in the cache folder `repo`.

    `revision` is a name in `refs`, a full commit, or a prefix that only one snapshot has; empty means
    `main`, or the only snapshot there is. Raises: JobspecError naming what is there; OSError.
    """
    commits = sorted(os.listdir(os.path.join(repo, "snapshots"))) if "snapshots" in os.listdir(repo) else []
    refs = read_refs(repo)
    target = refs.get(revision or "main", revision)
    if not target and len(commits) == 1:
        return commits[0]
    matches = [c for c in commits if c == target]
    if not matches and _COMMIT_PREFIX.match(target):
        matches = [c for c in commits if c.startswith(target)]
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
        + (f"; the ref names {target}, whose snapshot is missing" if target in refs.values() else ""),
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


def list_source(item: StagePlan) -> Listing:
    """What an item takes of its source on shared storage. Raises: JobspecError; OSError."""
    if item.layout == "hf":
        return list_hf(item.source, item.revision, item.allow, item.ignore)
    return list_plain(item.source, item.allow, item.ignore)


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
