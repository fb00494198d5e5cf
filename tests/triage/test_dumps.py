"""`jobspec triage` reads dumps of foreign runs, all of them together."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest

from jobspec.cli import main
from jobspec.triage.dumps import has_dump

DUMPS = Path(__file__).parents[1] / "fixtures" / "stalls"


def triage(capsys: pytest.CaptureFixture[str], *paths: Path) -> list[dict[str, object]]:
    assert main(["triage", "--json", *map(str, paths)]) == 1
    return json.loads(capsys.readouterr().out)


def test_a_folder_of_stacks_and_recorders(capsys: pytest.CaptureFixture[str]) -> None:
    found = triage(capsys, DUMPS / "absent")[0]
    assert found["signature"] == "stall.collective-absent"
    assert str(found["title"]).startswith("rank 2 has not come to the collective `all_reduce`")
    assert (Path(str(found["file"])).name, found["line"], found["text"]) == (
        "stacks-rank2.txt",
        5,
        "evaluate (rank.py:14)",
    )


def test_recorders_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (1, 2, 3):
        shutil.copy(DUMPS / "size" / f"trace_rank_{rank}", tmp_path / f"nccl_trace_rank_{rank}")
    found = triage(capsys, tmp_path)[0]
    assert (found["signature"], found["verdict"]) == ("stall.collective-differs", "Fail")
    assert "rank 1 has asked for `all_reduce [[8]]" in str(found["title"])
    assert found["why"] == "nothing is known of rank 0"


def test_a_log_that_names_a_cause_keeps_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    shutil.copy(DUMPS / "absent" / "stacks-rank0.txt", tmp_path)
    found = triage(capsys, tmp_path)
    assert (found[0]["class"], found[-1]["class"]) == ("gpu-memory", "stall")


def test_a_pickle_with_code_in_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trace_rank_0").write_bytes(pickle.dumps(Path("x")))
    assert main(["triage", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "knows no line of it as the cause of a failure" in told.out
    assert "which a flight recorder's dump never does" in told.err


@pytest.mark.parametrize(
    "text",
    [
        "Communicators... \n#0-0 (aa) INCOMPLETE\n  Rank {0} -- GPU 1 managed by process {0} on node x\n",
        "[PG ID 0 PG GUID 0(default_pg) Rank {0}] last enqueued work: {0}, last completed work: {0}\n",
    ],
    ids=["RAS", "watchdog"],
)
def test_a_number_that_python_does_not_take(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.log").write_text(text.format("9" * 5000))
    assert main(["triage", str(tmp_path)]) == 0
    assert "knows no line of it as the cause of a failure" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        "Thread 0x00007f1 (most recent call first):",
        "Process 4711: python3 train.py",
        "Thread 4711 (idle): MainThread",
        "[Rank 3] last enqueued work: 12",
        "[Rank 3] Last enqueued NCCL work: 12",
        "[Rank 3] Watchdog caught: WorkNCCL(SeqNum=12)",
        "Communicators... (0.00s)",
    ],
)
def test_each_kind_of_dump_is_seen_anywhere_in_a_file(line: str) -> None:
    assert has_dump(f"step 1\n{line}\nstep 2\n".encode())


def test_words_of_a_dump_inside_a_line_are_no_dump() -> None:
    assert not has_dump(b"worker Process 12 begins\nits Thread 3 (idle) too\nCommunicators\n")


def test_ras_text_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "slurm-1.out"
    log.write_text("step 3\n" + (DUMPS / "ras" / "skip.txt").read_text())
    found = triage(capsys, log)[0]
    assert (found["signature"], found["verdict"]) == ("stall.collective-absent", "Blocked")
    assert "rank 1 (process 950 on 192.0.2.2) has launched 3 operations AllReduce" in str(found["title"])
