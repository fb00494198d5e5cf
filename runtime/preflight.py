"""What must hold on every node before a byte is staged. Each check is a function of facts.

`gather` looks at the node once; the checks are pure, so that each can be tested with the facts of
any node. Everything that they find is reported at once, each finding with the node's name.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from jobspec.finding import Finding, error, warning
from jobspec.plan import Plan, StagePlan
from jobspec.runtime import network, raycluster
from jobspec.runtime.identity import Identity, NodePaths

MIN_PYTHON = (3, 9)
MIN_OPEN_FILES = 4096  # Ray opens one per worker and connection and warns below; torch adds its own
MIN_FREE_PIDS = 512  # a node's Ray starts some 100 processes and threads by the hundred
MAX_CLOCK_SKEW_S = 5.0
SPARE_BYTES = 1 << 30  # left free beside what is staged: Ray refuses to start objects above 95 %
RAY_SPARE_PORTS = 9  # see RayPorts, and one each for the GCS and MASTER_PORT
MASTER_PORTS = (20000, 20999)  # without Ray
CANARY_S = 20.0  # shared file systems show a new file late: NFS caches a listing up to 60 s, a look-up less
# Ray sets CUDA_VISIBLE_DEVICES and refuses these beside it. Source: ray 2.60, _private/accelerators.
CONFLICTS = ("ROCR_VISIBLE_DEVICES",)


@dataclass(frozen=True)
class Facts:
    """What one node said about itself. Sizes in bytes, times as epoch seconds."""

    node: str
    python: Tuple[int, ...]
    python_path: str
    addresses: Tuple[network.Address, ...]
    ip: Optional[str]
    ephemeral: Tuple[int, int]
    open_files: int
    free_pids: Optional[int]
    local_dir: str
    local_free: int
    local_error: str
    shm_bytes: int
    gpus: int
    cpus: int
    clock_skew_s: float
    canary: str  # empty: seen, else what went wrong
    conflicts: Tuple[str, ...] = ()
    stage_bytes: int = 0
    ports: Tuple[int, ...] = ()

    def to_json(self) -> Dict[str, Any]:
        """The facts that the report shows."""
        return {
            "python": ".".join(map(str, self.python)),
            "python_path": self.python_path,
            "open_files": self.open_files,
            "local_free": self.local_free,
            "shm_bytes": self.shm_bytes,
            "ephemeral": list(self.ephemeral),
            "clock_skew_s": round(self.clock_skew_s, 3),
            "stage_bytes": self.stage_bytes,
            "addresses": [f"{one.interface} {one.ip}" for one in self.addresses],
        }


def gather(
    plan: Plan,
    who: Identity,
    paths: NodePaths,
    *,
    nonce: str,
    head_time: float,
    reached: str,
    env: Mapping[str, str],
) -> Facts:
    """Look at this node. Touches: the canary in the attempt folder, `node_local`, ports for a moment."""
    have = network.addresses()
    local_error, local_free = _prepare_local(Path(plan.node_local))
    return Facts(
        node=who.name,
        python=tuple(sys.version_info[:3]),
        python_path=sys.executable,
        addresses=have,
        ip=network.choose(have, plan.interface, plan.subnet, reached),
        ephemeral=network.ephemeral_range(),
        open_files=_raise_open_files(),
        free_pids=_free_pids(),
        local_dir=plan.node_local,
        local_free=local_free,
        local_error=local_error,
        shm_bytes=_shm_bytes(),
        gpus=count_gpus(env),
        cpus=len(os.sched_getaffinity(0)),
        clock_skew_s=time.time() - head_time,
        canary=_answer_canary(paths.attempt, who.name, nonce),
        conflicts=tuple(name for name in CONFLICTS if env.get(name)),
        stage_bytes=sum(_source_bytes(item) for item in plan.stage if item.node_local),
        ports=_ports(plan, who, nonce),
    )


def _ports(plan: Plan, who: Identity, nonce: str) -> Tuple[int, ...]:
    """Free ports for Ray's services, its GCS in need, and MASTER_PORT last.

    Every run looks from another place on, so that two that start at once on one node seldom meet.
    """
    first, last = raycluster.port_ranges(plan.ray)[0] if plan.ray else MASTER_PORTS
    wanted = RAY_SPARE_PORTS if plan.ray else 1
    offset = int(nonce[:8], 16) + who.index * RAY_SPARE_PORTS
    return tuple(network.free_ports(first, last, wanted, offset))


def check(plan: Plan, facts: Facts) -> Tuple[Finding, ...]:
    """All findings about one node. Pure."""
    found: List[Finding] = []
    for one in (
        _check_python,
        _check_canary,
        _check_address,
        _check_ports,
        _check_limits,
        _check_disk,
        _check_devices,
    ):
        found.extend(one(plan, facts))
    if abs(facts.clock_skew_s) > MAX_CLOCK_SKEW_S:
        found.append(
            warning(
                "preflight.clock",
                f"the clock differs by {facts.clock_skew_s:.0f} s from the head's",
                "times in its logs do not match those of other nodes",
                "synchronise the node's clock",
            )
        )
    return tuple(replace(finding, node=facts.node) for finding in found)


def write_canary(attempt: Path, nonce: str) -> None:
    """The head's half of the canary. Raises: OSError."""
    folder = attempt / "canary"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "head").write_text(nonce)


