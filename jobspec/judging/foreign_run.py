"""The verdict over files of a run that jobspec did not launch: logs, metrics and checkpoints, as found.

Such a run has no events, and an exit code only where a log states it. The verdict claims nothing that no file
shows, and is `Pass` only where the framework's criteria, the requirements and the import paths hold.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from jobspec.evidence.deliverables import metrics_deliverable
from jobspec.evidence.evidence import Attempt, Evidence, LogFile
from jobspec.evidence.found_logs import FoundLog, find_logs
from jobspec.evidence.import_lines import Imports, is_local, read_imports
from jobspec.evidence.log_facts import Facts, scan_facts
from jobspec.evidence.lost_answers import in_logs
from jobspec.evidence.read import read_checkpoints
from jobspec.evidence.refused_checkpoint import as_tested
from jobspec.evidence.slurm_record import SlurmEnd, is_record, last_word, slurm_end
from jobspec.finding import fail
from jobspec.frameworks import find_level
from jobspec.frameworks.base import Framework, Level
from jobspec.frameworks.shared.metric_deliverables import LEARNING
from jobspec.judging.first_cause import cause_from, first_cause
from jobspec.judging.foreign_end import (
    FROM_OUTSIDE,
    RUN,
    as_stopped,
    how_far,
    is_complete,
    is_short,
    judge_end,
    missing_steps,
    own_facts,
    waited,
    went_on,
)
from jobspec.judging.judge import cause_of, decide, figures, for_guide, held_back, line_findings
from jobspec.judging.not_proved import OF_AN_EFFECT, limitations, with_limits
from jobspec.judging.own_end import ONLY_ITS_END, by_its_end
from jobspec.judging.unpacked_names import named, renamed
from jobspec.metrics import Table
from jobspec.metrics.found import as_asked, read_found
from jobspec.metrics.names import FALLS
from jobspec.metrics.requirements import parse_requirement
from jobspec.metrics.trackers import mlflow_ends
from jobspec.plan import ImportProof, LearningPlan, Plan, Scalar
from jobspec.triage import scan_files
from jobspec.verdict import (
    IMPORT_PROOF,
    VOID,
    Cause,
    Deliverable,
    EvidenceItem,
    Result,
    Status,
    Verdict,
    lacks_only_imports,
    void_item,
)
from jobspec.words import did_you_mean, one_of

INFERRED_FROM = "from a progress bar, their order or a file with the same values"


@dataclass(frozen=True)
class Expected:
    """What the files have to prove.

    `imports` maps a module to its folder. `inferred` says how the framework was found, unless the user did.
    """

    framework: Framework
    level: Level
    variants: tuple[str, ...] = ()
    steps: int = 0
    requirements: tuple[str, ...] = ()
    learning: str = ""
    imports: Mapping[str, str] = field(default_factory=dict)
    inferred: str = ""


def expected(
    framework: Framework,
    level: str,
    variants: Sequence[str],
    steps: int,
    requirements: Sequence[str],
    learning: str,
    imports: Iterable[str],
) -> Expected:
    """The criteria from the options of `judge`. Raises: JobspecError for an unknown or malformed value."""
    for text in requirements:
        parse_requirement(text)  # a mistyped requirement is no failure of the run
    pairs = {}
    for text in imports:
        module, equals, folder = text.partition("=")
        if not (module and equals and folder):
            raise fail(
                "usage.arguments",
                f"`--expect-import {text}` is not MODULE=PATH",
                fix="write it like `megatron.bridge=/src/Megatron-Bridge`",
            )
        pairs[module] = str(Path(folder).expanduser().absolute())
    proved_level = find_level(framework, level)
    for name in variants:
        if name not in proved_level.variants:
            what = f"level `{proved_level.name}` of `{framework.name}` has no variant `{name}`"
            fix = did_you_mean(name, proved_level.variants) or f"use {one_of(proved_level.variants)}"
            raise fail("judge.variant", what, fix=fix if proved_level.variants else "leave `--variant` out")
    return Expected(framework, proved_level, tuple(variants), steps, tuple(requirements), learning, pairs)


@dataclass(frozen=True)
class Foreign:
    """The evidence of a foreign run, the facts of its logs and their lines about imports.

    `names` maps unpacked logs to real names.
    """

    evidence: Evidence
    facts: Facts
    imports: Imports
    names: Mapping[str, str] = field(default_factory=dict)
    slurm: SlurmEnd | None = None


def judge_files(place: Path, expectation: Expected) -> tuple[Evidence, Verdict]:
    """Read the files at or below `place` and judge them. Raises: JobspecError when they cannot be judged."""
    with read_foreign(place, expectation) as foreign:
        verdict = judge_foreign(foreign, expectation)
        return named(foreign.evidence, foreign.names), renamed(verdict, foreign.names)


@contextmanager
def read_foreign(place: Path, expectation: Expected) -> Iterator[Foreign]:
    """The evidence of one file or of a folder of any shape; compressed logs stay unpacked inside the context.

    Raises: JobspecError when `place` does not exist or is a run directory of jobspec.
    """
    check_place(place)
    root = (place if place.is_dir() else place.parent).absolute()
    with tempfile.TemporaryDirectory(prefix="jobspec-judge-") as unpacked:
        logs, problems = find_logs(place.absolute(), Path(unpacked))
        names = {str(log.path): log.name for log in logs if log.path.is_relative_to(unpacked)}
        sources = [(log.path, _shown(log, names)) for log in logs]
        found = read_found(place.absolute(), sources, root)
        facts = scan_facts(sources)
        plan = _plan(root, expectation, found, facts)
        metrics = as_asked(found, list(plan.expect.metric_keys.values()), list(_asked(plan)))
        attempt = Attempt(
            number=1,
            folder="",
            logs=tuple(LogFile(_shown(log, names), "", log.path.stat().st_size) for log in logs),
            metrics=metrics,
            matches=tuple(
                match
                for match in scan_files([(path, name, "") for path, name in sources])
                if not is_record(match.text)
            ),
            lost=in_logs((name, path) for path, name in sources),
        )
        slurm = slurm_end(sources, {row.source for row in found} | {name for _, name in sources})
        checkpoints = (item for spot in (root, *_folders(place)) for item in read_checkpoints(spot))
        yield Foreign(
            Evidence(
                root,
                plan,
                attempts=(attempt,),
                checkpoints=tuple(checkpoints),
                scheduler=last_word(slurm),
                problems=tuple(problems),
                foreign=True,
            ),
            facts,
            read_imports(sources, expectation.imports),
            names,
            slurm,
        )


def check_place(place: Path) -> None:
    """Raises: JobspecError when `place` does not exist or is a run directory of jobspec."""
    if not place.exists():
        what, fix = f"there is no file and no folder `{place}`", "name the folder with the run's files"
        raise fail("judge.no-folder", what, fix=fix)
    if (place / "plan.json").is_file() and (place / "attempts").is_dir():
        what = f"`{place}` is a run directory of jobspec"
        why = "its plan, events and exit codes say more than its logs alone"
        raise fail("judge.run-directory", what, why, f"use `jobspec report {place}`")


def _shown(log: FoundLog, names: Mapping[str, str]) -> str:
    """The log's path below the root; of an unpacked log its real path, so that readers can open it."""
    return str(log.path) if str(log.path) in names else log.name


