"""What is said about a verl spec before it runs, over fake checkouts of several releases."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobspec.finding import JobspecError
from jobspec.frameworks import get
from jobspec.frameworks.verl import settings
from jobspec.frameworks.verl.checkout import CONFIG, WRAPPER, Wrapper, read_wrapper
from jobspec.frameworks.verl.parquet import row_count
from tests.kits.fake_verl import RELEASES, fake_bridge, fake_checkout, make_bridge, make_checkout
from tests.kits.verl_kit import context, errors, findings, plan_of


def script(level: str = "smoke", release: str = "0.8.0", name: str = "train", **more: Any) -> str:
    commands = plan_of(context(level, release=release, **more)).commands
    return next(command.argv[0] for command in commands if command.name == name)


# -- the checkout ------------------------------------------------------------------------------------


def test_a_comment_is_no_variable_and_a_plain_expansion_is_one() -> None:
    wrapper = read_wrapper({"verl": fake_checkout()})
    assert wrapper is not None
    assert wrapper.reads("DUMMY_MODEL_CONFIG_PATH")
    assert not wrapper.reads("USE_REMOVE_PADDING")
    assert Wrapper("a=$NAME_LONG").reads("NAME_LONG")
    assert not Wrapper("a=$NAME_LONG").reads("NAME")


@pytest.mark.parametrize("release", RELEASES)
def test_smoke_fits_every_release(release: str) -> None:
    assert errors("smoke", release=release) == []


@pytest.mark.parametrize("release", ["0.7.0", "0.7.1"])
def test_fsdp_is_refused_where_the_script_would_run_ddp(release: str) -> None:
    found = errors("fsdp", release=release)
    assert [finding.rule for finding in found] == ["verl.knob"]
    assert "`USE_MEGATRON_FSDP`" in found[0].what


def test_asked_variable_that_the_script_lacks_is_refused() -> None:
    found = errors("architecture", release="0.7.0", train={"overrides": {"ROUTING_REPLAY_MODE": "R3"}})
    assert [(f.rule, f.path) for f in found] == [("verl.knob", "train.overrides.ROUTING_REPLAY_MODE")]


def test_no_repository_and_a_repository_without_the_script(tmp_path: Path) -> None:
    missing, empty = errors(repos={}), errors(repos={"verl": str(tmp_path)})
    assert [f.rule for f in (*missing, *empty)] == ["verl.checkout", "verl.checkout"]
    assert WRAPPER in empty[0].what
    with pytest.raises(JobspecError, match="readable"):
        get("verl").plan(context(repos={"verl": str(tmp_path)}))


def test_image_megatron_is_warned_of() -> None:
    image = {"image": "verlai/verl:vllm024.dev2"}
    found = findings(release="0.9.0", runtime="pyxis", container=image)
    assert "verl.image-megatron" in {finding.rule for finding in found}
    # On this machine the folder would be seen.
    assert "verl.image-megatron" not in {finding.rule for finding in findings(release="0.9.0")}
    assert "verl.image-megatron" not in {finding.rule for finding in findings()}


# -- inputs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ({"model": None}, "verl.model"),
        ({"data": []}, "verl.data"),
        ({"data": [{"name": "a", "source": "/a"}, {"name": "b", "source": "/b"}]}, "verl.data"),
        ({"data": [{"name": "a", "source": "/a", "prepare": "math"}]}, "verl.data"),
        ({"train": {"reward": "digits"}}, "verl.reward"),
        ({"train": {"overrides": {"VANILLA_MBRIDGE": True}}}, "verl.owned"),
        ({"train": {"overrides": {"LORA_RANK": 8, "NUM_GPUS": 2}}}, "verl.owned"),
        ({"train": {"overrides": {"++critic.megatron.vanilla_mbridge": True}}}, "verl.owned"),
        ({"train": {"overrides": {"trainer.total_epochs": 2}}}, "verl.owned"),
        ({"train": {"overrides": {"trainer.project_name": "two words"}}}, "verl.override"),
        ({"train": {"overrides": {"trainer.project_name": "x*"}}}, "verl.override"),
        ({"train": {"overrides": {"ENGINE": "trtllm"}}}, "verl.engine"),
        ({"train": {"overrides": {"ROUTING_REPLAY_MODE": "r3"}}}, "verl.replay"),
        ({"train": {"overrides": {"USE_DUMMY_MODEL": True}}}, "verl.dummy"),
    ],
)
def test_bad_inputs(spec: dict[str, Any], rule: str) -> None:
    assert [finding.rule for finding in errors(**spec)] == [rule]


def test_bridge_must_be_proved() -> None:
    asked = context()
    spec = msgspec.structs.replace(asked.spec, repos=asked.spec.repos[:1])
    found = get("verl").validate(replace(asked, spec=spec))
    assert [finding.rule for finding in found if finding.is_error] == ["verl.bridge"]


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("trainer.test_frq", "did you mean `test_freq`?"),
        ("trainer.balance", "write `++trainer.balance` to add it"),
        ("nowhere.at.all", "write `++nowhere.at.all` to add it"),
    ],
)
def test_keys_that_hydra_would_stop_on(key: str, fix: str) -> None:
    found = errors(train={"overrides": {key: 1}})
    assert [finding.rule for finding in found] == ["verl.key"]
    assert found[0].fix == fix
    assert errors(train={"overrides": {f"++{key}": 1}}) == []


def test_variant_whose_key_the_release_lacks_is_refused() -> None:
    qat: dict[str, Any] = {"coverage": {"variants": ["qat"]}, "train": {}}
    assert errors("architecture", release="0.8.0", **qat) == []
    found = errors("architecture", release="0.7.1", **qat)
    assert [finding.rule for finding in found] == ["verl.key"]
    assert "megatron.qat.enable" in found[0].what


# -- resources and sizes -----------------------------------------------------------------------------


def test_no_gpu_is_refused() -> None:
    assert [finding.rule for finding in errors(gpus=0)] == ["verl.gpus"]


@pytest.mark.parametrize(("cpus", "bad"), [(24, True), (25, False)])
def test_cores_for_eight_gpus(cpus: int, bad: bool) -> None:
    found = errors(resources={"cpus_per_node": cpus})
    assert [finding.rule for finding in found] == (["verl.cpus"] if bad else [])
    assert not bad or ("25" in found[0].what and "7 GPUs" in found[0].fix)


@pytest.mark.parametrize(
    ("gpus", "nodes", "cpus", "overrides", "bad"),
    [
        (1, 1, 13, {}, True),  # 3, the runner, 8 units, their controller, one to start actors with
        (1, 1, 14, {}, False),
        (8, 4, 26, {}, True),  # the 11 others are spread over the nodes
        (8, 4, 27, {}, False),
        (1, 1, 8, {"transfer_queue.backend.SimpleStorage.num_data_storage_units": 2}, False),
        (1, 1, 4, {"trainer.use_v1": False}, False),
    ],
)
def test_cores_for_transfer_queue(
    gpus: int, nodes: int, cpus: int, overrides: dict[str, Any], bad: bool
) -> None:
    """With 8 cores verl 0.9.1 stood still for good after it had printed its configuration (one GPU)."""
    resources = {"cpus_per_node": cpus, "nodes": nodes}
    found = errors(gpus=gpus, release="0.9.0", resources=resources, train={"overrides": overrides})
    assert [finding.rule for finding in found] == (["verl.cpus"] if bad else [])
    assert not bad or "TransferQueue" in found[0].why


def test_script_of_another_release_is_refused(tmp_path: Path) -> None:
    """0.9.0's script sets a key that 0.9.1's package lacks: Hydra ended the run after 90 s."""
    checkout = make_checkout(tmp_path / "verl", "0.9.0")
    config = json.loads((checkout / CONFIG).read_text())
    del config["data"]["train_batch_size"]
    (checkout / CONFIG).write_text(json.dumps(config))
    places = {"verl": str(checkout), "bridge": fake_bridge()}
    found = errors(gpus=1, repos=places)
    assert [finding.rule for finding in found] == ["verl.script"]
    assert "data.train_batch_size" in found[0].what


@pytest.mark.parametrize("release", ["0.7.0", "0.9.0"])
def test_reward_function_of_ones_own(release: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def good(**more):\n    return 1.0\n")
    places = {"verl": fake_checkout(release), "bridge": fake_bridge(), "rewards": str(tmp_path)}
    text = script("smoke", release=release, repos=places, train={"reward": "mine.py:good"})
    prefix = "" if release == "0.7.0" else "reward."
    assert f" {prefix}custom_reward_function.path={tmp_path}/mine.py" in text
    assert f" {prefix}custom_reward_function.name=good" in text
    assert "reward_model.enable=False" in text
    wrong = errors(release=release, repos=places, train={"reward": "mine.py:goood"})
    assert [(finding.rule, finding.fix) for finding in wrong] == [("verl.reward", "did you mean `good`?")]
    owned = errors(train={"overrides": {"reward.custom_reward_function.path": "mine.py"}})
    assert "verl.owned" in [finding.rule for finding in owned]


def needs(level: str, overrides: dict[str, Any], bridge: Path, algorithm: str = "grpo") -> list[str]:
    """The first module of each need that the probe looks for."""
    places = {"verl": fake_checkout("0.9.0"), "bridge": str(bridge)}
    train = {"overrides": overrides, "algorithm": algorithm}
    asked = context(level, release="0.9.0", repos=places, train=train)
    return [need["any_of"][0] for need in settings.environment_needs(asked, str(bridge))]


def test_environment_is_asked_for_what_the_settings_need(tmp_path: Path) -> None:
    bridge = make_bridge(tmp_path / "bridge")
    assert needs("smoke", {}, bridge) == ["flash_attn"]  # this Bridge decides by Apex alone
    fusions = bridge / "src/megatron/bridge/utils/fusions.py"
    fusions.parent.mkdir()
    fusions.write_text(
        "def can_enable_gradient_accumulation_fusion():\n    import transformer_engine\n    return True\n"
    )
    assert needs("smoke", {}, bridge) == ["fused_weight_gradient_mlp_cuda", "flash_attn"]
    transformer = "actor_rollout_ref.actor.megatron.override_transformer_config"
    cured = {
        f"++{transformer}.gradient_accumulation_fusion": False,
        f"{transformer}.attention_backend": "auto",
    }
    assert needs("smoke", cured, bridge) == []
    # A critic has a transformer of its own, with its own two keys.
    assert needs("smoke", cured, bridge, "ppo") == ["fused_weight_gradient_mlp_cuda", "flash_attn"]
    critics = {key.replace("actor_rollout_ref.actor", "critic"): value for key, value in cured.items()}
    assert needs("smoke", cured | critics, bridge, "ppo") == []


@pytest.mark.parametrize(
    ("level", "train", "rule"),
    [
        ("smoke", {"overrides": {"CRITIC_TP": 3}}, "verl.role-world"),
        ("smoke", {"overrides": {"CRITIC_VPP": 2}}, "verl.role-world"),
        ("smoke", {"overrides": {"ACTOR_TP": "two"}}, "verl.value"),
        ("smoke", {"overrides": {"LORA_RANK": "four"}}, "verl.value"),
        ("smoke", {"overrides": {"VAL_BEFORE_TRAIN": "true"}}, "verl.value"),
        ("parallel", {"parallel": {"tp": 2}, "rollout": {"tp": 3}}, "verl.rollout"),
        ("parallel", {}, "verl.level"),
        ("fsdp", {"parallel": {"tp": 2}}, "verl.level"),
        ("architecture", {}, "verl.level"),
        ("learning", {"steps": 7}, "verl.steps"),
        ("checkpoint", {"steps": 1}, "verl.steps"),
        ("smoke", {"overrides": {"MICRO_BSZ": 0}}, "verl.batch"),
    ],
)
def test_level_and_size_rules(level: str, train: dict[str, Any], rule: str) -> None:
    assert [finding.rule for finding in errors(level, train=train)] == [rule]


def test_sizes_of_the_actor_alone_make_level_parallel() -> None:
    assert errors("parallel", train={"overrides": {"ACTOR_TP": 2}}) == []


MINI, SAMPLES = "actor_rollout_ref.actor.ppo_mini_batch_size", "actor_rollout_ref.rollout.n"
MICRO, STEP = "++actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", "data.train_batch_size"


@pytest.mark.parametrize(
    ("overrides", "path", "what"),
    [
        ({MINI: 1}, MINI, "4 responses of a mini batch cannot be shared by 8 data-parallel replicas"),
        ({f"++{MINI}": "1"}, f"++{MINI}", "4 responses of a mini batch cannot be shared by 8"),
        ({MINI: 8, SAMPLES: 5, f"+{MINI}": 3, STEP: 9}, f"+{MINI}", "15 responses of a mini batch cannot"),
        ({MINI: 1, "MICRO_BSZ": 1, SAMPLES: 4}, MINI, "4 responses of a mini batch cannot be shared by 8"),
        ({MINI: 64, STEP: 32}, MINI, "a step takes 32 prompts, fewer than the 64 of a mini batch"),
        ({STEP: 4}, STEP, "a step takes 4 prompts, fewer than the 8 of a mini batch"),
        (
            {"++critic.ppo_mini_batch_size": 1},
            "++critic.ppo_mini_batch_size",
            "4 responses of a mini batch cannot",
        ),
        (
            {MINI: 6, STEP: 24, MICRO: 2, "USE_DYNAMIC_BSZ": False},
            MICRO,
            "3 responses of a mini batch on each replica do not divide into micro batches of 2",
        ),
        ({MINI: 0}, MINI, f"`{MINI}` is 0, a whole number from 1 on is needed"),
    ],
)
def test_sizes_given_by_hydra_keys_are_checked_together(
    overrides: dict[str, Any], path: str, what: str
) -> None:
    algorithm = "ppo" if "critic" in path else "grpo"
    more = {"CRITIC_TP": 1} if algorithm == "ppo" else {}
    found = errors(train={"algorithm": algorithm, "overrides": {**more, **overrides}})
    assert [(finding.rule, finding.path) for finding in found] == [("verl.batch", f"train.overrides.{path}")]
    assert found[0].what.startswith(what)


def test_sizes_that_fit_together_are_fine() -> None:
    for overrides in ({MINI: 2, STEP: 8}, {MINI: 4, SAMPLES: 16, STEP: 4}, {MINI: 1, SAMPLES: 8}):
        assert errors(train={"algorithm": "grpo", "overrides": overrides}) == []


def test_sizes_are_checked_before_the_checkout_is_there() -> None:
    def rules(**overrides: int) -> list[str]:
        names = {"mini": MINI, "step": STEP}
        asked: Any = {names[name]: value for name, value in overrides.items()}
        found = errors(repos={}, train={"algorithm": "grpo", "overrides": asked})
        return [finding.rule for finding in found]

    assert rules(mini=1) == ["verl.checkout", "verl.batch"]
    assert rules(mini=64) == ["verl.checkout"]  # prompts of a step are the script's, and it is not here
    assert rules(mini=64, step=32) == ["verl.checkout", "verl.batch"]


def test_an_older_release_rounds_a_mini_batch_down_but_not_to_nothing() -> None:
    for mini, rules in ((3, []), (1, ["verl.batch"])):
        found = errors(release="0.7.1", train={"algorithm": "grpo", "overrides": {MINI: mini}})
        assert [finding.rule for finding in found] == rules


def test_mini_batch_must_be_shared_evenly_from_080_on() -> None:
    more: dict[str, Any] = {"gpus": 6, "train": {"parallel": {"pp": 1}}}
    found = errors(**more)
    assert [finding.rule for finding in found] == ["verl.batch"]
    assert found[0].what == "32 responses of a mini batch cannot be shared by 6 data-parallel replicas"
    assert "`MICRO_BSZ` to 3 or 6" in found[0].fix
    assert errors(release="0.7.1", **more) == []
    static = {"USE_DYNAMIC_BSZ": False, "MICRO_BSZ": 3}
    assert "groups of 18" in errors(gpus=6, train={"overrides": static})[0].what


# -- data rows ---------------------------------------------------------------------------------------


def parquet(path: Path, rows: int, **how: Any) -> Path:
    """A real file, by the library that verl reads it with."""
    pyarrow = pytest.importorskip("pyarrow")
    data = {"number": list(range(rows)), "text": ["x" * 9] * rows, "turns": [[{"role": "user"}]] * rows}
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(data), path, **how)
    return path


@pytest.mark.parametrize("how", [{}, {"row_group_size": 3}, {"compression": "gzip", "version": "1.0"}])
@pytest.mark.parametrize("rows", [1, 16, 500])
def test_rows_are_read_from_the_footer(tmp_path: Path, rows: int, how: dict[str, Any]) -> None:
    assert row_count(parquet(tmp_path / "x.parquet", rows, **how)) == rows


def test_rows_of_no_parquet_are_not_known(tmp_path: Path) -> None:
    whole = parquet(tmp_path / "x.parquet", 20).read_bytes()
    for number, text in enumerate((b"", b"PAR1", b"x" * 100, whole[:-9] + whole[-8:], b"PAR1" + whole[-8:])):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(text)
        assert row_count(path) is None
    assert row_count(tmp_path / "missing") is None


def test_fewer_rows_than_a_step_takes_are_refused(tmp_path: Path) -> None:
    parquet(tmp_path / "train.parquet", 15)
    data = {"data": [{"name": "gsm8k", "source": str(tmp_path)}]}
    found = errors(**data)
    assert [(finding.rule, finding.path) for finding in found] == [("verl.rows", "data[0].source")]
    assert found[0].what == "`train.parquet` has 15 rows, one step takes 16"
    assert errors(train={"overrides": {"MICRO_BSZ": 1}}, gpus=4, **data) == []
    # Before release 0.8.0 a step grows with the GPUs.
    assert "one step takes 256" in errors(release="0.7.1", **data)[0].what


def test_rows_that_nobody_can_count_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow nothing is guessed; a file that is not here yet is another finding's."""
    (tmp_path / "train.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    here, absent = ({"data": [{"name": "gsm8k", "source": place}]} for place in (str(tmp_path), "/nosuch"))
    rows = [finding for finding in findings(**here) if "rows" in finding.rule]
    assert [(finding.rule, finding.severity, finding.path) for finding in rows] == [
        ("verl.rows-not-counted", "warning", "data[0].source")
    ]
    assert rows[0].what == "the rows of `train.parquet` were not counted; one step takes 16"
    assert rows[0].why.startswith("pyarrow is not installed")
    assert rows[0].fix == "install it: `pip install 'jobspec-rl[data]'`"
    assert not [finding for finding in findings(**absent) if "rows" in finding.rule]


@pytest.mark.parametrize(
    ("variants", "overrides", "told"),
    [
        (["vlm"], {}, True),
        (["vlm"], {"data.image_key": "images"}, False),
        (["vlm"], {"++data.image_key": "images"}, False),
        (["moe-model"], {}, False),
    ],
)
def test_images_are_told_from_text_by_their_key(
    variants: list[str], overrides: dict[str, Any], told: bool
) -> None:
    found = findings("architecture", coverage={"variants": variants}, train={"overrides": overrides})
    assert ("verl.text-only" in {item.rule for item in found}) == told


@pytest.mark.parametrize(
    ("image", "overrides", "severity"),
    [
        ("verlai/verl:sgl056.latest", {}, "error"),
        ("docker.io/verlai/verl:sgl056.latest", {"ENGINE": "sglang"}, None),
        ("verlai/verl:sgl056.latest", {"++actor_rollout_ref.rollout.name": "sglang"}, None),
        ("verlai/verl:vllm018.dev1", {"ENGINE": "sglang"}, "error"),
        ("verlai/verl:vllm018.dev1", {}, None),
        ("verlai/verl:app-verl0.6-transformers4.56.1-sglang0.5.2-mcore0.13.0-te2.2", {}, "error"),
        ("verlai/verl:trtllm1.0", {}, "error"),
        ("verlai/verl:base-v6", {}, None),
        ("mine/rl-sglang:1", {}, "warning"),
        ("mine/rl-sglang-vllm:1", {}, None),
        ("/images/verl.sqsh", {}, None),
    ],
)
def test_an_image_without_the_engine_is_told(
    image: str, overrides: dict[str, Any], severity: str | None
) -> None:
    found = findings(container={"image": image}, train={"overrides": overrides})
    told = [item.severity for item in found if item.rule == "verl.image-engine"]
    assert told == ([severity] if severity else [])


# -- the script --------------------------------------------------------------------------------------


def test_level_0_is_the_guides_command_with_its_corrections() -> None:
    text = script()
    for line in (
        "unset ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES",
        "export VANILLA_MBRIDGE=False",
        "export VALUE_VANILLA_MBRIDGE=False",
        "export LORA_RANK=4",
        "export COMMON_VPP=null",
        "export PROFILE_STEPS=null",
        "export RESUME_MODE=disable",
        'export MODEL_PATH="$JOBSPEC_MODEL_PATH"',
        'export TRAIN_FILES="$JOBSPEC_DATA_GSM8K/train.parquet"',
        '"trainer.default_local_dir=$VERL_CHECKPOINTS"',
        'export VERL_FILE_LOGGER_PATH="$JOBSPEC_METRICS_DIR/train.jsonl"',
        "'trainer.logger=[console,file]'",
        "reward.reward_model.enable=False",
    ):
        assert line in text, line


@pytest.mark.parametrize("asked", [["console", "wandb"], "wandb", "['wandb']"])
def test_a_tracker_stands_beside_the_files_that_are_judged(asked: Any) -> None:
    train = {"overrides": {"trainer.logger": asked}}
    assert not [item for item in findings(train=train, secrets=["WANDB_API_KEY"]) if "tracker" in item.rule]
    text = script(train=train)
    assert text.count("trainer.logger=") == 1
    assert "'trainer.logger=[console,file,wandb]'" in text
    assert "WANDB" not in script()


def test_a_tracker_that_verl_does_not_have() -> None:
    def told(asked: Any, **more: Any) -> list[tuple[str, str, str]]:
        found = findings(train={"overrides": {"trainer.logger": asked}}, **more)
        return [(item.rule, item.severity, item.fix) for item in found if item.rule.startswith("verl.")]

    assert told(["wandbb"]) == [("verl.tracker", "error", "did you mean `wandb`?")]
    assert [item[:2] for item in told(3)] == [("verl.tracker", "error")]
    assert told("wandb") == []
    owned = findings(train={"overrides": {"++trainer.logger": ["wandb"]}})
    assert "verl.owned" in {item.rule for item in owned}


@pytest.mark.parametrize("release", RELEASES)
def test_names_of_the_release_are_used(release: str) -> None:
    text = script(release=release)
    assert (" reward_model.enable=False" in text) == (release == "0.7.0")
    assert ("USE_MEGATRON_FSDP" in text) == (not release.startswith("0.7"))
    assert "ALL_OFFLOAD=False" in text
    assert ("VERL_USE_UV=0" in text) == (release == "main")


def test_resume_is_a_second_process_with_its_own_metrics_file() -> None:
    first, second = script("checkpoint"), script("checkpoint", name="resume")
    assert "TOTAL_TRAIN_STEPS=1\n" in first
    assert "RESUME_MODE=disable" in first
    assert "TOTAL_TRAIN_STEPS=2\n" in second
    assert "RESUME_MODE=auto" in second
    assert "/resume.jsonl" in second


def test_first_half_of_a_resume_test_starts_anew_and_other_levels_go_on() -> None:
    every = {"checkpoint": {"every": 1}}
    assert "RESUME_MODE=disable" in script("checkpoint", **every)
    assert "RESUME_MODE=auto" in script("learning", **every)


@pytest.mark.parametrize(("level", "resume"), [("smoke", "must"), ("checkpoint", "never")])
def test_resume_that_verl_cannot_promise(level: str, resume: str) -> None:
    assert [f.rule for f in errors(level, checkpoint={"resume": resume})] == ["verl.resume"]


def test_epochs_never_end_before_the_steps() -> None:
    assert "trainer.total_epochs=50" in script("learning", train={"steps": 50})


def test_fsdp_and_reward_model_and_nodes() -> None:
    text = script("fsdp", train={"reward": "model:/m/rm"}, resources={"nodes": 2})
    assert "export USE_MEGATRON_FSDP=True" in text
    assert text.count("gradient_accumulation_fusion=False") == 2
    assert "export RM_MODEL_PATH=/m/rm" in text
    assert "reward_model.enable" not in text
    assert "trainer.nnodes=2" in text


def test_gsm8k_is_prepared_by_the_checkouts_own_script() -> None:
    data = [{"name": "gsm8k", "source": "openai/gsm8k", "prepare": "gsm8k"}]
    commands = plan_of(context(data=data)).commands
    assert [command.name for command in commands] == ["probe", "prepare", "train"]
    assert '"$JOBSPEC_DATA_GSM8K"' in commands[1].argv[0]
    assert '"$JOBSPEC_ATTEMPT_DIR/gsm8k/train.parquet"' in commands[2].argv[0]


def test_dummy_model_of_an_older_script_needs_plain_python(tmp_path: Path) -> None:
    root = tmp_path / "verl"
    shutil.copytree(fake_checkout("0.9.0"), root)
    text = (root / WRAPPER).read_text().replace("python3 scripts/", "python scripts/")
    (root / WRAPPER).write_text(text)
    more: dict[str, Any] = {"repos": {"verl": str(root)}, "coverage": {"variants": ["dummy"]}}
    more["train"] = {"overrides": {"DUMMY_MODEL_CONFIG_PATH": "dummy.json"}}
    command = plan_of(context(**more)).commands[1]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/bash").symlink_to("/bin/bash")
    argv = ["/bin/bash", "-e", "-c", command.argv[0]]
    done = subprocess.run(argv, env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True)
    assert done.returncode == 3
    assert "calls 'python' for a dummy model" in done.stderr


def test_limitations_name_dummy_and_reward_model() -> None:
    overrides = {"USE_DUMMY_MODEL": True, "DUMMY_MODEL_CONFIG_PATH": "/x.json"}
    told = " ".join(plan_of(context(train={"overrides": overrides})).expect.limitations)
    assert "reward model was off" in told
    assert "dummy model" in told


@pytest.mark.parametrize("release", RELEASES)
def test_script_runs_in_bash_up_to_the_checkouts_own(tmp_path: Path, release: str) -> None:
    """Real bash, and a script in place of verl's that writes down what reaches it."""
    root = tmp_path / "verl"
    shutil.copytree(fake_checkout(release), root)
    asked = context(repos={"verl": str(root)}, train={"seed": 3})
    command = plan_of(asked).commands[1]
    (root / WRAPPER).write_text('printf "%s\\n" "$LORA_RANK ${ROCR_VISIBLE_DEVICES-unset}" $@ > seen\n')
    env = {"PATH": "/usr/bin:/bin", "ROCR_VISIBLE_DEVICES": "0", "PYTHONPATH": "/a:/b"}
    env |= {
        f"JOBSPEC_{name}": f"/r/{name.lower()}" for name in ("METRICS_DIR", "CHECKPOINT_DIR", "MODEL_PATH")
    }
    env |= {"JOBSPEC_ATTEMPT_DIR": "/r/1", "JOBSPEC_DATA_GSM8K": "/r/data"}
    argv = ["bash", "-euo", "pipefail", "-c", command.argv[0]]
    subprocess.run(argv, cwd=command.cwd, env=env, check=True)
    seen = (root / "seen").read_text().splitlines()
    assert seen[0] == "4 unset"
    assert "trainer.logger=[console,file]" in seen
    assert "data.seed=3" in seen
    assert "trainer.default_local_dir=/r/checkpoint_dir" in seen
    assert "++ray_kwargs.ray_init.runtime_env.env_vars.PYTHONPATH=/a:/b" in seen
