"""Ray on one node as a child of the agent, and the head's wait until all nodes have joined.

Facts about Ray 2.60 that shape this module (each was seen):
- `ray stop` acts on every Ray of the machine, and does not end `ray start --block`. SIGTERM to the blocking
  process alone ends it. Ray drains for up to 30 s before that; this module switches the drain off.
- A plain `ray.init()` writes `~/.ray/auth_token`. Later clusters of the same HOME then want it, and a driver
  with an explicit address never reads it. So the environment of head, workers and driver always holds the
  mode and the token.
- Ray replaces 127.0.0.1 as node address by the address of the default route.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from jobspec.finding import Finding, error, warning
from jobspec.plan import Plan, RayPlan
from jobspec.runtime.base import own_folder
from jobspec.runtime.base.log_tail import tail
from jobspec.runtime.base.network import take_port
from jobspec.runtime.base.procs import Child, end_all, process_table, started

TOKEN_AUTH_SINCE = (2, 52)  # the first Ray that knows RAY_AUTH_MODE
SERVICE_PORT_SPAN = 100  # of the plan's range; jobs that share a node find free ones in it
DEFAULT_TEMP_DIR = Path("/tmp/ray")  # of a Ray that somebody else started
STOP_GRACE_S = 6.0
SERVERS = ("gcs_server", "raylet")  # children of `ray start`; a worker has no GCS
LAST_WORD_S = 3.0  # for `ray start` to say itself which of its processes has ended


@dataclass(frozen=True)
class RayPorts:
    """The fixed ports of one node's Ray; workers take theirs from the plan's range."""

    node_manager: int
    object_manager: int
    metrics_export: int
    agent_grpc: int
    agent_http: int
    runtime_env: int
    client_server: int
    autoscaler_metrics: int
    dashboard_metrics: int


@dataclass(frozen=True)
class RayStart:
    """What one node's `ray start` needs to know."""

    node: str
    ip: str
    address: str  # GCS, ip:port
    is_head: bool
    ports: RayPorts
    temp_dir: str
    index: int = 0

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> RayStart:
        return RayStart(**{**data, "ports": RayPorts(*data["ports"])})

    def to_json(self) -> Dict[str, Any]:
        ports = self.ports
        return {**vars(self), "ports": [getattr(ports, name) for name in RayPorts.__dataclass_fields__]}


def ray_version(env: Mapping[str, str]) -> Optional[Tuple[int, ...]]:
    """The version that a program with `env` would import; None when there is no Ray. Imports nothing."""
    numbers = re.match(r"(\d+)\.(\d+)", version := full_version(env))
    return (int(numbers[1]), int(numbers[2])) if numbers else (0,) if version else None


def full_version(env: Mapping[str, str]) -> str:
    """As Ray writes it; `?` where it does not, and empty when there is no Ray."""
    spec = PathFinder.find_spec("ray", _import_path(env))
    if spec is None or spec.origin is None:
        return ""
    found = None
    with contextlib.suppress(OSError):
        text = (Path(spec.origin).parent / "_version.py").read_text()
        found = re.search(r'version\s*=\s*"([^"]+)"', text)
    return found[1] if found else "?"


def has_client(env: Mapping[str, str]) -> bool:
    """Whether this Ray can serve Ray Client, which `pip install ray` alone cannot; training needs none.

    Given the client's port, a Ray without grpc refuses to start; with grpc and without a port it takes 10001,
    as every Ray of the node would. Source: ray 2.60, scripts/scripts.py, _private/utils.py.
    """
    return PathFinder.find_spec("grpc", _import_path(env)) is not None


def _import_path(env: Mapping[str, str]) -> List[str]:
    return [part for part in env.get("PYTHONPATH", "").split(":") if part] + sys.path


def authentication(env: Mapping[str, str]) -> Tuple[Dict[str, str], Tuple[Finding, ...]]:
    """`env` for this node's Ray, and the findings about its authentication.

    A Ray without token authentication gets an explicit mode: an open mode would follow a file in the
    user's home.
    """
    version = ray_version(env)
    if version is None:
        finding = error(
            "ray.missing",
            f"`{sys.executable}` has no Ray",
            "the plan runs its commands in a Ray cluster",
            "use an image with Ray, or name its interpreter as `container.python`",
        )
        return dict(env), (finding,)
    if version >= TOKEN_AUTH_SINCE:
        return dict(env), ()
    changed = {key: value for key, value in env.items() if key != "RAY_AUTH_TOKEN"}
    changed["RAY_AUTH_MODE"] = "disabled"
    shown = ".".join(map(str, version))
    finding = warning(
        "ray.no-token",
        f"Ray {shown} has no token authentication",
        "anybody who reaches its ports can run code as you",
        "use Ray 2.52 or newer, or nodes that nobody else reaches",
    )
    return changed, (finding,)


