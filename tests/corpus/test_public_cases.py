"""Every public case in every surrounding: class, verdict and first cause."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.corpus.corpus_kit import SURROUNDINGS, Case, public_cases, shown

ROOT = Path(__file__).parents[2]
CASES = public_cases()
Record = Callable[[str, str, str, str], None]

# Cases that show in no log line, and the test of what prevents or finds them.
ELSEWHERE = {
    "A11": ("the step gets the variables of the spec, not the caller's",
            "tests/rendering/test_batch_script.py", "test_the_step_runs_in_a_clean_environment"),
    "B13": ("a container's name holds the job's id",
            "tests/rendering/test_batch_script.py",
            "test_pyxis_gets_its_folders_before_and_is_cleaned_up_after"),
    "C03": ("staging compares hashes, not sizes",
            "tests/runtime/staging/test_stage_faults.py",
            "test_bit_flipped_in_source_is_named_with_both_hashes"),
    "E09": ("a resumed run passes with new steps only",
            "tests/frameworks/trl/test_judge.py", "test_resume_without_later_steps_fails"),
    "F05": ("a job is asked for by its id, also when it has ended",
            "tests/launchers/slurm/test_submit.py",
            "test_lost_answer_of_a_job_that_has_ended_is_found_in_accounting"),
    "F08": ("a job that nobody knows is missing, never successful",
            "tests/launchers/slurm/test_commands.py", "test_job_that_nobody_knows_is_missing"),
    "F17": ("values reach the step whole, whatever they hold",
            "tests/rendering/test_hostile_values.py", "test_slurm_scripts_pass_every_value_on"),
    "G02": ("a progress bar's redraws do not hide the line after them",
            "tests/triage/test_scan.py", "test_colours_prefixes_and_progress_bars_do_not_hide_a_line"),
    "G09": ("what Ray logged is collected in bounded time",
            "tests/runtime/node/test_collect.py", "test_deadline_is_kept"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_first_cause(case: Case, tmp_path: Path, record: Record) -> None:
    expected = f"{case.signature} {case.kind}"
    for surrounding in SURROUNDINGS:
        match = shown(case, surrounding, tmp_path)
        got = f"{match.signature} {match.kind}" if match is not None else ""
        record("public cases", case.id, expected, got)
        assert match is not None and got == expected, surrounding.__name__
        assert match.boundary or match.verdict == case.verdict, surrounding.__name__


def test_table_is_whole() -> None:
    assert len({case.id for case in CASES} | ELSEWHERE.keys()) == 133


@pytest.mark.parametrize("case", ELSEWHERE)
def test_case_without_a_line_is_caught_elsewhere(case: str) -> None:
    _, file, test = ELSEWHERE[case]
    assert f"def {test}(" in (ROOT / file).read_text("utf-8")
