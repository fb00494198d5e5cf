"""TRL's rules: batches, options, rewards, resources. Batch arithmetic is also held against GRPOConfig."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec import frameworks
from jobspec.frameworks.trl import rules as trl_rules
from jobspec.runtime.drivers.trl.loop import OWNED_OPTIONS
from jobspec.runtime.drivers.trl.state import TrainConfig
from tests.kits.framework_kit import context, findings, plan_of, rules

HAS_TRL = importlib.util.find_spec("trl") is not None


def config(asked: Any, command: int = 0) -> TrainConfig:
    return TrainConfig.from_json(plan_of(asked).commands[command].argv[-1])


# -- batch -------------------------------------------------------------------------------------------


def trl_accepts(options: dict[str, int], world: int) -> bool:
    """GRPOConfig.__post_init__ of trl 1.16.0, restated from its documentation in the other direction."""
    batch = options.get("per_device_train_batch_size", 16)
    if "generation_batch_size" in options and "steps_per_generation" in options:
        return False
    total = options.get("generation_batch_size")
    if total is not None and total % (batch * world) != 0:
        return False
    steps = options.get("steps_per_generation") or options.get("gradient_accumulation_steps", 1)
    generations = options.get("num_generations", 8)
    return generations >= 2 and (total or batch * world * steps) % generations == 0


sizes = st.fixed_dictionaries(
    {},
    optional={
        "per_device_train_batch_size": st.integers(1, 40),
        "num_generations": st.integers(1, 20),
        "gradient_accumulation_steps": st.integers(1, 4),
        "generation_batch_size": st.integers(1, 200),
        "steps_per_generation": st.integers(1, 4),
    },
)


@given(sizes, st.integers(1, 8))
def test_batch_rules_are_trls(options: dict[str, int], world: int) -> None:
    found = list(trl_rules.check_batch(options, world))
    assert (not found) == trl_accepts(options, world)


@given(sizes, st.integers(1, 8))
def test_proposed_values_satisfy_the_rule(options: dict[str, int], world: int) -> None:
    for finding in trl_rules.check_batch(options, world):
        if finding.rule != "trl.generations" or "whole groups" not in finding.what:
            continue
        generations, _, batch = finding.fix.partition(", or ")
        for number in map(int, re.findall(r"\d+", generations)):
            assert trl_accepts({**options, "num_generations": number}, world)
        for number in map(int, re.findall(r"\d+", batch)):
            if "generation_batch_size" not in options:
                assert trl_accepts({**options, "per_device_train_batch_size": number}, world)


def test_nearest_valid_values_are_named() -> None:
    found = findings(
        "trl",
        train={"workers": 2, "overrides": {"per_device_train_batch_size": 10, "num_generations": 8}},
    )
    assert rules(found) == {"trl.generations"}
    assert "5 or 10" in found[0].fix
    assert "8 or 12" in found[0].fix


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True])
def test_batch_must_be_a_whole_number(value: Any) -> None:
    found = list(trl_rules.check_batch({"num_generations": value}, 1))
    assert rules(found) == {"trl.batch"}


@pytest.mark.train
@pytest.mark.skipif(not HAS_TRL, reason="trl is not installed")
@pytest.mark.parametrize(
    "options",
    [
        {"per_device_train_batch_size": 16, "num_generations": 8},
        {"per_device_train_batch_size": 10, "num_generations": 8},
        {"per_device_train_batch_size": 4, "generation_batch_size": 10},
        {"per_device_train_batch_size": 4, "generation_batch_size": 16, "num_generations": 8},
        {"per_device_train_batch_size": 4, "steps_per_generation": 3, "num_generations": 6},
        {"per_device_train_batch_size": 4, "num_generations": 1},
    ],
)
def test_installed_trl_agrees(options: dict[str, int], tmp_path: Path) -> None:
    from trl import GRPOConfig

    def accepted() -> bool:
        try:
            GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **options)
        except ValueError:
            return False
        return True

    assert accepted() == (not list(trl_rules.check_batch(options, 1)))


# -- options -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not HAS_TRL, reason="trl is not installed")
def test_unknown_option_gets_the_nearest() -> None:
    found = findings("trl", train={"overrides": {"lerning_rate": 1e-3}})
    assert rules(found) == {"trl.unknown-option"}
    assert found[0].fix == "did you mean `learning_rate`?"
    assert found[0].path == "train.overrides.lerning_rate"
    assert found[0].is_error


@pytest.mark.skipif(not HAS_TRL, reason="trl is not installed")
def test_unknown_option_only_warns_where_a_container_trains() -> None:
    found = findings("trl", scheduler="slurm", runtime="pyxis", train={"overrides": {"lerning_rate": 1e-3}})
    assert [finding.is_error for finding in found] == [False]


@pytest.mark.train
@pytest.mark.skipif(not HAS_TRL, reason="trl is not installed")
def test_fields_read_from_source_are_the_real_ones() -> None:
    import dataclasses

    from trl import GRPOConfig

    real = {item.name for item in dataclasses.fields(GRPOConfig) if item.init}
    assert real <= trl_rules.grpo_fields()


@pytest.mark.parametrize("name", ["max_steps", "seed", "output_dir", "use_cpu", "logging_steps"])
def test_option_of_jobspec_itself_is_refused(name: str) -> None:
    found = findings("trl", train={"overrides": {name: 1}})
    assert "trl.owned-option" in rules(found)
    assert name in OWNED_OPTIONS


def test_trackers_stand_beside_the_file_that_is_judged() -> None:
    over: dict[str, Any] = {"report_to": ["wandb", "tensorboard", "mlflow"]}
    asked = config(context("trl", train={"overrides": over})).options
    assert asked["report_to"] == ["wandb", "mlflow"]  # the driver itself writes TensorBoard's
    assert config(context("trl", train={"overrides": {"report_to": "none"}})).options["report_to"] == []
    assert "report_to" not in config(context("trl")).options


def test_a_tracker_that_trl_does_not_have_or_that_is_not_installed() -> None:
    def told(value: Any, **more: Any) -> list[tuple[str, str]]:
        found = findings("trl", train={"overrides": {"report_to": value}}, **more)
        return [(item.severity, item.fix) for item in found if item.rule == "trl.tracker"]

    assert told("wandbb") == [("error", "did you mean `wandb`?")]
    assert [item[0] for item in told([])] == ["error"]
    assert told("tensorboard") == []
    assert told("none") == [], "transformers' own word for no tracker"
    if importlib.util.find_spec("wandb") is None:
        assert told("wandb") == [("error", "install it where training runs: `pip install wandb`")]
        assert [item[0] for item in told("wandb", scheduler="slurm", runtime="pyxis")] == ["warning"]


@pytest.mark.skipif(importlib.util.find_spec("peft") is not None, reason="peft is installed")
def test_lora_without_peft_is_named() -> None:
    found = findings("trl", train={"overrides": {"peft.r": 8}})
    assert rules(found) == {"trl.peft"}


def test_lora_options_reach_the_driver_apart() -> None:
    split = trl_rules.split_overrides({"peft.r": 8, "peft": {"lora_alpha": 16}, "beta": 0.1})
    assert split.peft == {"r": 8, "lora_alpha": 16}
    assert split.options == {"beta": 0.1}


# -- resources, inputs, steps ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "gpus", "asked", "count"),
    [(1, 0, None, 1), (2, 0, None, 2), (2, 8, None, 16), (2, 8, 4, 4), (1, 0, 2, 2)],
)
def test_workers(nodes: int, gpus: int, asked: int | None, count: int) -> None:
    train = {"workers": asked} if asked else {}
    made = context("trl", gpus=gpus, resources={"nodes": nodes}, train=train)
    assert config(made).workers == count
    assert config(made).use_gpu == (gpus > 0)
    assert config(made).options["bf16"] == (gpus > 0)


def test_more_workers_than_gpus() -> None:
    assert rules(findings("trl", gpus=2, train={"workers": 3})) == {"trl.workers"}
    assert rules(findings("trl", gpus=4, train={"workers": 2})) == {"trl.idle-gpus"}
    assert rules(findings("trl", resources={"nodes": 3}, train={"workers": 2})) == {"trl.idle-nodes"}


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ({"model": None}, "trl.model"),
        ({"data": []}, "trl.data"),
        ({"data": [{"name": "a", "source": "x"}, {"name": "b", "source": "y"}]}, "trl.data"),
        ({"launch": {"mode": "srun"}}, "trl.mode"),
        ({"train": {"algorithm": "ppo"}}, "trl.algorithm"),
        ({"train": {"parallel": {"tp": 2}}}, "trl.parallel"),
    ],
)
def test_spec_that_cannot_work(spec: dict[str, Any], rule: str) -> None:
    assert rules(findings("trl", **spec)) == {rule}


def test_level_needs_its_steps() -> None:
    assert rules(findings("trl", "learning", train={"steps": 7})) == {"trl.steps"}
    assert rules(findings("trl", "checkpoint", train={"steps": 1})) == {"trl.steps"}
    assert rules(findings("trl", "checkpoint", checkpoint={"resume": "never"})) == {"trl.resume"}


def test_checkpoint_level_is_two_commands() -> None:
    made = context("trl", "checkpoint", train={"steps": 9})
    train, resume = config(made, 0), config(made, 1)
    assert [command.name for command in plan_of(made).commands] == ["train", "resume"]
    assert (train.until, train.resume, train.save_every) == (4, "auto", 4)
    assert (resume.until, resume.steps, resume.resume) == (9, 9, "must")


def test_only_data_set_is_taken_whatever_its_name() -> None:
    made = context("trl", data=[{"name": "my-sums", "source": "x"}])
    assert config(made).data == "JOBSPEC_DATA_MY_SUMS"


def test_learning_level_has_a_default_metric() -> None:
    expect = frameworks.get("trl").plan(context("trl", "learning")).expect
    assert expect.learning is not None
    assert (expect.learning.metric, expect.learning.direction) == ("reward", "up")


# -- reward ------------------------------------------------------------------------------------------


def test_reward_of_a_repository(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("def score(completions, **kw):\n    return [0.0]\n")
    made = context("trl", repos={"mine": str(tmp_path)}, train={"reward": "r.py:score"})
    assert config(made).reward == {"file": str(tmp_path / "r.py"), "function": "score"}


@pytest.mark.parametrize(
    ("reward", "what", "fix"),
    [
        ("digit", "no built-in reward `digit`", "did you mean `digits`?"),
        ("no.py:f", "`no.py` is in no repository", "root"),
        ("r.py:scor", "no function `scor`", "did you mean `score`?"),
    ],
)
def test_reward_that_is_not_there(tmp_path: Path, reward: str, what: str, fix: str) -> None:
    (tmp_path / "r.py").write_text("def score(completions, **kw):\n    return [0.0]\n")
    found = findings("trl", repos={"mine": str(tmp_path)}, train={"reward": reward})
    assert rules(found) == {"trl.reward"}
    assert what in found[0].what
    assert fix in found[0].fix
