"""The guides' deliverable "Local Bridge import in …": which Bridge and which Core were imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.evidence.import_lines import (
    BRIDGE,
    CORE,
    ImportLine,
    is_installed,
    is_local,
    place_of,
    read_imports,
)
from jobspec.units import is_below
from jobspec.verdict import LOCAL_IMPORT, VOID, Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence

SHOW = f"print `{BRIDGE}.__file__` in a worker, and name the checkout that it must come from"
OWN_CORE = "3rdparty/Megatron-LM"
DRIVER_ONLY = "jobspec found no line of a Ray worker about Megatron-Bridge: the driver's may be another one"
CORE_UNKNOWN = "which `megatron.core` was imported is not proved"


def judge_import(evidence: Evidence, framework: str, named: str = "", probe: str = "") -> Deliverable:
    """`Pass` when every shown file of the Bridge lies in the checkout under test.

    `named` is the checkout where no proof of the plan names one. Lines of the log `probe` tell of the
    workers' interpreter.
    """
    proof = next((item for item in evidence.plan.proofs if item.module == BRIDGE), None)
    root = proof.root if proof else named
    logs = evidence.last.own_logs if evidence.last else ()
    shown = read_imports([(Path(evidence.root, log.path), log.path) for log in logs], (BRIDGE, CORE))
    recorded = _recorded(evidence)
    lines = [*recorded, *shown[BRIDGE]]
    workers = [line for line in shown[BRIDGE] if line.worker or (probe and probe in line.item.file)]
    nodes = evidence.plan.nodes if proof and not evidence.foreign else 0
    too_few = f"{len(recorded)} of {nodes}" if len(recorded) < nodes else ""
    problem, items = _problem(evidence, root, lines, too_few)
    name = f"{LOCAL_IMPORT}{framework}"
    if problem:
        fix = "" if VOID in problem else SHOW
        return Deliverable(name, Status.BLOCKED, items, problem, settled=True, fix=fix)
    foreign = _foreign_core(evidence, root, shown[CORE])
    if foreign is not None and _must_be_own(evidence):
        reason = f"`{CORE}` comes from {foreign.file}, not from the Bridge's own {_own_core(root)}"
        fix = f"if it is a copy of the Bridge's own, name it: `--expect-import {CORE}={foreign.root}`"
        reason += (
            f": {VOID}" if foreign.installed else ": which Core the Bridge was tested with is not proved"
        )
        return Deliverable(name, Status.BLOCKED, (foreign.item,), reason, settled=True, fix=fix)
    core_items, limits = _core(evidence, root, shown[CORE])
    where = _seen_by(workers)
    limits = limits if workers else (DRIVER_ONLY, *limits)
    items = tuple(dict.fromkeys(line.item for line in (*recorded[:2], *workers[:1], *shown[BRIDGE][:2])))
    return Deliverable(
        name, Status.PASS, (*items, *core_items), f"{lines[0].file}; {where}", settled=True, limits=limits
    )


def _seen_by(workers: Sequence[ImportLine]) -> str:
    if not workers:
        return "jobspec read no import line of a Ray worker"
    in_ray = any(line.worker for line in workers)
    return "also in a Ray worker" if in_ray else "also in the interpreter of the Megatron worker"


def _problem(
    evidence: Evidence, root: str, lines: Sequence[ImportLine], too_few: str
) -> tuple[str, tuple[EvidenceItem, ...]]:
    """Why the import of a local Bridge is not proved, with the deciding line; empty where it is."""
    wheel = next((line for line in lines if line.installed), None)
    if wheel is not None:
        return f"`{BRIDGE}` comes from {wheel.file}, an installed package: {VOID}", (wheel.item,)
    if not root:
        reason = "no checkout is named for the comparison: which Bridge ran is not proved"
        seen = lines[0] if lines else None
        if seen is None and evidence.foreign:
            reason = (
                "no checkout is named for the comparison, and jobspec found no line that shows an import of"
            )
            return f"{reason} `{BRIDGE}`: that it ran is not proved", ()
        if seen is None:
            return reason, ()
        if evidence.foreign:
            reason += f"; a log shows {seen.file}: if that is the one under test, add"
            return f"{reason} `--expect-import {BRIDGE}={seen.root}`", (seen.item,)
        return f"{reason}; a log shows {seen.file}", (seen.item,)
    away = next((line for line in lines if not is_local(line, BRIDGE, root)), None)
    if away is not None:
        return f"`{BRIDGE}` comes from {away.file}, not from {root}: {VOID}", (away.item,)
    if is_installed(root):
        return f"{root} holds installed packages and is no checkout: which Bridge ran is not proved", ()
    if too_few:
        return f"not shown: `{BRIDGE}` was recorded on {too_few} nodes", ()
    if not lines:
        return (
            f"not shown: jobspec found no line that says where `{BRIDGE}` was imported from;"
            " which Bridge ran is not proved",
            (),
        )
    return "", ()


def _recorded(evidence: Evidence) -> list[ImportLine]:
    """The files that the phase `imports` recorded, by node."""
    results = evidence.last.results if evidence.last else None
    files = results.imports.get(BRIDGE, {}) if results else {}
    file = results.file if results else ""
    return [
        place_of(BRIDGE, path, EvidenceItem(file, text=f"{node}: {path}")) for node, path in files.items()
    ]


def _own_core(root: str) -> str:
    return f"{root.removesuffix('/src')}/{OWN_CORE}"


def _foreign_core(evidence: Evidence, root: str, lines: Sequence[ImportLine]) -> ImportLine | None:
    """A line that shows another Core than the Bridge's own or the spec's; a named Core has its own proof."""
    if any(proof.module == CORE for proof in evidence.plan.proofs):
        return None
    places = [_own_core(root), *(part for repo in evidence.plan.repos for part in repo.pythonpath)]
    return next((line for line in lines if not any(is_below(line.root, place) for place in places)), None)


def _must_be_own(evidence: Evidence) -> bool:
    """Whether another Core decides: not where the spec leaves it to the image, or builds helpers of it."""
    plan = evidence.plan
    asked = any("megatron-lm" in part.lower() for repo in plan.repos for part in repo.pythonpath)
    return evidence.foreign or (asked and plan.helpers is None)


def _core(
    evidence: Evidence, root: str, lines: Sequence[ImportLine]
) -> tuple[tuple[EvidenceItem, ...], tuple[str, ...]]:
    """A line that shows the Bridge's own Core, else the limitation; a named Core has its own proof."""
    if any(proof.module == CORE for proof in evidence.plan.proofs):
        return (), ()
    away = _foreign_core(evidence, root, lines)
    if away is not None:
        return (), (f"`{CORE}` comes from {away.file}, not from the Bridge's own {_own_core(root)}",)
    return tuple(line.item for line in lines[:1]), () if lines else (CORE_UNKNOWN,)
