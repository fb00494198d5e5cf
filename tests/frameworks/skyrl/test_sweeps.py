"""The sweeps of SkyRL's harnesses: their points beside the published tables, and what their logs say."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.evidence.evidence import Attempt, Evidence, LogFile
from jobspec.frameworks.skyrl import dummy_trainers
from jobspec.metrics.table import Table
from jobspec.plan import ExpectPlan, Plan
from jobspec.sweeps.points import Checked, check_points, label
from jobspec.verdict import Status
from tests.frameworks.skyrl.test_adapter import errors, resolved
from tests.kits.fake_skyrl import make_fake_skyrl
from tests.kits.measured import ROWS, Row
from tests.megatron.memory_score import judged, said


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_skyrl(tmp_path_factory.mktemp("skyrl") / "new")


def swept(checkout: Path, tmp_path: Path, example: str) -> Checked:
    found = resolved(checkout, tmp_path, example)
    assert not errors(found), errors(found)
    return check_points(found.loaded, found.cluster)


def outcomes(checked: Checked) -> dict[str, str]:
    """By settings: `fits`, `warning` of its memory, or the rule that leaves the point out."""
    rows = {label(item.sets): item.rule for item in checked.pruned}
    for point, outcome in zip(checked.points, checked.resolved, strict=True):
        tight = any(finding.rule == "memory.gpu" for finding in outcome.findings)
        rows[point.label] = "warning" if tight else "fits"
    return rows


def published(model: str) -> list[Row]:
    return [row for row in ROWS if row.name.startswith(model)]


@pytest.mark.parametrize(("example", "model"), [("ultra_sweep", "Ultra"), ("glm47_sweep", "GLM")])
def test_points_are_judged_as_the_measured_shapes(
    checkout: Path, tmp_path: Path, example: str, model: str
) -> None:
    """In the published order: each is left out, warned of or let through as the page says of its row."""
    found = outcomes(swept(checkout, tmp_path, example))
    sweep = resolved(checkout, tmp_path, example).loaded.spec.sweep
    assert sweep is not None
    expected = {
        row.name: "megatron.layers" if row.fits is None else said(row).replace("error", "memory.gpu")
        for row in published(model)
    }
    told = [found[label(sets)] for sets in sweep.points]
    assert dict(zip(expected, told, strict=True)) == expected
    assert all(expected[row.name] != "memory.gpu" for row in published(model) if row.fits)
    assert all(expected[row.name] != "fits" for row in published(model) if row.fits is False)


def test_point_needs_what_its_published_row_needs(checkout: Path, tmp_path: Path) -> None:
    """The GLM harness starts no engines, and none of their memory is counted."""
    training = resolved(checkout, tmp_path, "glm47_sweep").training
    assert training is not None
    assert training.memory is not None
    row = next(row for row in published("GLM") if row.name.endswith("PP4 CP2"))
    assert training.memory.worst.bytes == judged(row).worst.bytes


@pytest.mark.parametrize(("example", "model"), [("ultra_sweep", "Ultra"), ("glm47_sweep", "GLM")])
def test_points_have_the_published_shapes(checkout: Path, tmp_path: Path, example: str, model: str) -> None:
    """World, layout, data-parallel ranks, largest micro-batch and sequences as the studies had them."""
    found = resolved(checkout, tmp_path, example)
    sweep = found.loaded.spec.sweep
    assert sweep is not None
    for sets, row in zip(sweep.points, published(model), strict=True):
        sizes = (sets["train.parallel.tp"], sets["train.parallel.pp"], sets["train.parallel.cp"])
        assert (*sizes, sets["train.parallel.ep"]) == (row.shape.tp, row.shape.pp, row.shape.cp, row.shape.ep)
        length = sets.get("train.overrides.trainer.sweep_seq_len", row.shape.seq_length)
        cap = sets["train.overrides.trainer.max_tokens_per_microbatch"]
        varied = "train.overrides.trainer.dummy_variable_length" in sets
        largest = cap if varied else max(length, cap // length * length)
        assert largest == row.shape.tokens_per_microbatch
        assert 64 // (sizes[0] * sizes[1] * sizes[2]) == row.shape.dp
        samples = 2 if model == "Ultra" else 1
        assert sets["train.overrides.trainer.train_batch_size"] * samples == row.shape.global_batch


def test_harness_is_started_with_its_own_settings(checkout: Path, tmp_path: Path) -> None:
    plan = resolved(checkout, tmp_path, "ultra_sweep").plan
    assert plan is not None
    text = plan.commands[0].argv[0]
    for word in ("trainer.num_dummy_steps=3", "trainer.sweep_seq_len=10240", "trainer.ckpt_interval=0"):
        assert f" {word} \\\n" in text
    assert '"trainer.sweep_results_file=$JOBSPEC_ATTEMPT_DIR/skyrl/sweep.jsonl"' in text
    assert "max_training_steps" not in text
    assert not plan.abort_when


def test_harness_that_the_checkout_lacks_is_named(tmp_path: Path) -> None:
    found = errors(resolved(make_fake_skyrl(tmp_path / "old", patched=False), tmp_path, "ultra_sweep"))
    assert "no entrypoint `examples" in found["skyrl.entrypoint"].what
    assert "skyrl.key" in found  # its settings are nobody's


LOG = """\
2026-07-01 | INFO | trainer:1 - SWEEP_RESULT {"tag": "a", "dp": 2, "step": 0, "warmup": true, "oom": false, \
"error": null, "step_time_s": 99.0, "tokens_per_s": 6000.0, "peak_reserved_gb": 105.0}
(skyrl_entrypoint pid=7) SWEEP_RESULT {"step": 1, "step_time_s": 84.9, "tokens_per_s": 7719.0, \
"peak_reserved_gb": 108.3}
SWEEP_RESULT {"step": 2, "ste
FULLCTX_STEP step=1 timings={'step': 205.0, 'train_critic': 150.5} peak_mem={'peak_reserved_GB': 60.2}
FULLCTX_STEP step=2 timings={'step': 204.0} peak_mem=<mem-collect-failed: x>
"""


def test_lines_of_the_harnesses_are_metrics(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(LOG)
    table = Table(tuple(dummy_trainers.read_log(tmp_path / "train.log", "train.log")))
    assert table.values("tokens_per_s") == [6000.0, 7719.0]
    assert [row.step for row in table.series("peak_reserved_gb")] == [1, 2]
    assert table.values("timing/step") == [205.0, 204.0]
    assert table.values("gpu/peak_reserved_GB") == [60.2]


@pytest.mark.parametrize(
    "line",
    [
        "SWEEP_RESULT {}",
        "SWEEP_RESULT {" * 9,
        'SWEEP_RESULT {"step": "1"}',
        "FULLCTX_STEP step=1 timings={open('x')} peak_mem=1",
        "FULLCTX_STEP step=1 timings=" + "{" * 500 + "} peak_mem=",
    ],
)
def test_lines_that_are_torn_or_foreign_give_nothing(tmp_path: Path, line: str) -> None:
    (tmp_path / "train.log").write_text(line)
    assert not list(dummy_trainers.read_log(tmp_path / "train.log", "train.log"))


@pytest.mark.parametrize(
    ("lines", "status", "reason"),
    [
        (LOG, Status.PASS, "2 of 2"),
        ('SWEEP_RESULT {"step": 1, "oom": true, "error": "Out"}\n', Status.FAIL, "ran out of GPU memory"),
        ('SWEEP_RESULT {"step": 0, "oom": false, "error": "DistBackend"}\n', Status.FAIL, "step 1 failed"),
        ("", Status.FAIL, "0 of 2"),
    ],
    ids=["ran", "oom", "other", "load"],
)  # fmt: skip
def test_dummy_run_is_judged_by_its_lines(tmp_path: Path, lines: str, status: Status, reason: str) -> None:
    (tmp_path / "train.log").write_text(lines)
    plan = Plan("x", "skyrl", "c", "local", "ray", expect=ExpectPlan(steps=2, options={"dummy": True}))
    attempt = Attempt(1, "attempts/1", logs=(LogFile("train.log", "n1", 1),))
    (found,) = dummy_trainers.judge(Evidence(tmp_path, plan, attempts=(attempt,)))
    assert found.status is status
    assert reason in found.reason
