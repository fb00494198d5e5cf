"""No false alarm: every published recipe passes every rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobspec.megatron.architecture import find_architecture
from jobspec.megatron.rules import check_shape
from jobspec.megatron.shape import OptimizerShape, Recompute, RolloutShape, TrainShape

RECIPES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("recipes.json").read_text("utf-8"))[
    "recipes"
]
SETTINGS = ("full_recompute", "optimizer_offload", "bf16_grads", "precision_aware")
# Megatron-Core's own configuration refuses it, the recipe sets it afterwards: a warning, no error.
SEQUENCE_PARALLEL_TP1 = "llm/distillation-nano3-30ba3b-4n4g-megatron-qa-nvfp4-modelopt-spec"


def shape_of(recipe: dict[str, Any]) -> TrainShape:
    sizes = {
        key: value for key, value in recipe.items() if key not in ("recipe", "model", "rollout", *SETTINGS)
    }
    return TrainShape(
        framework="nemo_rl",
        rollout=RolloutShape(**recipe["rollout"]) if "rollout" in recipe else None,
        recompute=Recompute("full", "uniform", 1) if recipe.get("full_recompute") else Recompute(),
        fp32_grads=not recipe.get("bf16_grads"),
        optimizer=OptimizerShape(
            precision_aware=recipe.get("precision_aware", False),
            offload=1.0 if recipe.get("optimizer_offload") else 0.0,
        ),
        **sizes,
    )


@pytest.mark.parametrize("recipe", RECIPES, ids=[recipe["recipe"] for recipe in RECIPES])
def test_a_published_recipe_passes(recipe: dict[str, Any]) -> None:
    arch = find_architecture(recipe["model"])
    assert arch is not None
    expected = ["megatron.sequence-parallel-tp1"] if recipe["recipe"] == SEQUENCE_PARALLEL_TP1 else []
    assert [finding.rule for finding in check_shape(shape_of(recipe), arch)] == expected


def test_the_recipes_are_many_and_uneven_ones_are_among_them() -> None:
    assert len(RECIPES) > 170
    assert sum("last_stage_layers" in recipe for recipe in RECIPES) > 20
