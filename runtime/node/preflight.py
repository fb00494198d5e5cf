"""What must hold on every node before a byte is staged. Each check is a pure function of facts.

`facts` looks at the node once, so a test can give each check the facts of any node. All findings are reported
at once, each with the node's name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, List, Tuple

from jobspec.finding import Finding, error, warning
from jobspec.plan import Plan
from jobspec.runtime.base import network
from jobspec.runtime.node.facts import MASTER_PORTS, RAY_SPARE_PORTS, Facts
from jobspec.runtime.node.services import port_taken

MIN_PYTHON = (3, 9)
MIN_OPEN_FILES = 4096  # Ray opens one per worker and connection and warns below; torch adds its own
MIN_FREE_PIDS = 512  # a node's Ray starts some 100 processes and threads by the hundred
MAX_CLOCK_SKEW_S = 5.0
SPARE_BYTES = 1 << 30  # left free beside what is staged: Ray refuses to start objects above 95 %


def check(plan: Plan, facts: Facts, index: int = 0) -> Tuple[Finding, ...]:
    """All findings about node `index`. Pure."""
    findings: List[Finding] = []
    for rule in (
        _check_python,
        _check_canary,
        _check_address,
        _check_ports,
        _check_service_ports,
        _check_limits,
        _check_disk,
    ):
        findings.extend(rule(plan, facts))
    findings.extend(_check_devices(plan.gpus_of(index), facts))
    if abs(facts.clock_skew_s) > MAX_CLOCK_SKEW_S:
        findings.append(
            warning(
                "preflight.clock",
                f"the clock differs by {facts.clock_skew_s:.0f} s from the head's",
                "times in its logs do not match those of other nodes",
                "synchronise the node's clock",
            )
        )
    return tuple(replace(finding, node=facts.node) for finding in findings)


def _check_python(plan: Plan, facts: Facts) -> Iterator[Finding]:
    if facts.python[:2] < MIN_PYTHON:
        yield error(
            "preflight.python",
            f"`{plan.container.python}` is Python {'.'.join(map(str, facts.python))} ({facts.python_path})",
            "the runtime needs Python 3.9 or newer in the container",
            "name a newer interpreter as `container.python`",
        )


def _check_canary(plan: Plan, facts: Facts) -> Iterator[Finding]:
    if facts.canary:
        yield error(
            "preflight.shared-dir",
            f"the run directory is not shared with this node: {facts.canary}",
            "logs, metrics and checkpoints of this node would be lost",
            "put `paths.runs` on storage that every node mounts, and mount it into the container",
        )


def _check_address(plan: Plan, facts: Facts) -> Iterator[Finding]:
    if facts.ip is not None:
        return
    configured = " and ".join(
        part
        for part in (
            f"interface `{plan.interface}`" if plan.interface else "",
            f"subnet `{plan.subnet}`" if plan.subnet else "",
        )
        if part
    )
    yield error(
        "preflight.address",
        f"no IPv4 address on {configured}"
        if configured
        else "no IPv4 address by which the nodes reach each other",
        f"this node has {network.describe(facts.addresses)}; 169.254/16 never counts",
        "correct `network` in the site profile",
    )


def _check_ports(plan: Plan, facts: Facts) -> Iterator[Finding]:
    if plan.ray is None:
        if not facts.ports:
            what = f"none of the ports {MASTER_PORTS[0]}-{MASTER_PORTS[1]} is free for `MASTER_PORT`"
            yield error(
                "preflight.ports", what, fix="give the job its own nodes (`resources.exclusive: true`)"
            )
        return
    low, high = facts.ephemeral
    ranges = [
        (f"head port {plan.ray.port}", plan.ray.port, plan.ray.port),
        (f"worker ports {plan.ray.port_min}-{plan.ray.port_max}", plan.ray.port_min, plan.ray.port_max),
    ]
    for name, first, last in ranges:
        if first <= high and last >= low:
            yield error(
                "preflight.ports",
                f"Ray's {name} overlap the ephemeral range {low}-{high}",
                "any outgoing connection of this node may take one of them first",
                f"choose ports below {low} as `network.ray_ports` in the site profile",
            )
    if len(facts.ports) < RAY_SPARE_PORTS:
        yield error(
            "preflight.ports",
            f"the first part of {plan.ray.port_min}-{plan.ray.port_max} has "
            f"only {len(facts.ports)} free ports, Ray needs {RAY_SPARE_PORTS}",
            "something else listens on the others, or the range is too small",
            "give the job its own nodes (`resources.exclusive: true`), or choose another range",
        )


def _check_service_ports(plan: Plan, facts: Facts) -> Iterator[Finding]:
    for service in plan.services:
        if facts.service_ports.get(service.name) == 0:
            yield port_taken(service, service.port)


def _check_limits(plan: Plan, facts: Facts) -> Iterator[Finding]:
    if facts.open_files < MIN_OPEN_FILES:
        yield error(
            "preflight.open-files",
            f"`ulimit -n` is {facts.open_files}, and cannot be raised",
            f"Ray and the data loaders need at least {MIN_OPEN_FILES}",
            "raise the hard limit on the node (Slurm: `PropagateResourceLimitsExcept=NOFILE`)",
        )
    if facts.free_pids is not None and facts.free_pids < MIN_FREE_PIDS:
        yield error(
            "preflight.pids",
            f"only {facts.free_pids} more processes may be started",
            f"Ray needs at least {MIN_FREE_PIDS} processes and threads on a node",
            "raise `ulimit -u` or the pids limit of the container's cgroup",
        )
    if facts.shm_bytes < plan.shm_min_bytes:
        yield error(
            "preflight.shm",
            f"/dev/shm has {_size(facts.shm_bytes)}, the plan asks for {_size(plan.shm_min_bytes)}",
            "Ray's object store and NCCL live there",
            "start the container with a larger /dev/shm",
        )


def _check_disk(plan: Plan, facts: Facts) -> Iterator[Finding]:
    if facts.local_error:
        yield error(
            "preflight.node-local",
            f"`{facts.local_dir}` cannot be written: {facts.local_error}",
            "staging, the helper build and Ray keep their files there",
            facts.local_fix
            or "correct `paths.node_local` in the site profile, or mount it into the container",
        )
    elif facts.local_free < facts.stage_bytes + SPARE_BYTES:
        yield error(
            "preflight.disk",
            f"`{facts.local_dir}` has {_size(facts.local_free)} free, "
            f"staging needs {_size(facts.stage_bytes)} more "
            f"and {_size(SPARE_BYTES)} to spare",
            "the copy would fail half-way",
            "free space on the node, or read from shared storage with `stage: shared`",
        )


def _check_devices(planned: int, facts: Facts) -> Iterator[Finding]:
    if facts.gpus < planned:
        yield error(
            "preflight.gpus",
            f"the node has {facts.gpus} GPUs, the plan needs {planned}",
            "training would wait for GPUs that never come",
            "check the job's GPU request, and that the container sees /dev/nvidia*",
        )
    for name in facts.conflicts:
        yield error(
            "preflight.variable",
            f"`{name}` is set in the step",
            "Ray refuses to place work on GPUs when it is set beside `CUDA_VISIBLE_DEVICES`",
            f"unset `{name}` in the site's hooks or in the image",
        )


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