def port_ranges(ray: RayPlan) -> Tuple[Tuple[int, int], Tuple[int, int]]:
    """(first, last) for Ray's own services and (first, last) for its workers; they must not overlap. Pure."""
    split = ray.port_min + min(SERVICE_PORT_SPAN, (ray.port_max - ray.port_min + 1) // 2)
    return (ray.port_min, split - 1), (split, ray.port_max)


def start_command(plan: Plan, start: RayStart, client: bool = True) -> List[str]:
    """The `ray start` command of a node; `client`: see `has_client`. Pure."""
    if plan.ray is None:
        raise ValueError("the plan has no Ray")
    ports = start.ports
    # On one node nobody else has to reach the workers, and other runs may share it: the kernel chooses.
    worker_first, worker_last = port_ranges(plan.ray)[1] if plan.nodes > 1 else (0, 0)
    # A worker waits for the head's node with Ray already loaded.
    program = (
        ["ray.scripts.scripts"]
        if start.is_head
        else ["jobspec.runtime.raycluster.start_worker", start.address]
    )
    argv = [sys.executable, "-m", *program, "start", "--block", "--disable-usage-stats"]
    if start.is_head:
        argv += [
            "--head",
            f"--port={start.address.rpartition(':')[2]}",
            f"--include-dashboard={str(plan.ray.dashboard).lower()}",
        ]
        argv += [f"--ray-client-server-port={ports.client_server}"] if client else []
    else:
        argv.append(f"--address={start.address}")
    argv += [
        f"--node-ip-address={start.ip}",
        f"--node-name={start.node}",
        f"--temp-dir={start.temp_dir}",
        f"--num-gpus={plan.ray_gpus_of(start.index)}",
        f"--node-manager-port={ports.node_manager}",
        f"--object-manager-port={ports.object_manager}",
        f"--metrics-export-port={ports.metrics_export}",
        f"--dashboard-agent-grpc-port={ports.agent_grpc}",
        f"--dashboard-agent-listen-port={ports.agent_http}",
        f"--runtime-env-agent-port={ports.runtime_env}",
        f"--min-worker-port={worker_first}",
        f"--max-worker-port={worker_last}",
    ]
    part = plan.part_of(start.index)
    if part.cpus_per_node is not None:
        argv.append(f"--num-cpus={part.cpus_per_node}")
    if part.name:
        argv.append(f"--resources={json.dumps({part.resource: 1})}")
    return argv


def start_environment(plan: Plan, start: RayStart, env: Mapping[str, str]) -> Dict[str, str]:
    """`env` for `ray start`: patient at the start, quick at the end, its metrics on ports of its own. Pure.

    A worker looks for the head's node in 20 tries 2 s apart, too few for a head on a loaded node, and each
    node gives its own raylet 30 s to register: the plan's join time replaces both. `RayNode` sees a raylet
    that has ended, so that nobody waits for that one. At SIGTERM a node drains for up to 30 s for replicas
    that others still use: none does, the run is over. The head's two metrics servers have no options. Every
    Ray of a node wants their default ports (44217, 44227), which the kernel may have given to others.
    Source: ray 2.60, _private/ray_constants.py and node.py (its own 30 s count only once the GCS has been
    asked for `raylet_start_wait_time_s`), autoscaler/_private/constants.py, dashboard/consts.py.
    """
    seconds = plan.ray.join_timeout_s if plan.ray is not None else 0.0
    tries = str(max(20, int(seconds / 2) + 1))
    return {
        "RAY_raylet_start_wait_time_s": str(max(30, int(seconds))),
        **env,
        "RAY_NUM_REDIS_GET_RETRIES": tries,
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        "AUTOSCALER_METRIC_PORT": str(start.ports.autoscaler_metrics),
        "DASHBOARD_METRIC_PORT": str(start.ports.dashboard_metrics),
    }


class RayNode:
    """This node's Ray: one `ray start --block` and what it starts."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], temp_dir: Path, log: Path) -> None:
        self.log = log
        self._temp_dir = temp_dir
        own_folder.make(temp_dir)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._child = Child(argv, env, stdout=output)
        self._servers: Dict[
            str, Tuple[int, int]
        ] = {}  # of those that were seen: pid, when it was started (0: it had ended)

    def running(self) -> bool:
        return self._child.running()

    def wait(self, timeout_s: float) -> str:
        """How it has ended within `timeout_s`, empty when it goes on.

        While it starts, `ray start` itself waits for a server that has ended.
        """
        gone = self._gone_server() if self._child.wait(timeout_s) is None else ""
        if gone:
            self._child.wait(LAST_WORD_S)
        code = self._child.process.returncode
        if code is None:
            return gone and f"Ray's `{gone}` ended while Ray was starting"
        return f"Ray ended with status {code}"

    def _gone_server(self) -> str:
        if len(self._servers) < len(SERVERS):
            for info in process_table().values():
                name = _command(info.pid) if info.parent == self._child.pid else ""
                if name in SERVERS:
                    self._servers.setdefault(name, (info.pid, started(info.pid)))
        seen = self._servers.items()
        return next((name for name, (pid, since) in seen if not since or started(pid) != since), "")

    def stop(self) -> None:
        """End it and everything that it started; then remove its files."""
        members = self._child.members()
        self._child.signal_leader(15)
        self._child.wait(STOP_GRACE_S)
        end_all([*members, *self._child.members()], 0.5)
        self._child.wait(2.0)
        shutil.rmtree(self._temp_dir, ignore_errors=True)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def pick_head_port(planned: int, spare: int, local: bool) -> Tuple[int, Tuple[Finding, ...]]:
    """The GCS port: on a cluster the planned one, or `spare` with a warning when something listens there.

    On a workstation runs go on side by side and may start at the same moment: each takes its spare port.
    """
    if local:
        return spare, ()
    if take_port(planned):
        return planned, ()
    finding = warning(
        "ray.port-taken",
        f"port {planned} is in use on the head node; Ray uses {spare} instead",
        "another Ray, or one that was left behind, listens there",
        "give the job its own nodes, or end the old one",
    )
    return spare, (finding,)


class Probe:
    """The child that tells when Ray is ready (see `probe`)."""

    def __init__(self, address: str, gpus: Mapping[str, int], env: Mapping[str, str], log: Path) -> None:
        """`gpus` of each node by its name. The address `auto`: not our own Ray."""
        self._names = tuple(gpus)
        self._log = log
        self.alive: Dict[str, Mapping[str, float]] = {}
        self.ready = False
        self.imports: List[Mapping[str, Any]] = []
        self.error = ""
        argv = [sys.executable, "-m", "jobspec.runtime.raycluster.probe", json.dumps([address, gpus])]
        self._errors = log.open("ab")
        self._process = subprocess.Popen(
            argv,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    def read(self, on_change: Callable[[], None]) -> None:
        """Follow the child until it ends; `on_change` after every message. Runs in its own thread."""
        if self._process.stdout is None:
            raise ValueError("the probe has no pipe")
        for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            if not isinstance(message, dict):
                continue  # something that the environment prints at start
            self.alive = message.get("alive", self.alive)
            self.ready = self.ready or bool(message.get("ready"))
            self.imports = message.get("imports", self.imports)
            self.error = message.get("error", self.error)
            on_change()
        code = self._process.wait()
        if code != 0 and not self.error:
            self.error = f"the probe ended with status {code}: {tail(self._log, 3)}"
        self._errors.close()
        on_change()

    def ask_imports(self, modules: Sequence[str]) -> None:
        """Let it import `modules` on every node, once Ray is ready; it ends after that."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended; `error` says why
                self._process.stdin.write(json.dumps(list(modules)).encode() + b"\n")
                self._process.stdin.close()

    def missing(self) -> Tuple[str, ...]:
        return tuple(name for name in self._names if name not in self.alive)

    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        end_all([self._process.pid] if self.running() else [], 0.2)
        self._process.poll()


def wait_for_port(address: str, deadline_s: float, running: Callable[[], bool]) -> bool:
    """Whether `address` accepts within `deadline_s`, while `running`: a worker's Ray gives up early."""
    import socket

    host, _, port = address.rpartition(":")
    end = time.monotonic() + deadline_s
    while running() and time.monotonic() < end:
        try:
            socket.create_connection((host, int(port)), timeout=2.0).close()
            return True
        except OSError:
            time.sleep(0.05)
    return False
