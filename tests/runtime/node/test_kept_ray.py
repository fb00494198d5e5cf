"""The offer of a kept Ray, by its socket, without a Ray: who gets it, and when it is ended."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from jobspec.plan import Plan, RayPlan
from jobspec.runtime.base import procs
from jobspec.runtime.base.identity import Identity, NodePaths, node_paths
from jobspec.runtime.node import borrowed_ray
from jobspec.runtime.node.borrowed_ray import Borrowed, of_process, own_folders, own_variables
from jobspec.runtime.node.kept_ray import Keeper
from jobspec.runtime.raycluster import fitness

HELD = {"RAY_AUTH_TOKEN": "token-of-the-held-run", "JOBSPEC_RUN_DIR": "/runs/held/1"}


@dataclass
class Node:
    """A node of a job: a held run that offers a Ray, which is none, and guests."""

    root: Path
    plan: Plan
    ended: threading.Event = field(default_factory=threading.Event)
    told: list[Any] = field(default_factory=list)

    def who(self, name: str, job: str = "7") -> Identity:
        return Identity(self.root / "runs" / name / "1", 1, 0, ("n1",), name, job_id=job)

    def paths(self, who: Identity) -> NodePaths:
        paths = node_paths(self.plan, who)
        for folder in (paths.scratch, paths.attempt):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return paths

    def keep(self, **more: Any) -> Keeper:
        who = self.who("held")
        paths = self.paths(who)

        def offer() -> dict[str, Any]:
            terms = fitness.terms(self.plan, who, of_process(HELD))
            return {
                "pid": 1,
                "address": "10.0.0.1:6379",
                "temp_dir": str(paths.ray),
                "token": HELD["RAY_AUTH_TOKEN"],
                "terms": {**terms, "services beside Ray": []},
                "env": own_variables(self.plan, HELD, {}),
                "folders": own_folders(who, paths),
                **more,
            }

        whose = {"run": "held/1", "job": "7", "node": "n1"}
        keeper = Keeper(paths.scratch, whose, offer, self.ended.set)
        keeper.open()
        return keeper

    def guest(self, name: str = "guest", job: str = "7", **env: str) -> tuple[Borrowed, dict[str, Any]]:
        who = self.who(name, job)
        borrowed = Borrowed(self.plan, who, self.paths(who))
        return borrowed, borrowed.look({**HELD, "JOBSPEC_RUN_DIR": str(who.run_dir), **env}, {})

    def use(self, borrowed: Borrowed) -> bool:
        return borrowed.use(self.told.append)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """Its folder has a short name: a socket's path has 107 bytes."""
    root = Path(f"/tmp/jn{time.monotonic_ns() % 10**9}")
    root.mkdir(mode=0o700)
    (root / "l").mkdir()
    monkeypatch.setattr(borrowed_ray, "on_gpus", lambda env: None)
    yield Node(root, Plan("t", "command", "lab", "slurm", "ray", ray=RayPlan(), node_local=str(root / "l")))
    shutil.rmtree(root)


def wait(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_ray_that_is_given_back_clean_is_there_for_the_next(node: Node) -> None:
    node.keep()
    for name in ("first", "second"):
        guest, reply = node.guest(name)
        assert (reply["reasons"], reply["run"], reply["address"]) == ([], "held/1", "10.0.0.1:6379")
        assert node.use(guest)
        env = guest.environment({"A": "1"})
        assert env["RAY_AUTH_TOKEN"] == HELD["RAY_AUTH_TOKEN"]
        assert str(node.who(name).run_dir) in env["RAY_JOB_CONFIG_JSON_ENV_VAR"]
        assert "token-of" not in env["RAY_JOB_CONFIG_JSON_ENV_VAR"]  # Ray writes it to its logs
        _, other = node.guest("meanwhile")
        assert other["reasons"] == [f"run `{name}/1` uses it"]
        assert guest.left({}, 0.0)["reasons"] == []
        guest.give_back()
        guest.close()
    assert not node.ended.is_set()
    assert node.told == []


def test_a_guest_that_goes_without_a_word_ends_it(node: Node) -> None:
    node.keep()
    looked, _ = node.guest("looked")
    looked.close()  # it did not use it
    guest, reply = node.guest()
    assert reply["reasons"] == []
    assert node.use(guest)
    guest.close()
    wait(node.ended.is_set)
    _, after = node.guest("after")
    assert (after["run"], after["reasons"]) == (
        "held/1",
        ["run `guest/1` did not leave it clean, so it was ended"],
    )


def test_what_a_program_leaves_below_the_keeper_is_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr("jobspec.runtime.base.procs.leftovers", lambda: left)
    own, leaky = (subprocess.Popen(["sleep", word]) for word in ("61", "62"))
    try:
        left.append(own.pid)
        keeper = node.keep()
        keeper.note_own()
        left.append(leaky.pid)
        _, reply = node.guest()
        assert reply["reasons"] == [f"process `{leaky.pid} sleep 62` is left on n1"]
    finally:
        for program in (own, leaky):
            program.kill()
            program.wait()


def test_what_is_other_than_its_ray_was_started_with(node: Node) -> None:
    node.keep()
    assert node.guest("elsewhere", job="8")[1]["reasons"] == [
        "no held run of this allocation has one on this node"
    ]
    other = replace(node.plan, ray=RayPlan(port=7000), env={"NCCL_DEBUG": "INFO"})
    reasons = replace(node, plan=other).guest("other", NCCL_DEBUG="INFO")[1]["reasons"]
    assert reasons == [
        "Ray's port: `6379` of its Ray, `7000` of this run",
        "variable `NCCL_DEBUG` is set for this run alone",
    ]


def test_a_ray_without_token_authentication_is_not_for_guests(node: Node) -> None:
    node.keep(token="")
    assert node.guest()[1]["reasons"] == ["it has no token authentication (Ray 2.52 and newer)"]


def test_the_end_of_the_held_run_is_told_to_the_guest_that_uses_its_ray(node: Node) -> None:
    keeper = node.keep()
    guest, _ = node.guest()
    assert node.use(guest)
    keeper.close()
    wait(lambda: bool(node.told))
    assert node.told[0]["finding"]["rule"] == "ray.ended"
    assert "run `held/1`" in node.told[0]["finding"]["what"]


def test_a_worker_of_its_raylet_that_has_no_work_is_not_left_over(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    monkeypatch.setattr("jobspec.runtime.base.procs.leftovers", lambda: left)
    starts = ["bash", "-c", "exec 3<&0; (exec -a ray::IDLE cat <&3) & wait"]
    with (
        subprocess.Popen(starts, stdin=subprocess.PIPE) as raylet,
        subprocess.Popen(["ray::IDLE"], executable="/bin/cat", stdin=subprocess.PIPE) as of_nobody,
    ):
        left.append(raylet.pid)
        keeper = node.keep()
        keeper.note_own()
        wait(lambda: any(_title(pid) == "ray::IDLE" for pid in procs.descendants(raylet.pid)))
        left += [*procs.descendants(raylet.pid), of_nobody.pid]
        _, reply = node.guest()
        assert reply["reasons"] == [f"process `{of_nobody.pid} ray::IDLE` is left on n1"]
        for program in (raylet, of_nobody):
            program.communicate()


def _title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0")
