"""What is refused or warned of before a NeMo-RL run, and how its recipes are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from jobspec import frameworks
from jobspec.finding import Finding
from jobspec.frameworks.nemo_rl import checkout
from jobspec.frameworks.nemo_rl.levels import BY_NAME, LEVELS
from jobspec.frameworks.shared import nemo_recipe as config
from jobspec.spec.job import Repo
from tests.kits.framework_kit import context, findings, make_fake_nemo_rl, rules

NODE = {"resources": {"nodes": 1}}


def variant(name: str, **more: Any) -> dict[str, Any]:
    return {"coverage": {"variants": [name]}, **more}


def override(key: str, value: object) -> dict[str, Any]:
    return {"train": {"overrides": {key: value}}}


@pytest.mark.parametrize(
    ("level", "spec", "rule"),
    [
        (0, {"coverage": {"variants": ["no"]}}, "variant"),
        (2, {"coverage": {"variants": ["nixl"]}}, "variant"),
        (0, {"resources": {"nodes": 2}}, "nodes"),
        (4, variant("ep", gpus=8, **NODE), "nodes"),
        (4, variant("ep", gpus=4, resources={"nodes": 2}), "gpus"),
        (0, override("policy.no_such", 1), "key"),
        (0, override("++policy.megatron_cfg.converter_type", "x"), "stale-key"),
        (2, override("policy.generation.delta_compression.enabled", True), "stale-key"),
        (0, override("checkpointing.checkpoint_dir", "/x"), "owned"),
        (0, override("+cluster.num_nodes", 2), "owned"),
        (0, override("grpo.seed", "a b"), "override"),
        (0, override("grpo.seed", "*"), "override"),
        (0, override("grpo.seed", "a,b"), "override"),
        (0, override("grpo.seed", "x\n"), "override"),
        (0, override("grpo.seed", [1, 2]), "override"),
        (0, override("grpo.seed;id", 1), "override"),
        (0, override("~grpo.seed", 1), "override"),
        (0, {"container": {"env": {"NRL_IGNORE_TP_ACCURACY_CHECK": "0"}}}, "tp-guard"),
        (5, {"container": {"env": {"MC_TCP_BIND_ADDRESS": "169.254.3.1"}}}, "announce"),
        (0, {"checkpoint": {"resume": "must"}}, "resume"),
        (1, variant("lora", train={"steps": 9}), "steps"),
        (6, {"train": {"steps": 2}}, "steps"),
        (0, variant("mbridge-restore", model={"id": "org/x"}), "model"),
        (0, {"train": {"parallel": {"tp": 2}}}, "parallel"),
        (0, {"train": {"rollout": {"tp": 2}}}, "parallel"),
        (4, variant("sizes"), "parallel"),
        (4, variant("sizes", train={"parallel": {"tp": 2, "vpp": 2}}), "parallel"),
        (3, variant("generation-topology"), "mode"),
        (4, variant("sizes", launch={"mode": "srun"}, resources={"nodes": 2}), "mode"),
        (0, override("policy.dtensor_cfg.enabled", True), "backend"),
        (0, override("policy.megatron_cfg.enabled", False), "backend"),
        (4, variant("cp2", **override("policy.sequence_packing.enabled", False)), "packing"),
        (4, variant("cp2", **override("policy.make_sequence_length_divisible_by", 6)), "packing"),
        (5, variant("data-plane-simple", **override("data_plane.backend", "redis")), "data-plane"),
        (5, variant("data-plane-simple", **override("data_plane.num_storage_units", None)), "data-plane"),
        (5, variant("data-plane-simple", **override("+grpo.async_grpo.enabled", True)), "data-plane"),
        (5, variant("vlm", **override("++policy.router_replay.enabled", True)), "r3"),
    ],
    ids=lambda item: item if isinstance(item, str) else None,
)
def test_rules(level: int, spec: dict[str, Any], rule: str) -> None:
    assert f"nemo_rl.{rule}" in rules(findings("nemo_rl", level, **spec))


def test_guard_of_tensor_parallelism() -> None:
    """Equal batch sizes, or a ratio that is forced, make it safe; nothing else does."""
    asked = variant("sizes", gpus=8)

    def found(**overrides: object) -> set[str]:
        named = {f"policy.{key}": value for key, value in overrides.items()}
        train = {"parallel": {"tp": 4}, "overrides": named}
        return rules(findings("nemo_rl", 4, **asked, train=train))

    assert found() == set()
    assert found(logprob_batch_size=8) == {"nemo_rl.tp-guard"}
    assert found(logprob_batch_size=8, train_micro_batch_size=8) == set()


def test_replay_needs_vllm_and_no_virtual_stages() -> None:
    base = {"++policy.router_replay.enabled": True, "policy.megatron_cfg.expert_model_parallel_size": 2}
    asked = variant("r3", gpus=8, resources={"nodes": 8})
    for key, value in (
        ("policy.generation.backend", "megatron"),
        ("++policy.megatron_cfg.virtual_pipeline_model_parallel_size", 2),
    ):
        found = findings("nemo_rl", 5, **asked, train={"overrides": {**base, key: value}})
        errors = {item.rule for item in found if item.is_error}
        assert errors - {"nemo_rl.weak-evidence"} == {"nemo_rl.r3"}


@pytest.mark.parametrize("level", range(7))
def test_each_level_s_first_variant_has_no_findings(level: int) -> None:
    name = LEVELS[level].variants[0]
    assert not findings("nemo_rl", level, gpus=8, **variant(name))


def test_data_planes_in_one_cluster_may_meet() -> None:
    both = {"coverage": {"variants": ["data-plane-simple", "data-plane-mooncake-cpu"]}}
    assert rules(findings("nemo_rl", 5, **both)) == {"nemo_rl.data-plane-shared"}
    assert not findings("nemo_rl", 5, **both, launch={"mode": "srun"})


def test_names_that_look_like_evidence_are_explained() -> None:
    found = findings("nemo_rl", 5, **variant("vlm-dtensor"))
    assert "DTensor" in found[0].why


def test_settings_without_effect_are_named() -> None:
    spec = {"train": {"seed": 0, "rollout": {"engines": 2}}, "checkpoint": {"every": 5}}
    found = findings("nemo_rl", 0, **spec)
    assert {item.path for item in found} == {"train.seed", "train.rollout.engines", "checkpoint.every"}


def test_interpreter_of_the_helper_build() -> None:
    """The image's default Python has no Megatron: the helpers would be built for the wrong one."""
    helpers = {"mcore_helpers": {"package": "megatron.core"}}
    assert rules(findings("nemo_rl", 0, runtime="pyxis", **helpers)) == {"nemo_rl.python"}
    named = {**helpers, "container": {"python": "/opt/ray_venvs/x/bin/python"}}
    assert not findings("nemo_rl", 0, runtime="pyxis", **named)
    assert not findings("nemo_rl", 0, runtime="none", **helpers)


