"""After SIGKILL of every agent a step of the batch script saves what lies on the nodes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobspec.plan import CollectPlan
from tests.kits.agent_lab import Run, running, shell

WRITE = (
    "echo mine >$JOBSPEC_SCRATCH/of-$NAME.txt; echo $SECRET_OF_MINE >>$JOBSPEC_SCRATCH/of-$NAME.txt; {then}"
)
WAIT = "touch $JOBSPEC_RUN_DIR/began; sleep 600"


def pids(run: Run) -> set[int]:
    return {int(row.split()[0]) for row in run.leftovers()}


def has_open(pid: int, folder: Path) -> bool:
    try:
        return any(link.samefile(folder) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


@contextmanager
def writing(tmp_path: Path) -> Iterator[tuple[Run, Path]]:
    """A run on one node, with its folder there, in which its command has left a file; the command goes on."""
    write = shell(WRITE.format(then=WAIT))
    with running(tmp_path, write, collect=CollectPlan(patterns=("of-*.txt",))) as run:
        run.agent(env={"NAME": "x"})
        run.wait_event("driver", "start")
        (folder,) = Path(run.plan.node_local).glob("run-*")
        run.wait_file(folder / "of-x.txt")
        yield run, folder


def killed(run: Run) -> None:
    """As Slurm ends a step: agents, guards, and what they have started, all at once."""
    ended = pids(run)
    for kind in (signal.SIGSTOP, signal.SIGKILL):  # a guard that still runs would clean up after its agent
        for pid in ended:
            os.kill(pid, kind)
    for agent in run.agents:
        agent.communicate(timeout=30)
    run.agents.clear()


def salvaged(run: Run, env: dict[str, str]) -> list[int]:
    """One node after the other: here they share a disk, and the sweep of one removes what another keeps."""
    for index in range(run.plan.nodes):
        run.agent(index, env={**env, "JOBSPEC_SALVAGE": "1"})
        run.wait_file(run.attempt / f"salvaged-{index}.json")
    return [run.finish(agent)[0] for agent in run.agents]


def listed(run: Run) -> list[tuple[str, str]]:
    manifest = json.loads((run.root / "artifacts/manifest.json").read_text())
    return [(row["path"], row["node"]) for row in manifest["files"]]


def test_files_of_all_nodes_are_saved_and_listed(tmp_path: Path) -> None:
    env = {"SECRET_OF_MINE": "hunter2hunter2", "NAME": "x"}
    write = shell(WRITE.format(then=WAIT), on="all")
    with running(
        tmp_path, write, nodes=2, secrets=("SECRET_OF_MINE",), collect=CollectPlan(patterns=("of-*.txt",))
    ) as run:
        for index in range(2):
            run.agent(index, env=env)
        run.wait_event("driver", "start")
        for index in range(2):
            run.wait_file(next(Path(run.plan.node_local).glob(f"run-*.{index}")) / "of-x.txt")
        killed(run)
        assert salvaged(run, env) == [0, 0]
        assert listed(run) == [("127.0.0.3/of-x.txt", "127.0.0.3"), ("of-x.txt", "127.0.0.2")]
        text = (run.root / "artifacts/of-x.txt").read_text()
        assert text.startswith("mine\n") and "hunter2" not in text
        assert run.leftovers() == []


def test_nothing_stays_on_a_node_whose_files_are_saved(tmp_path: Path) -> None:
    with writing(tmp_path) as (run, folder):
        killed(run)
        assert folder.exists()
        assert salvaged(run, {"NAME": "x"}) == [0]
        assert [path for path, _ in listed(run)] == ["of-x.txt"]
        assert not folder.exists()
        assert run.leftovers() == []


def test_folder_that_a_live_agent_holds_is_copied_and_not_removed(tmp_path: Path) -> None:
    with writing(tmp_path) as (run, folder):
        agent = run.agent_pid()
        os.kill(agent, signal.SIGSTOP)
        step = run.agent(env={"NAME": "x", "JOBSPEC_SALVAGE": "1"})
        code, said = run.finish(step)
        assert code == 0
        assert "an agent of this run still lives here" in said
        assert [path for path, _ in listed(run)] == ["of-x.txt"]
        assert (folder / "of-x.txt").exists()
        assert run.agent_pid() == agent
        os.kill(agent, signal.SIGCONT)
        os.kill(run.agents[0].pid, signal.SIGTERM)
        run.finish(run.agents[0])
        assert not folder.exists()


def test_agent_that_ends_meanwhile_is_waited_for(tmp_path: Path) -> None:
    with writing(tmp_path) as (run, folder):
        before = pids(run)
        for pid in before:
            os.kill(pid, signal.SIGSTOP)
        step = run.agent(env={"NAME": "x", "JOBSPEC_SALVAGE": "1"})
        while not any(has_open(pid, folder) for pid in pids(run) - before):
            assert step.poll() is None
            time.sleep(0.02)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        assert run.finish(step)[0] == 0
        assert [path for path, _ in listed(run)] == ["of-x.txt"]
        assert not folder.exists()


def test_worker_saves_its_own_when_the_head_is_gone(tmp_path: Path) -> None:
    write = shell(WRITE.format(then=WAIT), on="all")
    with running(tmp_path, write, nodes=2, collect=CollectPlan(patterns=("of-*.txt",))) as run:
        for index in range(2):
            run.agent(index, env={"NAME": "y"})
        run.wait_event("driver", "start")
        kept = run.root / "artifacts/127.0.0.3/of-y.txt"
        run.wait_file(next(Path(run.plan.node_local).glob("run-*.1")) / "of-y.txt")
        os.kill(run.agent_pid(0), signal.SIGKILL)
        assert run.finish(run.agents[1])[0] == 1
        assert kept.read_text().startswith("mine")
        assert json.loads((run.attempt / "salvaged-1.json").read_text())["files"][0]["node"] == "127.0.0.3"
        run.finish(run.agents[0])
