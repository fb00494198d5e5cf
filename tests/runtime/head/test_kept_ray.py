"""A kept Ray, real: held runs and their guests, whose agents are on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec.plan import CommandPlan
from tests.kits.agent_lab import RAY, Run, running
from tests.kits.netns_kit import IP, NETNS, NetRun, spaces

pytestmark = pytest.mark.ray
KEPT = replace(RAY, port=26580)
DRIVER = """
import json, os, subprocess, sys, ray
ray.init(logging_level="ERROR", log_to_driver=False)
names = "JOBSPEC_RUN_DIR", "PYTHONPATH", "OF_ADAPTER"
who = lambda self=None: {name: os.environ.get(name) for name in names}
told = {"task": ray.get(ray.remote(who).remote()), "driver": who()}
told["session"] = ray._private.worker._global_node.session_name
if "leak" in sys.argv:
    sleep = lambda: subprocess.Popen(["sleep", "300"], start_new_session=True).pid
    ray.get(ray.remote(sleep).remote())
    leaky = ray.remote(num_cpus=0)(type("Leaky", (), {"who": who}))
    ray.get(leaky.options(name="leaky", lifetime="detached").remote().who.remote())
open(os.environ["JOBSPEC_ATTEMPT_DIR"] + "/told.json", "w").write(json.dumps(told))
"""


def driver(*words: str) -> CommandPlan:
    return CommandPlan("driver", (sys.executable, "-c", DRIVER, *words))


class Allocation:
    """One held run and its guests, in a job of one node."""

    def __init__(self, root: Path) -> None:
        self.root, self.job, self.stack = root, str(time.monotonic_ns() % 10**9), ExitStack()
        self.count = 0

    def start(self, *commands: CommandPlan, prefix: Sequence[str] = (), **fields: Any) -> Run:
        self.count += 1
        root = self.root / str(self.count)
        fields = {
            "ray": KEPT,
            "node_local": str(self.root / "l"),
            "env": {"OF_ADAPTER": "${JOBSPEC_METRICS_DIR}/x"},
            **fields,
        }
        run = self.stack.enter_context(running(root, *commands, mode="ray", **fields))
        run.agent(prefix=prefix, env={"SLURM_JOB_ID": self.job})
        return run

    def held(self, *commands: CommandPlan, **fields: Any) -> Run:
        run = self.start(*commands, hold=True, **fields)
        end = time.monotonic() + 120
        while not any((row.get("data") or {}).get("what") == "hold" for row in run.events()):
            assert time.monotonic() < end, run.describe()
            assert run.agents[0].poll() is None, run.finish()
            time.sleep(0.05)
        return run

    def guest(self, *commands: CommandPlan, **fields: Any) -> Run:
        run = self.start(*commands, kept_ray=True, **fields)
        code, output = run.finish()
        assert code == 0, output + run.describe()
        return run


@pytest.fixture
def allocation() -> Iterator[Allocation]:
    folder = Path(f"/tmp/jk{os.getpid()}-{time.monotonic_ns() % 10**6}")
    folder.mkdir()
    made = Allocation(folder)
    try:
        with made.stack:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def told(run: Run) -> dict[str, Any]:
    return json.loads((run.attempt / "told.json").read_text())


def kept(run: Run) -> dict[str, Any] | None:
    """What the end of phase `ray` tells of a kept one."""
    told = [row.get("data") for row in run.events() if (row["phase"], row["event"]) == ("ray", "end")]
    return next(data for data in told if "nodes" in (data or {})).get("kept")


def why_not(run: Run) -> str:
    return "".join(f["why"] for f in run.results()["findings"] if f["rule"] == "ray.not-kept")


def test_one_run_after_another_uses_the_ray_of_the_held_run(allocation: Allocation) -> None:
    held = allocation.held(driver())
    first = allocation.guest(driver())
    second = allocation.guest(driver())
    for run in (first, second):
        assert run.results()["findings"] == []
        assert kept(run)["run"] == f"{held.root.parent.name}/run"
        assert told(run)["session"] == told(held)["session"]
        # Its workers have the guest's own folders and search path.
        assert told(run)["task"] == told(run)["driver"]
        assert told(run)["task"]["JOBSPEC_RUN_DIR"] == str(run.root)
        assert told(run)["task"]["OF_ADAPTER"] == str(run.attempt / "metrics/x")
    held.agents[0].send_signal(signal.SIGTERM)
    assert held.finish()[0] == 0
    assert held.leftovers() == []
    assert list((allocation.root / "l").glob("r*-*")) == []


def test_what_a_run_leaves_ends_the_kept_ray_and_the_next_run_has_one_of_its_own(
    allocation: Allocation,
) -> None:
    held = allocation.held()
    leaky = allocation.guest(driver("leak"))
    assert kept(leaky) is not None
    assert "actor `leaky` is alive" in why_not(leaky)
    after = allocation.guest(driver())
    assert kept(after) is None
    assert f"run `{leaky.root.parent.name}/run` did not leave it clean" in why_not(after)
    assert told(after)["session"] != told(leaky)["session"]
    assert held.agents[0].poll() is None  # it is held all the same
    assert leaky.leftovers() == []
    held.agents[0].send_signal(signal.SIGTERM)
    assert held.finish()[0] == 0
    assert "ray.ended" not in held.rules()
    assert held.leftovers() == []


def test_a_ray_that_is_not_as_the_run_would_start_it_is_left_alone(allocation: Allocation) -> None:
    held = allocation.held(driver("leak"))
    dirty = allocation.guest(driver())
    assert kept(dirty) is None
    assert "actor `leaky` is alive" in why_not(dirty)
    assert "is left on" in why_not(dirty)
    other = allocation.guest(driver(), env={"OF_ADAPTER": "else"}, ray=replace(KEPT, num_cpus=2))
    assert "variable `OF_ADAPTER` has another value" in why_not(other)
    assert "Ray's num_cpus: `1` of its Ray, `2` of this run" in why_not(other)
    assert "ray::Leaky" in str(held.leftovers())


def test_neither_a_killed_guest_nor_a_killed_held_run_leaves_a_kept_ray(allocation: Allocation) -> None:
    held = allocation.held()
    killed = allocation.start(CommandPlan("wait", ("sleep", "300")), kept_ray=True)
    killed.wait_event("driver", "progress")
    os.kill(agent_of(killed), signal.SIGKILL)
    killed.finish()
    after = allocation.guest(driver())
    assert kept(after) is None
    assert "did not leave it clean" in why_not(after)
    os.kill(agent_of(held), signal.SIGKILL)
    held.finish()
    assert held.leftovers() == []
    assert "no held run of this allocation has one" in why_not(allocation.guest(driver()))


def agent_of(run: Run) -> int:
    records = [json.loads(path.read_text()) for path in Path(run.plan.node_local).glob("agents-*/*.json")]
    return next(int(row["pid"]) for row in records if row["run_dir"] == str(run.root))


BWRAP = shutil.which("bwrap") or ""
# Mounts of its own, as a container of a step has them.
CONTAINER = (BWRAP, "--die-with-parent", "--bind", "/", "/", "--dev-bind", "/dev", "/dev")


@pytest.mark.skipif(not BWRAP, reason="needs bubblewrap")
def test_runs_in_containers_of_their_own_share_a_kept_ray_but_for_process_numbers(
    allocation: Allocation,
) -> None:
    held = allocation.held(prefix=(*CONTAINER, "--proc", "/proc"))
    guest = allocation.guest(driver(), prefix=(*CONTAINER, "--proc", "/proc"))
    assert kept(guest) is not None, why_not(guest)
    assert told(guest)["task"] == told(guest)["driver"]
    apart = allocation.guest(driver(), prefix=(*CONTAINER, "--unshare-pid", "--proc", "/proc"))
    assert kept(apart) is None
    assert "pid namespace" in why_not(apart)
    held.agents[0].send_signal(signal.SIGTERM)
    held.finish()
    assert held.leftovers() == []


class TwoNodes(Allocation):
    """Its nodes have a network and a disk of their own each."""

    def __init__(self, root: Path, network: Sequence[str]) -> None:
        super().__init__(root)
        self.network = network
        for folder in ("l", "l0", "l1"):
            (root / folder).mkdir()

    def start(self, *commands: CommandPlan, prefix: Sequence[str] = (), **fields: Any) -> Run:
        ray = replace(RAY, port=6379, join_timeout_s=180.0)
        self.count += 1
        fields = {"ray": ray, "node_local": str(self.root / "l"), "nodes": 2, "interface": "veth0", **fields}
        made = self.stack.enter_context(running(self.root / str(self.count), *commands, mode="ray", **fields))
        run = NetRun(made.root, made.plan, agents=made.agents, job_id=self.job)
        for index, space in enumerate(self.network):
            disk = ("--bind", str(self.root / f"l{index}"), str(self.root / "l"))
            run.agent(index, prefix=(IP, "netns", "exec", space, *CONTAINER, "--proc", "/proc", *disk))
        return run


@NETNS
@pytest.mark.skipif(not BWRAP, reason="needs bubblewrap")
def test_two_nodes_share_a_kept_ray_until_something_is_left_on_one(allocation: Allocation) -> None:
    with spaces() as network, ExitStack() as stack:
        nodes = TwoNodes(allocation.root, network)
        stack.enter_context(nodes.stack)
        held = nodes.held()
        leaky = nodes.guest(driver("leak"))
        assert kept(leaky) is not None
        assert told(leaky)["task"] == told(leaky)["driver"]
        assert "actor `leaky` is alive" in why_not(leaky)
        assert kept(nodes.guest(driver())) is None
        held.agents[0].send_signal(
            signal.SIGTERM
        )  # bwrap hands no signal on: it ends, and kills the head's agent
        for agent in held.agents:
            held.finish(agent)
        assert held.leftovers() == []
