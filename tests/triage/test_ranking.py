"""Which of several matches of one level comes first."""

from __future__ import annotations

import pytest

from jobspec.triage import scan_lines

TRACEBACK = 'Traceback (most recent call last):\n  File "{}", line 7, in <module>\n    main()\n{}'
RAISED = TRACEBACK.format("prep.py", "mypackage.errors.TooFewRows: 12 rows of 20")
ABSENT = TRACEBACK.format(
    "train.py", "FileNotFoundError: [Errno 2] No such file or directory: '/d/rows/state.json'"
)
ENDED = "srun: error: n1: task 0: Exited with exit code 1"


def first(*parts: str) -> str:
    text = "\n".join(("+ srun python prep.py --rows 20", *parts))
    return scan_lines(text.splitlines())[0].signature


def test_earlier_program_that_did_not_make_the_file_comes_first() -> None:
    assert first(RAISED, ENDED, ABSENT, ENDED) == "effect.exception"


@pytest.mark.parametrize(
    "parts",
    [
        (ABSENT, ENDED),
        (RAISED, ABSENT, ENDED),  # nothing ended in between: the same program
        (ABSENT, ENDED, RAISED, ENDED),
        ("WARNING: " + RAISED.splitlines()[-1], ENDED, ABSENT, ENDED),
    ],
)
def test_absent_file_comes_first_where_no_program_had_ended_before(parts: tuple[str, ...]) -> None:
    assert first(*parts) == "disk.file-missing"


def test_other_causes_stay_before_an_earlier_program_s_exception() -> None:
    disk = TRACEBACK.format("train.py", "OSError: [Errno 28] No space left on device")
    assert first(RAISED, ENDED, disk, ENDED) == "disk.full"


HOOK = "nvidia-container-cli: ldcache error: open failed: /sbin/ldconfig.real: no such file or directory"
TOOL = "nvidia-container-cli: device error: unknown device id: 9"
START = "slurmstepd: error: pyxis: container start failed with error code: 1"


def test_tools_of_gpus_stay_in_their_order_and_before_the_container_s_own_end() -> None:
    for one, other in ((HOOK, TOOL), (TOOL, HOOK)):
        found = [match.text for match in scan_lines([START, one, other])]
        assert found[:2] == [one, other]
