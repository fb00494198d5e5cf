"""Each rule finds its mistake and nothing else; what it proposes satisfies it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.megatron.architecture import Architecture
from jobspec.megatron.model_rules import check_world
from jobspec.megatron.rules import RULES, check_shape, is_valid
from jobspec.megatron.shape import Recompute, RolloutShape, TrainShape
from jobspec.megatron.violation import with_value
from tests.kits.measured import GLM, ROWS, ULTRA, Row
from tests.kits.shapes_kit import known, tiny

BASE = TrainShape(2, 8, tp=2, pp=2, etp=1)
DENSE, MOONLIGHT, QWEN = "Qwen3-8B", "Moonlight-16B-A3B", "Qwen3-30B-A3B"
NANO, DELTA_NET = "NVIDIA-Nemotron-3-Nano-30B-A3B", "Qwen3.5-35B-A3B"


def sized(**changes: Any) -> TrainShape:
    return replace(BASE, **changes)


def rules_of(shape: TrainShape, model: str | None) -> list[str]:
    return [finding.rule for finding in check_shape(shape, known(model) if model else None)]


BROKEN: list[tuple[str, TrainShape, str | None]] = [
    ("megatron.world", sized(tp=8, cp=3, pp=1), None),
    ("megatron.expert-grid", sized(ep=3), None),
    ("megatron.expert-grid", sized(tp=8, pp=2, ep=16, etp=None), None),
    ("megatron.tp-node", sized(tp=16, pp=1), None),
    ("megatron.experts", sized(ep=2), DENSE),
    ("megatron.experts", TrainShape(6, 8, tp=2, ep=24, etp=1), QWEN),
    ("megatron.layers", sized(pp=8), DENSE),
    ("megatron.layers", sized(pp=1, last_stage_layers=13), MOONLIGHT),
    ("megatron.layers", sized(pp=2, first_stage_layers=14, last_stage_layers=14), MOONLIGHT),
    ("megatron.layers", sized(pp=4, last_stage_layers=0), MOONLIGHT),
    ("megatron.vpp", sized(pp=1, vpp=2), None),
    ("megatron.vpp", sized(pp=2, vpp=4), DENSE),
    ("megatron.vpp", sized(pp=2, vpp=2), NANO),
    ("megatron.vpp-skyrl", sized(pp=2, vpp=2, framework="skyrl"), DENSE),
    ("megatron.heads", TrainShape(3, 8, tp=3), DENSE),
    ("megatron.mamba", TrainShape(1, 16, tp=16), NANO),
    ("megatron.mamba", TrainShape(9, 8, tp=2, cp=3), NANO),
    ("megatron.linear-attention", TrainShape(4, 8, tp=2, cp=16), DELTA_NET),
    ("megatron.sequence-parallel", sized(ep=2, sequence_parallel=False), QWEN),
    ("megatron.sequence-parallel-tp1", sized(tp=1, sequence_parallel=True), DENSE),
    ("megatron.context-parallel", sized(cp=2, packed=False, framework="nemo_rl"), DENSE),
    ("megatron.context-parallel", sized(cp=2, seq_length=1001), DENSE),
    ("megatron.recompute", sized(recompute=Recompute("full", "", 1)), DENSE),
    ("megatron.recompute", sized(recompute=Recompute("full", "uniform")), DENSE),
    ("megatron.recompute", sized(recompute=Recompute("selective", "", 2)), DENSE),
    ("megatron.batch-dp", sized(global_batch=30), DENSE),
    ("megatron.batch-micro", sized(global_batch=24, micro_batch=4), DENSE),
    ("megatron.batch-steps", sized(global_batch=32, train_batch=5, samples_per_prompt=4), DENSE),
    ("megatron.placement", sized(rollout=RolloutShape(3, tp=4)), DENSE),
    ("megatron.placement", sized(rollout=RolloutShape(tp=4, pp=3)), DENSE),
    ("megatron.placement", sized(rollout=RolloutShape(tp=4, dp=4, colocated=False, nodes=1)), DENSE),
    ("megatron.engine-experts", sized(framework="skyrl", rollout=RolloutShape(tp=2, dp=2, ep=2)), QWEN),
    ("megatron.engine-node", sized(rollout=RolloutShape(tp=4, pp=4, executor="mp")), DENSE),
    ("megatron.engine-heads", sized(rollout=RolloutShape(tp=16)), NANO),
    ("megatron.engine-heads", TrainShape(3, 8, rollout=RolloutShape(tp=3)), DENSE),
]


@pytest.mark.parametrize(("rule", "shape", "model"), BROKEN)
def test_a_broken_rule_is_found_alone(rule: str, shape: TrainShape, model: str | None) -> None:
    found = check_shape(shape, known(model) if model else None)
    assert {finding.rule for finding in found} == {rule}
    for finding in found:
        assert finding.what
        assert finding.why.endswith("]")
        assert finding.path
        assert finding.fix


def test_widths_need_their_own_model() -> None:
    odd = tiny(intermediate_size=4098)
    assert [f.rule for f in check_shape(TrainShape(1, 8, tp=4), odd)] == ["megatron.ffn"]
    assert check_shape(TrainShape(1, 8, tp=2), odd) == ()


def test_every_rule_has_a_broken_case() -> None:
    assert {rule.id for rule in RULES} - {rule for rule, _, _ in BROKEN} == {"megatron.ffn"}


VALID: list[tuple[str, TrainShape, str]] = [
    ("two key-value groups with tp 8", TrainShape(8, 8, tp=8, pp=4, ep=16, etp=1), ULTRA),
    (
        "108 layers on 8 stages, 3 on the first",
        TrainShape(8, 8, tp=8, pp=8, ep=8, etp=1, first_stage_layers=3),
        ULTRA,
    ),
    (
        "108 layers on 8 stages, 10 on the last",
        TrainShape(8, 8, tp=8, pp=8, ep=8, etp=1, last_stage_layers=10),
        ULTRA,
    ),
    ("ep divides no data-parallel size", TrainShape(8, 8, tp=8, pp=2, cp=4, ep=32, etp=1), ULTRA),
    (
        "94 layers on 16 stages, 4 on the last",
        TrainShape(16, 8, tp=4, pp=16, ep=8, etp=1, last_stage_layers=4),
        "Qwen3-235B-A22B",
    ),
    (
        "94 layers on 4 stages, 16 on the last",
        TrainShape(4, 8, tp=4, pp=4, ep=8, etp=1, last_stage_layers=16),
        "Qwen3-235B-A22B",
    ),
    ("miles on 16 nodes", TrainShape(16, 8, tp=8, pp=4, ep=32, etp=1), ULTRA),
    ("NeMo RL's student on 64 nodes of 4", TrainShape(64, 4, tp=8, cp=8, ep=64, etp=1), ULTRA),
    ("Megatron-Bridge's fine-tuning on 48 nodes", TrainShape(48, 8, tp=2, pp=12, ep=16, etp=1), ULTRA),
    ("GLM-4.7 in slime", TrainShape(8, 8, tp=8, pp=4, cp=2, ep=16, etp=1), GLM),
    (
        "an engine over four nodes",
        TrainShape(8, 8, tp=8, pp=4, ep=16, etp=1, rollout=RolloutShape(2, tp=8, pp=4, executor="ray")),
        ULTRA,
    ),
    (
        "tokens fill micro-batches",
        TrainShape(1, 8, global_batch=24, micro_batch=4, tokens_per_microbatch=4096),
        DENSE,
    ),
    ("virtual stages", TrainShape(1, 8, pp=2, vpp=3), DENSE),
]


@pytest.mark.parametrize(("why", "shape", "model"), VALID, ids=[row[0] for row in VALID])
def test_a_working_shape_passes(why: str, shape: TrainShape, model: str) -> None:
    assert rules_of(shape, model) == []


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_measured_shape_is_valid_or_not_as_it_was(row: Row) -> None:
    assert rules_of(row.shape, row.model) == (["megatron.layers"] if row.fits is None else [])
    assert is_valid(row.shape, known(row.model)) == (row.fits is not None)


def test_a_proposal_says_both_ways_out() -> None:
    """The throughput sweep took pp 8 for impossible; an uneven split makes it legal."""
    (finding,) = check_shape(TrainShape(8, 8, tp=8, pp=8, ep=8, etp=1), known(ULTRA))
    assert "`4`" in finding.fix
    assert "pp 8 with 10 layers on the last stage" in finding.fix
    assert finding.path == "train.parallel.pp"


def test_a_finding_points_to_the_adapters_own_key() -> None:
    shape = TrainShape(1, 8, tp=3, keys={"tp": "train.overrides.COMMON_TP"})
    assert check_shape(shape, None)[0].path == "train.overrides.COMMON_TP"


def test_what_is_not_known_breaks_no_rule() -> None:
    assert check_shape(TrainShape(3, 5), None) == ()


sizes = st.integers(1, 12)
shapes = st.builds(
    TrainShape,
    nodes=st.integers(1, 8),
    gpus_per_node=st.sampled_from([1, 2, 4, 8]),
    tp=sizes,
    pp=sizes,
    cp=st.integers(1, 6),
    ep=sizes,
    etp=st.none() | st.integers(1, 4),
    vpp=st.none() | st.integers(1, 5),
    first_stage_layers=st.none() | st.integers(0, 20),
    last_stage_layers=st.none() | st.integers(0, 20),
    seq_length=st.none() | st.integers(1, 5000),
    micro_batch=st.none() | st.integers(1, 9),
    train_batch=st.none() | st.integers(1, 70),
    global_batch=st.none() | st.integers(1, 300),
    sequence_parallel=st.none() | st.booleans(),
    rollout=st.none()
    | st.builds(
        RolloutShape,
        engines=st.none() | st.integers(1, 9),
        tp=sizes,
        pp=st.integers(1, 4),
        ep=st.integers(1, 4),
        dp=st.integers(1, 3),
        executor=st.sampled_from(["", "mp", "ray"]),
    ),
)
models = st.none() | st.sampled_from(
    [known(name) for name in (DENSE, QWEN, NANO, DELTA_NET, MOONLIGHT, ULTRA)]
)


@given(shapes, models)
def test_a_proposed_value_satisfies_its_rule(shape: TrainShape, arch: Architecture | None) -> None:
    for rule in RULES:
        for broken in rule.check(shape, arch):
            for name, values in broken.nearest.items():
                for value in values:
                    changed = with_value(shape, name, value)
                    assert not same_kind(rule.check, changed, arch, broken.what), (rule.id, name, value)


def same_kind(check: Callable[..., Any], shape: TrainShape, arch: Architecture | None, what: str) -> bool:
    """Whether the rule still reports the condition; one rule may hold several, told apart by their words."""
    words = [word for word in what.split() if word.isalpha()]
    return any([w for w in later.what.split() if w.isalpha()] == words for later in check(shape, arch))


@given(shapes, models)
def test_findings_are_whole_sentences_about_numbers(shape: TrainShape, arch: Architecture | None) -> None:
    for finding in check_shape(shape, arch):
        assert any(char.isdigit() for char in finding.what) or "recomputation" in finding.what
        assert finding.text()


@pytest.mark.timeout(120)  # a search through all sizes up to the world does not end
def test_values_for_absurd_sizes_come_from_nearby_or_are_powers_of_two() -> None:
    (world,) = check_world(TrainShape(65_536, 1024, tp=3, pp=10**12, cp=1), None)
    assert "tp" not in world.nearest
    (world,) = check_world(TrainShape(65_536, 1024, tp=3_000_000), None)
    assert world.nearest["tp"] == (2_097_152,)
