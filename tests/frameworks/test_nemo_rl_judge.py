"""What files of a NeMo-RL run prove: another's folders through `jobspec judge`. Real formats, no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec import foreign, frameworks
from jobspec.frameworks.nemo_rl.levels import VARIANTS
from jobspec.frameworks.nemo_rl.proofs import PROOFS, TRAINERS
from jobspec.verdict import Status, Verdict

FIXTURES = Path(__file__).parents[1] / "fixtures"


def section(name: str) -> str:
    """One section of the log sample."""
    text = (FIXTURES / "nemo_rl_log_example.txt").read_text(encoding="utf-8")
    body = text.partition(f"### SECTION {name}:")[2]
    return body.partition("\n")[2].partition("\n### SECTION ")[0]


def judged(folder: Path, level: str = "smoke", *variants: str, imports: tuple[str, ...] = ()) -> Verdict:
    wanted = foreign.expected(frameworks.get("nemo_rl"), level, variants, 0, (), "", imports)
    return foreign.judge_files(folder, wanted)[1]


def status(verdict: Verdict, name: str) -> Status:
    found = verdict.deliverable(name)
    assert found is not None
    return found.status


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    (tmp_path / "ray-driver.log").write_text(section("A"))
    (tmp_path / "metrics.json").write_text((FIXTURES / "nemo_rl_metrics_example.json").read_text())
    return tmp_path


def test_healthy_smoke_run_passes(healthy: Path) -> None:
    verdict = judged(healthy)
    assert verdict.result == "Pass"
    guide = frameworks.get("nemo_rl").guide  # type: ignore[attr-defined]
    assert tuple(item.name for item in verdict.deliverables if item.name in guide) == guide


def test_every_variant_names_known_proofs() -> None:
    for variant in VARIANTS:
        assert set(variant.proofs) <= PROOFS.keys(), variant.name
        assert variant.trainer in TRAINERS or variant.trainer in ("sft", "dpo", "distillation")


@pytest.mark.parametrize("name", ["D3", "E1", "E2", "E4", "E5", "E6", "E8", "E9", "E10", "E11", "E12"])
def test_failure_before_the_model_blocks(tmp_path: Path, name: str) -> None:
    (tmp_path / "slurm-7.out").write_text(section(name))
    verdict = judged(tmp_path)
    assert verdict.result == "Blocked"
    assert verdict.first_cause is not None
    assert (verdict.first_cause.file, verdict.first_cause.line > 0) == ("slurm-7.out", True)
