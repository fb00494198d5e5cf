"""Mode `upstream`: who the agents are, how they find each other, signals, and what a failed setup leaves."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.plan import Plan, UpstreamPlan, to_json
from jobspec.rendering.run_folder import build_runtime
from jobspec.runtime import upstream_agents
from jobspec.runtime.base import upstream_marks
from jobspec.runtime.base.identity import without_step

ENV = {"JOBSPEC_ATTEMPT": "2", "JOBSPEC_HOSTS": "n10 n2 n3", "JOBSPEC_JOB_ID": "7", "JOBSPEC_TOKEN": "t"}


def test_the_head_is_the_node_that_the_script_chose() -> None:
    """ray.sub sorts names as text: its head need not be the first of Slurm's list."""
    at = upstream_agents.place(Path("/r"), ENV)
    agents = [upstream_agents.identity(at, name, "n2", "10.0.0.2") for name in ("n2", "n10", "n3")]
    assert [who.index for who in agents] == [0, 1, 2]
    assert {who.hosts for who in agents} == {("n2", "n10", "n3")}
    assert {(who.attempt, who.job_id, who.launch_ip) for who in agents} == {(2, "7", "10.0.0.2")}
    assert len({who.key for who in agents}) == 1


@pytest.mark.parametrize("missing", sorted(ENV))
def test_a_variable_that_did_not_arrive_is_named(missing: str) -> None:
    env = {name: value for name, value in ENV.items() if name != missing}
    with pytest.raises(JobspecError, match=f"`{missing}` did not reach this container"):
        upstream_agents.place(Path("/r"), env)


def test_names_of_nodes_may_have_a_domain_on_one_side() -> None:
    assert upstream_agents.own_name(["n1.site", "n2.site"], "n2") == "n2.site"
    assert upstream_agents.own_name(["n1", "n2"], "n2.site") == "n2"
    with pytest.raises(JobspecError, match="host name `n3` is not among the nodes of this job: n1 n2"):
        upstream_agents.own_name(["n1", "n2"], "n3")


def test_a_failed_setup_is_named_with_what_it_printed(tmp_path: Path) -> None:
    for name in ("n1", "n2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "setup.log").write_text(f"{name}: python3: command not found\n")
    (tmp_path / "n2/setup.failed").write_text("127\n")
    (found,) = upstream_marks.failed_setups(tmp_path, ["n1", "n2", "n3"])
    assert (found.rule, found.node) == ("upstream.setup", "n2")
    assert found.what == "the setup of node `n2` failed with status 127"
    assert found.why == "n2: python3: command not found"


def test_signals_arrive_by_the_file_each_once(tmp_path: Path) -> None:
    received: queue.SimpleQueue[int] = queue.SimpleQueue()
    upstream_marks.follow_signals(tmp_path, received.put)
    (tmp_path / "signal").write_text("USR1\n")
    assert received.get(timeout=60) == signal.SIGUSR1
    (tmp_path / "signal").write_text("USR1\nKILL\nTERM\n")  # only what the batch script may write counts
    assert received.get(timeout=60) == signal.SIGUSR2
    (tmp_path / "signal").write_text("USR1\nKILL\nTERM\nINT\n")
    assert received.get(timeout=60) == signal.SIGUSR2
    assert received.empty()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    root = tmp_path / "run"
    (root / "attempts/2").mkdir(parents=True)
    local = str(tmp_path / "local")
    plan = Plan("x", "command", "lab", "slurm", "upstream", node_local=local, upstream=UpstreamPlan("/src"))
    (root / "plan.json").write_text(to_json(plan))
    (root / "runtime.pyz").write_bytes(build_runtime())
    return root


# What ray.sub's node script does: bash runs the setup command's file; afterwards we look for the agent.
TASK = """\
bash -c '"$@"; exit' setup_command.sh "$@"
status=$?
pgrep --full --count "^[^ ]*python[^ ]* .*upstream-setup --run-dir $0"
exit "$status"
"""


def setup(run_dir: Path, hosts: str) -> subprocess.CompletedProcess[str]:
    """Returns when nothing has the task's output open any more, the agent included."""
    argv = [sys.executable, str(run_dir / "runtime.pyz"), "upstream-setup", "--run-dir", str(run_dir)]
    return subprocess.run(
        ["bash", "-c", TASK, str(run_dir), *argv],
        env={**ENV, "PATH": os.environ["PATH"], "JOBSPEC_HOSTS": hosts},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_agent_stays_behind_and_leaves_with_its_task(run_dir: Path) -> None:
    """A node's Ray may end before any head has come: nothing may be left on it."""
    done = setup(run_dir, f"{os.uname().nodename} other")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_setup_of_a_node_that_is_not_in_the_job_fails(run_dir: Path) -> None:
    done = setup(run_dir, "elsewhere")
    assert (done.returncode, done.stdout) == (3, "0\n")
    assert "error[runtime.nodelist]" in done.stderr


def test_programs_do_not_take_the_agents_step_for_their_own() -> None:
    kept = {
        "SLURM_JOB_ID": "7",
        "SLURM_NODEID": "0",
        "OMPI_MCA_coll": "x",
        "PMIX_MCA_gds": "hash",
        "PATH": "/bin",
    }
    step = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_MPI_TYPE")
    mpi = ("PMI_RANK", "PMIX_RANK", "PMIX_SERVER_URI41", "OMPI_COMM_WORLD_SIZE")
    assert without_step({**kept, **dict.fromkeys((*step, *mpi), "1")}) == kept
