"""Reads pytest's output in a log: its counts, its first failure and its root folder. Judges nothing.

Source: pytest 8 (`_pytest/terminal.py`). The last line counts outcomes, with or without a frame of `=`. The
short summary before it has a line `FAILED nodeid - message` or `ERROR nodeid - message` for each failure, and
with `-rp` a line `PASSED nodeid` for each pass; `-v` has `nodeid PASSED` instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobspec.log_text import clean
from jobspec.runtime.base.run_files import read_lines
from jobspec.triage.signatures import masked

_OUTCOME = r"\d+ (?:passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?|rerun|subtests passed)"
_COUNTS = re.compile(rf"^(?:=+ )?((?:{_OUTCOME}, )*{_OUTCOME}|no tests ran) in \d+\.\d+s\b")
_ONE = re.compile(r"(\d+) (\w+)")
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (?=\S*(?:\.py|::))|^\S+::\S.* (?:FAILED|ERROR)\b")
_PASSED = re.compile(r"^PASSED (\S+\.py)(?:::|$)|^(\S+\.py)::\S.* PASSED\b")
_WORDS = (" in ", "FAILED", "ERROR", "PASSED", "rootdir", "E  ")  # one of them is in every line that counts
_ROOT = re.compile(r"^rootdir: ([^,]+)")


@dataclass(frozen=True)
class TestLog:
    """The last session of pytest in a log; `counts` covers all sessions of the log.

    `summary` stands on line `line`. `failure` is the line of the first failed test, at `failure_line`. Lines
    count from 1; 0 means none. `error` is the first exception that pytest shows. `passed_in` has the number
    of passed tests of each file, where the log names them, and the line of the first.
    """

    __test__ = False  # not a test, whatever its name

    counts: Mapping[str, int] = field(default_factory=dict)
    summary: str = ""
    line: int = 0
    failure: str = ""
    failure_line: int = 0
    root: str = ""
    error: str = ""
    passed_in: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def passed(self) -> int:
        return self.counts.get("passed", 0)

    @property
    def failed(self) -> int:
        """Tests that failed, and errors in their setup or collection."""
        return self.counts.get("failed", 0) + self.counts.get("error", 0)


def read_test_log(path: Path) -> TestLog | None:
    """What pytest says in the log at `path`; None when it says nothing or the log cannot be read."""
    try:
        return parse_test_log(line.decode("utf-8", "replace") for line in read_lines(path))
    except OSError:
        return None


def parse_test_log(lines: Iterable[str]) -> TestLog | None:
    """The sessions that `lines` show; None without the line of counts that ends a session."""
    counts: dict[str, int] = {}
    summary, at, root, error = "", 0, "", ""
    short, verbose = ("", 0), ("", 0)
    passed_in: dict[str, tuple[int, int]] = {}
    for number, raw in enumerate(lines, 1):
        if not any(word in raw for word in _WORDS):
            continue
        text = clean(raw).strip()
        if match := _COUNTS.match(text):
            summary, at = text.strip("= "), number
            for count, word in _ONE.findall(match.group(1)):
                key = "error" if word == "errors" else word
                counts[key] = counts.get(key, 0) + int(count)
        elif _FAILURE.match(text):
            if text.startswith(("FAILED ", "ERROR ")):
                short = short if short[1] else (text, number)
            else:
                verbose = verbose if verbose[1] else (text, number)
        elif match := _PASSED.match(text):
            file = match.group(1) or match.group(2)
            tests, first = passed_in.get(file, (0, number))
            passed_in[file] = (tests + 1, first)
        elif match := _ROOT.match(text):
            root = match.group(1).strip()
        elif text.startswith("E  ") and not error:
            error = text[1:].strip()
    if not summary:
        return None
    # The short summary gives the message as well; with `-rN` only `-v` names the test.
    failure, failure_line = short if short[1] else verbose
    return TestLog(counts, summary, at, masked(failure), failure_line, root, masked(error), passed_in)
