"""The command line as its users have it: a folder of their own, real files, `main()` in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobspec.cli import main
from jobspec.runs.paths import RunPaths
from jobspec.runs.store import RunStore

HELLO = """\
version: 1
name: hello
framework: command
launch: {mode: srun}
train:
  command:
    - bash
    - -c
    - |
      echo "hello from the driver"
      for step in 1 2 3; do
        echo "{\\"step\\": $step, \\"score\\": 0.$step}" >> "$JOBSPEC_METRICS_DIR/metrics.jsonl"
      done
      echo done > "$JOBSPEC_ARTIFACTS_DIR/result.txt"
metrics: {require: ["max(score) >= 0.3"]}
artifacts: {require: [result.txt]}
"""


@dataclass(frozen=True)
class Done:
    """What a command line left: exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Project:
    """A user's folder with a spec. `cli` runs in this process, `process` as a program of its own."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.capsys = capsys
        self.spec = self.write("hello.yaml", HELLO)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.write_text(text, encoding="utf-8")
        return path

    def cli(self, *argv: object) -> Done:
        self.capsys.readouterr()
        code = main([str(word) for word in argv])
        out, err = self.capsys.readouterr()
        assert "Traceback" not in out + err
        return Done(code, out, err)

    def process(self, *argv: object, env: Mapping[str, str] | None = None, stdin: str = "") -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "jobspec.cli", *map(str, argv)],
            cwd=self.root,
            env={**os.environ, **(env or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    @property
    def runs(self) -> RunStore:
        return RunStore(self.root / "runs")

    def last(self) -> RunPaths:
        return self.runs.list()[0]
