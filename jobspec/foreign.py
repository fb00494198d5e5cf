"""The verdict over files of a run that jobspec did not launch: logs, metrics and checkpoints, as found.

There are no events and no exit codes, so whatever only they could prove is `Skipped` with that reason, and
a run is `Pass` only where the framework's own criteria, the requirements and the import paths all hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from jobspec.causes import first_cause
from jobspec.coverage import figures
from jobspec.deliverables import metrics_deliverable
from jobspec.evidence import LOG_SUFFIXES, read_checkpoints
from jobspec.evidence_model import Attempt, Evidence, LogFile
from jobspec.finding import fail
from jobspec.frameworks import find_level
from jobspec.frameworks.base import Framework, Level
from jobspec.limits import limitations
from jobspec.metrics import read_metrics
from jobspec.plan import ImportProof, LearningPlan, Plan
from jobspec.spec.text import did_you_mean, one_of
from jobspec.triage import scan_files
from jobspec.verdict import Deliverable, EvidenceItem, Result, Status, Verdict, worst

IMPORTS, RUN = "Import proof", "Run"
# A log of more lines is looked through for import paths up to here; they are printed at the start.
MAX_IMPORT_LINES = 200_000


@dataclass(frozen=True)
class Expected:
    """What the files have to prove. `imports` maps a module to the folder it must come from."""

    framework: Framework
    level: Level
    variants: tuple[str, ...] = ()
    steps: int = 0
    requirements: tuple[str, ...] = ()
    learning: str = ""
    imports: Mapping[str, str] = field(default_factory=dict)


def expected(
    framework: Framework,
    level: str,
    variants: Sequence[str],
    steps: int,
    requirements: Sequence[str],
    learning: str,
    imports: Iterable[str],
) -> Expected:
    """Raises: JobspecError for a level that the framework does not have and for an import that is no pair."""
    pairs = {}
    for text in imports:
        module, found, folder = text.partition("=")
        if not (module and found and folder):
            raise fail(
                "usage.arguments",
                f"`--expect-import {text}` is not MODULE=PATH",
                fix="write it like `megatron.bridge=/src/Megatron-Bridge`",
            )
        pairs[module] = folder
    asked = find_level(framework, level)
    for name in variants:
        if name not in asked.variants:
            what = f"level `{asked.name}` of `{framework.name}` has no variant `{name}`"
            fix = did_you_mean(name, asked.variants) or f"use {one_of(asked.variants)}"
            raise fail("judge.variant", what, fix=fix if asked.variants else "leave `--variant` out")
    return Expected(framework, asked, tuple(variants), steps, tuple(requirements), learning, pairs)


def read_foreign(folder: Path, wanted: Expected) -> Evidence:
    """Evidence out of a folder of any shape. Raises: JobspecError when there is no such folder."""
    if not folder.is_dir():
        raise fail(
            "judge.no-folder", f"there is no folder `{folder}`", fix="name the folder with the run's files"
        )
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in LOG_SUFFIXES)
    logs = tuple(LogFile(_below(path, folder), "", path.stat().st_size) for path in files)
    metrics = read_metrics(folder, relative_to=folder)
    attempt = Attempt(
        number=1,
        folder="",
        logs=logs,
        metrics=metrics,
        matches=tuple(scan_files([(path, _below(path, folder), "") for path in files])),
    )
    plan = _plan(folder, wanted, metrics.last_step() or 0)
    checkpoints = [item for place in (folder, *_folders(folder)) for item in read_checkpoints(place)]
    return Evidence(folder, plan, attempts=(attempt,), checkpoints=tuple(checkpoints), foreign=True)


def _plan(folder: Path, wanted: Expected, last_step: int) -> Plan:
    expect = wanted.framework.expect(wanted.level, wanted.variants, wanted.steps or last_step)
    expect = replace(expect, metrics_require=(*expect.metrics_require, *wanted.requirements))
    if wanted.learning:
        expect = replace(expect, learning=LearningPlan(wanted.learning))
    proofs = tuple(ImportProof(module, root) for module, root in wanted.imports.items())
    return Plan(folder.name, wanted.framework.name, "", "", "", expect=expect, proofs=proofs)


def judge_foreign(evidence: Evidence, wanted: Expected) -> Verdict:
    """The verdict that the files support."""
    attempt = evidence.attempts[0]
    if not attempt.logs and not len(attempt.metrics):
        return Verdict(Result.NOTHING_RAN, wanted.level.name, reason="no log and no metric was found there")
    own = tuple(wanted.framework.judge(evidence))
    deliverables = (
        _imports(evidence, wanted.imports),
        _run(attempt, own),
        *own,
        metrics_deliverable(evidence, finished=True),
    )
    found = worst(deliverables)
    if found is None:
        reason = "nothing was asked that files can prove: give `--require`, `--learning` or `--expect-import`"
        return Verdict(Result.NOTHING_RAN, wanted.level.name, deliverables, reason=reason)
    cause = None if found is Status.PASS else first_cause(evidence, attempt, deliverables)
    result = {Status.PASS: Result.PASS, Status.BLOCKED: Result.BLOCKED}.get(found, Result.FAIL)
    if cause is not None and deliverables[0].status is not Status.BLOCKED:
        result = cause.verdict
    bad = next((d for d in deliverables if d.required and d.status in (Status.FAIL, Status.BLOCKED)), None)
    return Verdict(
        result=result,
        level=wanted.level.name,
        deliverables=deliverables,
        first_cause=cause,
        limitations=(*limitations(evidence, wanted.level), "exit codes and phases were not among the files"),
        figures=figures(evidence),
        reason=f"{bad.name}: {bad.reason}" if bad else "every criterion that files can prove holds",
    )


def _run(attempt: Attempt, own: Sequence[Deliverable]) -> Deliverable:
    """Nothing says how the run ended; a line that shows a failure counts when the criteria do not hold."""
    serious = next(
        (match for match in attempt.matches if not match.generic and match.verdict != "Note"), None
    )
    holds = all(item.status is Status.PASS for item in own if item.required)
    if serious is None or (own and holds):
        reason = "no exit code is among the files"
        return Deliverable(RUN, Status.SKIPPED, reason=reason, required=False)
    item = EvidenceItem(serious.file, serious.line, serious.text)
    status = Status.BLOCKED if serious.verdict == "Blocked" else Status.FAIL
    return Deliverable(RUN, status, (item,), serious.title or serious.kind)


def _imports(evidence: Evidence, wanted: Mapping[str, str]) -> Deliverable:
    """Where the logs say that modules came from; another place voids the run."""
    if not wanted:
        return Deliverable(IMPORTS, Status.NOT_REQUESTED, required=False)
    items: list[EvidenceItem] = []
    for module, root in wanted.items():
        lines = list(_import_lines(evidence, module))
        wrong = next((item for item, file in lines if not Path(file).is_relative_to(root)), None)
        if wrong is not None:
            reason = f"`{module}` comes from elsewhere than {root}: the run is void"
            return Deliverable(IMPORTS, Status.BLOCKED, (wrong,), reason)
        if not lines:
            return Deliverable(
                IMPORTS, Status.BLOCKED, reason=f"no log says where `{module}` was imported from"
            )
        items.append(lines[0][0])
    return Deliverable(IMPORTS, Status.PASS, tuple(items), "every module comes from where it must")


def _import_lines(evidence: Evidence, module: str) -> Iterator[tuple[EvidenceItem, str]]:
    """Log lines that name a module and the file it was imported from: `MODULE … /path/file.py`."""
    pattern = re.compile(rf"(?<![\w.]){re.escape(module)}(?![\w.]).*?(/[^\s'\"<>:,]+\.(?:py|so))")
    for log in evidence.attempts[0].logs:
        with (evidence.root / log.path).open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                found = pattern.search(line) if module in line else None
                if found:
                    yield EvidenceItem(log.path, number, line.strip()[:300]), found.group(1)
                if number >= MAX_IMPORT_LINES:
                    break


def _folders(folder: Path) -> list[Path]:
    """Folders that may hold checkpoints: two levels deep, as frameworks nest `checkpoints/<name>/`."""
    return [path for pattern in ("*", "*/*") for path in sorted(folder.glob(pattern)) if path.is_dir()]


def _below(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()
