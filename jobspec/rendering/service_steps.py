"""The scripts of services in containers of their own: job.sbatch starts a step for each beside the agents."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from jobspec.plan import ContainerPlan, Plan, ServicePlan
from jobspec.planning.container import with_mount
from jobspec.rendering.step_prefix import STEP_NAMES, step_prefix
from jobspec.rendering.steps import host_env, interpreter, step_flags

Template = Callable[[str, Mapping[str, Any]], str]


def scripts(plan: Plan, run_dir: str, runtime: str, template: Template) -> dict[str, str]:
    """File name -> text."""
    return {
        f"service-{service.name}.sh": template(
            "service.sh", _values(plan, service, service.container, run_dir, runtime)
        )
        for service in plan.services
        if service.container is not None
    }


def _values(
    plan: Plan, service: ServicePlan, container: ContainerPlan, run_dir: str, runtime: str
) -> dict[str, Any]:
    env = host_env(container.env)
    names = (*(name for name, _ in env), *plan.passed)
    # Without a name pyxis removes the container with the step.
    prefix = step_prefix(with_mount(container, posixpath.dirname(runtime)), "", names, service.gpus)
    command = (*interpreter(plan, container), runtime, "service", service.name, "--run-dir", run_dir)
    return {
        "service": service.name,
        "slurm": plan.scheduler == "slurm",
        "nodelists": (),
        "component": str(_component(plan, service)) if len(plan.components) > 1 else "",
        "env": env,
        "env_stdin": prefix.env_stdin,
        "env_names": (*(n for n in STEP_NAMES if n != "SLURM_NODEID"), *plan.passed),
        "srun": (*_flags(plan, service), *prefix.flags),
        "command": (*prefix.words, *command),
    }


def _component(plan: Plan, service: ServicePlan) -> int:
    return plan.component_of(service.nodes) or 0  # `service.components` refuses nodes of several


def _flags(plan: Plan, service: ServicePlan) -> tuple[str, ...]:
    """The step has all GPUs of the job under the agents' numbers; asked for some, it would get the first."""
    number, count = _component(plan, service), len(service.nodes)
    part = plan.components[number]
    where = (f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1")
    flags = ("--overlap", *step_flags(plan.only(part), where))
    if len(plan.components) > 1:
        flags = (f"--het-group={number}", *flags)
    first = service.nodes[0] - part.first
    return (*flags, f"--relative={first}") if first else flags
