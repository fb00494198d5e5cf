"""Framework `command`: any program, judged by its exit code, its metrics and its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context, FrameworkPlan, Level
from jobspec.frameworks.command_files import check_files, settled
from jobspec.frameworks.ray_use import may_use_ray
from jobspec.frameworks.shared.known_variants import unknown_variants
from jobspec.frameworks.shared.repo_tests import check_commands
from jobspec.frameworks.shared.schedule import learning
from jobspec.frameworks.shared.unused_keys import unused_keys
from jobspec.metrics.names import LOSS, REWARD, find_metric
from jobspec.plan import CommandPlan, ExpectPlan, UpstreamPlan
from jobspec.verdict import Deliverable, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence
    from jobspec.spec.job import JobSpec

NOT_INSIDE = "jobspec does not look inside the command: only its logged metrics prove anything about training"
RUN = Level(
    "run",
    0,
    "the command ended with exit code 0, wrote the required files and logged the required metrics",
    (NOT_INSIDE,),
)
# Keys of `train` that only a framework with a trainer can honour.
UNUSED = tuple(f"train.{key}" for key in ("algorithm", "steps", "workers", "reward", "seed", "overrides"))


def upstream(context: Context) -> UpstreamPlan | None:
    """The batch script of the first checkout that has it in its root, as NeMo-RL does.

    After those, an absent checkout counts: it may have the script.
    """
    roots = [path for path in context.repo_paths.values() if Path(path, UpstreamPlan.script).is_file()]
    return next((UpstreamPlan(root) for root in (*roots, *context.absent)), None)


class CommandFramework:
    """Runs `train.command` as tasks on every node, or once beside a Ray cluster with `launch.mode: ray`."""

    name = "command"
    summary = "any command; verdict by exit code, required metrics and files"
    levels = (RUN,)
    modes = ("ray", "srun", "upstream")
    has_groups = "any"

    def default_mode(self, spec: JobSpec, base: Path, repo_paths: Mapping[str, str]) -> str:
        """No Ray where all was read and none seen, and `hold` keeps no cluster up; else Ray."""
        return "ray" if spec.launch.hold or may_use_ray(spec, base, repo_paths) else "srun"

    def validate(self, context: Context) -> Iterable[Finding]:
        train = context.spec.train
        if not train.command:
            yield error(
                "command.missing",
                "framework `command` needs `train.command`",
                fix='write the program and its arguments as a list: `command: ["python", "train.py"]`',
                path="train.command",
            )
        elif train.shell and len(train.command) != 1:
            yield error(
                "command.shell",
                f"`train.shell` takes one text, `train.command` has {len(train.command)} items",
                fix="put the whole script into one item, or drop `shell: true`",
                path="train.command",
            )
        if context.spec.launch.mode == "upstream" and upstream(context) is None:
            yield error(
                "launch.upstream-unsupported",
                f"none of the spec's repositories has a `{UpstreamPlan.script}`",
                why="in mode `upstream` the batch script of a checkout, such as NeMo-RL, starts Ray",
                fix="name the checkout in `repos`, or use `launch: {mode: ray}`",
                path="launch.mode",
            )
        yield from check_files(context)
        yield from unknown_variants(context, "command.variant")
        yield from self._unused(context)

    def _unused(self, context: Context) -> Iterator[Finding]:
        why = "jobspec does not know the command's own options"
        fix = "pass it in `train.command`, or remove it"
        yield from unused_keys(context, "command.unused-key", UNUSED, why, fix)
        if context.spec.launch.mode == "ray" and context.spec.launch.tasks_per_node > 1:
            yield warning(
                "command.tasks",
                "`launch.tasks_per_node` does nothing in mode `ray`: the command runs once, on the head node",
                fix="use `launch: {mode: srun}` to run it on every node",
                path="launch.tasks_per_node",
            )

    def plan(self, context: Context) -> FrameworkPlan:
        """One command: on all nodes in mode `srun`, else on the head node beside a Ray cluster."""
        spec = context.spec
        everywhere = spec.launch.mode == "srun"
        command = CommandPlan(
            name="command",
            argv=settled(spec, context.base, context.repo_paths),
            shell=spec.train.shell,
            on="all" if everywhere else "head",
            tasks_per_node=spec.launch.tasks_per_node if everywhere else 1,
        )
        expect = ExpectPlan(
            level=context.level.name,
            metrics_require=spec.metrics.require,
            learning=learning(spec.metrics, context.level.name),
            files=spec.artifacts.require,
        )
        return FrameworkPlan(
            (command,),
            checks=check_commands(context, context.container.python),
            ray_mode="none" if everywhere else "external",
            upstream=upstream(context),
            expect=expect,
        )

    def expect(self, level: Level, variants: tuple[str, ...] = (), steps: int = 0) -> ExpectPlan:
        return ExpectPlan(level=level.name, variants=variants, steps=steps)

    def idle(self, _evidence: Evidence) -> frozenset[str]:
        """Of a run of others its logs are read, too."""
        return frozenset({NOT_INSIDE})

    def judge(self, evidence: Evidence) -> Iterable[Deliverable]:
        """A learning signal when the spec asks for one; all frameworks share exit code, metrics and files.

        Of files of others the steps, where the user says how many there were to be.
        """
        from jobspec.frameworks.shared.metric_deliverables import (
            TRAINING,
            learning_deliverable,
            training_deliverable,
        )

        metric, steps = trained_by(evidence), evidence.plan.expect.options.get("steps")
        if evidence.foreign and steps and metric:
            yield training_deliverable(evidence, metric)
        elif evidence.foreign and steps and evidence.metrics.steps_done() < int(steps):
            reason = f"jobspec read no loss and no reward of the {steps} train steps that are asked for"
            yield Deliverable(TRAINING, Status.BLOCKED, reason=reason)
        if evidence.plan.expect.learning is not None:
            yield learning_deliverable(evidence)


def trained_by(evidence: Evidence) -> str:
    """The metric that tells of the train steps: a loss or a reward, of these the fullest."""
    table = evidence.metrics
    names = (find_metric(name, {}, table.metrics) for name in (LOSS, REWARD))
    return max(filter(None, names), key=lambda name: len(table.series(name)), default="")
