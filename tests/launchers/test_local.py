"""Runs on this machine, with real processes: found again, told apart from others, ended as a group."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobspec import launchers
from jobspec.finding import JobspecError
from jobspec.launchers import local
from jobspec.launchers.base import JobState
from jobspec.launchers.file_lock import busy
from jobspec.launchers.local import LocalLauncher, alive, process_start
from jobspec.plan import Plan
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, read_launch
from tests.kits.lock_kit import await_waiting_for_lock

PLAN = Plan("demo", "command", "local", "local", "srun")
RUN_ID = "20261128-010203-ab12cd"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], tuple[RunPaths, Launch]]]:
    """Starts a batch script; whatever still runs at the end is killed by its own process group."""
    started: list[Launch] = []

    def start_script(script: str) -> tuple[RunPaths, Launch]:
        run = RunPaths(tmp_path / "demo" / RUN_ID)
        run.root.mkdir(parents=True, exist_ok=True)
        run.job.write_text(script)
        launch = LocalLauncher().submit(run, PLAN, {})
        started.append(launch)
        return run, launch

    yield start_script
    for launch in started:
        if alive(launch):
            os.killpg(int(launch.job_id), signal.SIGKILL)


def await_final(launch: Launch, seconds: float = 60.0) -> JobState:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status = LocalLauncher().query([launch])[launch]
        if status.state.final:
            return status.state
        time.sleep(0.02)
    raise AssertionError(f"still {status.state} after {seconds} s")


def await_file(path: Path, seconds: float = 60.0) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.02)
    raise AssertionError(f"no {path} after {seconds} s")


@pytest.mark.parametrize(("code", "state"), [(0, JobState.COMPLETED), (7, JobState.FAILED)])
def test_exit_code_is_noted_and_read(start, code: int, state: JobState) -> None:  # type: ignore[no-untyped-def]
    _, launch = start(f"exit {code}")
    assert await_final(launch) is state
    assert LocalLauncher().query([launch])[launch].exit_code == code


def test_process_has_a_session_of_its_own_and_a_clean_environment(start, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("LEAK", "yes")
    run, launch = start("env > env.txt; ps -o sid= -p $$ > sid.txt; sleep 30")
    assert int(await_file(run.root / "sid.txt")) == int(launch.job_id) != os.getsid(0)
    lines = (run.root / "env.txt").read_text().splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert not {"SLURM_JOB_ID", "LEAK"} & names
    assert "JOBSPEC_LOCAL=1" in lines
    path = next(line for line in lines if line.startswith("PATH="))
    assert path.startswith(f"PATH={Path(sys.executable).parent}:")


def test_second_submission_is_the_same_process(start) -> None:  # type: ignore[no-untyped-def]
    run, launch = start("echo x >> count; sleep 30")
    await_file(run.root / "count")
    assert LocalLauncher().submit(run, PLAN, {}).job_id == launch.job_id
    assert (run.root / "count").read_text() == "x\n"


def test_secret_reaches_the_process_and_no_file(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "demo" / RUN_ID)
    run.root.mkdir(parents=True)
    run.job.write_text('test "$TOKEN" = t0psecret')
    launch = LocalLauncher().submit(run, PLAN, {"TOKEN": "t0psecret"})
    assert await_final(launch) is JobState.COMPLETED
    for path in run.root.rglob("*"):
        if path.is_file() and path != run.job:
            assert "t0psecret" not in path.read_text(), path


def test_run_is_found_again_from_another_process(start) -> None:  # type: ignore[no-untyped-def]
    run, launch = start("sleep 30")
    script = (
        "import sys; from pathlib import Path\n"
        "from jobspec.runs.paths import RunPaths; from jobspec.runs.records import read_launch\n"
        "from jobspec.launchers import query\n"
        "launch = read_launch(RunPaths(Path(sys.argv[1]))); print(query([launch])[launch].state.value)"
    )
    argv = [sys.executable, "-c", script, str(run.root)]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "RUNNING\n"
    os.killpg(int(launch.job_id), signal.SIGKILL)
    assert await_final(launch) is JobState.FAILED
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "FAILED\n"


def test_number_of_an_ended_process_is_not_taken_for_ours(start) -> None:  # type: ignore[no-untyped-def]
    """The kernel reuses process numbers: ours is known by the moment it started as well."""
    _, launch = start("sleep 30")
    stranger = replace(launch, job_id=str(os.getpid()))
    assert process_start(os.getpid())
    assert not alive(stranger)
    LocalLauncher(grace_s=0).cancel([stranger])  # were it taken for ours, this test would end here


def test_restarted_machine_ends_the_run(start) -> None:  # type: ignore[no-untyped-def]
    _, launch = start("sleep 30")
    before = replace(launch, boot_id="another boot")
    assert LocalLauncher().query([before])[before].state is JobState.NODE_FAIL


def test_cancel_lets_the_trap_collect_and_ends_the_whole_group(start) -> None:  # type: ignore[no-untyped-def]
    run, launch = start(
        "trap 'echo collected > collected; kill $child; wait $child; exit 143' TERM\n"
        "sleep 300 & child=$!; echo $child > child; wait $child"
    )
    child = int(await_file(run.root / "child"))
    LocalLauncher().cancel([launch])
    assert (run.root / "collected").read_text() == "collected\n"
    status = LocalLauncher().query([launch])[launch]
    assert (status.state, status.exit_code) == (JobState.CANCELLED, 143)
    assert process_start(child) == ""


def test_cancel_kills_what_does_not_listen(start) -> None:  # type: ignore[no-untyped-def]
    run, launch = start("trap '' TERM; echo up > up; while true; do sleep 1; done")
    await_file(run.root / "up")
    LocalLauncher(grace_s=0.3).cancel([launch])
    assert await_final(launch) is JobState.CANCELLED


def test_cancel_kills_an_agent_that_does_not_listen(start) -> None:  # type: ignore[no-untyped-def]
    """It has a session of its own, which no signal to the job's process group reaches."""
    run, launch = start(
        "trap '' TERM\nsetsid bash -c 'echo $$ > up; while :; do sleep 1; done' &\nwhile :; do wait; done"
    )
    agent = int(await_file(run.root / "up"))
    LocalLauncher(grace_s=0.3).cancel([launch])
    assert await_final(launch) is JobState.CANCELLED
    deadline = time.monotonic() + 60
    while process_start(agent):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_that_was_killed_at_its_limit_has_timed_out(start) -> None:  # type: ignore[no-untyped-def]
    _, launch = start("touch job-overdue; exit 137")
    assert await_final(launch) is JobState.TIMEOUT


