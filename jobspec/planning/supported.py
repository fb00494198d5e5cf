"""What a spec asks for and its adapter, perhaps of another package, does not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jobspec.finding import Finding, error
from jobspec.frameworks.shared.repo_tests import asked_tests
from jobspec.words import one_of

if TYPE_CHECKING:
    from jobspec.frameworks.base import Framework, FrameworkPlan
    from jobspec.spec.job import JobSpec


def lacking(spec: JobSpec, framework: Framework, with_gpus: Sequence[str] = ()) -> Iterator[Finding]:
    """Errors for what the adapter lacks: a launch mode (`modes`), `has_pipelines`, `has_groups`.

    `with_gpus` are the groups behind the first where Ray has GPUs.
    """
    if spec.pipelines and not getattr(framework, "has_pipelines", False):
        yield error(
            "spec.pipelines",
            f"`{framework.name}` runs one training, and the spec names pipelines",
            "several trainings on the same GPUs need a scheduler between them",
            "use `framework: rlix`, or write one spec for each pipeline",
            path="pipelines",
        )
    takes = getattr(framework, "has_groups", "")
    if spec.groups and not takes:
        yield error(
            "spec.groups",
            f"`{framework.name}` places its workers by numbers of equal nodes, and the spec names groups",
            "nothing would keep its engines on the nodes of one group and its trainer on those of another",
            "remove `groups` and give `resources.nodes`, or start it by `framework: command`",
            path="groups",
        )
    elif takes == "first" and with_gpus:
        yield error(
            "spec.groups",
            f"`{framework.name}` places its workers on any GPUs of Ray, and {one_of(with_gpus)} has some",
            "nothing would keep its engines on the nodes of one group and its trainer on those of another",
            f"give it no GPUs, or all of them to services{getattr(framework, 'for_services', '')}, "
            "or start the training by `framework: command`",
            path=f"groups[{[group.name for group in spec.groups].index(with_gpus[0])}]",
        )
    modes: tuple[str, ...] = getattr(framework, "modes", ("ray", "srun"))
    if spec.launch.mode not in modes:
        yield error(
            "launch.upstream-unsupported" if spec.launch.mode == "upstream" else "launch.mode",
            f"`{framework.name}` has no mode `{spec.launch.mode}`",
            fix=f"use {one_of(modes)}",
            path="launch.mode",
        )


def unplanned_checks(spec: JobSpec, planned: FrameworkPlan) -> Iterator[Finding]:
    """Errors for tests that the adapter, perhaps of another package, gives no command for."""
    names = {command.name for command in planned.checks}
    for asked in asked_tests(spec.coverage):
        if asked.name not in names:
            yield error(
                "coverage.checks",
                f"`{spec.framework}` runs no tests, so those of `{asked.check.repo}` would be left out",
                fix="remove them here, and run them by a spec with `framework: command`",
                path=asked.path,
            )