def test_checkout_that_lacks_something_is_refused(tmp_path: Path) -> None:
    make_fake_nemo_rl(tmp_path)
    repos = {"rl": str(tmp_path)}
    (tmp_path / "tests/functional/grpo_megatron.sh").write_text("true\n")
    (tmp_path / "tests/functional/grpo_megatron_lora.sh").unlink()
    (tmp_path / "results/sft/step_2").mkdir(parents=True)
    assert rules(findings("nemo_rl", 0, repos=repos)) == {"nemo_rl.script"}
    assert rules(findings("nemo_rl", 1, repos=repos)) == {"nemo_rl.script"}
    assert rules(findings("nemo_rl", 1, repos=repos, **variant("resume"))) == {"nemo_rl.leftover"}
    assert rules(findings("nemo_rl", 0, repos={})) == {"nemo_rl.checkout"}
    (tmp_path / BY_NAME["sft-lora"].config).write_text("a: [")
    assert rules(findings("nemo_rl", 1, repos=repos, **variant("sft-lora"))) == {"nemo_rl.config"}
    (tmp_path / "tests/check_metrics.py").unlink()
    assert rules(findings("nemo_rl", 1, repos=repos, **variant("lora-async"))) == {"nemo_rl.script"}


def test_two_checkouts_are_one_too_many(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name / "nemo_rl").mkdir(parents=True)
    repos = {name: str(tmp_path / name) for name in "ab"}
    assert rules(findings("nemo_rl", 0, repos=repos)) == {"nemo_rl.checkout"}


def test_a_script_that_trains_on_another_backend_is_refused(tmp_path: Path) -> None:
    """Scripts named after Megatron may compose a recipe of DTensor, as NeMo-RL's for DPO with LoRA does."""
    make_fake_nemo_rl(tmp_path)
    script = "uv run run.py --config $PROJECT_ROOT/x.yaml \\\n  policy.megatron_cfg.enabled=false \\\n  $@\n"
    (tmp_path / "tests/functional/sft_megatron_lora.sh").write_text(script)
    (tmp_path / "x.yaml").write_text("policy: {megatron_cfg: {enabled: true}}\n")
    asked = findings("nemo_rl", 1, repos={"rl": str(tmp_path)}, **variant("sft-lora"))
    assert rules(asked) == {"nemo_rl.backend"}
    assert "policy.dtensor_cfg.enabled=false" in BY_NAME["dpo-lora"].overrides