def _asked(plan: Plan) -> Iterator[str]:
    """The metrics that the command line, or the level, asks for."""
    yield from (parse_requirement(text).metric for text in plan.expect.metrics_require)
    if plan.expect.learning is not None:
        yield plan.expect.learning.metric


def _plan(root: Path, expectation: Expected, metrics: Table, facts: Facts) -> Plan:
    # A run that died early logged fewer steps than its trainer announced.
    steps = expectation.steps or metrics.planned or metrics.last_step() or 0
    expect = expectation.framework.expect(expectation.level, expectation.variants, steps)
    expect = replace(
        expectation.level.stated_in(expect),
        metrics_require=(*expect.metrics_require, *expectation.requirements),
        # Only the user's number: the last logged step may be on another axis, such as seconds.
        options={**_stated(facts), **expect.options, "steps": expectation.steps},
    )
    if expectation.learning:
        direction = "down" if FALLS.search(expectation.learning) else "up"
        expect = replace(expect, learning=LearningPlan(expectation.learning, direction))
    proofs = tuple(ImportProof(module, path) for module, path in expectation.imports.items())
    # 0 is "not known" here: no limitation about the size may be made up.
    nodes, gpus = facts.sizes.get("nodes", 0), facts.sizes.get("gpus", 0)
    name = expectation.framework.name
    return Plan(root.name, name, "", "", "", nodes, gpus, expect=expect, proofs=proofs)


