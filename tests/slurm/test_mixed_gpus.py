"""Groups on a Slurm whose nodes have GPUs with a type in one partition, and without one in the other."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kits.programs_kit import skip_or_fail
from tests.slurm import cluster as harness
from tests.slurm.cluster_files import Options
from tests.slurm.conftest import REQUIRED, add_gpus
from tests.slurm.lab import Lab, profile_text
from tests.slurm.machine import missing

pytestmark = pytest.mark.slurm

SEES = """\
import os, socket
env = os.environ
seen = (env["JOBSPEC_GPUS_PER_NODE"], env.get("CUDA_VISIBLE_DEVICES", ""))
print("SEES", socket.gethostname(), env["JOBSPEC_GROUP"], *seen)
"""


@pytest.fixture(scope="module")
def mixed() -> Iterator[Lab]:
    """Four nodes: n1 and n3 with two H200 each, n2 and n4 with two GPUs that Slurm knows no type of."""
    if reason := missing():
        skip_or_fail(reason, REQUIRED)
    options = Options(accounting="none", gpus=2, gpu_types=("h200", ""))
    found = harness.Cluster(f"mixed-{os.getpid()}", options, owned=True)
    found.start()
    try:
        add_gpus(found)
        lab = Lab(found)
        lab.prepare()
        for way in ("gres", "gpus-per-node"):
            text = profile_text(found, way).replace(
                "gpus: none", f"gpus: {way}, gpu_types: {{h200: {{gres: h200}}}}"
            )
            (lab.clusters / f"{way}.yaml").write_text(text.replace("node: {", "node: {gpus: 2, "))
        yield lab
    finally:
        found.stop()


@pytest.fixture
def lab(mixed: Lab) -> Iterator[Lab]:
    yield mixed
    mixed.settle()


def run(lab: Lab, folder: Path, way: str, groups: list[dict[str, Any]]) -> tuple[list[list[str]], list[str]]:
    """What the command saw on each node, and what each component asked Slurm for."""
    (folder / "sees.py").write_text(SEES)
    argv = [str(lab.python), str(folder / "sees.py")]
    made = lab.command_spec(
        f"mixed-{way}", argv, groups=groups, resources={"nodes": sum(group["nodes"] for group in groups)}
    )
    checked = lab.jobspec("validate", made, cluster=way)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    done = lab.jobspec("run", made, cluster=way)
    assert done.returncode == 0, done.stdout + done.stderr
    run_dir = Path(lab.status("last")["run_dir"])
    logs = [path.read_text() for path in run_dir.glob("attempts/1/logs/*/command-*.log")]
    rows = sorted(line.split()[1:] for text in logs for line in text.splitlines() if line.startswith("SEES"))
    components = (run_dir / "job.sbatch").read_text().split("#SBATCH hetjob")
    return rows, [" ".join(re.findall(r"--(?:gres|gpus-per-node)=\S+", part)) for part in components]


@pytest.mark.parametrize(("way", "of_gpus"), [("gres", "--gres=gpu:"), ("gpus-per-node", "--gpus-per-node=")])
def test_typed_and_untyped_gpus_in_one_run(lab: Lab, tmp_shared: Path, way: str, of_gpus: str) -> None:
    groups = [
        {"name": "trainer", "nodes": 2, "gpus_per_node": 2, "gpu_type": "h200"},
        {"name": "rollout", "nodes": 1, "gpus_per_node": 1, "slurm": {"partition": "low", "nodelist": "n2"}},
        {"name": "envs", "nodes": 1, "gpus_per_node": 0, "slurm": {"partition": "low"}},
    ]
    rows, asked = run(lab, tmp_shared, way, groups)
    assert asked == [f"{of_gpus}h200:2", f"{of_gpus}1", ""]
    assert rows == [
        ["n1", "trainer", "2", "0,1"],
        ["n2", "rollout", "1", "0"],
        ["n3", "trainer", "2", "0,1"],
        ["n4", "envs", "0"],
    ]


def test_the_head_may_be_on_the_untyped_ones(lab: Lab, tmp_shared: Path) -> None:
    groups = [
        {"name": "driver", "nodes": 1, "gpus_per_node": 2, "slurm": {"nodelist": "n4"}},
        {
            "name": "rollout",
            "nodes": 1,
            "gpus_per_node": 1,
            "gpu_type": "h200",
            "slurm": {"partition": "low"},
        },
    ]
    rows, asked = run(lab, tmp_shared, "gres", groups)
    assert asked == ["--gres=gpu:2", "--gres=gpu:h200:1"]
    assert rows[1] == ["n4", "driver", "2", "0,1"]
    assert rows[0] in (["n1", "rollout", "1", "0"], ["n3", "rollout", "1", "0"])
