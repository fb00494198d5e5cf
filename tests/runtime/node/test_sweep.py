"""What killed runs have left on a node is removed by the user's next one; what live ones use is not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from jobspec.plan import MadePlan
from jobspec.runtime.base.identity import NodePaths, from_environment, node_paths
from jobspec.runtime.node import sweep
from tests.kits.agent_lab import Run, make_run, running, shell

UP = 'echo x > "$JOBSPEC_SCRATCH/x"; echo up > "$JOBSPEC_ATTEMPT_DIR/up"; sleep 300'


def paths_of(run: Run) -> NodePaths:
    return node_paths(run.plan, from_environment(run.root, {"JOBSPEC_TOKEN": "t", "JOBSPEC_ATTEMPT": "1"}))


def kill(run: Run) -> None:
    """The agent and its guard, as when the kernel or a person does."""
    agent = run.agents[0]
    for pid in (agent.pid, run.agent_pid()):
        os.kill(pid, signal.SIGKILL)
    run.finish()


def test_next_run_sweeps_what_a_killed_one_has_left(tmp_path: Path) -> None:
    shared = tmp_path / "rlix"
    made = (MadePlan(str(shared), "made.txt"),)
    text = f'mkdir -p {shared}/7 && echo 7 > "$JOBSPEC_ATTEMPT_DIR/made.txt"; {UP}'
    with running(tmp_path / "a", shell(text), node_local=str(tmp_path / "l"), made=made) as dead:
        dead.agent()
        dead.wait_file(dead.attempt / "up")
        kill(dead)
        left = paths_of(dead)
        left.ray.mkdir()
        assert left.scratch.is_dir() and left.pid_file.is_file()
    with running(tmp_path / "b", shell("true"), node_local=str(tmp_path / "l")) as run:
        run.agent()
        assert run.finish()[0] == 0
        log = next(run.attempt.glob("logs/*/agent.log")).read_text()
    assert f"removed what killed runs have left: {left.ray}, {left.scratch}" in log
    assert [path.name for path in (tmp_path / "l").iterdir()] == [f"agents-{os.geteuid()}"]
    assert list(left.agents.iterdir()) == []
    assert not shared.exists()


def test_run_that_lives_is_left_alone(tmp_path: Path) -> None:
    """Also where its process cannot be seen, as from another PID namespace: the lock tells."""
    with running(tmp_path, shell(UP)) as run:
        run.agent()
        run.wait_file(run.attempt / "up")
        paths = paths_of(run)
        paths.ray.mkdir()
        paths.pid_file.write_text(json.dumps({"pid": 1 << 22, "started": 1}))
        assert sweep.sweep(Path(run.plan.node_local)) == []
        assert (paths.scratch / "x").read_text() == "x\n"
        assert paths.ray.is_dir()


def test_run_of_an_older_jobspec_is_known_by_its_process(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    paths = paths_of(run)
    paths.agents.mkdir(parents=True)
    os.close(sweep.claim(paths.agents, paths.scratch))
    record = {"pid": os.getpid(), "started": sweep.started(os.getpid())}
    paths.pid_file.write_text(json.dumps(record))
    assert sweep.sweep(Path(run.plan.node_local)) == []
    paths.pid_file.write_text(json.dumps({**record, "started": 1}))
    assert sweep.sweep(Path(run.plan.node_local)) == [str(paths.scratch)]


def test_only_folders_of_runs_are_swept(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    local, agents = Path(run.plan.node_local), paths_of(run).agents
    other = tmp_path / "other"
    for folder in (local / "hf-0", local / "run-mine", local / "run-0123", other, agents):
        folder.mkdir(parents=True)
    (local / "run-01234567").symlink_to(other)
    (agents / "notes.txt").write_text("")
    before = sorted(path.name for path in local.iterdir())
    assert sweep.sweep(local) == []
    assert sorted(path.name for path in local.iterdir()) == before
    assert other.is_dir() and (agents / "notes.txt").is_file()


def test_epilog_sweeps_by_the_command(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    paths = paths_of(run)
    paths.agents.mkdir(parents=True)
    os.close(sweep.claim(paths.agents, paths.scratch))
    argv = [sys.executable, str(run.root / "runtime.pyz"), "sweep", run.plan.node_local]
    done = [subprocess.run(argv, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert done == [f"removed {paths.scratch}\n", ""]


def test_node_without_anything_has_nothing_to_sweep(tmp_path: Path) -> None:
    assert sweep.sweep(tmp_path / "absent") == []


def test_record_of_another_version_is_no_hindrance(tmp_path: Path) -> None:
    agents = tmp_path / f"agents-{os.geteuid()}"
    agents.mkdir(mode=0o700)
    tmp_path.chmod(0o700)
    (agents / "0123abcd.0.json").write_text(
        json.dumps({"pid": 1, "started": 1, "made": [["a", "b", "c", "d"]], "run_dir": "/x", "attempt": 1})
    )
    (tmp_path / "run-0123abcd").mkdir(mode=0o700)
    assert sweep.sweep(tmp_path) == [str(tmp_path / "run-0123abcd")]
