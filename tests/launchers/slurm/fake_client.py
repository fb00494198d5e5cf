"""A fake client for what no real controller can be made to do on demand: lose an answer, refuse, be away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jobspec.launchers.access.command import DEFAULT_TIMEOUT_S, Completed

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
