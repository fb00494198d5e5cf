"""Files of a checkpoint that only a listing names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobspec.evidence.evidence import Checkpoint
from jobspec.frameworks.trl.listed import with_listed

BOTH = ("model.safetensors", "optimizer.pt")


def listed(root: Path, text: str, name: str = "listing.txt") -> tuple[str, ...]:
    folder = root / "out" / "checkpoint-300"
    folder.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")
    saved = Checkpoint(str(folder), 300, ("trainer_state.json",))
    return with_listed(cast(Any, SimpleNamespace(root=root)), saved)[1].files


@pytest.mark.parametrize(
    "text",
    [
        "$ ls -l out/checkpoint-300\ntotal 9\n-rw-r--r-- 1 u g 98 Oct 8 21:02 model.safetensors\n"
        "-rw-r--r-- 1 u g 19 Oct 8 21:02 optimizer.pt\n",
        "out/checkpoint-300:\nmodel.safetensors\noptimizer.pt\n\nout/checkpoint-600:\nscheduler.pt\n",
        "98 out/checkpoint-300/model.safetensors\n19 out/checkpoint-300/optimizer.pt\n",
        "checkpoint-300/model.safetensors 98\ncheckpoint-300/optimizer.pt 19\n",
        "942M\t./checkpoint-300/model.safetensors\n1.9G\t./checkpoint-300/optimizer.pt\n",
        "2026-10-08 21:02:11.0 98 /s/out/checkpoint-300/model.safetensors\n"
        "/s/out/checkpoint-300/optimizer.pt\n",
        "out\n├── checkpoint-300\n│   ├── model.safetensors\n│   └── optimizer.pt\n└── checkpoint-600\n"
        "    └── scheduler.pt\n",
        "├── [4.0K]  checkpoint-300\n│   ├── [942M]  model.safetensors\n│   └── [1.8G]  optimizer.pt\n"
        "└── [4.0K]  checkpoint-600\n    └── [  9]  scheduler.pt\n",
        "out/checkpoint-300/model.safetensors\nout/checkpoint-300/optimizer.pt\nold/checkpoint-300/scheduler.pt\n",
    ],
    ids=["ls -l", "ls -R", "find size", "name size", "du", "find date", "tree", "tree -s", "another run's"],
)
def test_forms_of_a_listing(tmp_path: Path, text: str) -> None:
    assert listed(tmp_path, text) == BOTH


@pytest.mark.parametrize(
    "text",
    [
        "Model weights saved in out/checkpoint-300/model.safetensors\n",
        "-rw-r--r-- 1 u g 0 Oct 8 21:02 out/checkpoint-300/model.safetensors\n",
        "0 out/checkpoint-300/model.safetensors\n",
        "old/checkpoint-300/model.safetensors\nnew/checkpoint-300/model.safetensors\n",
        "out/checkpoint-3000/model.safetensors\n",
        "out/checkpoint-300:\n\nmodel.safetensors\n",
        "ls: cannot access 'out/checkpoint-300/model.safetensors': No such file or directory\n",
        "rm -r out/checkpoint-300/model.safetensors\n",
    ],
    ids=[
        "a log",
        "empty",
        "empty, find",
        "two runs",
        "another step",
        "below a gap",
        "not there",
        "a command",
    ],
)
def test_what_is_no_file_of_it(tmp_path: Path, text: str) -> None:
    assert listed(tmp_path, text) == ()


@pytest.mark.parametrize(
    ("head", "named"), [("global_step300", True), ("./checkpoint-200", False), ("/s/old", False)]
)
def test_a_heading_in_the_folders_own_listing(tmp_path: Path, head: str, named: bool) -> None:
    """`ls -R` in the folder itself names DeepSpeed's files below the heading of their own folder."""
    shard = "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
    text = f"scheduler.pt\n\n{head}:\n-rw-r--r-- 1 u g 6.1G Apr 16 21:43 {shard}\n"
    files = listed(tmp_path, text, "out/checkpoint-300/listing.txt")
    assert files == ((f"global_step300/{shard}", "scheduler.pt") if named else ("scheduler.pt",))
