"""The deliverables of every run, whatever its framework: one small function each.

Each function reads evidence and returns one `Deliverable`. A bad end of a phase before the driver is
`Blocked`: that phase is about the environment, not about the tested code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from jobspec.evidence.evidence import GOOD, Attempt, CommandResult, Event, Evidence, RanCode
from jobspec.evidence.import_lines import is_local, place_of
from jobspec.finding import JobspecError
from jobspec.metrics.finite import passing
from jobspec.metrics.names import ending_in
from jobspec.metrics.requirements import Outcome, evaluate, parse_requirement
from jobspec.plan import ImportProof, Plan, RepoPlan
from jobspec.verdict import IMPORT_PROOF, VOID, Deliverable, EvidenceItem, Status
from jobspec.words import did_you_mean, some

PREFLIGHT, CODE, STAGING, HELPERS = "Preflight", "Code that ran", "Staging", "Dataset helpers"
IMPORTS, RAY, RUN, METRICS, ARTIFACTS = IMPORT_PROOF, "Ray cluster", "Run", "Required metrics", "Artifacts"
RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED")
CUT_SHORT = "every command exited with 0, and nothing says how the collection of its files ended"
NO_RESULTS = "`results.json` is missing, torn or of another attempt: nothing proves how the run ended"
NOT_FINISHED = "the run did not end well"
MAX_NAMED = 8  # files and metrics in one sentence


def phase_deliverables(evidence: Evidence, attempt: Attempt) -> tuple[Deliverable, ...]:
    """Everything before the driver."""
    plan = evidence.plan
    return (
        _phase(PREFLIGHT, "preflight", attempt, True),
        *_code(plan, attempt),
        _phase(STAGING, "stage", attempt, bool(plan.stage)),
        _phase(HELPERS, "helpers", attempt, plan.helpers is not None),
        _imports(plan, attempt),
        _ray(plan, attempt),
    )


def run_deliverable(evidence: Evidence, attempt: Attempt) -> Deliverable:
    """The driver's commands. `Pass` needs `results.json` and exit code 0 of every planned command."""
    results = attempt.results
    if results is None:
        state = evidence.scheduler.state
        reason = f"the job has not ended: it is {state}" if state in RUNNING else NO_RESULTS
        return Deliverable(RUN, Status.BLOCKED, _last_event(attempt), reason)
    commands = [item for item in results.commands if item.phase == "driver"]
    failed = next((item for item in commands if item.exit_code != 0), None)
    if failed is not None:
        return Deliverable(RUN, Status.FAIL, _command_evidence(attempt, failed), _ended(failed))
    missing = [item.name for item in evidence.plan.commands if attempt.command(item.name) is None]
    if missing:
        began = any(
            event.data.get("name") == missing[0] for event in attempt.events if event.phase == "driver"
        )
        reason = f"`{missing[0]}` did not {'end on its own' if began else 'start'}"
        return Deliverable(RUN, Status.SKIPPED, (EvidenceItem(results.file),), reason)
    if results.outcome != "ok" or results.exit_code != 0:
        reason = f"the run ended as `{results.outcome}` with exit code {results.exit_code}"
        return Deliverable(RUN, Status.FAIL, (EvidenceItem(results.file),), reason)
    bad = _bad_outcome(attempt, "driver")
    if bad:
        reason = f"`results.json` says that the driver ended well, but an event says that it ended as `{bad}`"
        return Deliverable(RUN, Status.FAIL, (EvidenceItem(results.file),), reason)
    if results.collecting:
        return Deliverable(RUN, Status.BLOCKED, (EvidenceItem(results.file),), CUT_SHORT)
    items = tuple(item for command in commands for item in _command_evidence(attempt, command))
    return Deliverable(
        RUN, Status.PASS, items or (EvidenceItem(results.file),), "every command exited with 0"
    )


