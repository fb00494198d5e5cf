"""Framework `rlix` on a node of a real cluster: stand-in checkouts, real Slurm, Ray, git and bash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kits.chain_kit import rlix_inputs
from tests.slurm.lab import Lab, tail

pytestmark = [pytest.mark.slurm, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.usefixtures("counted_gpus")
def test_loop_that_breaks_is_found_though_the_job_completes(lab: Lab, tmp_shared: Path) -> None:
    """Driver, job and both pipelines end with 0; one of them trained a single step of three."""
    spec = {
        **rlix_inputs(tmp_shared, str(lab.python)),
        "resources": {"gpus_per_node": 2, "time": "00:10:00"},
        "container": {**lab.container("none"), "env": {"FAKE_RLIX": "loop:two"}},
    }
    made = lab.submit(lab.write_spec("rlix-loop", spec))
    ended = lab.await_end(made["job_id"], timeout=300)
    assert ended == ("COMPLETED", "0:0"), tail(Path(made["run_dir"]))
    code, report = lab.report(made["run_id"])
    told = {name: item["status"] for name, item in report["deliverables"].items()}
    assert (code, report["result"]) == (1, "Fail"), told
    assert (told["Run"], told["Pipelines"], told["one: Training"]) == ("Pass", "Pass", "Pass"), told
    assert (told["two: Run"], told["two: Training"]) == ("Fail", "Fail")
    assert "the pipeline returned, but its training loop broke" in report["first_cause"]["text"]