def test_a_script_that_compares_both_backends_is_judged_by_its_log(tmp_path: Path) -> None:
    make_fake_nemo_rl(tmp_path)
    runs = "uv run run.py --config $PROJECT_ROOT/x.yaml {} $@\n"
    both = [runs.format(f"policy.megatron_cfg.enabled={value}") for value in ("true", "false")]
    (tmp_path / "tests/functional/sft_resume_diamond.sh").write_text("".join(both))
    (tmp_path / "x.yaml").write_text("policy: {megatron_cfg: {enabled: false}}\n")
    asked = {"repos": {"rl": str(tmp_path)}, **variant("resume")}
    assert not findings("nemo_rl", 1, **asked)
    found = findings("nemo_rl", 1, **asked, **override("policy.megatron_cfg.enabled", False))
    assert rules(found) == {"nemo_rl.backend"}


def test_model_that_is_not_in_the_cache(tmp_path: Path) -> None:
    (tmp_path / "hub/models--Qwen--Qwen3-0.6B").mkdir(parents=True)
    cache = {"hf_cache": {"home": str(tmp_path)}}
    assert rules(findings("nemo_rl", 0, **cache)) == {"nemo_rl.cache"}
    assert not findings("nemo_rl", 1, **variant("sft-lora", **cache))
    assert not findings("nemo_rl", 0, hf_cache={"home": str(tmp_path), "offline": False})


# -- scripts and recipes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("    --config $PROJECT_ROOT/examples/configs/a.yaml \\", "examples/configs/a.yaml"),
        ('CONFIG_PATH="${PROJECT_ROOT}/examples/b.yaml"', "examples/b.yaml"),
        ('EXEMPLAR_CONFIG="$PROJECT_ROOT/examples/configs/c.yaml"', "examples/configs/c.yaml"),
        ("    $PROJECT_ROOT/examples/run_sft.py \\", "examples/configs/sft.yaml"),
        ("# --config $PROJECT_ROOT/no.yaml", ""),
    ],
)
def test_config_of_a_script(tmp_path: Path, line: str, found: str) -> None:
    (tmp_path / "examples").mkdir()
    entry = 'args.config = os.path.join(os.path.dirname(__file__), "configs", "sft.yaml")\n'
    (tmp_path / "examples/run_sft.py").write_text(entry)
    (tmp_path / "it.sh").write_text(
        f'{line}\n    a.b=1 \\\n    ++c.d="x" logger.log_dir=$LOG_DIR \\\n    $@\n'
    )
    script = checkout.read_script(str(tmp_path), "it.sh")
    assert script == checkout.Script(found, ("a.b=1", "++c.d=x"), True)


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "base.yaml").write_text(
        "policy: {micro: 4, logprob: '${policy.micro}', tp: '${.micro}', cfg: {a: 1, b: '${..micro}'}}\n"
        "data: {x: 1, y: 2}\n"
    )
    (tmp_path / "mid.yaml").write_text("defaults: [base.yaml]\npolicy: {micro: 2}\n")
    (tmp_path / "deep/top.yaml").write_text(
        "defaults: ../mid.yaml\ndata: {_override_: true, z: 3}\npolicy: {odd: '${mul:2, 3}'}\n"
    )
    return tmp_path


def test_recipe_is_composed_as_nemo_rl_does_it(recipes: Path) -> None:
    found = config.load(recipes / "deep/top.yaml")
    assert found["data"] == {"z": 3}
    assert config.get(found, "policy.logprob") == 2
    assert config.get(found, "policy.cfg.b") == 2
    assert config.get(found, "policy.tp") == 2
    assert config.get(found, "policy.odd") is None
    assert config.get(found, "policy.none.such") is None
    changed = config.apply(found, ["policy.micro=8", "++policy.new.key=true"])
    assert config.get(changed, "policy.logprob") == 8
    assert config.get(changed, "policy.new.key") is True
    assert config.get(found, "policy.micro") == 2


def test_absent_keys(recipes: Path) -> None:
    found = config.load(recipes / "mid.yaml")
    asked = ["policy.micro=1", "policy.no=1", "+policy.r.enabled=true", "policy.r.enabled=false", "++a.b=1"]
    assert config.absent_keys(found, asked) == ("policy.no",)


