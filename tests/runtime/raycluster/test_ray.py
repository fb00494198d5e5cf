"""Real Ray, brought up by real agents: on one node, and on two with a network of their own each."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.plan import CommandPlan, ImportProof, Plan, RepoPlan
from jobspec.runtime.base import signals
from jobspec.runtime.head.ray_bringup import RAYS_OWN_LIMIT_S
from jobspec.runtime.raycluster import process
from tests.kits.agent_lab import HOSTILE_CALLER, RAY, Run, running, shell
from tests.kits.netns_kit import IP, NETNS, NetRun, spaces

pytestmark = pytest.mark.ray
ASK = """
import json, os, time, ray
ray.init(logging_level="ERROR", log_to_driver=False)
@ray.remote(num_cpus=0.1)
def variable(name): return os.environ.get(name, "")
nodes = [n for n in ray.nodes() if n["Alive"]]
out = {"nodes": len(nodes), "mode": os.environ["RAY_AUTH_MODE"], "home": os.environ["HOME"]}
out["task"] = ray.get(variable.remote("JOBSPEC_METRICS_DIR"))
monitor = os.path.join(ray._private.worker._global_node.get_logs_dir_path(), "monitor.log")
while not os.path.exists(monitor) or "Monitor: Started" not in open(monitor).read():
    time.sleep(0.1)
out["monitor"] = [line for line in open(monitor) if "Error" in line]
out["signals"] = {}
mark = ("JOBSPEC_RUN_DIR=" + os.environ["JOBSPEC_RUN_DIR"]).encode()
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if mark in open(f"/proc/{pid}/environ", "rb").read().split(b"\\0"):
            status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
            masks = [int(status[key], 16) for key in ("SigBlk", "SigIgn")]
            out["signals"][status["Name"].strip() + "-" + pid] = masks
    except OSError:
        pass
open(os.path.join(os.environ["JOBSPEC_ATTEMPT_DIR"], "asked.json"), "w").write(json.dumps(out))
"""
# Ray itself blocks SIGINT in what it starts.
TO_END = sum(1 << number - 1 for number in signals.HANDLED - {signal.SIGINT})
ask = CommandPlan("ask", (sys.executable, "-c", ASK))


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a short path: Ray's sockets have 107 bytes."""
    folder = Path(f"/tmp/jt{os.getpid()}-{time.monotonic_ns() % 10**6}")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def repo(root: Path) -> dict[str, object]:
    """A checkout with a package to prove."""
    (root / "src" / "proved").mkdir(parents=True)
    (root / "src" / "proved" / "__init__.py").write_text("")
    path = str(root / "src")
    return {
        "repos": (RepoPlan("r", path, pythonpath=(path,)),),
        "proofs": (ImportProof("proved", path, "r"),),
    }


def test_one_node_with_proof_and_a_trap_in_home(short: Path) -> None:
    """A token that an earlier `ray.init()` left in HOME must not be used by anybody."""
    with running(short, ask, mode="ray", ray=RAY, **repo(short)) as run:
        trap = run.root / "home" / ".ray"
        trap.mkdir()
        (trap / "auth_token").write_text("a-token-of-long-ago")
        run.agent(prefix=HOSTILE_CALLER)
        code, output = run.finish()
        asked = json.loads((run.attempt / "asked.json").read_text())
        results = run.results()
        assert run.leftovers() == []
        assert list((short / "l").glob("r-*")) == []
        assert (trap / "auth_token").read_text() == "a-token-of-long-ago"
    assert code == 0, output
    assert (asked["nodes"], asked["mode"], asked["home"]) == (1, "token", str(run.root / "home"))
    assert asked["task"] == str(run.attempt / "metrics")
    assert {"gcs_server", "raylet"} <= {name.rpartition("-")[0] for name in asked["signals"]}
    assert [
        name for name, (blocked, ignored) in asked["signals"].items() if (blocked | ignored) & TO_END
    ] == []
    (host,) = [row["name"] for row in results["nodes"]]
    assert results["imports"] == {"proved": {host: str(short / "src" / "proved" / "__init__.py")}}


