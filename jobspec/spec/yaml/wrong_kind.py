"""What a file is that was given as something else: one finding, instead of one about every key in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobspec.finding import Finding, error
from jobspec.spec.schema import Kind, root_shape

RULE = "spec.kind"
WORDS: dict[Kind, str] = {"job": "job spec", "cluster": "site profile"}
# Keys that say what a file is where few others stand in it.
_NAMING: dict[Kind, str] = {"job": "framework", "cluster": "scheduler"}
_PLAN = frozenset({"framework", "scheduler", "commands", "proofs"})  # of `plan.json`
_INSTEAD: dict[Kind, str] = {
    "job": "name a job spec as SPEC; a site profile is given by `--cluster NAME` or `--cluster-file FILE`",
    "cluster": "name a site profile (`jobspec cluster list` shows them); a job spec is given as SPEC",
}
_START: dict[Kind, str] = {
    "job": "name a job spec; `jobspec init` writes one to start from",
    "cluster": "name a site profile; see docs/sites.md",
}


def mistaken(data: Mapping[str, Any], kind: Kind, name: str) -> Finding | None:
    """A finding about a file that is no `kind` at all; None for one that is, however wrong it may be."""
    other: Kind = "cluster" if kind == "job" else "job"
    keys = frozenset(data)
    here, there = _keys_of(kind), _keys_of(other)
    if keys >= _PLAN:
        what = "this is the plan of a run, made from a spec"
        return _found(kind, name, what, "", "name `spec.yaml` or `spec.lock.yaml` of that folder")
    if _looks_like(other, keys, here, there):
        told = ", ".join(f"`{key}`" for key in data if key in there - here)
        what = f"this is a {WORDS[other]}, and a {WORDS[kind]} is wanted"
        return _found(kind, name, what, f"it has {told}, which only a {WORDS[other]} has", _INSTEAD[kind])
    if len(keys) > 1 and not keys & here:
        first = ", ".join(f"`{key}`" for key in list(data)[:4])
        why = f"it has {first}{' and more' if len(keys) > 4 else ''}"
        what = f"this is no {WORDS[kind]}: none of its {len(keys)} keys is a key of one"
        return _found(kind, name, what, why, _START[kind])
    return None


def _looks_like(other: Kind, keys: frozenset[str], here: frozenset[str], there: frozenset[str]) -> bool:
    """Whether keys that only the other kind has are the only ones that tell the two apart.

    One such key may be a slip in a file that has little else, unless it is the one that names the kind.
    """
    only_there = keys & (there - here)
    if keys & (here - there):
        return False
    return len(only_there) > 1 or _NAMING[other] in only_there


def _keys_of(kind: Kind) -> frozenset[str]:
    return frozenset(root_shape(kind).properties or {})


def _found(kind: Kind, name: str, what: str, why: str, fix: str) -> Finding:
    return error(RULE, what, why, fix, file=name)


def binary(kind: Kind, name: str) -> Finding:
    """The finding about a file that is no text, whose first wrong byte would tell nobody anything."""
    return error("spec.encoding", "the file is binary", fix=_START[kind], file=name)