def read_answers(attempt: Path, names: Sequence[str], nonce: str) -> Tuple[str, ...]:
    """The nodes whose answer the head does not see within `CANARY_S`."""
    missing = list(names)
    end = time.monotonic() + CANARY_S
    while True:
        missing = [name for name in missing if _read(attempt / "canary" / f"node-{name}") != nonce]
        if not missing or time.monotonic() > end:
            return tuple(missing)
        time.sleep(0.05)


def count_gpus(env: Mapping[str, str]) -> int:
    """GPUs that this process may use: those of /dev that the visible-devices variable allows."""
    devices = [name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]  # noqa: PTH208
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not devices:
        return len(devices)
    return len([part for part in visible.split(",") if part.strip() and part.strip() != "-1"])


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
    wanted = " and ".join(
        part
        for part in (
            f"interface `{plan.interface}`" if plan.interface else "",
            f"subnet `{plan.subnet}`" if plan.subnet else "",
        )
        if part
    )
    yield error(
        "preflight.address",
        f"no IPv4 address on {wanted}" if wanted else "no IPv4 address by which the nodes reach each other",
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
            f"only {len(facts.ports)} free ports, {RAY_SPARE_PORTS} needed, in the first part of "
            f"{plan.ray.port_min}-{plan.ray.port_max}",
            "something else listens on the others, or the range is too small",
            "give the job its own nodes (`resources.exclusive: true`) or choose another range",
        )


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
            "correct `paths.node_local` in the site profile, or mount it into the container",
        )
    elif facts.local_free < facts.stage_bytes + SPARE_BYTES:
        yield error(
            "preflight.disk",
            f"`{facts.local_dir}` has {_size(facts.local_free)} free, "
            f"staging needs {_size(facts.stage_bytes)} "
            f"and {_size(SPARE_BYTES)} to spare",
            "the copy would fail half-way",
            "free space on the node, or read from shared storage with `stage: shared`",
        )


def _check_devices(plan: Plan, facts: Facts) -> Iterator[Finding]:
    if facts.gpus < plan.gpus_per_node:
        yield error(
            "preflight.gpus",
            f"{facts.gpus} GPUs seen, {plan.gpus_per_node} planned",
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


def _answer_canary(attempt: Path, name: str, nonce: str) -> str:
    """Read the head's nonce and write it back; what went wrong, or nothing."""
    head = attempt / "canary" / "head"
    end = time.monotonic() + CANARY_S
    while _read(head) != nonce:
        if time.monotonic() > end or not attempt.parent.parent.is_dir():
            found = _read(head)
            return f"`{head}` {'has other content' if found else 'is not there'}"
        time.sleep(0.05)
    try:
        (head.parent / f"node-{name}").write_text(nonce)
    except OSError as failure:
        return f"`{head.parent}` cannot be written: {failure.strerror}"
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def _prepare_local(path: Path) -> Tuple[str, int]:
    """(what went wrong, free bytes) of the node-local folder, which is made when missing."""
    try:
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o1777)  # users share a node's disk as they share /tmp
        probe = path / f".probe-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
        return "", shutil.disk_usage(path).free
    except OSError as failure:
        return failure.strerror or str(failure), 0


def _source_bytes(item: StagePlan) -> int:
    """Bytes below a stage source, links followed to files once each; 0 when it is not there."""
    seen = set()
    total = 0
    root = Path(item.source)
    files = (
        [root]
        if root.is_file()
        else (Path(folder) / name for folder, _, names in os.walk(root) for name in names)
    )
    for path in files:
        try:
            info = path.stat()
        except OSError:
            continue  # staging names it
        if stat.S_ISREG(info.st_mode) and (info.st_dev, info.st_ino) not in seen:
            seen.add((info.st_dev, info.st_ino))
            total += info.st_size
    return total


def _raise_open_files() -> int:
    """Raise `ulimit -n` to the hard limit, which Ray and our children inherit; the limit that holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def _free_pids() -> Optional[int]:
    """How many more processes the cgroup and the user's limit allow; None where nothing limits."""
    limits: List[int] = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        root = "/sys/fs/cgroup" + ("/pids" if controllers == "pids" else "")
        if controllers in ("", "pids"):
            most, now = _read(Path(f"{root}{path}/pids.max")), _read(Path(f"{root}{path}/pids.current"))
            if most.strip().isdigit() and now.strip().isdigit():
                limits.append(int(most) - int(now))
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.getuid() != 0:
        limits.append(soft - _own_processes())
    return min(limits) if limits else None


def _own_processes() -> int:
    count = 0
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                count += os.stat(f"/proc/{name}").st_uid == os.getuid()  # noqa: PTH116
            except OSError:
                continue
    return count


def _shm_bytes() -> int:
    try:
        return shutil.disk_usage("/dev/shm").total
    except OSError:
        return 0


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
