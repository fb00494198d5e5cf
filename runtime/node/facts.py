"""What one node says about itself before a byte is staged. `preflight` judges it."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from jobspec.finding import JobspecError
from jobspec.plan import Plan, StagePlan
from jobspec.runtime.base import network, own_folder
from jobspec.runtime.base.canary import answer_canary
from jobspec.runtime.base.full_disk import refusal
from jobspec.runtime.base.identity import Identity, NodePaths
from jobspec.runtime.node.software import software
from jobspec.runtime.raycluster import process
from jobspec.runtime.staging.places import left_bytes

RAY_SPARE_PORTS = 11  # see RayPorts, and one each for the GCS and MASTER_PORT
MASTER_PORTS = (20000, 20999)  # without Ray
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
    stage_bytes: int = 0  # still to be copied
    local_fix: str = ""
    ports: Tuple[int, ...] = ()
    software: Mapping[str, object] = field(default_factory=dict)
    service_ports: Mapping[str, int] = field(default_factory=dict)  # by service; 0: none is free

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
            "addresses": [f"{address.interface} {address.ip}" for address in self.addresses],
            **self.software,
        }


def gather(
    plan: Plan,
    who: Identity,
    paths: NodePaths,
    *,
    nonce: str,
    clock_skew_s: float,
    reached: str,
    env: Mapping[str, str],
) -> Facts:
    """Look at this node. Touches: the canary in the attempt folder, `node_local`, ports for a moment."""
    have = network.addresses()
    ports, service_ports = _ports(plan, who, nonce)
    local_error, local_fix, local_free = _prepare_local(Path(plan.node_local))
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
        local_fix=local_fix,
        shm_bytes=_shm_bytes(),
        gpus=count_gpus(env),
        cpus=len(os.sched_getaffinity(0)),
        clock_skew_s=clock_skew_s,
        canary=answer_canary(paths.attempt, who.name, nonce),
        conflicts=tuple(name for name in CONFLICTS if env.get(name)),
        stage_bytes=sum(
            _left_bytes(item, plan.node_local)
            for item in plan.stage
            if item.node_local and not item.from_hub  # the hub has not been asked for sizes yet
        ),
        ports=ports,
        software=software(),
        service_ports=service_ports,
    )


def _ports(plan: Plan, who: Identity, nonce: str) -> Tuple[Tuple[int, ...], Dict[str, int]]:
    """Ports for Ray, a spare one for its GCS, and MASTER_PORT last; and those of the run's services here.

    No other run here has them.
    Each run starts its search elsewhere: a run that ended just now may still occupy a port.
    """
    first, last = process.port_ranges(plan.ray)[0] if plan.ray else MASTER_PORTS
    count = RAY_SPARE_PORTS if plan.ray else 1
    offset = int(nonce[:8], 16) + who.index * RAY_SPARE_PORTS
    here = [service for service in plan.services if who.index in service.nodes]
    fixed = {service.name: service.port * network.take_port(service.port) for service in here if service.port}
    free = [service.name for service in here if not service.port]
    taken = network.take_ports(first, last, count + len(free), offset)
    own = taken[count:] + [0] * len(free)
    return tuple(taken[:count]), {**fixed, **{name: own[at] for at, name in enumerate(free)}}


def count_gpus(env: Mapping[str, str]) -> int:
    """GPUs that this process may use: those of /dev that the visible-devices variable allows."""
    devices = [name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdecimal()]  # noqa: PTH208
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not devices:
        return len(devices)
    return len([part for part in visible.split(",") if part.strip() and part.strip() != "-1"])


def _prepare_local(path: Path) -> Tuple[str, str, int]:
    """(what went wrong, its fix, free bytes) of the node-local folder, which is made when missing.

    Raises: JobspecError when others may change it.
    """
    try:
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o1777)  # users share a node's disk as they share /tmp
        own_folder.check_parent(path)
        probe = path / f".probe-{os.getpid()}"
        try:
            probe.write_bytes(b"x")
        finally:
            probe.unlink(missing_ok=True)
        return "", "", shutil.disk_usage(path).free
    except OSError as failure:
        return (*refusal(failure, path), 0)


def _left_bytes(item: StagePlan, node_local: str) -> int:
    """Bytes that are still to be copied; none of a source that cannot be listed, which staging names."""
    try:
        return left_bytes(item, node_local)
    except (JobspecError, OSError):
        return 0


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
            if most.strip().isdecimal() and now.strip().isdecimal():
                limits.append(int(most) - int(now))
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.getuid() != 0:
        limits.append(soft - _own_processes())
    return min(limits) if limits else None


def _own_processes() -> int:
    count = 0
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdecimal():
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


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
