"""The report model: the content of every form of the report, from a verdict and its evidence.

Plain frozen data without clock or random number: the same evidence gives the same report, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version

from jobspec.evidence.evidence import Attempt, Event, Evidence, NodeFacts, RanCode
from jobspec.evidence.provider_evidence import provider_evidence
from jobspec.evidence.repo_tests import bridge_repo
from jobspec.evidence.tracker_files import TrackerFiles
from jobspec.metrics.envelope import envelope, finite_points
from jobspec.metrics.names import logged_name
from jobspec.metrics.requirements import required_metric
from jobspec.plan import CommandPlan, ContainerPlan, GroupPlan, Plan, RepoPlan, StagePlan
from jobspec.report.driver_log import DriverLog, driver_log, how_it_ended
from jobspec.report.log_excerpts import LogExcerpt, log_excerpts
from jobspec.report.plots import Plot
from jobspec.report.usage import usage_plots
from jobspec.triage.signatures import masked
from jobspec.units import is_date
from jobspec.verdict import Result, Verdict

MAX_CURVES = 8
MAX_POINTS = 100_000  # of one curve; a longer one is its envelope


@dataclass(frozen=True)
class Bar:
    """One phase of one attempt on the time line; `node` is empty for all nodes together.

    Times are seconds since the epoch; `end` equals `start` where the phase never ended.
    """

    attempt: int
    phase: str
    node: str
    start: float
    end: float
    outcome: str


@dataclass(frozen=True)
class Curve:
    """A metric over its steps, at most `MAX_POINTS` points of it, and how many values were not finite.

    `beside` is the same metric of the known-good run called `baseline`.
    """

    name: str
    metric: str
    points: tuple[tuple[float, float], ...]
    not_finite: int = 0
    source: str = ""
    beside: tuple[tuple[float, float], ...] = ()
    baseline: str = ""


@dataclass(frozen=True)
class Report:
    """One run's report."""

    verdict: Verdict
    run_id: str
    name: str
    folder: str
    framework: str
    cluster: str = ""
    mode: str = ""
    scheduler_state: str = ""
    scheduler_reason: str = ""
    nodes_planned: int = 0
    gpus_per_node: int = 0
    groups: tuple[GroupPlan, ...] = ()
    start: float = 0.0
    end: float = 0.0
    bars: tuple[Bar, ...] = ()
    curves: tuple[Curve, ...] = ()
    repos: tuple[RepoPlan, ...] = ()
    inputs: tuple[StagePlan, ...] = ()
    container: ContainerPlan = field(default_factory=ContainerPlan)
    service_containers: Mapping[str, ContainerPlan] = field(default_factory=dict)
    plan_sha256: str = ""
    jobspec_version: str = ""
    commands: tuple[tuple[str, str], ...] = ()  # name, how it ended
    nodes: tuple[NodeFacts, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()  # names only
    imports: tuple[tuple[str, str, str], ...] = ()  # module, node, file
    artifacts: int = 0
    artifact_bytes: int = 0
    checkpoints: tuple[str, ...] = ()
    guide: tuple[str, ...] = ()  # deliverables of the framework's guide, in its order
    variants: tuple[str, ...] = ()
    model: str = ""
    bridge: str = ""  # name of the repository that is Megatron-Bridge
    dirty_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by repository
    ran: Mapping[str, RanCode] = field(default_factory=dict)  # by repository
    planned: tuple[CommandPlan, ...] = ()
    command: str = ""  # of a run that jobspec did not launch, as a log shows it
    launched: str = ""  # the processes that its launcher was asked for
    driver_started: bool = False
    provider: tuple[str, ...] = ()  # the guides' five kinds of evidence, a line each
    foreign: bool = False
    driver_log: DriverLog | None = None
    usage: tuple[Plot, ...] = ()  # on the scale of `bars`
    logs: tuple[LogExcerpt, ...] = ()
    trackers: tuple[TrackerFiles, ...] = ()

    @property
    def images(self) -> dict[str, str]:
        """Each image, which one it is, and where its file came from, by what it is of; none on bare nodes."""
        named = {f"image of service {name}": one for name, one in self.service_containers.items()}
        named = {"image": self.container, **named}
        return {what: _image(one) for what, one in named.items() if one.image}

    @property
    def seconds(self) -> float:
        return max(0.0, self.end - self.start)


def build_report(verdict: Verdict, evidence: Evidence) -> Report:
    """The model of every form of the report."""
    plan, last = evidence.plan, evidence.last
    bars = tuple(bar for attempt in evidence.attempts for bar in _bars(attempt))
    times = [event.time for attempt in evidence.attempts for event in attempt.events if is_date(event.time)]
    results = last.results if last else None
    return Report(
        verdict=verdict,
        run_id=evidence.run_id,
        name=plan.name,
        folder=str(evidence.root),
        framework=plan.framework,
        cluster=plan.cluster,
        mode=plan.mode,
        scheduler_state=evidence.scheduler.state,
        scheduler_reason=evidence.scheduler.reason,
        nodes_planned=plan.nodes,
        gpus_per_node=plan.gpus_per_node,
        groups=plan.groups,
        start=min(times, default=0.0),
        end=max(times, default=0.0),
        bars=bars,
        curves=tuple(_curves(verdict, evidence)),
        repos=plan.repos,
        inputs=plan.stage,
        container=plan.container,
        service_containers=plan.service_containers,
        plan_sha256=evidence.plan_sha256,
        jobspec_version=_version(),
        commands=tuple(_commands(last)),
        nodes=results.nodes if results else (),
        env=tuple(sorted(_shown({**plan.env, **plan.container.env}))),
        secrets=plan.secrets,
        imports=tuple(_imports(results.imports if results else {})),
        artifacts=len(evidence.artifacts),
        artifact_bytes=sum(item.bytes for item in evidence.artifacts),
        checkpoints=tuple(item.path for item in evidence.checkpoints),
        guide=verdict.guide,
        variants=plan.expect.variants,
        model=_model(plan),
        bridge=bridge_repo(plan),
        dirty_files=evidence.dirty_files,
        ran=evidence.ran,
        command=str(plan.expect.options.get("command") or ""),
        launched=str(plan.expect.options.get("launched") or ""),
        planned=(*plan.checks, *plan.commands),
        driver_started=evidence.foreign or (last is not None and last.started("driver")),
        provider=tuple(provider_evidence(evidence, verdict.deliverables, verdict.guide)),
        foreign=evidence.foreign,
        driver_log=None if verdict.result is Result.PASS else driver_log(evidence),
        usage=usage_plots(evidence, *time_line(bars)) if bars else (),
        logs=() if verdict.result is Result.PASS else log_excerpts(evidence, verdict.first_cause),
        trackers=evidence.trackers,
    )


def time_line(bars: Sequence[Bar]) -> tuple[float, float]:
    """When the first phase began and the last one ended; there is at least one."""
    return min(bar.start for bar in bars), max(bar.end for bar in bars)


def _image(container: ContainerPlan) -> str:
    origin = f", from {container.source_tag}" if container.source_tag else ""
    pin = f"{container.pin} at submission" if container.by_tag else container.pin
    return f"{container.image} ({pin}){origin}"


def _model(plan: Plan) -> str:
    """Id and revision of the staged model, else what the adapter calls `model` among its options."""
    staged = next((item for item in plan.stage if item.kind == "model"), None)
    if staged is not None:
        name = staged.repo_id or staged.source
        moves = " (not pinned)" if staged.moves else ""
        return f"{name} at {staged.revision}{moves}" if staged.revision else name
    return str(plan.expect.options.get("model") or "")


def _bars(attempt: Attempt) -> Iterator[Bar]:
    """One bar for every phase that started, on every node and over all of them."""
    open_bars: dict[tuple[str, str], Event] = {}
    for event in attempt.events:
        if not is_date(event.time) or not is_date(event.time - (event.seconds or 0.0)):
            continue  # when it was is not known
        key = (event.phase, event.node)
        if event.event == "start":
            open_bars[key] = event
        elif event.event == "end":
            started = open_bars.pop(key, None)
            start = started.time if started is not None else event.time - (event.seconds or 0.0)
            yield Bar(attempt.number, event.phase, event.node, start, event.time, event.outcome)
    last = max((event.time for event in attempt.events if is_date(event.time)), default=0.0)
    for (phase, node), event in open_bars.items():
        yield Bar(attempt.number, phase, node, event.time, last, "unfinished")


def _curves(verdict: Verdict, evidence: Evidence) -> Iterator[Curve]:
    """Curves of the metrics that are compared, of the figures, and of the spec's requirements."""
    planned, baseline = evidence.plan.expect.baseline, evidence.baseline
    names = {figure.metric: figure.name for figure in verdict.figures}
    compared = [item.metric for item in planned.tolerances] if planned is not None else []
    names = {**{metric: names.get(metric, metric) for metric in compared}, **names}
    for text in evidence.plan.expect.metrics_require:
        metric = required_metric(text)
        if metric:
            names.setdefault(metric, metric)
    for metric, name in list(names.items())[:MAX_CURVES]:
        rows = evidence.metrics.series(metric)
        points = finite_points(rows)
        if not points:
            continue
        curve = Curve(
            name, metric, tuple(envelope(points, MAX_POINTS)), len(rows) - len(points), rows[0].source
        )
        known = baseline.metrics if baseline is not None else None
        theirs = finite_points(known.series(logged_name(metric, known.metrics) or metric)) if known else []
        if baseline is not None and theirs:
            curve = replace(curve, beside=tuple(envelope(theirs, MAX_POINTS)), baseline=baseline.name)
        yield curve


def _commands(attempt: Attempt | None) -> Iterator[tuple[str, str]]:
    for command in attempt.results.commands if attempt and attempt.results else ():
        ended = how_it_ended(command)
        seconds = command.end - command.start
        yield command.name, f"{ended} after {seconds:.1f} s" if seconds > 0 else ended


def _shown(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The variables; the name may tell that the value is a secret."""
    for name, value in env.items():
        yield name, masked(f"{name}={value}").removeprefix(f"{name}=")


def _imports(imports: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, str]]:
    for module, files in imports.items():
        for node, file in files.items():
            yield module, node, str(file)


def _version() -> str:
    try:
        return version("jobspec-rl")
    except PackageNotFoundError:
        return ""
