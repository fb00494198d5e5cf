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


PROBE = ("/env/ld: cannot find -laio: No such file", "collect2: error: ld returned 1 exit status")
WRONG_NAME = TRACEBACK.format("train.py", "TypeError: __init__() got an unexpected keyword argument 'x'")
BUILT = TRACEBACK.format("train.py", "RuntimeError: Error building extension 'cpu_adam'")


@pytest.mark.parametrize(
    ("parts", "signature"),
    [
        ((*PROBE, WRONG_NAME), "image.import-name"),  # DeepSpeed asked at its import, and the program went on
        (
            (*PROBE, "subprocess.CalledProcessError: Command '['ssh']' failed", WRONG_NAME),
            "image.import-name",
        ),
        (PROBE, "build.linker"),
        ((*PROBE, "ninja: build stopped: subcommand failed.", BUILT), "build.linker"),
        ((*PROBE, ENDED), "build.linker"),
    ],
)
def test_linker_is_the_cause_where_a_build_failed(parts: tuple[str, ...], signature: str) -> None:
    assert first(*parts) == signature


def test_command_that_a_build_shows_is_no_failure() -> None:
    command = "[1/3] c++ -MMD -MF x.o.d -D_GLIBCXX_USE_CXX11_ABI=0 -c x.cpp"
    assert scan_lines([command, command.removeprefix("[1/3] ")]) == []
    assert scan_lines(["ImportError: built with -D_GLIBCXX_USE_CXX11_ABI=0"])[0].signature == "image.abi"


MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.27 GiB. GPU 0 has a total capacity of"
    " 79.11 GiB of which 6.83 GiB is free. {}Of the allocated memory 69.02 GiB is allocated by PyTorch, and"
    " {} GiB is reserved by PyTorch but unallocated."
)
OTHER, OWN = "Process 81 has 70.25 GiB memory in use. ", "this process has 9.00 GiB memory in use. "


@pytest.mark.parametrize(
    ("processes", "reserved", "begins"),
    [
        (
            OTHER,
            "1.94",
            "smaller (micro) batches",
        ),  # in a container torch does not know its own number
        (OTHER + "Process 82 has 4.50 GiB memory in use. ", "1.94", "other processes hold"),
        (OTHER + OWN, "1.94", "other processes hold"),
        (OWN + OTHER, "1.94", "other processes hold"),
        (OWN, "19.4", "several GiB are reserved"),
    ],
)
def test_other_processes_hold_memory_where_the_line_shows_them(
    processes: str, reserved: str, begins: str
) -> None:
    assert scan_lines([MEMORY.format(processes, reserved)])[0].fix.startswith(begins)
