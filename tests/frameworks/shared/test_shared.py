"""What several adapters share: each with its own rule ids, and with the same words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobspec.finding import Finding
from jobspec.frameworks.base import Level
from jobspec.frameworks.shared.known_variants import unknown_variants
from jobspec.frameworks.shared.schedule import Schedule, level_expectation
from jobspec.frameworks.shared.step_rules import too_few_steps
from jobspec.frameworks.shared.whole_numbers import divisors, is_count, nearest_numbers
from jobspec.metrics.learning_signal import MIN_POINTS
from jobspec.plan import LearningPlan
from jobspec.units import gib, is_below
from tests.kits.framework_kit import context, findings


def of_rule(found: list[Finding], rule: str) -> Finding:
    (finding,) = (item for item in found if item.rule == rule)
    return finding


# -- keys that jobspec sets --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "rule", "key", "instead"),
    [
        ("trl", "trl.owned-option", "max_steps", "train.steps"),
        ("verl", "verl.owned", "trainer.nnodes", "resources.nodes"),
        ("nemo_rl", "nemo_rl.owned", "grpo.max_num_steps", "train.steps"),
        ("rlix", "rlix.owned", "num_gpus_per_node", "resources.gpus_per_node"),
        ("skyrl", "skyrl.owned", "trainer.seed", "train.seed"),
    ],
)
def test_an_override_of_an_owned_key_names_the_specs_key(
    framework: str, rule: str, key: str, instead: str
) -> None:
    found = findings(framework, train={"overrides": {key: 3}})
    owned = next(item for item in found if item.rule == rule)
    assert (owned.what, owned.path) == (
        f"`{key}` is set by jobspec, from `{instead}`",
        f"train.overrides.{key}",
    )
    assert owned.fix == f"remove it, and set `{instead}`"


def test_an_owned_key_without_a_key_in_the_spec_is_only_removed() -> None:
    owned = of_rule(findings("trl", train={"overrides": {"logging_steps": 5}}), "trl.owned-option")
    assert (owned.what, owned.fix) == ("`logging_steps` is set by jobspec", "remove it")


# -- variants ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "level", "name", "place", "why", "fix"),
    [
        ("verl", 0, "denze", 0, "", "use `"),
        ("verl", 0, "dense", 0, "it belongs to level `parallel`", "use `"),
        ("nemo_rl", 0, "fsdp2", 0, "it trains on DTensor: it proves nothing about Megatron", "use `"),
        ("nemo_rl", 0, "resume", 0, "it belongs to level `lora`", "use `"),
        ("trl", 0, "lora", 0, "", "remove it: the level has no variants"),
        ("skyrl", 0, "fsdp", 0, "", "remove it: the level has no variants"),
        ("command", 0, "lora", 0, "", "remove it: the level has no variants"),
        ("rlix", 0, "trac", 0, "", "did you mean `trace`?"),
        ("rlix", 0, "trac", 1, "", "did you mean `trace`?"),
    ],
)
def test_a_variant_of_no_or_another_level(
    framework: str, level: int, name: str, place: int, why: str, fix: str
) -> None:
    asked = [*["trace"] * place, name]
    finding = of_rule(findings(framework, level, coverage={"variants": asked}), f"{framework}.variant")
    assert finding.path == f"coverage.variants[{place}]"
    assert (finding.why, finding.fix.startswith(fix)) == (why, True), finding


def test_a_level_without_variants_has_none_to_offer() -> None:
    asked = context("trl", coverage={"variants": ["lora"]})
    (finding,) = unknown_variants(asked, "x.variant", [replace(asked.level, variants=("lora",), name="big")])
    assert (finding.rule, finding.what) == ("x.variant", "level `smoke` has no variant `lora`")
    assert (finding.why, finding.fix) == (
        "it belongs to level `big`",
        "remove it: the level has no variants",
    )


# -- steps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["trl", "verl", "skyrl"])
def test_too_few_steps_for_the_level(framework: str) -> None:
    learning = of_rule(findings(framework, "learning", train={"steps": 3}), f"{framework}.steps")
    assert learning.what == "level `learning` with 3 train steps cannot tell a trend from noise"
    resume = of_rule(findings(framework, "checkpoint", train={"steps": 1}), f"{framework}.steps")
    assert resume.fix == "use `train.steps` of 2 or more"


def test_steps_that_are_enough() -> None:
    assert not list(too_few_steps("learning", "x.steps", MIN_POINTS))
    assert not list(too_few_steps("checkpoint", "x.steps", 2))
    assert not list(too_few_steps("smoke", "x.steps", 1))
    (finding,) = too_few_steps("learning", "x.steps", MIN_POINTS - 1, better=30)
    assert finding.fix == f"use {MIN_POINTS} or more, better 30"


def test_a_run_that_resumes_has_two_commands() -> None:
    assert Schedule(4, 2, 2).commands == (("train", 2), ("resume", 4))
    assert Schedule(4, 0, 0).commands == (("train", 4),)


@pytest.mark.parametrize(
    ("name", "learns", "saves"),
    [("smoke", False, False), ("checkpoint", False, True), ("learning", True, False)],
)
def test_what_a_level_asks_of_files_without_a_spec(name: str, learns: bool, saves: bool) -> None:
    expect = level_expectation(Level(name, 0, "p"), ("v",), 5, {"reward": "r"})
    assert expect.learning == (LearningPlan("r") if learns else None)
    assert (expect.checkpoint, expect.resume, expect.variants, expect.steps) == (saves, saves, ("v",), 5)


# -- numbers and words -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "counts"), [(1, True), (0, False), (-1, False), (True, False), (2.0, False), ("2", False)]
)
def test_what_is_a_count(value: object, counts: bool) -> None:
    assert is_count(value) is counts


def test_nearest_numbers() -> None:
    assert nearest_numbers(divisors(12), 5) == "4 or 6"
    assert nearest_numbers([2, 8], 5) == "2 or 8"
    assert nearest_numbers([4, 6, 8], 6) == "4 or 6"
    assert nearest_numbers([3], 100) == "3"
    assert divisors(12) == [1, 2, 3, 4, 6, 12]


@pytest.mark.parametrize(
    ("path", "folder", "below"),
    [
        ("/a/b", "/a", True),
        ("/a", "/a/", True),
        ("/a//b", "/a", True),
        ("/ab", "/a", False),
        ("/a", "", False),
        ("/a", "/", True),
    ],
)
def test_is_below(path: str, folder: str, below: bool) -> None:
    assert is_below(path, folder) is below


def test_gib() -> None:
    assert (gib(2**30 * 139.8, 1), gib(2**30 * 139.8)) == ("139.8 GiB", "140 GiB")
