"""Failures and runs that other people reported: the answer was written before jobspec first read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kits.verdict_cases import RIGHT, Case, cases, score

CASES = cases(Path(__file__).parent / "reported")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict_is_right(case: Case) -> None:
    result = score(case)
    assert (result.grade, result.missing, result.false) == (RIGHT, (), ())
