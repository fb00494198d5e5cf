"""The part of planning that runs on a cluster's login node: reads checkouts, and makes those sent to it.

A request and its answer are one JSON text each. Runs on Python 3.9 with the standard library: it arrives with
the request, beside the modules of `runtime.pyz`, and leaves nothing behind.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jobspec.finding import JobspecError, fail
from jobspec.planning.digests import file_digest, tree_digest
from jobspec.planning.git_bundle import Sealed, restore
from jobspec.runtime.base.safe_write import beside
from jobspec.runtime.checkouts.code_state import CodeState, code_state, unlike
from jobspec.runtime.checkouts.git import (
    GitState,
    all_submodules,
    git_in,
    git_state,
    is_private,
    resolve_ref,
    submodules,
)
from jobspec.runtime.staging import hfcache, image_cache
from jobspec.runtime.staging.listing_checks import check_listing

MAX_FILE_BYTES = 2 * 1024**2  # a larger file of a checkout is data
MAX_FILES_BYTES = 128 * 1024**2
MAX_FILES = 50_000
# What rules read of a model.
MODEL_TEXTS = ("config.json", "tokenizer_config.json", "chat_template.jinja")
NO_SOURCES = (
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
    ".svg",
    ".pdf",
    ".mp4",
    ".ipynb",
    ".whl",
    ".so",
    ".bin",
    ".pyc",
)


def main(request: str) -> str:
    """The answer to a request. A problem with one checkout is part of its answer."""
    asked = json.loads(request)
    answer = {
        "looked": [_answer(_look, one) for one in asked.get("look", ())],
        "inputs": [_answer(_input, one) for one in asked.get("inputs", ())],
        "made": [_answer(_make, one) for one in asked.get("make", ())],
        "images": [_answer(_bring_image, one) for one in asked.get("images", ())],
    }
    return json.dumps(answer)


def _answer(do: Any, one: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(do(one))
    except JobspecError as problem:
        return {"findings": [finding.to_json() for finding in problem.findings]}
    except OSError as problem:
        place, why = (
            problem.filename or one.get("path") or one.get("target"),
            problem.strerror or str(problem),
        )
        finding = fail("repo.elsewhere", f"`{place}` cannot be read or written", why, "check its permissions")
        return {"findings": [item.to_json() for item in finding.findings]}


def _look(one: Mapping[str, Any]) -> dict[str, Any]:
    """The checkout at `path`, with its files unless who asks `has` them; else whether `target` is there."""
    seen: dict[str, Any] = {"path": "", "why": "was not asked for"}
    if one.get("path"):
        path = os.path.abspath(os.path.expanduser(one["path"]))  # noqa: PTH100, PTH111 - a relative one is kept
        seen = {"path": path, "why": _why_not_there(path)}
    if not seen["why"]:
        return _read(one, seen)
    if one.get("target"):
        seen["is_made"] = _is_made(Path(one["target"]))
        seen["bases"] = [] if seen["is_made"] else list(_bases(Path(one["target"]), one["name"]))
    return seen


def _input(one: Mapping[str, Any]) -> dict[str, Any]:
    """An image, model or data set: whether it is there and whole, as a node will see it."""
    path = one["path"]
    if one["kind"] == "cache":
        images = image_cache.images(one["folder"], one["reference"], one["suffix"])
        return {"images": [{"image": asdict(image), "digest": file_digest(image.file)} for image in images]}
    try:
        os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {"why": "does not exist"}
    if one["kind"] == "image":
        return {"digest": file_digest(path)}
    if one["layout"] == "hf":
        listing = hfcache.list_hf(path, one["revision"], one["allow"], one["ignore"])
    else:
        listing = hfcache.list_plain(path, one["allow"], one["ignore"])
    found = check_listing(listing, one["kind"], one["require"], one["allow"], one["ignore"])
    small = {entry.name: entry for entry in listing.files if entry.size <= MAX_FILE_BYTES}
    texts = {
        name: Path(small[name].path).read_text("utf-8", "replace") for name in MODEL_TEXTS if name in small
    }
    return {
        "commit": listing.commit,
        "digest": tree_digest(path) if one["layout"] == "plain" else "",
        "findings": [finding.to_json() for finding in found],
        "texts": texts if one["kind"] == "model" else {},
    }


def _bring_image(one: Mapping[str, Any]) -> dict[str, Any]:
    """The image in the cache of this machine's site, imported by the programs of this machine."""
    from jobspec.planning.image_stage import ImageItem, bring_image
    from jobspec.planning.registry import Tag

    said: list[str] = []
    item = ImageItem(Tag(**one["tag"]), one["runtime"], one["folder"])
    brought = bring_image(item, one["timeout_s"], said.append)
    told = [finding.to_json() for finding in brought.findings]
    return {**asdict(brought), "findings": [], "told": told, "said": said}


