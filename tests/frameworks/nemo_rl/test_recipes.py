"""`train.recipe`: maintained recipes by their names, with what their scripts say. Real bash, no training."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec.finding import Finding
from jobspec.frameworks.nemo_rl import NemoRlFramework
from jobspec.frameworks.nemo_rl.commands import TP_GUARD
from jobspec.frameworks.nemo_rl.levels import BY_NAME, Variant
from jobspec.frameworks.nemo_rl.metric_checks import evaluate
from jobspec.frameworks.nemo_rl.properties import planned
from jobspec.frameworks.nemo_rl.recipes import closest, files, find_recipe
from jobspec.frameworks.nemo_rl.suite import Suite, read_suite
from jobspec.frameworks.nemo_rl.variant import parse_condition
from jobspec.frameworks.shared import nemo_recipe
from jobspec.judging.judge import judge
from jobspec.metrics.table import Table
from jobspec.plan import Plan
from jobspec.planning.resolve import Resolved, resolve
from jobspec.runtime.base.metric_files import Row
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import parse_spec
from jobspec.verdict import Status
from tests.frameworks.nemo_rl.test_judge_runs import RUN, Runner, places, runner
from tests.frameworks.nemo_rl.test_plan import shellcheck
from tests.kits.fake_suites import DRAFT, DTENSOR, MOONLIGHT, PLANE, PPO, QWEN, SCRIPTS, SFT, add_suites
from tests.kits.framework_kit import context, findings, make_fake_nemo_rl, plan_of, rules, table

__all__ = ["places", "runner"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("suites") / "RL"
    root.mkdir()
    make_fake_nemo_rl(root)
    add_suites(root, root / BY_NAME["sizes"].config)
    return root


def asked(root: Path, name: str, *, nodes: int = 8, gpus: int = 8, **more: Any) -> dict[str, Any]:
    train = {"recipe": name, **more.pop("train", {})}
    return {"repos": {"rl": str(root)}, "gpus": gpus, "resources": {"nodes": nodes}, "train": train, **more}


def found(root: Path, name: str, level: int = 4, **more: Any) -> list[Finding]:
    return findings("nemo_rl", level, **asked(root, name, **more))


def plan(root: Path, name: str, level: int = 4, **more: Any) -> Plan:
    assert not [item for item in found(root, name, level, **more) if item.is_error]
    return plan_of(context("nemo_rl", level, **asked(root, name, **more)))


def only(plan: Plan) -> Variant:
    (variant,) = planned(plan.expect)
    return variant


# -- what a script says -------------------------------------------------------------------------------


def test_script_s_sizes_checks_and_environment_are_read() -> None:
    suite = read_suite(QWEN, SCRIPTS.get)
    assert suite is not None
    assert (suite.nodes, suite.gpus, suite.steps, suite.steps_key) == (8, 0, 30, "grpo.max_num_steps")
    assert suite.minutes == 300  # three jobs of ten steps
    assert (suite.entry, suite.arguments) == ("examples/run_grpo.py", ())
    assert suite.env == {"NCCL_NVLS_ENABLE": "0"}  # never the switch of a check that evidence needs
    assert suite.conditions[1] == 'data["train/token_mult_prob_error"]["30"] < 1.1'
    assert len(suite.conditions) == 6


def test_script_of_the_data_plane_extends_its_recipe_s() -> None:
    suite = read_suite(PLANE, SCRIPTS.get)
    assert suite is not None
    assert (suite.entry, suite.steps, suite.minutes, suite.gpus) == ("examples/run_grpo.py", 20, 45, 8)
    assert suite.conditions[0] == 'median(data["train/token_mult_prob_error"]) < 1.1'


def test_variables_are_followed_as_far_as_the_text_sets_them() -> None:
    suite = read_suite(DRAFT, SCRIPTS.get)
    assert suite is not None
    assert suite.arguments == ("policy.model_name=Qwen/Qwen3-1.7B",)
    assert suite.unknown == ("data.train.data_path=$TRAIN_PATH",)


def test_names_in_single_quotes_are_the_same_condition() -> None:
    suite = read_suite(SFT, SCRIPTS.get)
    assert suite is not None
    assert suite.conditions == ('data["train/loss"]["250"] < 0.9',)


@pytest.mark.parametrize(
    "text", ["", "uv run 'examples/run_grpo.py\n", "NUM_NODES=many\nMAX_STEPS=$(cat x)\n"]
)
def test_odd_script_says_nothing(text: str) -> None:
    suite = read_suite("x", {"x": text}.get)
    assert suite is not None
    assert replace(suite, entry="") == Suite()
    assert read_suite("y", {"x": text}.get) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('mean(data["train/reward"], 2) < 9', 3.5),
        ('mean(data["train/reward"], -2, -1) < 9', 3.0),
        ('median(data["train/reward"], 1, 3) < 9', 1.5),
        ('mean(data["train/reward"]) < 9', 2.75),
    ],
)
def test_means_of_some_steps_are_those_of_the_checkout_s_tool(text: str, value: float) -> None:
    """Steps 1, 2, 3 and 4 have 1, 2, 3 and 5; -1 is the last step, which an end leaves out."""
    values = table(
        train__reward={1: 1.0, 2: 2.0, 3: 3.0, 4: 5.0} if value != 3.5 else {1: 0, 2: 2, 3: 3, 4: 5.5}
    )
    outcome = evaluate(parse_condition(text), values)
    assert outcome.holds
    assert outcome.reason.endswith(f": {value:.6g}")


def test_mean_of_steps_that_did_not_run_is_not_shown() -> None:
    outcome = evaluate(parse_condition('mean(data["train/reward"], 9) < 9'), table(train__reward={1: 1.0}))
    assert (outcome.holds, outcome.logged) == (False, False)


def test_the_last_value_of_a_summary_decides_nothing_and_is_told() -> None:
    summary = Table((Row("train/reward", None, 0.25, source="wandb-summary.json"),))
    outcome = evaluate(parse_condition('max(data["train/reward"]) > 0.1'), summary)
    assert (outcome.holds, outcome.logged) == (False, False)
    assert (
        outcome.reason == "`train/reward` of the steps: wandb-summary.json shows the last value alone, 0.25"
    )


def test_deleted_key_must_be_there_and_is_gone() -> None:
    recipe = {"a": {"b": 1, "c": 2}}
    assert nemo_recipe.absent_keys(recipe, ["~a.b", "~a.d"]) == ("a.d",)
    assert nemo_recipe.apply(recipe, ["~a.b"]) == {"a": {"c": 2}}


# -- what runs ----------------------------------------------------------------------------------------


def test_recipe_runs_with_its_script_s_checks(root: Path) -> None:
    made = plan(root, QWEN)
    variant, script = only(made), made.commands[-1].argv[0]
    assert variant.proofs == ("tensor-parallel", "expert-parallel")
    assert (variant.steps, made.expect.steps, variant.model) == (30, 30, "Qwen/Qwen3-30B-A3B")
    assert len(variant.checks) == 5
    assert f"examples/configs/recipes/llm/{QWEN}.yaml" in script
    for part in ("cluster.num_nodes=8", "grpo.max_num_steps=30", "export NCCL_NVLS_ENABLE=0"):
        assert part in script
    assert "policy.model_name" not in script
    assert "abs(median" in " ".join(made.expect.limitations)
    assert "not requested" not in " ".join(made.expect.limitations)


@pytest.mark.parametrize(("name", "nodes"), [(QWEN, 8), (PLANE, 4), (SFT, 1)])
def test_command_of_a_recipe_is_sound_bash(root: Path, name: str, nodes: int) -> None:
    script = plan(root, name, nodes=nodes).commands[-1].argv[0]
    subprocess.run(["bash", "-n", "-c", script], check=True)
    shellcheck(script)
    assert f"unset {TP_GUARD}" in script
    assert f"export {TP_GUARD}" not in script


def test_smaller_run_says_what_it_voids(root: Path) -> None:
    smaller: dict[str, Any] = {"nodes": 2, "train": {"steps": 2}}
    made = plan(root, QWEN, **smaller)
    assert only(made).checks == (
        'median(data["train/token_mult_prob_error"]) < 1.1',
        'min(data["train/reward"]) > 0',  # it holds at every step of the recipe, so at the first two
    )
    told = [item for item in found(root, QWEN, **smaller) if item.rule == "nemo_rl.recipe-smaller"]
    assert "2 of 30 steps, 2 x 8 in place of 8 x 8 GPUs" in told[0].what
    for condition in ('["30"] < 1.1', "total_step_time", 'max(data["train/reward"]) > 0.01'):
        assert condition in told[0].what
        assert condition in " ".join(made.expect.limitations)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"nodes": 4}, 4),  # all but seconds
        ({"train": {"overrides": {"grpo.num_prompts_per_step": 8}}}, 2),  # only agreement
        ({"train": {"overrides": {"policy.logprob_batch_size": 8}}}, 5),
        ({"train": {"parallel": {"tp": 4, "ep": 4}}}, 4),
        ({"train": {"steps": 60}}, 5),
        ({"model": {"id": "org/x"}}, 2),
    ],
)
def test_each_kind_of_change_voids_its_own_conditions(root: Path, change: dict[str, Any], kept: int) -> None:
    assert len(only(plan(root, QWEN, **change)).checks) == kept


def test_recipe_on_the_data_plane_has_its_trainer_and_proof(root: Path) -> None:
    variant = only(plan(root, PLANE, nodes=4))
    assert (variant.trainer, variant.proofs) == ("transfer_queue", ("pipeline-parallel", "data-plane-simple"))


def test_sizes_of_the_spec_replace_the_recipe_s(root: Path) -> None:
    made = plan(root, MOONLIGHT, nodes=1, train={"parallel": {"tp": 2}})
    assert only(made).proofs == ("tensor-parallel",)
    assert only(made).proves == "the recipe trained with tp 2"
    assert "policy.megatron_cfg.pipeline_model_parallel_size=1" in made.commands[-1].argv[0]


def test_supervised_recipe_shows_its_sizes(root: Path) -> None:
    variant = only(plan(root, SFT, nodes=1))
    assert (variant.trainer, variant.steps_key) == ("sft", "sft.max_num_steps")
    assert variant.proofs == ("tensor-parallel",)


@pytest.mark.parametrize(
    ("name", "level", "more", "rule"),
    [
        ("grpo-qwen3-30ba3b-2n8g-megatron", 4, {}, "recipe"),
        (PPO, 4, {}, "recipe"),
        (QWEN, 4, {"coverage": {"variants": ["tp2"]}}, "recipe"),
        (DRAFT, 5, {}, "recipe-value"),
        (SFT, 0, {}, "recipe-level"),
        (QWEN, 1, {}, "recipe-level"),
        (QWEN, 2, {}, "recipe-level"),
        (QWEN, 3, {}, "recipe-level"),
        (DTENSOR, 4, {}, "backend"),
        (QWEN, 4, {"train": {"overrides": {"no.such": 1}}}, "key"),
    ],
)
def test_recipe_that_cannot_prove_is_refused(
    root: Path, name: str, level: int, more: dict[str, Any], rule: str
) -> None:
    errors = [item for item in found(root, name, level, **more) if item.is_error]
    assert [item.rule for item in errors] == [f"nemo_rl.{rule}"]
    assert all(item.path for item in errors)


def test_refused_level_names_those_that_the_recipe_proves(root: Path) -> None:
    fixes = {
        name: [item.fix for item in found(root, name, 1) if item.is_error] for name in (QWEN, SFT, PLANE)
    }
    assert fixes == {
        QWEN: ["use level `0`, `4` or `6`, or another recipe"],
        SFT: ["use level `4` or `6`, or another recipe"],
        PLANE: ["use level `0`, `4`, `5` or `6`, or another recipe"],
    }


def test_mistyped_recipe_gets_its_likely_name(root: Path) -> None:
    wrong = found(root, "grpo-qwen3-30ba3b-8n8g-megatro")
    assert [item.fix for item in wrong if item.is_error] == [f"did you mean `{QWEN}`?"]


def test_value_that_the_script_gets_itself_may_come_from_the_spec(root: Path) -> None:
    given = {"+data.train.data_path": "/d/x.jsonl"}
    variant = only(plan(root, DRAFT, 5, nodes=1, gpus=4, train={"overrides": given}))
    assert (variant.proofs, len(variant.checks)) == (("draft-loss", "draft-refit"), 1)


def test_recipe_s_own_weak_evidence_is_told(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "RL"
    shutil.copytree(root, copy)
    config = copy / files(str(copy))[QWEN]
    recipe = json.loads(config.read_text())
    recipe.setdefault("loss_fn", {})["force_on_policy_ratio"] = True
    config.write_text(json.dumps(recipe))
    assert "nemo_rl.weak-evidence" in rules(found(copy, QWEN))
    assert "nemo_rl.weak-evidence" not in rules(found(root, QWEN))


def test_recipe_without_a_script_says_so(root: Path) -> None:
    name = Path(BY_NAME["r3"].config).stem
    assert find_recipe(str(root), name) is not None
    limits = plan(root, name, 4, train={"parallel": {"tp": 2}}).expect.limitations
    assert any("no script for this recipe" in text for text in limits)


# -- by a model ---------------------------------------------------------------------------------------


def test_closest_recipe_is_of_the_family_and_trains_on_megatron(root: Path) -> None:
    assert [item.name for item in closest(str(root), "Qwen/Qwen3-30B-A3B-Instruct-2507")] == [QWEN, DRAFT]
    assert [item.name for item in closest(str(root), "moonshotai/Moonlight-16B-A3B")] == [MOONLIGHT, PLANE]
    assert [item.name for item in closest(str(root), "meta-llama/Llama-3.2-1B")] == [SFT]
    assert closest(str(root), "org/unheard-of") == ()


def test_finding_that_refuses_a_model_names_the_closest_recipe(root: Path) -> None:
    own: dict[str, Any] = {"coverage": {"variants": ["mbridge-restore"]}, "repos": {"rl": str(root)}}
    for model, told in (("Qwen/Qwen3-30B-A3B", QWEN), ("org/unheard-of", "")):
        (refused,) = [item for item in findings("nemo_rl", 0, **own, model={"id": model}) if item.is_error]
        assert refused.rule == "nemo_rl.model"
        assert (f"`train.recipe: {told}`" in refused.fix) is bool(told)


# -- the whole way ------------------------------------------------------------------------------------


def resolved(
    root: Path, tmp_path: Path, framework: str = "nemo_rl", *sets: str, allow: tuple[str, ...] = ()
) -> Resolved:
    text = (
        f"version: 1\nname: x\nframework: {framework}\ncoverage: {{level: 4}}\n"
        "container: {image: x.sqsh}\n"
        f"repos: [{{name: rl, path: {root}}}]\ntrain: {{recipe: {QWEN}}}\n"
    )
    env = {"USER": "u", "HOME": str(tmp_path)}
    loaded = parse_spec(text, str(tmp_path / "x.yaml"), sets, env)
    return resolve(loaded, load_cluster("slurm-pyxis", None, env=env), allow=allow, env=env)


def test_nodes_gpus_and_time_are_the_recipe_s(root: Path, tmp_path: Path) -> None:
    found = resolved(root, tmp_path)
    resources = found.spec.resources
    assert (resources.nodes, resources.gpus_per_node, resources.time) == (8, 8, "05:00:00")
    assert found.origins["resources.nodes"].kind == "framework"
    assert found.origins["resources.nodes"].where == f"recipe {QWEN}"


def test_what_the_spec_says_wins(root: Path, tmp_path: Path) -> None:
    found = resolved(root, tmp_path, "nemo_rl", "resources.nodes=1", 'resources.time="00:10:00"')
    assert (found.spec.resources.nodes, found.spec.resources.time) == (1, "00:10:00")
    assert found.origins["resources.nodes"].kind == "set"


def test_allowed_error_that_leaves_nothing_to_run_is_an_error(root: Path, tmp_path: Path) -> None:
    sets = ("train.recipe=no-such",)
    found = resolved(root, tmp_path, "nemo_rl", *sets, allow=("nemo_rl.recipe", "nemo_rl.bridge"))
    assert found.plan is None
    assert [item.rule for item in found.findings if item.is_error] == ["nemo_rl.nothing"]


def test_other_frameworks_have_no_recipes(root: Path, tmp_path: Path) -> None:
    wrong = [item for item in resolved(root, tmp_path, "trl").findings if item.is_error]
    assert "spec.recipe" in {item.rule for item in wrong}


def test_run_of_a_recipe_is_judged_by_what_the_plan_kept(runner: Runner) -> None:
    root = runner.checkout
    if QWEN not in files(str(root)):
        add_suites(root, root / BY_NAME["sizes"].config)
    config: dict[str, Any] = {"train": {"recipe": QWEN, "steps": 2, "parallel": {"tp": 2}}, "coverage": {}}
    verdict = judge(runner.run("tp2", resources={"nodes": 1}, **config))
    told = {item.name: item for item in verdict.deliverables}
    assert (told[RUN].status, told["Requested variants"].status) == (Status.PASS, Status.PASS)
    assert f"`{QWEN}`" in told[RUN].reason
    assert told["Metrics/log capture"].status is Status.PASS
    assert "2 conditions hold" in told["Metrics/log capture"].reason


@pytest.mark.parametrize("text", ['max(data["train/x"]) < 1.05', 'min(data["train/x"]) > -1'])
def test_greatest_and_least_count_step_0_too(text: str) -> None:
    """They have no range in the checkout's tool; a validation before training has step 0."""
    outcome = evaluate(parse_condition(text), table(train__x={0: 5.0 if "max" in text else -5.0, 1: 0.5}))
    assert not outcome.holds


def test_keys_of_a_recipe_are_known_for_tab(root: Path) -> None:
    known = NemoRlFramework().override_keys
    assert {"policy.megatron_cfg.tensor_model_parallel_size", "grpo.max_num_steps"} <= {
        *known(QWEN, {"rl": str(root)})
    }
    assert [*known("", {"rl": str(root)}), *known("no-such", {"rl": str(root)}), *known(QWEN, {})] == []
