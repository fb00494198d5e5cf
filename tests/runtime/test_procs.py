import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from jobspec.runtime.procs import Child, alive, descendants, exit_status


def test_child_and_what_it_started_are_ended(tmp_path: Path) -> None:
    """Also a grandchild that ignores SIGTERM, and one in another session."""
    pids = tmp_path / "pids"
    text = f"""
        (trap '' TERM; echo $BASHPID; while :; do sleep 1; done) >> {pids} &
        setsid sh -c 'echo $$; exec sleep 300' >> {pids} & wait
    """
    child = Child(["bash", "-c", text], os.environ)
    end = time.monotonic() + 10
    while (not pids.exists() or len(pids.read_text().split()) < 2) and time.monotonic() < end:
        time.sleep(0.02)
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    assert set(started) <= set(descendants(child.pid))
    child.terminate(0.3)
    assert [pid for pid in (child.pid, *started) if alive(pid)] == []


@pytest.mark.parametrize(("code", "status"), [(0, 0), (7, 7), (-9, 137), (-15, 143)])
def test_exit_status(code: int, status: int) -> None:
    assert exit_status(code) == status


GUARDED = """
    import os, subprocess, sys, time
    from jobspec.runtime.procs import guard
    def work():
        {body}
        return 5
    sys.exit(guard(work))
"""


def guarded(body: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(GUARDED).format(body=body)]


def test_guard_returns_the_status_and_ends_daemons(tmp_path: Path) -> None:
    """A double fork in a new session is what daemons do to get away."""
    pid_file = tmp_path / "pid"
    body = f"subprocess.run(['bash', '-c', 'setsid setsid sleep 300 & echo $! > {pid_file}'])"
    assert subprocess.run(guarded(body), check=False).returncode == 5
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(pid_file) not in left
    assert not alive(int(pid_file.read_text()))


def test_guard_forwards_a_signal() -> None:
    handler = "import signal; signal.signal(signal.SIGUSR1, lambda *_: os._exit(9))"
    body = f"{handler}; print('up', flush=True); time.sleep(60)"
    process = subprocess.Popen(guarded(body), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGUSR1)
    assert process.wait(10) == 9


def test_guard_reports_a_signal_death() -> None:
    assert subprocess.run(guarded("os.kill(os.getpid(), 9)"), check=False).returncode == 137


def test_bug_says_that_it_is_one() -> None:
    done = subprocess.run(guarded("raise KeyError('x')"), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "bug in jobspec" in done.stderr
