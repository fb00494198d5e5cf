"""Brings a checkout of this machine to a cluster: commits as a bundle, edits as a patch, both checksummed.

A transfer that was cut off goes on where it ended: the files stay here until the copy is made there.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.finding import Finding, JobspecError
from jobspec.planning.git_bundle import Sealed, write_bundle
from jobspec.runtime.base import node_lock
from jobspec.runtime.checkouts.code_state import code_state
from jobspec.runtime.checkouts.git import all_submodules, git_state, resolve_ref

if TYPE_CHECKING:
    from jobspec.spec.find_site import Elsewhere

PARTS = "parts.json"
WAIT_S = 3600.0  # for another command that sends the same checkout


def bring(name: str, root: Path, target: str, far: Elsewhere, outbox: Path) -> None:
    """Make `target` on the cluster, like the checkout at `root`; one command at a time does so.

    Raises: JobspecError when it cannot be packed, sent, or made.
    """
    box = outbox / target.rpartition("/")[2]
    outbox.mkdir(parents=True, exist_ok=True)
    with node_lock.hold(f"{box}.lock", time.monotonic() + WAIT_S):
        (seen,) = far.ask({"look": [{"name": name, "target": target}]})["looked"]
        _stop(seen)
        if not seen["is_made"]:
            base = next((one for one in seen["bases"] if _is_known(root, one)), None)
            _bring(name, root, target, base, far, box)


def _bring(
    name: str, root: Path, target: str, base: Mapping[str, Any] | None, far: Elsewhere, box: Path
) -> None:
    parent, _, folder = target.rpartition("/")
    made = _packed(box, root, base)
    incoming = f"{parent}/.incoming/{folder}-{hashlib.sha256(json.dumps(made).encode()).hexdigest()[:12]}"
    for file in _files(made):
        far.send(box / file, f"{incoming}/{file}")
    code = code_state(str(root))
    order = {"name": name, "target": target, "incoming": incoming, "commit": code.commit}
    (answer,) = far.ask({"make": [{**order, "changes": code.changes, **made}]})["made"]
    _stop(answer)
    shutil.rmtree(box, ignore_errors=True)


def _stop(answer: Mapping[str, Any]) -> None:
    if answer.get("findings"):
        raise JobspecError(*(Finding.from_json(item) for item in answer["findings"]))


def _is_known(root: Path, base: Mapping[str, Any]) -> bool:
    head = base["heads"].get("")
    return bool(head) and resolve_ref(root, head) == head


def _packed(box: Path, root: Path, base: Mapping[str, Any] | None) -> dict[str, Any]:
    """The files in `box` for `root`: those of a transfer that was cut off, while their base is there."""
    path = base["path"] if base else ""
    try:
        made: dict[str, Any] = json.loads((box / PARTS).read_text())
        if made["base"] == path and all((box / file).is_file() for file in _files(made)):
            return made
    except (OSError, ValueError, KeyError):
        pass
    shutil.rmtree(box, ignore_errors=True)
    box.mkdir(parents=True)
    heads = base["heads"] if base else {}
    folders = ("", *all_submodules(str(root)))
    parts = [_part(box, at, root, folder, heads.get(folder, "")) for at, folder in enumerate(folders)]
    # Of this box alone: another machine that sends the same checkout has names of its own.
    made = {"base": path, "parts": parts, "box": secrets.token_hex(8)}
    (box / PARTS).write_text(json.dumps(made))
    return made


def _part(box: Path, index: int, root: Path, folder: str, base: str) -> dict[str, Any]:
    checkout = root / folder
    state = git_state(checkout)
    on_base = bool(base) and resolve_ref(checkout, base) == base
    bundle = write_bundle(checkout, box / f"{index}.bundle", [base] if on_base else [])
    patch = None
    if state.diff:
        (box / f"{index}.diff").write_bytes(state.diff)
        patch = Sealed(box / f"{index}.diff", state.diff_sha256)
    return {
        "folder": folder,
        "commit": state.commit,
        "on_base": on_base,
        "bundle": _named(bundle),
        "patch": _named(patch),
    }


def _named(file: Sealed | None) -> dict[str, str] | None:
    return {"name": file.path.name, "sha256": file.sha256} if file else None


def _files(made: Mapping[str, Any]) -> Iterator[str]:
    for part in made["parts"]:
        yield from (part[kind]["name"] for kind in ("bundle", "patch") if part[kind])