def test_interrupted_start_has_started_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the process is there and before its number is recorded: nobody could find it again."""
    run = RunPaths(tmp_path / "demo" / RUN_ID)
    run.root.mkdir(parents=True)
    run.job.write_text("echo x >> count")
    write = local.write_launch

    def interrupted(run: RunPaths, launch: Launch) -> None:
        if launch.job_id:
            raise KeyboardInterrupt
        write(run, launch)

    with monkeypatch.context() as patch:
        patch.setattr(local, "write_launch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            LocalLauncher().submit(run, PLAN, {})
    assert read_launch(run) is None
    launch = LocalLauncher().submit(run, PLAN, {})
    assert await_final(launch) is JobState.COMPLETED
    assert (run.root / "count").read_text() == "x\n"


def test_start_that_is_interrupted_when_the_run_has_begun_cancels_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunPaths(tmp_path / "demo" / RUN_ID)
    run.root.mkdir(parents=True)
    run.job.write_text("trap 'echo collected > collected; exit 143' TERM; echo up > up; sleep 30 & wait")

    def interrupted(keeper: subprocess.Popen[bytes]) -> None:
        assert keeper.stdin is not None
        keeper.stdin.write(b"begin\n")
        keeper.stdin.flush()
        await_file(run.root / "up")
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "_begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        LocalLauncher().submit(run, PLAN, {})
    launch = read_launch(run)
    assert launch is not None
    assert LocalLauncher().query([launch])[launch].state is JobState.CANCELLED
    assert (run.root / "collected").exists()


def test_launcher_that_is_killed_while_it_starts_has_started_nothing(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "demo" / RUN_ID)
    run.root.mkdir(parents=True)
    run.job.write_text("echo x >> count")
    text = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from jobspec.launchers import local\n"
        "from jobspec.plan import Plan\n"
        "from jobspec.runs.store import RunPaths\n"
        "def killed(keeper):\n"
        "    print(keeper.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "local._begin = killed\n"
        "plan = Plan('demo', 'command', 'local', 'local', 'srun')\n"
        "local.LocalLauncher().submit(RunPaths(Path(sys.argv[1])), plan, {})\n"
    )
    argv = [sys.executable, "-c", text, str(run.root)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while process_start(int(done.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not (run.root / "count").exists()


def test_run_that_is_interrupted_before_it_is_followed_is_cancelled(start) -> None:  # type: ignore[no-untyped-def]
    run, launch = start("trap 'echo collected > collected; exit 143' TERM; echo up > up; sleep 30 & wait")
    await_file(run.root / "up")
    launchers.cancel_started()
    assert LocalLauncher().query([launch])[launch].state is JobState.CANCELLED
    assert (run.root / "collected").exists()


def test_points_of_a_sweep_run_in_order_and_are_told_apart(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "demo" / RUN_ID)
    for point in range(3):
        (run.points_dir / str(point)).mkdir(parents=True)
    run.job.write_text('echo "$SLURM_ARRAY_TASK_ID" >> order; test "$SLURM_ARRAY_TASK_ID" != 1 || exit 5')
    launch = LocalLauncher().submit(run, PLAN, {})
    assert await_final(launch) is JobState.FAILED
    status = LocalLauncher().query([launch])[launch]
    assert (run.root / "order").read_text().split() == ["0", "1", "2"]
    assert [(task.state.value, task.exit_code) for task in status.tasks.values()] == [
        ("COMPLETED", 0),
        ("FAILED", 5),
        ("COMPLETED", 0),
    ]


def test_record_survives_and_names_no_folder(start) -> None:  # type: ignore[no-untyped-def]
    """A run directory may be moved: where it lies is not written into it twice."""
    run, launch = start("sleep 30")
    assert read_launch(run) == launch
    assert '"root"' not in run.state.read_text()


def test_missing_script_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(JobspecError, match=r"lacks `job.sbatch`"):
        LocalLauncher().submit(RunPaths(tmp_path), PLAN, {})


def test_two_submissions_at_once_are_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunPaths(tmp_path / "demo" / RUN_ID)
    run.root.mkdir(parents=True)
    run.job.write_text("echo begun >>begun.txt")
    begin, found = local._begin, []

    def submit() -> None:
        found.append(LocalLauncher().submit(run, PLAN, {}))

    other = threading.Thread(target=submit)

    def slow(keeper: subprocess.Popen[bytes]) -> None:
        other.start()
        await_waiting_for_lock()
        begin(keeper)

    monkeypatch.setattr(local, "_begin", slow)
    submit()
    other.join(60)
    assert [await_final(launch) for launch in found] == [JobState.COMPLETED] * 2
    assert (run.root / "begun.txt").read_text() == "begun\n"


def test_an_allocation_is_kept_by_the_keeper_and_not_by_what_the_run_leaves(tmp_path: Path) -> None:
    run, lock, go = RunPaths(tmp_path / "demo" / RUN_ID), tmp_path / "lock", tmp_path / "go"
    run.root.mkdir(parents=True)
    run.job.write_text(f"sleep 60 & echo $! >{tmp_path}/left\nuntil [ -e {go} ]; do sleep 0.05; done\n")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        launch = LocalLauncher(allocation="4711", kept=file.fileno()).submit(run, PLAN, {})
    found = read_launch(run)
    assert found is not None and found.allocation == "4711"
    left = int(await_file(tmp_path / "left"))
    try:
        assert busy(lock)
        go.touch()
        await_final(launch)
        assert process_start(left)
        assert not busy(lock)
    finally:
        os.kill(left, signal.SIGKILL)


def test_disk_that_the_run_has_filled_is_told(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "demo" / RUN_ID)
    run.root.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(run.root)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        run.job.write_text('head -c 1000000 /dev/zero > "$(dirname "$0")/big"; exit 3')
        launch = LocalLauncher().submit(run, PLAN, {})
        assert await_final(launch) is JobState.FAILED
        status = LocalLauncher().query([launch])[launch]
    finally:
        subprocess.run(["umount", "-l", run.root], check=True)
    assert (status.exit_code, status.reason) == (3, f"exit code 3, and no space is left below `{run.root}`")
