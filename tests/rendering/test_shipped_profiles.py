"""What the site profiles that are shipped ask Slurm for, as the batch script of one spec shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec import pipeline
from jobspec.pipeline import Request

ASKED = re.compile(r"^#SBATCH (--(?:gres|gpus|exclusive|constraint|partition|account|qos)\S*)", re.MULTILINE)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("cluster", "resources", "asked"),
    [
        ("slurm-untyped", {"gpu_type": "h100"}, {"--gres=gpu:8", "--constraint=h100"}),
        ("slurm-untyped", {"gpus_per_node": 2}, {"--gres=gpu:2"}),
        ("slurm-whole-nodes", {}, {"--exclusive"}),
        ("slurm-whole-nodes", {"gpus_per_node": 0}, set()),
        ("slurm-by-partition", {}, {"--gpus-per-node=8", "--partition=gpu-a100"}),
        ("slurm-by-partition", {"gpu_type": "h200"}, {"--gpus-per-node=8", "--partition=gpu-h200"}),
        ("slurm-by-partition", {"gpu_type": "gh200"}, {"--gpus-per-node=1", "--partition=gpu-gh200"}),
        ("slurm-no-accounting", {"gpus_per_node": 4}, {"--gres=gpu:4"}),
        ("slurm-second-factor", {"gpus_per_node": 4}, {"--gres=gpu:4"}),
    ],
)
def test_profile_asks_for_gpus_as_its_site_takes_it(
    tmp_path: Path, cluster: str, resources: dict[str, Any], asked: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    spec: dict[str, Any] = {"version": 1, "name": "x", "framework": "command"}
    spec |= {"train": {"command": ["true"]}, "resources": {"nodes": 1, "time": "10:00", **resources}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    rendered = pipeline.render_run(Request(tmp_path / "spec.yaml", cluster=cluster), tmp_path / "run")
    assert not [item for item in rendered.findings if item.is_error]
    assert set(ASKED.findall(rendered.run.job.read_text())) == asked


def test_page_names_each_shipped_profile() -> None:
    shipped = {path.stem for path in (ROOT / "clusters").glob("*.yaml")}
    table = (
        (ROOT / "docs/sites.md").read_text().partition("### The shipped profiles")[2].partition("\n## ")[0]
    )
    assert set(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == shipped
