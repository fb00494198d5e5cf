"""The local client against real programs: clean environment, deadlines, missing programs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.launchers.access.command import Completed, shell_text
from jobspec.launchers.access.here import LocalClient
from jobspec.launchers.environment import read_secrets, submission_environment
from jobspec.launchers.local import process_start
from jobspec.launchers.slurm.retry import run_retrying

ENV = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "SLURM_CONF": "/etc/x.conf",
    "SLURM_CPU_BIND": "mask_cpu:0x1",
    "SBATCH_ACCOUNT": "other",
    "SLURM_EXPORT_ENV": "NONE",
    "LEAK": "yes",
}


def test_only_named_variables_reach_the_program() -> None:
    """goodfire-ai/spd#955: an inherited SLURM_CPU_BIND slowed a job down threefold for days."""
    done = LocalClient(ENV).run(["env"], {"TOKEN": "a b\nc"})
    assert "SLURM_CONF=/etc/x.conf" in done.stdout
    assert "TOKEN=a b\nc" in done.stdout
    for name in ("SLURM_CPU_BIND", "SBATCH_ACCOUNT", "SLURM_EXPORT_ENV", "LEAK"):
        assert name not in done.stdout


def test_program_that_hangs_is_given_up() -> None:
    assert LocalClient(ENV).run(["sleep", "600"], timeout_s=0.2).timed_out


def test_program_below_a_wrapper_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could submit a second job after the first call was given up."""
    number = tmp_path / "number"
    script = f'sh -c "echo \\$\\$ >{number}; exec sleep 600"; true'

    def give_up(child: subprocess.Popen[bytes], stdin: bytes | None, timeout: float) -> None:
        await_true(lambda: number.exists() and number.read_text().endswith("\n"))
        raise subprocess.TimeoutExpired(child.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", give_up)
    assert LocalClient(ENV).run(["sh", "-c", script]).timed_out
    await_true(lambda: not process_start(int(number.read_text())))


def await_true(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_program_reads_no_terminal() -> None:
    assert LocalClient(ENV).run(["cat"]).stdout == ""


def test_missing_program_is_a_finding() -> None:
    with pytest.raises(JobspecError, match="`sbatch-of-nowhere` was not found on this machine"):
        LocalClient(ENV).run(["sbatch-of-nowhere"])


def test_complaint_is_the_end_of_what_was_said() -> None:
    done = LocalClient(ENV).run(["sh", "-c", "echo out; seq 20 >&2; exit 3"])
    assert done.code == 3
    assert done.complaint.splitlines()[-1] == "20"
    assert len(done.complaint.splitlines()) == 6


def test_reading_is_repeated_with_growing_pauses_and_then_given_up() -> None:
    pauses: list[float] = []

    class Busy(LocalClient):
        def run(self, argv, secrets=None, timeout_s=30.0):  # type: ignore[no-untyped-def]
            return Completed(tuple(argv), 1, "", "Unable to contact slurm controller")

    done = run_retrying(Busy(ENV), ["squeue"], sleep=pauses.append)
    assert done.code == 1
    assert pauses == sorted(pauses) and len(pauses) == 3


def test_missing_secrets_are_all_named() -> None:
    with pytest.raises(JobspecError) as caught:
        read_secrets(["A", "B", "C"], {"B": "x"})
    assert [finding.what.split("`")[1] for finding in caught.value.findings] == ["A", "C"]


def test_secret_may_be_empty_but_set() -> None:
    assert read_secrets(["A"], {"A": ""}) == {"A": ""}


def test_environment_keeps_the_clusters_address_alone() -> None:
    assert submission_environment(ENV, {}) == {key: ENV[key] for key in ("PATH", "HOME", "SLURM_CONF")}


HOSTILE = ["a b", "$(touch /tmp/x)", "`id`", "'", '"', "\n", "\\", "-n", "*", "é"]


@pytest.mark.parametrize("value", HOSTILE)
def test_words_and_secrets_survive_the_remote_shell(value: str) -> None:
    text = shell_text(["printf", "%s|%s", value, "end"], {"TOKEN": value}, "mark")
    done = LocalClient(ENV).run(["bash", "-c", text])
    assert done.stdout == f"mark\n{value}|end"
    text = shell_text(["sh", "-c", 'printf %s "$TOKEN"'], {"TOKEN": value}, "mark")
    assert LocalClient(ENV).run(["bash", "-c", text]).stdout == f"mark\n{value}"
