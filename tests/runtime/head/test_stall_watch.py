"""A run that stands still, with real agents: seen, explained, and ended where that was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from jobspec.plan import CommandPlan, StallPlan
from tests.kits.agent_lab import Run, running

STANDS = """
import os, sys, time
for step in range(1, 4):
    print("step", step, flush=True)
    time.sleep(0.3)
os.mkfifo(sys.argv[1])
def load():
    open(sys.argv[1])
load()
"""
WORKS = """
import time
for step in range(1, 9):
    print("step", step, flush=True)
    time.sleep(1)
"""


def command(tmp_path: Path, text: str) -> CommandPlan:
    program = tmp_path / "program.py"
    program.write_text(text)
    return CommandPlan("train", (sys.executable, str(program), str(tmp_path / "fifo")))


def stalls(run: Run) -> list[dict[str, Any]]:
    return [row["data"] for row in run.events() if row.get("data", {}).get("what") == "stall"]


@pytest.mark.parametrize(("action", "ends"), [("dump", False), ("end", True), ("requeue", True)])
def test_a_run_that_stands_still(tmp_path: Path, action: str, ends: bool) -> None:
    with running(tmp_path, command(tmp_path, STANDS), stall=StallPlan(3, action)) as run:
        agent = run.agent()
        found = run.wait_event("driver", "finding")["finding"]
        if not ends:
            time.sleep(1)
            assert agent.poll() is None  # it goes on
            agent.terminate()
        code, _ = run.finish()
        assert code == (3 if ends else 143)
        assert found["rule"] == "stall.outside"
        assert found["severity"] == ("error" if ends else "warning")
        assert "the run stands still: nothing new for" in found["what"]
        assert f"load ({tmp_path}/program.py:8)" in found["what"]
        assert "its last new line is `step 3`" in found["why"]
        (stall,) = stalls(run)
        report = (run.attempt / "dumps" / stall["dump"] / "report.txt").read_text()
        assert "groups (no watched sign of work came for " in report
        assert (
            " s before the dump: lines of a new kind, steps, metrics, checkpoints, 16 MiB of disk; " in report
        )
        assert stall["frozen"] is True
        assert list(stall["lines"].values()) == [3]
        assert run.results()["outcome"] == ("blocked" if ends else "cancelled")


def test_a_slow_run_that_works_is_left_alone(tmp_path: Path) -> None:
    with running(tmp_path, command(tmp_path, WORKS), stall=StallPlan(4, "end")) as run:
        run.agent()
        code, _ = run.finish()
        assert code == 0
        assert run.rules() == []
        assert stalls(run) == []


def test_a_dump_that_cannot_be_written_is_taken_later(tmp_path: Path) -> None:
    with running(tmp_path, command(tmp_path, STANDS), stall=StallPlan(3, "dump")) as run:
        run.attempt.mkdir(parents=True, exist_ok=True)
        (run.attempt / "dumps").write_text("in the way")
        agent = run.agent()
        end = time.monotonic() + 60
        while "no dump: " not in (log := agent_log(run)) and time.monotonic() < end:
            time.sleep(0.1)
        assert f"(`{run.attempt / 'dumps'}" in log
        (run.attempt / "dumps").unlink()
        assert run.wait_event("driver", "finding")["finding"]["rule"] == "stall.outside"
        agent.terminate()
        run.finish()


def test_a_folder_in_which_nobody_can_ask(tmp_path: Path) -> None:
    (tmp_path / "dumps").write_text("in the way")
    env = {**os.environ, "JOBSPEC_ATTEMPT_DIR": str(tmp_path)}
    argv = [sys.executable, "-m", "jobspec.runtime", "dump", "--apart", "100000"]
    ended = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 3
    assert ended.stderr.startswith("error[dump.no-answer]")
    assert f"(`{tmp_path / 'dumps'}`)" in ended.stderr


def agent_log(run: Run) -> str:
    return "".join(path.read_text() for path in run.attempt.glob("logs/*/agent.log"))


def test_a_dump_that_somebody_asks_for(tmp_path: Path) -> None:
    with running(tmp_path, command(tmp_path, STANDS), stall=StallPlan(600)) as run:
        agent = run.agent()
        run.wait_event("driver", "progress")
        time.sleep(2)
        env = {**os.environ, "JOBSPEC_ATTEMPT_DIR": str(run.attempt)}
        argv = [sys.executable, str(run.root / "runtime.pyz"), "dump", "--apart", "1"]
        told = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True).stdout
        assert told.startswith("what: ")
        assert f"load ({tmp_path}/program.py:8)" in told
        assert "both samples show the same stacks" in told
        (folder,) = (run.attempt / "dumps").glob("*")
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
        agent.terminate()
        run.finish()


def test_a_stopped_rank_of_two_nodes(tmp_path: Path) -> None:
    text = "import os, signal, time\nprint('step 1', flush=True)\nif os.environ['RANK'] == '1':\n"
    program = tmp_path / "program.py"
    program.write_text(text + "    os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(600)\n")
    ranks = CommandPlan("train", (sys.executable, str(program)), on="all")
    with running(tmp_path, ranks, nodes=2, stall=StallPlan(4, "end")) as run:
        run.agent(0)
        run.agent(1)
        code, _ = run.finish()
        assert code == 3
        (finding,) = run.results()["findings"]
        assert (finding["rule"], finding["node"]) == ("stall.outside", run.hosts[1])
        assert f"rank 1 on `{run.hosts[1]}`" in finding["what"]
        assert "is stopped (state T)" in finding["what"]
        (folder,) = (run.attempt / "dumps").glob("*")
        names = {path.name for path in folder.glob("*.txt")}
        assert names == {"report.txt", *(f"{host}-{number}.txt" for host in run.hosts for number in (1, 2))}
