"""The all-reduce of `cluster check`, by real torch.distributed with gloo: there is no GPU here."""

from __future__ import annotations

import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobspec.launchers.function_jobs import allreduce, site_check
from jobspec.launchers.function_jobs.submit import last_words
from jobspec.spec.site import ClusterProfile

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def profile(**more: Any) -> ClusterProfile:
    return msgspec.convert({"version": 1, "name": "c", "scheduler": "local", **more}, ClusterProfile)


def facts(**reduced: Any) -> dict[str, Any]:
    seen = {"ranks": 2, "backend": "nccl", "problem": "", "variables": {}, **reduced}
    return {
        "host": "n1", "canary": True, "node_local_problem": "", "node_local_free": 1 << 40, "hf_home": True,
        "gpus": 2, "cpus": 8, "all_reduce": seen,
    }  # fmt: skip


def test_sum_is_right_and_variables_arrive() -> None:
    env = {"NCCL_DEBUG": "WARN"}
    found = allreduce.run_node(["127.0.0.1"], 0, 0, env, free_port(), processes=2)
    assert found is not None
    assert (found.problem, found.ranks, found.backend, found.bytes) == ("", 2, "gloo", 16 * 1024**2)
    assert found.bus_gb_per_s > 0
    assert found.variables["NCCL_DEBUG"] == "WARN"


def test_rank_that_dies_is_told_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: no such file')\n")
    env = {"PYTHONPATH": str(tmp_path)}
    found = allreduce.run_node(["127.0.0.1"], 0, 0, env, free_port(), processes=2)
    assert found is not None
    assert found.problem == "ImportError: libcudart.so.13: no such file"


def test_hanging_ranks_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allreduce, "TIMEOUT_S", 3.0)
    # Two nodes are announced and one comes: the ranks wait for the other.
    found = allreduce.run_node(["127.0.0.1", "127.0.0.1"], 0, 0, {}, free_port(), processes=1)
    assert found is not None
    assert "the ranks did not end within 3 s" in found.problem


@pytest.mark.parametrize(
    ("reduced", "env", "rules"),
    [
        ({}, {}, []),
        ({"variables": {"NCCL_NVLS_ENABLE": "0"}}, {"NCCL_NVLS_ENABLE": "0"}, []),
        ({"variables": {"NCCL_DEBUG": "WARN"}}, {"NCCL_DEBUG": "INFO"}, ["check.nccl-variable"]),
        ({"problem": "ncclSystemError: x"}, {}, ["check.all-reduce"]),
        ({"problem": site_check.NO_TORCH}, {}, ["check.all-reduce"]),
    ],
)
def test_judging(reduced: dict[str, Any], env: dict[str, str], rules: list[str]) -> None:
    found = list(site_check.judge_node(profile(env=env), facts(**reduced)))
    assert [finding.rule for finding in found] == rules
    if reduced.get("problem") == site_check.NO_TORCH:
        assert not found[0].is_error


def test_failed_job_is_told_by_its_last_error() -> None:
    message = "Job failed\nYou can check full logs at paths:\n  - /x/0_log.err\n  - /x/0_log.out\n"
    stderr = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'\n\n"
    assert last_words(stderr, message) == "ModuleNotFoundError: No module named 'x'"
    assert last_words("", message) == "You can check full logs at paths:"
    assert last_words("", "") == "the job printed nothing"
