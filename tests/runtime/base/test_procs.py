import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobspec.runtime.base import procs
from jobspec.runtime.base.procs import Child, alive, descendants, exit_status


def test_child_and_what_it_started_are_ended(tmp_path: Path) -> None:
    """Also a grandchild that ignores SIGTERM, and one in another session."""
    pids = tmp_path / "pids"
    text = f"""
        (trap '' TERM; echo $BASHPID; while :; do sleep 1; done) >> {pids} &
        setsid sh -c 'echo $$; exec sleep 300' >> {pids} & wait
    """
    child = Child(["bash", "-c", text], os.environ)
    end = time.monotonic() + 60
    while (not pids.exists() or len(pids.read_text().split()) < 2) and time.monotonic() < end:
        time.sleep(0.02)
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    assert set(started) <= set(descendants(child.pid))
    child.terminate(0.3)
    assert [pid for pid in (child.pid, *started) if alive(pid)] == []


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[str]]:
    """A process of another job of this user, in a session of its own, that ignores SIGTERM."""
    argv = ["sh", "-c", "trap '' TERM; echo up; exec sleep 300"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        yield process
        process.kill()


def test_pid_that_is_anothers_by_now_is_left_alone(stranger: subprocess.Popen[str]) -> None:
    """A rank that ended days before the others: its pid may be anybody's when the run is stopped."""
    child = Child(["true"], os.environ)
    child.wait()
    child.terminate(0.1)
    child.process.pid = stranger.pid  # as the kernel gives it out anew
    child.terminate(0.1)
    assert stranger.poll() is None and alive(stranger.pid)


def test_pid_that_becomes_anothers_in_the_grace_is_left_alone(
    stranger: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Child(["sleep", "300"], os.environ)
    members, real = [child.pid, stranger.pid], procs.started
    before = {stranger.pid: 1}  # its pid was that of a member
    monkeypatch.setattr(child, "members", lambda: [members.pop() for _ in tuple(members)])
    monkeypatch.setattr(procs, "started", lambda pid: before.pop(pid, 0) or real(pid))
    child.terminate(60.0)
    assert not alive(child.pid)
    assert stranger.poll() is None and alive(stranger.pid)


@pytest.mark.parametrize(("code", "status"), [(0, 0), (7, 7), (-9, 137), (-15, 143)])
def test_exit_status(code: int, status: int) -> None:
    assert exit_status(code) == status


GUARDED = """
    import os, subprocess, sys, time
    from jobspec.runtime.base import signals
    from jobspec.runtime.base.procs import guard
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
    body = "received = signals.receive(); print('up', flush=True); os._exit(received.get())"
    process = subprocess.Popen(guarded(body), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGUSR1)
    assert process.wait(60) == signal.SIGUSR1


def test_guard_keeps_a_signal_for_an_agent_that_is_not_ready() -> None:
    body = "print('up', flush=True); sys.stdin.read(1); os._exit(signals.receive().get())"
    process = subprocess.Popen(guarded(body), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    process.communicate("x", timeout=60)
    assert process.returncode == signal.SIGTERM


def test_guard_forwards_while_it_reaps() -> None:
    """Each orphan's end and each signal wakes the same process: none may hide another."""
    orphans = "subprocess.run(['sh', '-c', '(:) & (:) &'])"
    body = (
        f"received = signals.receive(); [({orphans}, print(flush=True), received.get()) for _ in range(100)]"
    )
    process = subprocess.Popen(guarded(body), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _line in process.stdout:
        process.send_signal(signal.SIGUSR1)
    assert process.wait(60) == 5


def test_guard_whose_parent_ignores_sigchld() -> None:
    argv = ["env", "--ignore-signal=CHLD", *guarded("subprocess.run(['sh', '-c', 'exit 4'])")]
    assert subprocess.run(argv, check=False).returncode == 5


def test_signal_is_received_while_the_main_thread_sleeps() -> None:
    """Python's own handlers wait for the main thread, which nothing wakes here: the signal is another's."""
    text = """
        import os, signal, threading
        from jobspec.runtime.base import signals
        received = signals.receive()
        def other():
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            os._exit(received.get())
        threading.Timer(0.2, other).start()
        threading.Event().wait()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], check=False, timeout=60)
    assert done.returncode == signal.SIGTERM


def test_guard_reports_a_signal_death() -> None:
    assert subprocess.run(guarded("os.kill(os.getpid(), 9)"), check=False).returncode == 137


def test_bug_says_that_it_is_one() -> None:
    done = subprocess.run(guarded("raise KeyError('x')"), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "bug in jobspec" in done.stderr
