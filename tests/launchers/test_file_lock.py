"""Commands that wait for each other say so."""

import subprocess
import sys
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.launchers import file_lock
from jobspec.launchers.file_lock import holder, holder_pid, locked

WAITER = """
import sys
from pathlib import Path
from jobspec.launchers.file_lock import locked
with locked(Path(sys.argv[1])):
    print("got it")
"""


def test_who_waits_is_told_for_whom(tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    path.touch()
    with locked(path):
        with path.open("rb") as file:
            name = holder(file)
        waiter = subprocess.Popen(
            [sys.executable, "-c", WAITER, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert waiter.stderr is not None
        told = waiter.stderr.readline()
        assert waiter.poll() is None
    assert told == f"waiting for {name} to be done with {path}; Ctrl-C ends the wait\n"
    assert waiter.communicate(timeout=60)[0] == "got it\n"


def test_who_waits_too_long_is_told_whom_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "job.sbatch"
    path.touch()
    monkeypatch.setattr(file_lock, "WAIT_S", 0.2)
    with locked(path):
        with path.open("rb") as file:
            name = holder(file)
        with pytest.raises(JobspecError) as caught, locked(path):
            raise AssertionError("two at once")
    assert caught.value.findings[0].rule == "launch.locked"
    assert caught.value.findings[0].what.startswith(f"{name} has held `{path}`")
    with locked(path):  # the wait that was given up took nothing
        pass


def test_holder_is_neither_a_waiter_nor_of_another_file_or_kind() -> None:
    locks = """\
1: POSIX  ADVISORY  WRITE 11 08:01:5678 0 EOF
2: FLOCK  ADVISORY  WRITE 12 08:01:567 0 EOF
3: -> FLOCK  ADVISORY  WRITE 13 08:01:5678 0 EOF
4: FLOCK  ADVISORY  WRITE 14 08:01:5678 0 EOF
"""
    assert holder_pid(locks, "08:01:5678") == "14"
    assert holder_pid(locks, "08:02:5678") == ""


def test_nobody_waits_for_what_is_free(tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    path.touch()
    done = subprocess.run([sys.executable, "-c", WAITER, path], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("got it\n", "")


def test_file_that_cannot_be_locked_costs_only_the_protection(tmp_path: Path) -> None:
    with locked(tmp_path / "missing"):
        assert not (tmp_path / "missing").exists()
