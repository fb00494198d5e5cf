"""Framework `skyrl` on nodes of a real cluster: a stand-in checkout, real Slurm, Ray, git and bash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kits.fake_skyrl import make_fake_skyrl
from tests.slurm.lab import FEW_CPUS, Lab
from tests.slurm.machine import CHECKOUT

pytestmark = [pytest.mark.slurm, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]


def spec_of(
    lab: Lab, folder: Path, level: str, steps: int, fault: str = "", nodes: int = 4, servers: bool = False
) -> dict[str, Any]:
    make_fake_skyrl(folder / "SkyRL", servers=servers)
    for name in ("model", "data"):
        (folder / name).mkdir()
    (folder / "model/config.json").write_text('{"model_type": "qwen2"}')
    (folder / "model/chat_template.jinja").write_text("{{ messages }}")
    for name in ("train", "validation"):
        (folder / f"data/{name}.parquet").write_bytes(b"PAR1")
    env = {"FAKE_SKYRL": fault, "PATH": f"{lab.python.parent}:/usr/bin:/bin"}
    return {
        "framework": "skyrl",
        "coverage": {"level": level},
        "resources": {"nodes": nodes, "gpus_per_node": 2, "time": "00:10:00", **FEW_CPUS},
        "repos": [{"name": "skyrl", "path": str(folder / "SkyRL"), "pythonpath": ["."],
                   "prove": {"import": "skyrl"}}],
        "model": {"path": str(folder / "model"), "require": ["chat_template.jinja"], "load": False},
        "data": [{"name": "gsm8k", "source": str(folder / "data")}],
        "train": {
            "command": [str(lab.python), "-m", "skyrl.train.entrypoints.main_base"],
            "steps": steps,
            "parallel": {"tp": 2, "pp": 2},
            "rollout": {"engines": nodes, "tp": 2},
            "overrides": {"trainer.train_batch_size": 64, "trainer.policy_mini_batch_size": 32,
                          "trainer.algorithm.use_kl_loss": False},
        },
        "container": {**lab.container("none"), "env": env},
    }  # fmt: skip


@pytest.mark.usefixtures("counted_gpus")
def test_checkpoint_and_resume_over_four_nodes_pass(lab: Lab, tmp_shared: Path) -> None:
    made, report = lab.passed(lab.write_spec("skyrl-good", spec_of(lab, tmp_shared, "checkpoint", 4)))
    assert report["deliverables"]["Resume"]["reason"] == "a new process went on from step 2 to 4"
    assert report["deliverables"]["Weight transfer"]["status"] == "Pass"
    page = (Path(made["run_dir"]) / "report.html").read_text()
    for curve in ("reward", "grad norm", "tokens/s", "eval"):
        assert f"<figcaption>{curve}" in page, curve


@pytest.mark.usefixtures("counted_gpus")
def test_broken_weights_end_the_run_early(lab: Lab, tmp_shared: Path) -> None:
    """The stand-in goes on for minutes; the canary ends it after the first step that shows it."""
    spec = spec_of(lab, tmp_shared, "smoke", 600, "garbage", nodes=2)
    made = lab.submit(lab.write_spec("skyrl-bad", spec))
    state, _ = lab.await_end(made["job_id"], timeout=300)
    assert state == "FAILED"
    code, report = lab.report(made["run_id"])
    assert (code, report["result"]) == (1, "Fail")
    assert report["first_cause"]["class"] == "driver.aborted"
    assert "rollout_train_logprobs_abs_diff_mean)` is 2.1" in report["first_cause"]["text"]


@pytest.mark.usefixtures("counted_gpus")
def test_environments_are_on_nodes_of_another_partition(lab: Lab, tmp_shared: Path) -> None:
    """A heterogeneous job: the trainer with its engines, and a service of the environments on CPU nodes."""
    spec = spec_of(lab, tmp_shared, "smoke", 2, nodes=2)
    del spec["resources"]["nodes"]
    spec["groups"] = [
        {"name": "trainer", "nodes": 2},
        {"name": "envs", "gpus_per_node": 0, "slurm": {"partition": "low"}},
    ]
    serve = f'exec {lab.python} -m http.server "$PORT"'
    spec["services"] = [{"name": "gym", "shell": True, "command": [serve], "on": "envs"}]
    made, report = lab.passed(lab.write_spec("skyrl-groups", spec))
    assert report["deliverables"]["Service gym"]["reason"].startswith("ready on n3 after")
    assert report["run"]["groups"] == [
        {"name": "trainer", "nodes": 2, "gpus_per_node": 2},
        {"name": "envs", "nodes": 1, "gpus_per_node": 0},
    ]
    script = (Path(made["run_dir"]) / "job.sbatch").read_text()
    assert script.count("#SBATCH hetjob\n") == 1


@pytest.mark.usefixtures("counted_gpus")
def test_engines_are_services_on_rollout_nodes(lab: Lab, tmp_shared: Path) -> None:
    """Servers and settings of the example: two nodes get each step's weights, a resume's as well."""
    example = yaml.safe_load((CHECKOUT / "examples/skyrl_rollout_nodes.yaml").read_text())
    spec = spec_of(lab, tmp_shared, "checkpoint", 4, servers=True)
    del spec["resources"]["nodes"], spec["train"]["parallel"]
    spec["groups"] = [
        {"name": "trainer", "nodes": 1},
        {"name": "rollout", "nodes": 2, "slurm": {"partition": "low"}},
    ]
    (engines,) = example["services"]
    engines |= {"on": engines.pop(True), "gpus": 2}  # YAML 1.1 reads `on` so
    engines["command"] = [
        engines["command"][0].replace("--tensor-parallel-size 8", "--tensor-parallel-size 2")
    ]
    spec["services"], spec["train"]["rollout"] = [engines], {"tp": 2}
    spec["train"]["overrides"] |= {
        key: value
        for key, value in example["train"]["overrides"].items()
        if key in ("trainer.strategy", "trainer.placement.colocate_all", "generator.inference_engine")
    }
    made, report = lab.passed(lab.write_spec("skyrl-rollout", spec))
    rows = report["deliverables"]
    assert rows["Service engines"]["status"] == rows["Weight transfer"]["status"] == "Pass"
    assert rows["Resume"]["reason"] == "a new process went on from step 2 to 4"
    said = {path.parent.name + "/" + path.stem: path.read_text()
            for path in Path(made["run_dir"]).glob("attempts/1/logs/*/*.log")}  # fmt: skip
    served = {name.partition("/")[0]: text for name, text in said.items() if name.endswith("service-engines")}
    assert len(served) == 2
    for text in served.values():
        first = text.partition("\n")[
            0
        ]  # each node's copy, at the path that the trainer names in its requests
        assert first.startswith("rollout serves /") and first.endswith("/stage/model on GPUs 0,1")
        assert text.count('"POST /collective_rpc HTTP/1.1" 200') == 4
    (driver,) = {name.partition("/")[0] for name in said if name.endswith(("/train", "/command-train"))}
    assert driver not in served
    asked = "step 4 was generated on " + ", ".join(sorted(served))
    assert any(asked in text for name, text in said.items() if name.startswith(f"{driver}/"))
