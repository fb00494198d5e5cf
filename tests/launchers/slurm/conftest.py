"""A rendered run, which these tests submit and watch."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.runs.paths import RunPaths
from tests.launchers.slurm.fake_client import RUN_ID


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    root = tmp_path / "demo" / RUN_ID
    root.mkdir(parents=True)
    for name in ("job.sbatch", "ray.sub", "runtime.pyz", "plan.json"):
        (root / name).write_text("")
    return RunPaths(root)
