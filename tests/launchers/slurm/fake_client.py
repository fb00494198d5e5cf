"""A fake client for what no real controller can be made to do on demand: lose an answer, refuse, be away.

Beside it: what the tests of submitting and of watching share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from jobspec.launchers.access.command import DEFAULT_TIMEOUT_S, Completed
from jobspec.launchers.slurm.launcher import SlurmLauncher
from jobspec.plan import Plan
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, read_launch

RUN_ID = "20261128-010203-ab12cd"
NAME = f"demo-{RUN_ID}"
PLAN = Plan("demo", "command", "lab", "slurm", "ray", runs="/shared/runs")
Answer = Callable[[Sequence[str], Mapping[str, str]], Completed]


def says(stdout: str = "", stderr: str = "", code: int = 0, timed_out: bool = False) -> Answer:
    return lambda argv, secrets: Completed(tuple(argv), 124 if timed_out else code, stdout, stderr, timed_out)


class FakeClient:
    """Answers each program's calls from a list; the last answer repeats. Records every call."""

    where = "fake"

    def __init__(self, **answers: Sequence[Answer]) -> None:
        self._answers = {name: list(items) for name, items in answers.items()}
        self.calls: list[tuple[str, ...]] = []
        self.timeouts: dict[str, float] = {}  # the newest of each program
        self.secrets: list[Mapping[str, str]] = []

    def count(self, program: str) -> int:
        return sum(call[0] == program for call in self.calls)

    def reach(self) -> None:
        pass

    def run(
        self,
        argv: Sequence[str],
        secrets: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        stdin: str = "",
    ) -> Completed:
        assert timeout_s > 0
        self.calls.append(tuple(argv))
        self.timeouts[argv[0]] = timeout_s
        self.secrets.append(secrets or {})
        answers = self._answers[argv[0]]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return answer(argv, secrets or {})

    def interactive(self, argv: Sequence[str]) -> int:
        raise NotImplementedError

    def upload(self, local: Path, remote: str) -> None:
        self.calls.append(("upload", remote))

    def send(self, local: Path, remote: str) -> None:
        raise NotImplementedError

    def download(self, remote: str, local: Path) -> None:
        raise NotImplementedError


def launcher(client: FakeClient) -> SlurmLauncher:
    return SlurmLauncher(client, sleep=lambda seconds: None, clock=lambda: 1000.0)


def queued(job_id: str, state: str = "PENDING", name: str = NAME, user: str = "", at: str = "") -> str:
    return f"{job_id}|{state}|{user}|{at}|n1|N/A|{name}|None\n"


def lost_submission(run: RunPaths) -> Launch:
    """The record of a submission that was interrupted while sbatch had it."""

    def crash(argv, secrets):  # type: ignore[no-untyped-def]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launcher(FakeClient(sbatch=[crash])).submit(run, PLAN, {})
    launch = read_launch(run)
    assert launch is not None and not launch.submitted
    return launch
