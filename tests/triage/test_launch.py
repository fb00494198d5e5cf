"""What tells how a run was started, where it ran and what it said itself, beside the line that ended it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.cli.commands.triage import scan
from jobspec.triage import scan_lines

SRUN = "+ srun --nodes=1 --ntasks-per-node={} torchrun --nproc_per_node={} train.py"
TAKEN = "OSError: [Errno 98] Address already in use"


@pytest.mark.parametrize(("tasks", "processes", "told"), [(4, 4, True), (1, 4, False), (4, 1, False)])
def test_launchers_that_srun_starts_several_times_on_a_node_are_told(
    tasks: int, processes: int, told: bool
) -> None:
    cause = scan_lines([SRUN.format(tasks, processes), TAKEN])[0]
    assert cause.signature == "network.port-in-use"
    assert any("srun starts a launcher several times" in fact for fact in cause.facts) == told


def test_ray_at_an_address_of_its_machine_alone_is_told_where_nobody_reaches_it(tmp_path: Path) -> None:
    (tmp_path / "head.log").write_text("INFO scripts.py:862 -- Local node IP: 127.0.0.1\n")
    worker = (
        "[W 771] gcs_rpc_client.h:155: Failed to connect to GCS at address 10.3.0.11:6379 within 5 seconds.\n"
    )
    (tmp_path / "worker.log").write_text(worker)
    cause = scan([str(tmp_path)], [])[0]
    assert cause.signature == "ray.gcs-stale"
    assert any("--node-ip-address" in fact for fact in cause.facts)


STEPS = [f"{{'loss': 1.1, 'grad_norm': 0.9, 'learning_rate': 1e-05, 'epoch': {n / 10}}}" for n in range(9)]
LIMIT = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2025-03-11T11:00:22 DUE TO TIME LIMIT ***"
DONE = "{'train_runtime': 4210.1, 'train_samples_per_second': 8.68, 'train_loss': 0.611, 'epoch': 3.0}"


@pytest.mark.parametrize(
    ("lines", "begins"), [((), "if it was still working"), ((DONE,), "a training had ended")]
)
def test_time_limit_after_the_end_of_the_training_asks_for_what_came_later(
    lines: tuple[str, ...], begins: str
) -> None:
    cause = scan_lines([*STEPS, *lines, LIMIT])[0]
    assert cause.signature == "slurm.time-limit"
    assert cause.fix.startswith(begins)


def test_nodes_that_lack_an_environment_are_named() -> None:
    text = "{}: launch.sh: line 9: /localscratch/env/bin/activate: No such file or directory"
    cause = scan_lines([text.format(node) for node in ("gra1148", "gra1149")])[0]
    assert cause.facts == ("said by gra1148, gra1149",)


def test_sentence_that_says_what_to_do_is_repeated() -> None:
    line = (
        "RuntimeError: You set `--ntasks=8`, but this variable is not supported. HINT: Use `--n=8` instead."
    )
    assert '"Use `--n=8` instead' in scan_lines([line])[0].fix


def test_kernel_log_of_a_node_is_read_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("train: loss 1.0\n")
    xid = "[Wed Jul  2 11:42:03 2025] NVRM: Xid (PCI:0000:9d:00): 119, pid=40122, name=python, Timeout\n"
    (tmp_path / "n2.dmesg").write_text(xid)
    assert scan([str(tmp_path)], [])[0].signature == "gpu.gsp"