def test_recipes_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("defaults: b.yaml\n")
    (tmp_path / "b.yaml").write_text("defaults: a.yaml\n")
    with pytest.raises(ValueError, match="inherits from itself"):
        config.load(tmp_path / "a.yaml")
    (tmp_path / "c.yaml").write_text("a: '${b}'\nb: '${a}'\n")
    assert config.get(config.load(tmp_path / "c.yaml"), "a") is None
    with pytest.raises((OSError, yaml.YAMLError)):
        config.load(tmp_path / "none.yaml")


# -- what voids the evidence -------------------------------------------------------------------------

BRIDGE_REPO = {
    "name": "bridge",
    "path": "/src/bridge",
    "pythonpath": ["src", "3rdparty/Megatron-LM"],
    "prove": {"import": "megatron.bridge"},
}


@pytest.mark.parametrize("plus", ["", "+", "++"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("grpo.seq_logprob_error_threshold", 2.0),
        ("loss_fn.force_on_policy_ratio", True),
        ("policy.generation.backend", "megatron"),
    ],
)
def test_override_that_voids_the_evidence_is_an_error(plus: str, key: str, value: Any) -> None:
    found = findings("nemo_rl", 0, gpus=2, train={"overrides": {plus + key: value}})
    (one,) = [item for item in found if item.rule == "nemo_rl.weak-evidence"]
    assert one.is_error and one.path == f"train.overrides.{plus}{key}"


@pytest.mark.parametrize(
    ("key", "value"), [("loss_fn.force_on_policy_ratio", False), ("policy.generation.backend", "vllm")]
)
def test_value_that_voids_nothing_is_fine(key: str, value: Any) -> None:
    assert "nemo_rl.weak-evidence" not in rules(
        findings("nemo_rl", 0, gpus=2, train={"overrides": {key: value}})
    )


def test_level_of_megatron_s_engine_may_name_it() -> None:
    overrides = {"policy.generation.backend": "megatron"}
    assert "nemo_rl.weak-evidence" not in rules(
        findings("nemo_rl", 3, gpus=8, train={"overrides": overrides})
    )


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"prove": None}, "nemo_rl.bridge"),
        ({"pythonpath": ["src"]}, "nemo_rl.megatron-lm"),
        ({}, ""),
        ({"pythonpath": ["src", "/tmp/me/Megatron-LM"]}, ""),
    ],
)
def test_bridge_and_its_core_are_asked_for(change: dict[str, Any], rule: str) -> None:
    found = rules(_with_bridge(change))
    assert found & {"nemo_rl.bridge", "nemo_rl.megatron-lm"} == ({rule} if rule else set())


def _with_bridge(change: dict[str, Any]) -> list[Finding]:
    repo = {key: value for key, value in {**BRIDGE_REPO, **change}.items() if value is not None}
    asked = context("nemo_rl", 0, gpus=2)
    repos = msgspec.convert([repo], tuple[Repo, ...])
    spec = msgspec.structs.replace(asked.spec, repos=repos)
    return list(frameworks.get("nemo_rl").validate(replace(asked, spec=spec)))


@pytest.mark.parametrize(
    ("model", "told"), [("Qwen/Qwen2.5-VL-3B-Instruct", True), ("Qwen/Qwen2.5-0.5B", False)]
)
def test_model_of_images_on_text_is_told(model: str, told: bool) -> None:
    assert ("nemo_rl.text-only" in rules(findings("nemo_rl", 0, gpus=2, model={"id": model}))) is told


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("invalid_tool_call_advantage", -1.0),
        ("malformed_thinking_advantage", -1.0),
        ("deduplicate_multimodal_data", True),
        ("calculate_advantages_on_gpu", True),
    ],
)
def test_keys_that_the_data_plane_lacks_are_errors(key: str, value: Any) -> None:
    asked = variant("data-plane-simple", gpus=2)
    assert "nemo_rl.data-plane" in rules(findings("nemo_rl", 5, **asked, **override(f"++grpo.{key}", value)))
    assert "nemo_rl.data-plane" not in rules(
        findings("nemo_rl", 5, **asked, **override(f"++grpo.{key}", False))
    )
    smoke = findings("nemo_rl", 0, gpus=2, **override(f"++grpo.{key}", value))
    assert "nemo_rl.data-plane" not in rules(smoke)


@pytest.mark.parametrize(("value", "refused"), [("1", True), ("0", False)])
def test_mooncake_must_not_copy_by_pointers(value: str, refused: bool) -> None:
    found = findings("nemo_rl", 0, gpus=2, container={"env": {"MC_STORE_MEMCPY": value}})
    assert ("nemo_rl.data-plane" in rules(found)) is refused