def test_stranger_is_refused_and_a_dead_ray_ends_the_run(short: Path) -> None:
    with running(short, shell("echo up > $JOBSPEC_ATTEMPT_DIR/up; sleep 300"), mode="ray", ray=RAY) as run:
        run.agent()
        run.wait_file(run.attempt / "up", 180)
        join = "import ray,sys; ray.init(address=sys.argv[1], logging_level='ERROR')"
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(short),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": "0" * 64,
        }
        stranger = subprocess.run(
            [sys.executable, "-c", join, f"127.0.0.1:{RAY.port}"],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        (gcs,) = [row for row in run.leftovers() if "gcs_server" in row.split("\0")[0]]
        os.kill(int(gcs.split()[0]), signal.SIGKILL)
        assert run.finish()[0] == 1
        results = run.results()
        assert run.leftovers() == []
        logs = [p.name for p in run.attempt.glob("logs/*/ray/*")]
    assert stranger.returncode != 0
    assert "Unauthenticated" in stranger.stderr or "ConnectionError" in stranger.stderr
    assert results["findings"][0]["rule"] == "ray.ended"
    assert "gcs_server.out" in logs


def test_missing_ray_is_named(short: Path) -> None:
    """The interpreter of the container has no Ray."""
    with running(short, ask, mode="ray", ray=RAY) as run:
        run.agent(python=shutil.which("python3", path="/usr/bin") or sys._base_executable)
        assert run.finish()[0] == 3
        assert run.results()["findings"][0]["rule"] == "ray.missing"


@pytest.fixture
def network() -> Iterator[list[str]]:
    with spaces() as names:
        yield names


def start_both(run: Run, network: list[str]) -> None:
    for index, space in enumerate(network):
        run.agent(index, prefix=[IP, "netns", "exec", space])


@NETNS
def test_two_nodes(short: Path, network: list[str]) -> None:
    ray = replace(RAY, port=6379, join_timeout_s=180.0)
    fields = repo(short)
    with running(short, ask, mode="ray", ray=ray, nodes=2, interface="veth0", **fields) as plain:
        run = NetRun(plain.root, plain.plan, agents=plain.agents)
        start_both(run, network)
        code, output = run.finish()
        asked = json.loads((run.attempt / "asked.json").read_text())
        assert run.finish(run.agents[1])[0] == 0
        results = run.results()
        assert run.leftovers() == []
    assert code == 0, output
    assert asked["nodes"] == 2
    assert [row["ip"] for row in results["nodes"]] == ["10.88.7.2", "10.88.7.3"]
    assert set(results["imports"]["proved"]) == {"10.88.7.2", "10.88.7.3"}


@NETNS
def test_node_whose_ray_cannot_join_is_named(short: Path, network: list[str]) -> None:
    """The agents meet by one network; Ray is given another, where node 2 reaches nobody."""
    for number, space in enumerate(network):
        extra = f"-n {space} addr add 10.99.{number}.1/32 dev veth0"
        subprocess.run([IP, *extra.split()], check=True)
    subprocess.run([IP, "-n", network[1], "route", "add", "blackhole", "10.99.0.1/32"], check=True)
    ray = replace(RAY, port=6379, join_timeout_s=30.0)
    with running(short, ask, mode="ray", ray=ray, nodes=2, subnet="10.99.0.0/16") as plain:
        run = NetRun(plain.root, plain.plan, agents=plain.agents)
        start_both(run, network)
        assert run.finish()[0] == 3
        assert run.finish(run.agents[1])[0] == 0
        results = run.results()
        assert run.leftovers() == []
    assert results["first_phase_failed"] == "ray", results["findings"]
    assert {one["node"] for one in results["findings"]} == {"10.88.7.3"}


@NETNS
@pytest.mark.parametrize("phase", ["ray", "driver"])
def test_worker_killed(short: Path, network: list[str], phase: str) -> None:
    text = "echo up > $JOBSPEC_ATTEMPT_DIR/up; sleep 300"
    ray = replace(RAY, port=6379, join_timeout_s=180.0)
    with running(short, shell(text), mode="ray", ray=ray, nodes=2) as plain:
        run = NetRun(plain.root, plain.plan, agents=plain.agents)
        start_both(run, network)
        if phase == "ray":
            run.wait_event("ray", "start")
        else:
            run.wait_file(run.attempt / "up", 180)
        os.kill(run.agent_pid(1), signal.SIGKILL)
        code, output = run.finish()
        assert code == (3 if phase == "ray" else 1), output
        run.finish(run.agents[1])
        results = run.results()
        assert run.leftovers() == []
    first = results["findings"][0]
    assert (first["rule"], first["node"]) == ("node.lost", "10.88.7.3")
    assert results["first_phase_failed"] == phase


def test_two_local_runs_at_the_same_moment(short: Path) -> None:
    """Neither takes the other's ports, nor ends the other's Ray."""
    fields = {"mode": "ray", "ray": RAY, "scheduler": "local"}
    with running(short / "a", ask, **fields) as one, running(short / "b", ask, **fields) as two:
        one.agent()
        two.agent()
        (code_one, output_one), (code_two, output_two) = one.finish(), two.finish()
        assert (code_one, code_two) == (0, 0), output_one + output_two
        asked = [json.loads((run.attempt / "asked.json").read_text()) for run in (one, two)]
    assert [(row["nodes"], row["monitor"]) for row in asked] == [(1, []), (1, [])]


def test_ray_without_token_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("")
    (tmp_path / "ray" / "_version.py").write_text('version = "2.51.1"\n')
    env = {"PYTHONPATH": str(tmp_path), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "x"}
    changed, (finding,) = process.authentication(env)
    assert (changed["RAY_AUTH_MODE"], "RAY_AUTH_TOKEN" in changed) == ("disabled", False)
    assert (finding.rule, finding.severity) == ("ray.no-token", "warning")
    assert "2.51" in finding.what


def test_services_and_workers_share_no_port() -> None:
    (first, last), (worker_first, worker_last) = process.port_ranges(RAY)
    assert (first, worker_last) == (RAY.port_min, RAY.port_max)
    assert last + 1 == worker_first


@pytest.mark.parametrize(("nodes", "ports"), [(1, (0, 0)), (2, process.port_ranges(RAY)[1])])
def test_worker_ports(nodes: int, ports: tuple[int, int]) -> None:
    """Workers of one node take what the kernel gives: runs beside it may start at the same moment."""
    plan = Plan("t", "command", "test", "slurm", "ray", nodes=nodes, ray=RAY)
    own = process.RayPorts(*range(21000, 21009))
    start = process.RayStart("n1", "10.0.0.1", "10.0.0.1:26379", True, own, "/tmp/r")
    argv = process.start_command(plan, start)
    assert {f"--min-worker-port={ports[0]}", f"--max-worker-port={ports[1]}"} <= set(argv)


@pytest.mark.parametrize("installed", [True, False])
def test_ray_without_extras_is_not_asked_for_its_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    """`ray start` with that port and no grpc ends at once: "Ray Client requires pip package ..."."""
    monkeypatch.setattr(sys, "path", [])
    if installed:
        (tmp_path / "grpc").mkdir()
        (tmp_path / "grpc" / "__init__.py").write_text("")
    plan = Plan("t", "command", "test", "slurm", "ray", ray=RAY)
    own = process.RayPorts(*range(21000, 21009))
    start = process.RayStart("n1", "10.0.0.1", "10.0.0.1:26379", True, own, "/tmp/r")
    argv = process.start_command(plan, start, process.has_client({"PYTHONPATH": str(tmp_path)}))
    assert (f"--ray-client-server-port={own.client_server}" in argv) is installed


def server(run: Run, name: str) -> int:
    """The pid of a server of Ray's as soon as it is there."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        for row in run.leftovers():
            if row.split("\0")[0].endswith(f"/{name}"):
                return int(row.split()[0])
        time.sleep(0.01)
    raise AssertionError(f"no {name}")


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("gcs_server", 15), pytest.param("raylet", 35, marks=[pytest.mark.slow, pytest.mark.nightly])],
)
def test_start_outlasts_a_server_that_stands_still(short: Path, name: str, seconds: int) -> None:
    """As on a busy machine: our own questions waited 5 s for the GCS, and Ray waits 30 s for its raylet."""
    with running(short, ask, mode="ray", ray=RAY) as run:
        run.agent()
        pid = server(run, name)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        code, output = run.finish()
        assert code == 0, output
        assert "ray.slow" in run.rules() or seconds < RAYS_OWN_LIMIT_S  # the machine may be slow itself


def test_server_that_dies_while_ray_starts_is_named_at_once(short: Path) -> None:
    """`ray start` would wait for it as long as for one that is slow."""
    with running(short, ask, mode="ray", ray=RAY) as run:
        run.agent()
        os.kill(server(run, "raylet"), signal.SIGKILL)
        assert run.finish()[0] == 3
        (finding,) = run.results()["findings"]
        assert (finding["rule"], finding["what"]) == (
            "ray.ended",
            "Ray's `raylet` ended while Ray was starting",
        )