def _is_made(target: Path) -> bool:
    """Whether the copy is there. Raises: JobspecError for another user's, which may hold anything."""
    if _is_own(target) and target.is_dir():
        return True
    if not os.path.lexists(target):
        return False
    raise fail(
        "repo.sync",
        f"`{target}` is no folder of yours",
        why="another user made it, and its code would run as you",
        fix="give the site profile a `paths.scratch` of your own, such as one with `${user}`",
    )


def _is_own(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def _read(one: Mapping[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    path = seen["path"]
    state, code = git_state(path), code_state(path)
    names = sorted(_names(path) if state.is_checkout else _walk(path))
    digest = _digest(path, names, state, code)
    seen.update(
        state={**asdict(state), "diff": base64.b64encode(state.diff).decode()},
        code=asdict(code),
        ref=resolve_ref(path, one["ref"]) if one.get("ref") else "",
        digest=digest,
    )
    if digest not in one.get("has", ()):
        seen["files"] = base64.b64encode(_packed(path, names)).decode()
    return seen


def _why_not_there(path: str) -> str:
    try:
        os.scandir(path).close()
    except (FileNotFoundError, ValueError):
        return "does not exist"
    except NotADirectoryError:
        return "is no folder"
    except OSError as problem:
        return f"cannot be read: {(problem.strerror or str(problem)).lower()}"
    return ""


def _bases(target: Path, name: str) -> Iterator[dict[str, Any]]:
    """The copies from before, newest first: a new one needs only what these lack."""
    folders = [path for path in target.parent.glob(f"{name}-*") if path.is_dir() and _is_own(path)]
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)[:5]:
        heads = {inner: resolve_ref(folder / inner, "HEAD") for inner in ("", *all_submodules(str(folder)))}
        yield {"path": str(folder), "heads": heads}


def _names(folder: str) -> Iterator[str]:
    """What git tracks or would add below `folder`, submodules included."""
    done = git_in(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    yield from (name for name in done.stdout.decode(errors="surrogateescape").split("\0") if name)
    for name in submodules(folder):
        yield from (f"{name}/{inner}" for inner in _names(f"{folder}/{name}"))


def _walk(folder: str) -> Iterator[str]:
    count = 0
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            count += 1
            if count > MAX_FILES:
                return
            yield os.path.relpath(f"{place}/{name}", folder)


def _digest(path: str, names: list[str], state: GitState, code: CodeState) -> str:
    """Names the content: of a checkout by commit and changes, of any other folder by its list of files."""
    rows = [path, state.commit, state.diff_sha256, code.changes_sha256]
    for name in () if state.is_checkout else names:
        facts = os.lstat(f"{path}/{name}")
        rows.append(f"{name} {facts.st_size} {facts.st_mtime_ns}")
    return hashlib.sha256("\0".join(rows).encode(errors="surrogateescape")).hexdigest()[:24]


def _packed(path: str, names: list[str]) -> bytes:
    """A zip archive of the text files; credentials stay where they are."""
    stream, total, root = io.BytesIO(), 0, os.path.realpath(path)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names[:MAX_FILES]:
            place = os.path.realpath(f"{path}/{name}")
            if is_private(name) or name.lower().endswith(NO_SOURCES) or not place.startswith(root + os.sep):
                continue
            if not os.path.isfile(place) or os.path.getsize(place) > MAX_FILE_BYTES:  # noqa: PTH113, PTH202
                continue
            total += os.path.getsize(place)  # noqa: PTH202
            if total > MAX_FILES_BYTES:
                what = f"the sources of `{path}` have more than {MAX_FILES_BYTES // 1024**2} MiB"
                raise fail("repo.elsewhere", what, fix="name a smaller checkout, or submit on the cluster")
            shown = name.encode(errors="surrogateescape").decode(errors="replace")
            entry = zipfile.ZipInfo(shown)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, Path(place).read_bytes())
    return stream.getvalue()


def _make(one: Mapping[str, Any]) -> dict[str, Any]:
    """The checkout `target` out of the files in `incoming`: all of it, as it was sent, or nothing."""
    target, incoming = Path(one["target"]), Path(one["incoming"])
    scratch = beside(target)
    try:
        if _is_made(target):  # by another command, meanwhile
            shutil.rmtree(incoming, ignore_errors=True)
            return {"target": str(target)}
        for part in one["parts"]:
            base = f"{one['base']}/{part['folder']}" if part["on_base"] else ""
            files = [_sealed(incoming, part[kind]) for kind in ("bundle", "patch")]
            restore(base, scratch / part["folder"], part["commit"], *files)
        other = unlike(one["commit"], one["changes"], str(scratch))
        if other:
            what = f"the copy of `{one['name']}` is not like the checkout: {other}"
            raise fail("repo.sync", what, fix="commit these files or let git ignore them")
        try:
            scratch.rename(target)
        except OSError:
            if not _is_made(target):
                raise
    except JobspecError:
        shutil.rmtree(incoming, ignore_errors=True)  # a damaged file must not be continued
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    shutil.rmtree(incoming, ignore_errors=True)
    return {"target": str(target)}


def _sealed(folder: Path, file: Mapping[str, str]) -> Sealed | None:
    return Sealed(folder / file["name"], file["sha256"]) if file else None
