"""Shapes, models and a framework for the tests of Megatron's checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jobspec.finding import Finding
from jobspec.frameworks.base import Context, FrameworkPlan, Level
from jobspec.megatron.architecture import Architecture, find_architecture, parse_config
from jobspec.megatron.shape import OptimizerShape, TrainShape
from jobspec.plan import CommandPlan, ExpectPlan

TINY: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "intermediate_size": 4096,
    "vocab_size": 32768,
}
TINY_MOE: dict[str, Any] = {
    **TINY,
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 512,
}


def known(name: str) -> Architecture:
    found = find_architecture(name)
    assert found is not None, name
    return found


def tiny(**changes: Any) -> Architecture:
    return parse_config({**TINY, **changes}, "tiny")


@dataclass(frozen=True)
class ShapedFramework:
    """Runs `true`, and tells jobspec what Megatron would be told: `train.parallel` and the overrides."""

    name: str = "shaped"
    summary: str = "a Megatron framework that only has a shape"
    levels: tuple[Level, ...] = (Level("smoke", 0, "nothing"),)

    def validate(self, context: Context) -> Iterable[Finding]:
        return ()

    def plan(self, context: Context) -> FrameworkPlan:
        spec = context.spec
        sizes = spec.train.parallel
        options = dict(spec.train.overrides)
        optimizer = OptimizerShape(offload=float(options.pop("offload", 0)))
        shape = TrainShape(
            spec.resources.nodes,
            context.gpus_per_node,
            self.name,
            tp=sizes.tp,
            pp=sizes.pp,
            cp=sizes.cp,
            ep=sizes.ep,
            etp=sizes.etp,
            vpp=sizes.vpp,
            optimizer=optimizer,
            **options,
        )
        return FrameworkPlan((CommandPlan("train", ("true",)),), ray_mode="none", shape=shape)

    def expect(self, level: Level, variants: tuple[str, ...] = (), steps: int = 0) -> ExpectPlan:
        return ExpectPlan(level=level.name)

    def judge(self, evidence: object) -> Iterable[Any]:
        return ()