def _stated(facts: Facts) -> dict[str, Scalar]:
    sizes = {key: size for key, size in facts.sizes.items() if key not in ("nodes", "gpus")}
    named = {"model": facts.model, "command": facts.command, "launched": facts.launched}
    return {**sizes, **{key: text for key, text in named.items() if text}}


def judge_foreign(foreign: Foreign, expectation: Expected) -> Verdict:
    """The verdict that the files support."""
    return for_guide(_judge(foreign, expectation), foreign.evidence, expectation.framework)


def _judge(foreign: Foreign, expectation: Expected) -> Verdict:
    evidence = foreign.evidence
    attempt = evidence.attempts[0]
    if not attempt.logs and not len(attempt.metrics):
        reason = "the path holds no log and no metric that jobspec can read"
        return Verdict(Result.NOTHING_RAN, expectation.level.name, findings=evidence.problems, reason=reason)
    framework_items = [*expectation.framework.judge(evidence)]
    short = is_short(evidence, expectation.steps, framework_items)
    attempt = went_on(evidence, attempt)
    attempt = as_tested(evidence, as_stopped(attempt) if short else attempt)
    deliverables = _deliverables(foreign, expectation, attempt, framework_items, short)
    imports, run, *framework_items, metrics = deliverables
    cause = None
    void = void_item(deliverables)
    if void is not None:
        cause = cause_from(void)  # nothing that another package did says anything about the tested one
    elif lacks_only_imports(deliverables):
        cause = cause_of(deliverables)  # no line of the log explains what was not printed
    elif decide(deliverables, None) is not Result.PASS:
        cause = _cause(
            evidence,
            attempt,
            deliverables,
            complete=is_complete(evidence, expectation.steps, run) and run.status is not Status.FAIL,
            ended_well=run.status is Status.PASS,
        )
    result = Result.BLOCKED if void is not None else decide(deliverables, cause)
    if run.status is Status.BLOCKED:
        # The run was stopped from outside: evidence missing for that reason is no failure of the tested code.
        why = {} if run.evidence else {"reason": "that the run ended well is not shown"}
        held = (held_back(item, **why) for item in (*framework_items, metrics))
        deliverables = (imports, run, *held)
    return Verdict(
        result=result,
        level=expectation.level.name,
        deliverables=deliverables,
        first_cause=cause,
        limitations=with_limits(_limitations(foreign, expectation, deliverables), deliverables),
        findings=line_findings(evidence, attempt, result, cause),
        figures=figures(evidence),
        reason=_reason(deliverables, result, cause)
        + waited(evidence, run, cause)
        + (how_far(evidence, expectation.steps, run) if short else ""),
    )


def _deliverables(
    foreign: Foreign, expectation: Expected, attempt: Attempt, framework_items: list[Deliverable], short: bool
) -> tuple[Deliverable, ...]:
    """The imports, how the run ended, what the framework judges, and the required metrics."""
    evidence = foreign.evidence
    imports = _imports(foreign.imports, expectation.imports)
    metrics = metrics_deliverable(evidence, finished=True)
    others = (imports, *framework_items, metrics)
    run = judge_end(own_facts(foreign.facts, attempt), attempt, others, short, foreign.slurm)
    if run.status is Status.SKIPPED and not any(item.required for item in framework_items):
        run = missing_steps(evidence, expectation.steps) or run
    items = (run, *framework_items)
    if not any(item.required and item.status is not Status.NOT_REQUESTED for item in (*others, run)):
        items = by_its_end(evidence, attempt, run, expectation.steps)
    return (imports, *items, metrics)


