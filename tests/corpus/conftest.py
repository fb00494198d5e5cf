"""Prints the accuracy over the corpus and what was confused with what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

PROPERTY = "triage"


@pytest.fixture
def record(record_property: Callable[[str, object], None]) -> object:
    """`record(group, case, expected, found)` counts one judged case. A property of the test reaches the
    summary from another process, too."""

    def note(group: str, case: str, expected: str, found: str) -> None:
        record_property(PROPERTY, (group, case, expected, found))

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    outcomes: dict[str, list[tuple[str, str, str]]] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties if report.when == "call" else ():
            if name == PROPERTY:
                group, *judged = value
                outcomes.setdefault(group, []).append(tuple(judged))
    if not outcomes:
        return
    terminalreporter.section("accuracy of triage")
    for group, rows in outcomes.items():
        right = sum(expected == found for _, expected, found in rows)
        terminalreporter.line(f"{group:<40} {right:>5} of {len(rows):>5}  {100 * right / len(rows):.1f} %")
        wrong = Counter((case, expected, found) for case, expected, found in rows if expected != found)
        for (case, expected, found), times in wrong.items():
            terminalreporter.line(f"    {case}: {expected} taken for {found or 'nothing'} ({times}x)")
