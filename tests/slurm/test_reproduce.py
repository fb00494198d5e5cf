"""A run on two nodes, of a checkout with unpushed commits and uncommitted changes, made again without it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kits.checkout_kit import unpushed_work
from tests.slurm.lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

SAY = """\
import json, os, mod
print("this is", mod.x, "at rank", os.environ["RANK"])
if os.environ["RANK"] == "0":
    with open(os.environ["JOBSPEC_METRICS_DIR"] + "/metrics.jsonl", "w") as file:
        file.write(json.dumps({"step": 1, "score": mod.x}) + "\\n")
"""


def test_two_nodes_with_an_unpushed_dirty_checkout(lab: Lab, tmp_shared: Path) -> None:
    work = unpushed_work(tmp_shared, {"say.py": SAY})
    repos = [{"name": "code", "path": str(work), "prove": {"import": "mod"}}]
    spec = lab.command_spec(
        "repeated",
        ["python3", f"{work}/say.py"],
        nodes=2,
        repos=repos,
        metrics={"require": ["max(score) >= 3"]},
    )
    done = lab.jobspec("run", spec)
    assert done.returncode == 0, done.stdout + done.stderr
    first = Path(lab.status("last")["run_dir"])
    checked = lab.jobspec("reproduce", "last", "--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    shutil.rmtree(work)
    again = lab.jobspec("reproduce", first, "--watch")
    assert again.returncode == 0, again.stdout + again.stderr
    second = Path(lab.status("last")["run_dir"])
    assert first != second and not work.exists()
    said = "".join(path.read_text() for path in (second / "attempts/1/logs").rglob("*.log"))
    assert {rank for rank in "01" if f"this is 3 at rank {rank}" in said} == {"0", "1"}
    rows = {row["name"]: row for row in lab.report(str(second))[1]["reproduction"]["rows"]}
    assert (rows["verdict"]["now"], rows["verdict"]["word"]) == ("Pass", "same")
    assert rows["metric score"]["reason"] == "identical at all 1 steps"
    (same,) = (
        name for name, row in rows.items() if row["first"] == row["now"] == "" and row["word"] == "same"
    )
    assert "code `code`" in same and "Python" in same
