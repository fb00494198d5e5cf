"""A node that an attempt names as broken: the mark for the batch script, and the finding. Real agents."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.plan import SlurmPlan
from tests.kits.agent_lab import running, shell

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
FAILS = f'if [ "$NODE_RANK" = 1 ]; then echo "{ECC}"; exit 7; fi; sleep 60'
BOTH = f'echo "{ECC}"; sleep 2; exit 7'
TOLD_ON = f'if [ "$NODE_RANK" = 0 ]; then echo "ray::A.go() (pid=1, ip=127.0.0.3)"; echo "{ECC}"; exit 7; fi; sleep 60'  # fmt: skip  # noqa: E501
AGAIN = SlurmPlan(requeue_max=1)


@pytest.mark.parametrize(
    ("script", "saved", "mark"),
    [
        (FAILS, False, "127.0.0.3 only\n"),
        (f"mkdir -p $JOBSPEC_METRICS_DIR; echo x >$JOBSPEC_METRICS_DIR/a; {FAILS}", True, "127.0.0.3\n"),
        (BOTH, False, ""),
        (TOLD_ON, False, ""),
        ("exit 7", False, ""),
    ],
)
def test_the_next_attempt_does_without_the_node_that_a_line_names(
    script: str, saved: bool, mark: str, tmp_path: Path
) -> None:
    with running(
        tmp_path, shell(script, on="all"), nodes=2, scheduler="slurm", mode="srun", slurm=AGAIN
    ) as run:
        head = run.agent(0)
        run.agent(1)
        assert run.finish(head)[0] == 7
    file = run.attempt / "requeue"
    assert (file.read_text() if file.exists() else "") == mark
    told = [row for row in run.results()["findings"] if row["rule"] == "requeue.without"]
    if not mark:
        assert told == []
        return
    (row,) = told
    assert (row["node"], row["why"], row["severity"]) == ("127.0.0.3", ECC, "warning")
    assert (run.attempt / row["file"]).read_text().splitlines()[row["line"] - 1] == ECC


def test_the_last_attempt_tells_of_no_next_one(tmp_path: Path) -> None:
    """The mark stays: by it the batch script says that this attempt was the last."""
    with running(
        tmp_path, shell(FAILS, on="all"), nodes=2, scheduler="slurm", mode="srun", slurm=AGAIN
    ) as run:
        head = run.agent(0, env={"SLURM_RESTART_COUNT": "1"})
        run.agent(1, env={"SLURM_RESTART_COUNT": "1"})
        assert run.finish(head)[0] == 7
    assert (run.attempt / "requeue").read_text() == "127.0.0.3 only\n"
    assert "requeue.without" not in run.rules()


def test_without_another_attempt_nothing_is_asked_for(tmp_path: Path) -> None:
    with running(tmp_path, shell(FAILS, on="all"), nodes=2, scheduler="slurm", mode="srun") as run:
        head = run.agent(0)
        run.agent(1)
        assert run.finish(head)[0] == 7
    assert not (run.attempt / "requeue").exists()
    assert "requeue.without" not in run.rules()
