"""A cell of the model sends the stdout of the sandbox's shell into a file by `exec >`: the mark of the cell's end goes there too, and the runner waits for it at the pipe, the shell for its next command.
---
expect:
  kind: [pipe, input, subprocess, waits]
  says: [run_cell, "bash|shell|pipe"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)(^|[^a-z])lock([^a-z]|$)", "(?i)network", "(?i)pipe[^;.]* is full"]
"""

import subprocess
import tempfile

import _kit

CELLS = [
    "x=$((6 * 7)); echo $x",
    "printf 'a\\nb\\n' | sort -r",
    "exec > results.txt\necho 'the answer is 42'",  # it should have been a redirection of this echo only
    "cat results.txt",
]


class Sandbox:
    def __init__(self) -> None:
        self.shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, cwd=tempfile.mkdtemp(prefix="sandbox-"),
        )  # fmt: skip

    def run_cell(self, number: int, code: str) -> str:
        mark = f"__end_of_cell_{number}__"
        self.shell.stdin.write(f"{code}\necho {mark}\n")
        self.shell.stdin.flush()
        lines = []
        while (line := self.shell.stdout.readline()) and line.strip() != mark:
            lines.append(line)
        return "".join(lines)


_kit.steps()
sandbox = Sandbox()
for number, code in enumerate(CELLS):
    if number == 2:
        _kit.here()
    print(f"cell {number}: {sandbox.run_cell(number, code)!r}", flush=True)
