"""The minimum evidence of a new provider: five kinds, each there, missing or not asked for.

Source: the guides' list "Minimum Bridge-side evidence for a new model/provider", and the names of the files
below `tests/` of Megatron-Bridge. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from jobspec.evidence.evidence import Evidence
from jobspec.evidence.pytest_log import TestLog
from jobspec.evidence.repo_tests import bridge_logs, bridge_repo, tested_repo
from jobspec.verdict import Deliverable, Status

UNIT = r"unit_tests/models/(?:.*/)?test_\w*"
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("provider and config unit tests", re.compile(rf"{UNIT}(?:provider|config)\w*\.py$")),
    ("parameter mapping tests", re.compile(rf"{UNIT}(?:mapping|_bridge)\w*\.py$")),
    (
        "import from Hugging Face or roundtrip",
        re.compile(r"(?<!launcher/)test_\w*(?:conversion|roundtrip|hf_import)\w*\.py$"),
    ),
    ("generation or logits comparison", re.compile(r"(?:^|/)test_\w*(?:generat|logit|compar)\w*\.py$")),
)
SMOKE = "this external-loop run"


def provider_evidence(
    evidence: Evidence, deliverables: Sequence[Deliverable], guide: Sequence[str]
) -> Iterator[str]:
    """One line for each kind; none for a framework without a guide."""
    if len(guide) < 3:
        return
    asked, logs = _asked(evidence), _logs(evidence)
    if evidence.foreign and not logs:
        return  # nobody asked for it
    for kind, pattern in KINDS:
        yield f"{kind}: {_found(pattern, asked, logs)}"
    run = next((item for item in deliverables if item.name == guide[2]), None)
    there = run is not None and run.status is Status.PASS
    yield f"{SMOKE}: {'there' if there else 'missing'} ({guide[2]}: {run.status if run else Status.SKIPPED})"


def _found(pattern: re.Pattern[str], asked: Sequence[str], logs: Sequence[tuple[str, TestLog]]) -> str:
    for path, tests in logs:
        passed = {file: row for file, row in tests.passed_in.items() if pattern.search(file)}
        if passed and tests.failed:
            return f"missing (tests failed: {tests.summary}) [{path}:{tests.line}]"
        if passed:
            count, line = sum(row[0] for row in passed.values()), min(row[1] for row in passed.values())
            return f"there ({count} passed in {', '.join(passed)}) [{path}:{line}]"
    files = [word for word in asked if pattern.search(word.partition("::")[0])]
    if files:
        return f"missing (jobspec read no passed test of {', '.join(files)})"
    return "not asked"


def _asked(evidence: Evidence) -> list[str]:
    """The words of the commands that test the Bridge; they name files."""
    bridge = bridge_repo(evidence.plan)
    return [word for item in evidence.plan.checks if tested_repo(item) == bridge for word in item.argv]


def _logs(evidence: Evidence) -> list[tuple[str, TestLog]]:
    """The sessions of pytest in the Bridge: those of the plan's commands, else those of any log."""
    attempt, bridge = evidence.last, bridge_repo(evidence.plan)
    if attempt is None:
        return []
    if evidence.foreign:
        return bridge_logs(evidence)
    results = (attempt.command(item.name) for item in evidence.plan.checks if tested_repo(item) == bridge)
    return [(item.log, item.tests) for item in results if item is not None and item.tests is not None]
