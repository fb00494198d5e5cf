"""Prints the accuracy over the corpus and what was confused with what."""

from __future__ import annotations

from collections import Counter

import pytest

OUTCOMES: dict[str, list[tuple[str, str, str]]] = {}


@pytest.fixture
def record() -> object:
    """`record(group, case, expected, found)` counts one judged case."""

    def note(group: str, case: str, expected: str, found: str) -> None:
        OUTCOMES.setdefault(group, []).append((case, expected, found))

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not OUTCOMES:
        return
    terminalreporter.section("accuracy of triage")
    for group, rows in OUTCOMES.items():
        right = sum(expected == found for _, expected, found in rows)
        terminalreporter.line(f"{group:<40} {right:>5} of {len(rows):>5}  {100 * right / len(rows):.1f} %")
        wrong = Counter((case, expected, found) for case, expected, found in rows if expected != found)
        for (case, expected, found), times in wrong.items():
            terminalreporter.line(f"    {case}: {expected} taken for {found or 'nothing'} ({times}x)")
