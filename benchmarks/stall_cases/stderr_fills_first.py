"""A runner reads a grader's stdout line by line and its stderr only behind that; the grader's deprecation warnings fill the pipe of stderr, so it never comes to print a score.
---
expect:
  kind: [pipe, subprocess]
  says: ["read_scores|pipe|stderr"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)stdin", "(?i)socket"]
"""

import subprocess
import sys

import _kit

GRADER = """
import sys
def grade(row):
    print(f"DeprecationWarning: row {row}: verify() will take a config object, pass one instead of keywords", file=sys.stderr)
    return row % 2
scores = [grade(row) for row in range(4000)]
for score in scores:
    print(score, flush=True)
"""


def read_scores(grader: subprocess.Popen[str]) -> list[int]:
    assert grader.stdout is not None
    return [int(line) for line in grader.stdout]


def run_grader() -> list[int]:
    grader = subprocess.Popen(
        [sys.executable, "-c", GRADER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    _kit.here()
    scores = read_scores(grader)
    assert grader.stderr is not None
    if warnings := grader.stderr.read():
        print(warnings[-200:], flush=True)
    grader.wait()
    return scores


_kit.steps()
print(sum(run_grader()), flush=True)