def metrics_deliverable(evidence: Evidence, finished: bool) -> Deliverable:
    """The spec's requirements, and finite values of the metrics that the framework calls its own."""
    table, expect = evidence.metrics, evidence.plan.expect
    requirements = [*expect.metrics_require, *_finite_checks(evidence)]
    if not requirements:
        return Deliverable(METRICS, Status.NOT_REQUESTED)
    if not finished:
        return Deliverable(METRICS, Status.SKIPPED, reason=f"{NOT_FINISHED}: its metrics decide nothing")
    try:
        outcomes = [evaluate(parse_requirement(text), table) for text in requirements]
    except JobspecError as why:
        return Deliverable(METRICS, Status.FAIL, reason=str(why))
    bad = [outcome for outcome in outcomes if not outcome.holds]
    if evidence.foreign and bad and not any(table.series(outcome.requirement.metric) for outcome in bad):
        return Deliverable(METRICS, Status.BLOCKED, reason=not_found(evidence, bad[0].requirement.metric))
    items = tuple(metric_evidence(outcome) for outcome in bad + [o for o in outcomes if o.holds])
    if bad:
        told = "; ".join(outcome.reason for outcome in bad)
        own = "" if expect.metrics_require else " (finite values are asked of every run)"
        return Deliverable(METRICS, Status.FAIL, items, told + own)
    return Deliverable(METRICS, Status.PASS, items, "; ".join(outcome.reason for outcome in outcomes[:3]))


def not_found(evidence: Evidence, metric: str) -> str:
    """Where a metric was looked for in files of a run that jobspec did not launch, and what they hold."""
    table, attempt = evidence.metrics, evidence.last
    logs = () if attempt is None else attempt.logs
    hold = list(dict.fromkeys(row.source for row in table)) or [log.path for log in logs]
    files = f"{len(hold)} files ({_first(hold)})" if len(hold) != 1 else f"`{hold[0]}`"
    # What a log repeats of a file is read and left out.
    rest = len({log.path for log in logs} - {*hold, *(row.source for row in table.aside)})
    more = f", and none from {rest} other file{'s' if rest > 1 else ''}" if rest else ""
    if not table.metrics:
        return f"`{metric}` was not found: jobspec read no metric from {files}"
    if metric in table.metrics:
        return f"jobspec read no step beside the values of `{metric}` in {files}"
    ends = ending_in(metric, table.metrics)
    if len(ends) > 1:
        return f"`{metric}` was not found; {len(ends)} metrics end in it: {_first(ends)}; ask for one of them"
    close = did_you_mean(metric, table.metrics)
    text = f"`{metric}` was not found: jobspec read {_first(table.metrics)} from {files}{more}"
    return f"{text}; {close}" if close else text


def _first(names: Sequence[str]) -> str:
    return some([f"`{name}`" for name in names], MAX_NAMED)


def artifacts_deliverable(evidence: Evidence, attempt: Attempt, finished: bool) -> Deliverable:
    """Collection ended well, the manifest's files are there, and so is every expected file."""
    plan = evidence.plan
    if not plan.collect.patterns and not plan.expect.files:
        return Deliverable(ARTIFACTS, Status.NOT_REQUESTED)
    if not evidence.manifest_read:
        status = Status.BLOCKED if finished else Status.SKIPPED
        return Deliverable(ARTIFACTS, status, reason="`manifest.json` is missing or torn")
    listed = EvidenceItem("artifacts/manifest.json", text=_files(evidence))
    lost = [item.path for item in evidence.artifacts if not item.present]
    absent = [pattern for pattern in plan.expect.files if not evidence.expected_files.get(pattern)]
    if absent and not finished:
        return Deliverable(ARTIFACTS, Status.SKIPPED, (listed,), f"{NOT_FINISHED}: files are missing")
    if absent:
        return Deliverable(ARTIFACTS, Status.FAIL, (listed,), f"no file matches `{absent[0]}`")
    if lost:
        return Deliverable(
            ARTIFACTS,
            Status.BLOCKED,
            (listed,),
            f"the manifest lists `{lost[0]}`, but the file is missing or has another size",
        )
    if not _ended_well(attempt, "collect"):
        bad = _bad_outcome(attempt, "collect")
        reason = f"collection ended as `{bad}`" if bad else "nothing says how collection ended"
        return Deliverable(ARTIFACTS, Status.BLOCKED, (listed,), reason)
    files = tuple(EvidenceItem(path) for paths in evidence.expected_files.values() for path in paths[:3])
    return Deliverable(ARTIFACTS, Status.PASS, (listed, *files), f"{_files(evidence)} collected")


