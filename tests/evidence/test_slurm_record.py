"""What Slurm printed about a job, kept in a file beside its run."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.evidence.slurm_record import slurm_end

HEAD = "JobID           JobName      State ExitCode    Elapsed  Timelimit NodeList\n"
RULE = "------------ ---------- ---------- -------- ---------- ---------- --------\n"
TABLE = f"""{HEAD}{RULE}\
88             sft-llama   TIMEOUT      0:0   02:00:12   02:00:00 gpu-07
88.batch           batch CANCELLED     0:15   02:00:14            gpu-07
88.0              python    FAILED      1:0   02:00:14            gpu-07
"""
PIPES = """JobID|JobName|State|ExitCode
51|grpo|FAILED|0:9
51.batch|batch|OUT_OF_MEMORY|0:125
"""
SCONTROL = """JobId=9912 JobName=skyrl
   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=3:0
"""
SEFF = "Job ID: 7\nCluster: main\nState: TIMEOUT (exit code 0)\nCores: 8\n"


def end(tmp_path: Path, text: str, *trained: str) -> tuple[str, str, int, int] | None:
    (tmp_path / "sacct.txt").write_text(text)
    found = slurm_end([(tmp_path / "sacct.txt", "sacct.txt")], trained)
    return None if found is None else (found.job, found.state, found.code, found.item.line)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TABLE, ("88", "TIMEOUT", 0, 3)),
        (PIPES, ("51", "OUT_OF_MEMORY", 125, 3)),
        (SCONTROL, ("9912", "FAILED", 3, 2)),
        (SEFF, ("7", "TIMEOUT", 0, 3)),
        (f"{HEAD}7  train  CANCELLED+  0:0  00:10:00  1-00:00:00  n1\n", ("7", "CANCELLED", 0, 2)),
        (f"{HEAD}7  train  CANCELLED by 1001  0:0  00:10:00  1-00:00:00  n1\n", ("7", "CANCELLED", 0, 2)),
        (f"{HEAD}7  train  OUT_OF_ME+  0:125  00:10:00  01:00:00  n1\n", ("7", "OUT_OF_MEMORY", 125, 2)),
        (f"{HEAD}7_3  train  COMPLETED  0:0  00:10:00  01:00:00  n1\n", ("7_3", "COMPLETED", 0, 2)),
        (f"{HEAD}7  train  RUNNING  0:0  00:10:00  01:00:00  n1\n", None),
        ("JobId=7 JobName=a\n   JobState=RUNNING Reason=None\n   ExitCode=0:0\n", None),
        ("step 7 FAILED 1:0 of the retry\n", None),  # no table
    ],
)
def test_record_says_how_the_job_ended(
    text: str, expected: tuple[str, str, int, int] | None, tmp_path: Path
) -> None:
    assert end(tmp_path, text) == expected


def test_job_is_that_of_the_log(tmp_path: Path) -> None:
    text = f"{HEAD}801  a  FAILED  1:0  00:00:40\n802  a  COMPLETED  0:0  00:40:00\n803  b  TIMEOUT  0:0\n"
    assert end(tmp_path, text, "slurm-802.out") == ("802", "COMPLETED", 0, 3)
    assert end(tmp_path, text, "train.log") == ("803", "TIMEOUT", 0, 4)
