"""One finding about a file of another kind, instead of one about each of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobspec.finding import Finding, error
from jobspec.spec.schema import Kind, root_shape

RULE = "spec.kind"
WORDS: dict[Kind, str] = {"job": "job spec", "cluster": "site profile"}
# Keys that name the kind of a file with few other keys.
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
    """A finding when the file is no `kind` at all; None for a `kind` with mistakes in it."""
    other: Kind = "cluster" if kind == "job" else "job"
    keys = frozenset(data)
    here, there = _keys_of(kind), _keys_of(other)
    if keys >= _PLAN:
        what = "this is the plan of a run, made from a spec"
        return _found(kind, name, what, "", "name `spec.yaml` or `spec.lock.yaml` of that folder")
    if _looks_like(other, keys, here, there):
        foreign = ", ".join(f"`{key}`" for key in data if key in there - here)
        what = f"this is a {WORDS[other]}, and a {WORDS[kind]} is wanted"
        return _found(kind, name, what, f"only a {WORDS[other]} has {foreign}", _INSTEAD[kind])
    if len(keys) > 1 and not keys & here:
        first = ", ".join(f"`{key}`" for key in list(data)[:4])
        why = f"its keys are {first}{' and more' if len(keys) > 4 else ''}"
        what = f"this is no {WORDS[kind]}: a {WORDS[kind]} has none of its {len(keys)} keys"
        return _found(kind, name, what, why, _START[kind])
    return None


def _looks_like(other: Kind, keys: frozenset[str], here: frozenset[str], there: frozenset[str]) -> bool:
    """Whether all keys that tell the two kinds apart are those of the other kind.

    A single such key may be a slip, unless it is the key that names the kind.
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
    """The finding about a binary file, without the position of its first wrong byte."""
    return error("spec.encoding", "the file is binary", fix=_START[kind], file=name)