def _files(evidence: Evidence) -> str:
    return f"{len(evidence.artifacts)} file{'' if len(evidence.artifacts) == 1 else 's'}"


def metric_evidence(outcome: Outcome) -> EvidenceItem:
    """The row that decided a requirement."""
    row, requirement = outcome.row, outcome.requirement
    place = (row.source, row.line) if row is not None else ("", 0)
    return EvidenceItem(*place, text=outcome.reason, metric=requirement.metric, value=outcome.value)


def other_checkouts(plan: Plan, attempt: Attempt) -> Iterator[tuple[ImportProof, str, str]]:
    """Proof, node and file of every package that a node imported from outside the spec's checkout."""
    imports = attempt.results.imports if attempt.results else {}
    for proof in plan.proofs:
        for node, file in imports.get(proof.module, {}).items():
            if not is_local(place_of(proof.module, str(file), EvidenceItem()), proof.module, proof.root):
                yield proof, node, str(file)


def _phase(name: str, phase: str, attempt: Attempt, requested: bool) -> Deliverable:
    if not requested:
        return Deliverable(name, Status.NOT_REQUESTED, required=False)
    event = attempt.ended(phase)
    items = (event_evidence(event),) if event else ()
    if _ended_well(attempt, phase):
        return Deliverable(name, Status.PASS, items, _took(event))
    if not attempt.started(phase) and attempt.results is not None and attempt.results.outcome in GOOD:
        reason = f"no event shows phase `{phase}`: `events.jsonl` is missing or torn"
        return Deliverable(name, Status.BLOCKED, items, reason)
    if attempt.outcome(phase) == "skipped" or not attempt.started(phase):
        return Deliverable(name, Status.SKIPPED, items, "an earlier phase stopped the run")
    trouble = next((e for e in attempt.events if e.phase == phase and e.finding and e.finding.is_error), None)
    if trouble is not None and trouble.finding is not None:
        where = f"{trouble.finding.node or trouble.node}: ".removeprefix(": ")
        return Deliverable(name, Status.BLOCKED, (event_evidence(trouble),), where + trouble.finding.what)
    bad = _bad_outcome(attempt, phase)
    reason = f"phase `{phase}` " + (f"ended as `{bad}`" if bad else "began, and nothing says how it ended")
    return Deliverable(name, Status.BLOCKED, items, reason)


def _code(plan: Plan, attempt: Attempt) -> Iterator[Deliverable]:
    """`Pass`: it is known which code ran. Nothing where nothing can be told, which a limitation says."""
    compared = [repo for repo in plan.repos if repo.on_change]
    if not compared:
        return
    base = _phase(CODE, "code", attempt, True)
    if base.status is not Status.PASS or attempt.results is None:
        yield base
        return
    states = [(repo, attempt.results.code.get(repo.name)) for repo in compared]
    lost = next((repo.name for repo, state in states if state is None), "")
    if lost:
        yield replace(base, status=Status.BLOCKED, reason=f"the state of `{lost}` was not recorded")
        return
    told = [_told(repo, state) for repo, state in states if state is not None and not state.unknown]
    if told:
        yield replace(base, evidence=(EvidenceItem(attempt.results.file),), reason="; ".join(told))


def _told(repo: RepoPlan, state: RanCode) -> str:
    if not state.differs(repo):
        return f"`{repo.name}` as submitted"
    return f"`{repo.name}` changed after submission ({_first(state.changed)}), and what ran is recorded"