def _reason(deliverables: Sequence[Deliverable], result: Result, cause: Cause | None) -> str:
    if result is Result.PASS:
        asked = [item for item in deliverables if item.required and item.status is Status.PASS]
        if any(ONLY_ITS_END in item.limits for item in asked):
            return "; ".join(item.reason for item in asked)
        return "every required criterion holds"
    order = (Status.BLOCKED, Status.FAIL, Status.SKIPPED)
    order = order if result is Result.BLOCKED else (Status.FAIL, Status.BLOCKED, Status.SKIPPED)
    bad = [item for status in order for item in deliverables if item.required and item.status is status]
    void = void_item(deliverables)
    bad = [void] if void is not None else bad
    ended = (Status.FAIL, Status.SKIPPED)  # badly, or nobody knows how
    broke = any(item.name == RUN and item.status in ended for item in deliverables) and void is None
    lacks = broke if result is Result.BLOCKED else bad[0].status is not Status.FAIL
    if cause is not None and cause.signature and lacks:
        return cause.why or cause.text  # what the deliverables lack, they lack by it
    return f"{bad[0].name}: {bad[0].reason}"


def _cause(
    evidence: Evidence,
    attempt: Attempt,
    deliverables: tuple[Deliverable, ...],
    complete: bool,
    ended_well: bool,
) -> Cause | None:
    """The cause of a bad result. In a complete run, generic failure lines are noise of the shutdown, and what
    ended a process from outside is of an earlier one where the last ended well."""
    if complete:
        kept = (one for one in attempt.matches if not one.generic)
        if ended_well:
            kept = (one for one in kept if one.kind not in FROM_OUTSIDE)
        attempt = replace(attempt, matches=tuple(kept))
    return first_cause(evidence, attempt, ()) or cause_of(deliverables)


def _limitations(
    foreign: Foreign, expectation: Expected, deliverables: Sequence[Deliverable]
) -> Iterator[str]:
    idle: frozenset[str] = getattr(expectation.framework, "idle", lambda _: frozenset())(foreign.evidence)
    if not any(item.name == LEARNING and item.status is Status.PASS for item in deliverables):
        idle |= OF_AN_EFFECT
    yield from (text for text in limitations(foreign.evidence) if text not in idle)
    if expectation.inferred:
        yield expectation.inferred
    metrics = foreign.evidence.metrics
    for asked, logged in metrics.names.items():
        if logged == expectation.learning:
            continue  # asked for by this name
        yield f"`{logged}` was read in place of `{asked}`"
    for source in metrics.inferred:
        if any(row.source == source for row in metrics):
            source = foreign.names.get(source, source)
            yield f"the steps of values in {source} are inferred, {INFERRED_FROM}"
    for folder, status in mlflow_ends(foreign.evidence.root, {row.source for row in metrics}):
        yield f"MLflow's own record says {status} of the run in {folder}"
    if any(item.name == RUN and item.status is Status.SKIPPED for item in deliverables) and not (
        foreign.facts.ended or foreign.facts.stated or foreign.facts.tasks or foreign.slurm
    ):
        yield "jobspec read no exit code of the run"
    yield "jobspec did not launch the run: no plan of its own says what was to run"


def _imports(imports: Imports, roots: Mapping[str, str]) -> Deliverable:
    """Whether the logs show each module below its root; another place voids the run."""
    if not roots:
        reason = "no `--expect-import` was given: which checkout was imported is not judged"
        return Deliverable(IMPORT_PROOF, Status.NOT_REQUESTED, reason=reason, required=False)
    items: list[EvidenceItem] = []
    for module, root in roots.items():
        lines = imports.get(module, ())
        wrong = next((line for line in lines if not is_local(line, module, root)), None)
        if wrong is not None:
            reason = f"`{module}` comes from {wrong.file}, not from {root}: {VOID}"
            return Deliverable(IMPORT_PROOF, Status.BLOCKED, (wrong.item,), reason)
        if not lines:
            reason = f"jobspec found no line that says where `{module}` was imported from"
            return Deliverable(IMPORT_PROOF, Status.BLOCKED, reason=reason)
        items.append(lines[0].item)
    return Deliverable(IMPORT_PROOF, Status.PASS, tuple(items), "every module comes from its expected folder")


def _folders(place: Path) -> list[Path]:
    """Folders that may hold checkpoints: three levels deep, as in `checkpoints/<project>/<name>/`."""
    if not place.is_dir():
        return []
    patterns = ("*", "*/*", "*/*/*")
    paths = (path for pattern in patterns for path in sorted(place.absolute().glob(pattern)))
    return [path for path in paths if path.is_dir() and not path.is_symlink()]