def _imports(plan: Plan, attempt: Attempt) -> Deliverable:
    """`Pass` needs more than the phase's outcome: every node saw every proved package below its root."""
    base = _phase(IMPORTS, "imports", attempt, bool(plan.proofs))
    if base.status is not Status.PASS:
        return base
    if attempt.results is None:
        reason = "the phase ended well, but the files are recorded in `results.json`, which is missing"
        return Deliverable(IMPORTS, Status.SKIPPED, base.evidence, reason)
    wrong = next(other_checkouts(plan, attempt), None)
    if wrong is not None:
        proof, node, file = wrong
        item = EvidenceItem(attempt.results.file, text=f"{proof.module}: {file}")
        reason = f"{node}: `{proof.module}` comes from {file}, not from {proof.root}: {VOID}"
        return Deliverable(IMPORTS, Status.BLOCKED, (item,), reason)
    imports = attempt.results.imports
    unseen = [proof.module for proof in plan.proofs if len(imports.get(proof.module, {})) < plan.nodes]
    if unseen:
        return Deliverable(
            IMPORTS,
            Status.BLOCKED,
            base.evidence,
            f"the file of `{unseen[0]}` was not recorded on every node",
        )
    file = attempt.results.file
    items = tuple(
        EvidenceItem(file, text=f"{p.module}: {next(iter(imports[p.module].values()))}") for p in plan.proofs
    )
    names = ", ".join(f"`{proof.module}`" for proof in plan.proofs)
    return Deliverable(IMPORTS, Status.PASS, items, f"{names} from the spec's checkout on every node")


def _ray(plan: Plan, attempt: Attempt) -> Deliverable:
    """A kept Ray is told with the run that kept it, and with what was looked at."""
    base = _phase(RAY, "ray", attempt, plan.ray is not None or plan.upstream is not None)
    event = attempt.ended("ray")
    kept = event.data.get("kept") if event is not None else None
    if base.status is not Status.PASS or event is None or not kept:
        return base
    gpus = "nothing on the GPUs" if kept["gpus_seen"] else "no nvidia-smi to see the GPUs by"
    looked = (
        f"cluster {kept['cluster'][:12]}: allocation, container, Python, Ray and variables as planned; no"
        f" driver, actor, placement group or task, nothing in use, no process left; {gpus}"
    )
    nodes = len(event.data.get("nodes", ()))
    reason = f"kept from run `{kept['run']}`, {nodes} node{'s' if nodes != 1 else ''}, proved clean"
    return replace(base, evidence=(EvidenceItem(event.file, event.line, looked),), reason=reason)


def _ended_well(attempt: Attempt, phase: str) -> bool:
    """True when an outcome of `phase` is recorded and none is bad."""
    return bool(attempt.outcome(phase)) and not _bad_outcome(attempt, phase)


def _bad_outcome(attempt: Attempt, phase: str) -> str:
    """The first bad outcome of `phase`; empty without one."""
    return next((word or "unknown" for word in attempt.outcomes(phase) if word not in GOOD), "")


def _finite_checks(evidence: Evidence) -> Iterator[str]:
    table = evidence.metrics
    for key in dict.fromkeys(evidence.plan.expect.metric_keys.values()):
        lost = any(not math.isfinite(value) for value in table.values(key))
        # A level that we ran asks for every value; of others' runs a skipped update is a finding.
        if lost and not (evidence.foreign and passing(key, table.series(key))):
            yield f"finite({key})"


def _command_evidence(attempt: Attempt, command: CommandResult) -> tuple[EvidenceItem, ...]:
    log = attempt.log(command.name)
    return (EvidenceItem(command.log or (log.path if log else ""), text=_ended(command)),)


def _ended(command: CommandResult) -> str:
    if command.signal:
        return f"`{command.name}` was ended by signal {command.signal}"
    if command.exit_code is None:
        return f"`{command.name}` did not end on its own"
    return f"`{command.name}` exited with {command.exit_code}"


def event_evidence(event: Event) -> EvidenceItem:
    """An event as evidence."""
    text = event.finding.what if event.finding else f"{event.phase} {event.event} {event.outcome}".strip()
    return EvidenceItem(event.file, event.line, text)


def _last_event(attempt: Attempt) -> tuple[EvidenceItem, ...]:
    return (event_evidence(attempt.events[-1]),) if attempt.events else ()


def _took(event: Event | None) -> str:
    if event is None:
        return ""
    word = "from cache" if event.outcome == "cached" else "ended well"
    return f"{word} after {event.seconds:.1f} s" if event.seconds is not None else word


def all_pass(deliverables: Iterable[Deliverable]) -> bool:
    """True when every requested deliverable passed."""
    return all(item.status in (Status.PASS, Status.NOT_REQUESTED) for item in deliverables)
