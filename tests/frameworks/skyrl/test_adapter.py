"""SkyRL: the 550B recipe, twenty mistakes that are named before submission, and what a run proves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec import frameworks
from jobspec.evidence.evidence import Attempt, Evidence, LogFile
from jobspec.finding import Finding
from jobspec.frameworks.skyrl import dummy_trainers, settings
from jobspec.frameworks.skyrl.accepted_settings import read_options
from jobspec.metrics import read_metrics
from jobspec.planning.resolve import Resolved, resolve
from jobspec.runtime.base.identity import Identity, node_paths, program_environment
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import load_spec, parse_spec
from jobspec.verdict import Status
from tests.kits.fake_skyrl import make_fake_skyrl
from tests.kits.framework_kit import context, plan_of, site_text

EXAMPLES = Path(__file__).parents[3] / "examples"
KWARGS = "trainer.policy.megatron_config.transformer_config_kwargs"


@pytest.fixture(scope="module")
def checkouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("skyrl")
    return {name: make_fake_skyrl(made / name, patched=name == "new") for name in ("new", "old")}


def resolved(
    checkout: Path, tmp_path: Path, example: str = "ultra550b", change: dict[str, Any] | None = None
) -> Resolved:
    """The example on a site with H200s, with some keys changed; None as a value removes one."""
    data = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text())
    data["repos"] = [{"name": "skyrl", "path": str(checkout), "prove": {"import": "skyrl"}}]
    data.pop("secrets", None)
    for key, value in (change or {}).items():
        at, parts = data, key.split("/")
        for part in parts[:-1]:
            at = at.setdefault(part, {})
        if value is None:
            at.pop(parts[-1], None)
        else:
            at[parts[-1]] = value
    site = tmp_path / "site.yaml"
    site.write_text(site_text(cpus=192, memory="2000G", gpu_memory="141G"))
    env = {"USER": "u", "HOME": "/home/u"}
    loaded = parse_spec(yaml.safe_dump(data, sort_keys=False), env=env)
    return resolve(loaded, load_cluster(None, site, env=env), env=env)


def errors(found: Resolved) -> dict[str, Finding]:
    return {finding.rule: finding for finding in found.findings if finding.is_error}


# -- the recipe --------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", ["ultra550b", "glm47_355b_128k"])
def test_published_recipes_pass(checkouts: dict[str, Path], tmp_path: Path, example: str) -> None:
    assert not errors(resolved(checkouts["new"], tmp_path, example))


@pytest.mark.parametrize("example", ["ultra550b", "glm47_355b_128k"])
def test_recipe_is_valid_as_it_stands_in_the_examples(example: str) -> None:
    """Without a checkout, a cluster or a cache: what cannot be looked at yet is a warning."""
    env = {"USER": "u", "HOME": "/home/u"}
    loaded = load_spec(EXAMPLES / f"{example}.yaml", env=env)
    found = resolve(loaded, load_cluster("slurm-pyxis", None, env=env), env=env)
    assert not errors(found)
    assert found.plan is not None
    told = {finding.rule: finding.what for finding in found.findings}
    assert "repo.not-fetched" in told
    assert "GB of host memory on each node" in told["skyrl.host-memory"]


def test_hazards_are_sized(checkouts: dict[str, Path], tmp_path: Path) -> None:
    change = {"checkpoint/dir": "~/ckpts/ultra"}
    told = {f.rule: f for f in resolved(checkouts["new"], tmp_path, change=change).findings}
    assert "3 checkpoints of 7.7 TB, 23.1 TB in all" in told["skyrl.checkpoint-size"].what
    assert "7.7 TB each" in told["skyrl.checkpoint-home"].what
    assert "skyrl.precision-aware" in told
    small = {"resources/memory": "1000G"}
    tight = {f.rule: f for f in resolved(checkouts["new"], tmp_path, change=small).findings}
    assert "824 GB" in tight["skyrl.host-memory"].what
    assert not tight["skyrl.host-memory"].fix.startswith("a node has")  # a size is no advice
    assert not tight["skyrl.host-memory"].is_error


def test_every_knob_reaches_the_entrypoint(checkouts: dict[str, Path], tmp_path: Path) -> None:
    plan = resolved(checkouts["new"], tmp_path).plan
    assert plan is not None
    text = plan.commands[0].argv[0]
    for word in (
        "trainer.strategy=megatron", "trainer.placement.policy_num_nodes=8",
        "trainer.policy.megatron_config.pipeline_model_parallel_size=4",
        "trainer.policy.megatron_config.expert_model_parallel_size=16",
        f"{KWARGS}.mtp_hybrid_override_pattern=null", "trainer.max_tokens_per_microbatch=4096",
        "generator.inference_engine.num_engines=2", "generator.inference_engine.pipeline_parallel_size=4",
        "trainer.ckpt_interval=20", "trainer.max_ckpts_to_keep=3", "trainer.resume_mode=latest",
        "'trainer.logger=[\"tensorboard\", \"wandb\"]'", "trainer.max_training_steps=100",
    ):  # fmt: skip
        assert f" {word} \\\n" in text, word
    assert plan.env["VLLM_USE_RAY_V2_EXECUTOR_BACKEND"] == "1"
    assert "NVTE_FLASH_ATTN" not in plan.env
    assert plan.ray is not None


OVER = "train/overrides"
FP32 = "trainer.policy.megatron_config.ddp_config.grad_reduce_in_fp32"


@pytest.mark.parametrize(("value", "width"), [(None, 4), (True, 4), (False, 2)])
def test_gradients_are_as_wide_as_skyrl_makes_them(
    checkouts: dict[str, Path], tmp_path: Path, value: bool | None, width: int
) -> None:
    """SkyRL's own default is fp32."""
    training = resolved(checkouts["new"], tmp_path, change={f"{OVER}/{FP32}": value}).training
    assert training is not None
    assert training.memory is not None
    parts = {part.name: part.bytes for part in training.memory.worst.parts}
    assert parts["gradients"] == parts["weights"] * width // 2
    config = (checkouts["new"] / "skyrl/train/config/config.py").read_text()
    assert f"grad_reduce_in_fp32: bool = {settings.DEFAULTS[FP32]}" in config


def sizes(**parallel: int) -> dict[str, Any]:
    return {"train/parallel": {"tp": 8, "pp": 4, "ep": 16, "etp": 1, **parallel}}


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("layers do not divide into 8 stages", sizes(pp=8, ep=8), "megatron"),
    ("experts do not divide by ep 48", sizes(ep=48), "megatron"),
    ("tp does not divide the GPUs", sizes(tp=7), "megatron"),
    ("tp 16 and 8 groups of Mamba", sizes(tp=16), "megatron"),
    ("engines do not fill the GPUs", {"train/rollout": {"engines": 3, "tp": 8, "pp": 4}}, "megatron"),
    ("experts do not fit", sizes(pp=2, ep=4), "memory.gpu"),
    ("virtual pipeline", sizes(vpp=3), "skyrl.vpp"),
    ("mini batch does not divide", {f"{OVER}/trainer.policy_mini_batch_size": 48}, "skyrl.batch"),
    ("mini batch over odd ranks", {f"{OVER}/trainer.policy_mini_batch_size": 1,
                                   f"{OVER}/trainer.train_batch_size": 64}, "skyrl.batch"),
    ("answers longer than the engine", {f"{OVER}/generator.sampling_params.max_generate_length": 4096},
     "skyrl.max-model-len"),
    ("no chat template", {"model/require": ["config.json"]}, "skyrl.chat-template"),
    ("unknown override", {f"{OVER}/trainer.train_batchsize": 64}, "skyrl.key"),
    ("override with a plus", {f"{OVER}/+trainer.epochs": 2}, "skyrl.key"),
    ("owned override", {f"{OVER}/trainer.ckpt_path": "/x"}, "skyrl.owned"),
    ("relative path", {f"{OVER}/generator.inference_engine.engine_init_kwargs.download_dir": "models"},
     "skyrl.relative-path"),
    ("wrong Python", {"container/python": "/usr/bin/python3.10"}, "skyrl.python"),
    ("host memory", {"resources/memory": "512G"}, "skyrl.host-memory"),
    ("flash attention off for workers", {"container/env": {"NVTE_FLASH_ATTN": "0"}}, "skyrl.flash-attention"),
    ("broadcast with a router bias", {f"{OVER}/trainer.placement.colocate_all": False},
     "skyrl.sync-broadcast"),
    ("engine over nodes with mp", {f"{OVER}/generator.inference_engine.distributed_executor_backend": "mp"},
     "skyrl.executor"),
    ("no checkout", {"repos": [{"name": "skyrl", "path": "/nowhere"}]}, "repo.missing"),
    ("no data", {"data": []}, "skyrl.data"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "rule"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_mistake_is_named_before_submission(
    checkouts: dict[str, Path], tmp_path: Path, change: dict[str, Any], rule: str
) -> None:
    if rule == "skyrl.batch" and f"{OVER}/trainer.train_batch_size" in change:
        change = {**change, f"{OVER}/generator.n_samples_per_prompt": 5}
    found = errors(resolved(checkouts["new"], tmp_path, change=change))
    assert any(name == rule or name.startswith(f"{rule}.") for name in found), sorted(found)


def test_trainer_apart_from_the_engines_has_gpus_of_its_own(
    checkouts: dict[str, Path], tmp_path: Path
) -> None:
    """An engine of four nodes beside a trainer on eight: only that the weights travel so is refused here."""
    apart = {
        f"{OVER}/trainer.placement.colocate_all": False,
        f"{OVER}/trainer.placement.policy_num_nodes": 8,
        "train/rollout": {"engines": 1, "tp": 8, "pp": 4},
    }
    room = {"resources/nodes": 12, **apart}
    assert set(errors(resolved(checkouts["new"], tmp_path, change=room))) == {"skyrl.sync-broadcast"}
    found = errors(resolved(checkouts["new"], tmp_path, change=apart))
    assert set(found) == {"skyrl.sync-broadcast", "skyrl.placement"}
    assert "64 + 32 GPUs" in found["skyrl.placement"].what


def test_unpatched_checkout_is_refused_for_the_recipe_only(
    checkouts: dict[str, Path], tmp_path: Path
) -> None:
    assert {"skyrl.sync-metadata", "skyrl.sync-router-bias"} <= set(
        errors(resolved(checkouts["old"], tmp_path))
    )
    dense = {
        "model/id": "Qwen/Qwen3-8B", "train/parallel": {"tp": 2}, "train/rollout": {"engines": 32, "tp": 2},
        f"{OVER}/{KWARGS}": None,
    }  # fmt: skip
    found = errors(resolved(checkouts["old"], tmp_path, change=dense))
    assert not {rule for rule in found if rule.startswith("skyrl.sync")}, sorted(found)


@pytest.mark.parametrize(
    ("pins", "rules"),
    [
        ('"ray[default]==2.51.1", "vllm==0.26.0; sys_platform == \'linux\'"', set()),
        ('"ray==2.57.0", "vllm==0.20.2"', {"skyrl.image-ray"}),
        ('"ray==2.51.1", "vllm==0.20.0"', {"skyrl.expandable-segments"}),
        ('"ray>=2.40", "vllm"', set()),
    ],
)
def test_pinned_versions_are_compared(tmp_path: Path, pins: str, rules: set[str]) -> None:
    checkout = make_fake_skyrl(tmp_path / "skyrl")
    (checkout / "pyproject.toml").write_text(f"[project]\ndependencies = [{pins}]\n")
    found = {finding.rule for finding in resolved(checkout, tmp_path).findings}
    assert found & {"skyrl.image-ray", "skyrl.expandable-segments"} == rules


def template_findings(checkouts: dict[str, Path], tmp_path: Path, model: dict[str, Any]) -> dict[str, bool]:
    """Rule and whether it is an error, of what is said about a model and its template."""
    change = {"model": model, "hf_cache": {"home": str(tmp_path / "hf")}}
    found = resolved(checkouts["new"], tmp_path, change=change).findings
    return {f.rule: f.is_error for f in found if f.rule in ("skyrl.chat-template", "stage.missing")}


def test_template_of_a_folder_is_looked_for(checkouts: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model = {"path": str(folder)}
    assert template_findings(checkouts, tmp_path, model) == {"stage.missing": False}
    folder.mkdir()
    assert template_findings(checkouts, tmp_path, model) == {"skyrl.chat-template": True}
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    assert template_findings(checkouts, tmp_path, model) == {}
    (folder / "tokenizer_config.json").write_text('{"chat_template": ""}')
    assert template_findings(checkouts, tmp_path, model) == {"skyrl.chat-template": True}
    (folder / "chat_template.jinja").touch()
    assert template_findings(checkouts, tmp_path, model) == {}


def test_template_of_a_cached_model_is_looked_for(checkouts: dict[str, Path], tmp_path: Path) -> None:
    model = {"id": "org/model", "revision": "a" * 40}
    assert template_findings(checkouts, tmp_path, model) == {"stage.missing": False}
    snapshot = tmp_path / "hf/hub/models--org--model/snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)  # as far as the download has come
    assert template_findings(checkouts, tmp_path, model) == {"skyrl.chat-template": False}
    (snapshot / "tokenizer_config.json").write_text('{"eos_token": "x"}')
    assert template_findings(checkouts, tmp_path, model) == {"skyrl.chat-template": True}
    (snapshot / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    assert template_findings(checkouts, tmp_path, model) == {}


@pytest.mark.parametrize(
    ("name", "require", "found"),
    [
        ("Qwen/Qwen3-8B", ["tokenizer_config.json"], {"skyrl.chat-template": False}),
        ("Qwen/Qwen3-8B", ["tokenizer_config.json:chat_template"], {}),
        ("Qwen/Qwen3-8B", ["chat_template.jinja"], {}),
        ("zai-org/GLM-4.7", [], {"skyrl.chat-template": True}),
    ],
)
def test_template_of_a_model_that_cannot_be_seen_is_required(
    checkouts: dict[str, Path], tmp_path: Path, name: str, require: list[str], found: dict[str, bool]
) -> None:
    """Staging proves what `require` says; a cache on a file system that is not mounted here says nothing."""
    change = {"model": {"id": name, "require": require}, "hf_cache": {"home": "/not-mounted/hf"}}
    told = resolved(checkouts["new"], tmp_path, change=change).findings
    assert {f.rule: f.is_error for f in told if f.rule == "skyrl.chat-template"} == found


@pytest.mark.parametrize(
    ("model", "checkout", "told"),
    [
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "old", True),
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "new", False),
        ("Qwen/Qwen3-8B", "old", True),
        ("Qwen/Qwen3-4B-Instruct-2507", "old", False),
        ("Qwen/Qwen2.5-7B", "old", False),
    ],
)
def test_reward_is_asked_whether_it_knows_thinking(
    checkouts: dict[str, Path], tmp_path: Path, model: str, checkout: str, told: bool
) -> None:
    found = resolved(checkouts[checkout], tmp_path, change={"model/id": model}).findings
    assert [item.severity for item in found if item.rule == "skyrl.reward"] == ["warning"] * told
    own = {"model/id": model, f"{OVER}/environment.env_class": "mine"}
    assert "skyrl.reward" not in {
        item.rule for item in resolved(checkouts[checkout], tmp_path, change=own).findings
    }


def test_options_are_read_not_assumed(checkouts: dict[str, Path], tmp_path: Path) -> None:
    options = read_options(checkouts["new"])
    assert options is not None
    assert options.accepts("trainer.policy.optimizer_config.lr")
    assert options.accepts(f"{KWARGS}.anything.below")
    assert not options.accepts("trainer.policy.optimizer_config.learning_rate")
    assert not options.accepts("trainer.placement")
    (tmp_path / "skyrl/train/config").mkdir(parents=True)
    (tmp_path / "skyrl/train/config/config.py").write_text("def broken(:\n")
    assert read_options(tmp_path) is None


LOGGER = f"{OVER}/trainer.logger"


def tracked(checkout: Path, tmp_path: Path, asked: Any) -> tuple[str, dict[str, str], dict[str, bool]]:
    """The entrypoint's logger, the environment, and what is said about trackers."""
    change = {LOGGER: asked, "secrets": ["WANDB_API_KEY"]}
    found = resolved(checkout, tmp_path, change=change)
    told = {item.rule: item.is_error for item in found.findings if item.rule == "skyrl.logger"}
    if found.plan is None:
        return "", {}, told
    words = [line for line in found.plan.commands[0].argv[0].splitlines() if "trainer.logger" in line]
    return words[0].strip(" \\").strip("'"), dict(found.plan.env), told


def test_trackers_stand_beside_tensorboard_where_skyrl_takes_several(
    checkouts: dict[str, Path], tmp_path: Path
) -> None:
    """Source of both: `Tracking.__init__` at 290466b8 and, after pull request 1713, at a9564572."""
    several = checkouts["new"]
    words, env, told = tracked(several, tmp_path, ["console", "wandb"])
    assert (words, told) == ('trainer.logger=["tensorboard", "console", "wandb"]', {})
    assert env["WANDB_DIR"] == "${JOBSPEC_ATTEMPT_DIR}"
    assert "WANDB_MODE" not in env  # its key is there, and nothing says that nodes have no internet
    assert tracked(several, tmp_path, "wandb")[0] == 'trainer.logger=["tensorboard", "wandb"]'


def test_wandb_takes_the_place_of_tensorboard_where_skyrl_takes_one(tmp_path: Path) -> None:
    one = make_fake_skyrl(tmp_path / "one")
    (one / dummy_trainers.TRACKING).write_text('elif backend == "tensorboard":\n')
    words, env, told = tracked(one, tmp_path, "wandb")
    assert (words, told) == ("trainer.logger=wandb", {"skyrl.logger": False})
    assert env["WANDB_DIR"] == "${JOBSPEC_METRICS_DIR}"
    assert tracked(one, tmp_path, "tensorboard")[::2] == ("trainer.logger=tensorboard", {})
    keyless = {LOGGER: "wandb", "container/env": {"WANDB_MODE": "offline"}}
    assert "SkyRL asserts it" in errors(resolved(one, tmp_path, change=keyless))["skyrl.logger"].why
    for asked in (["console", "wandb"], "mlflow", "wandbb", 3):
        assert tracked(one, tmp_path, asked)[2] == {"skyrl.logger": True}, asked


def test_metrics_folder_of_the_run_reaches_ray(checkouts: dict[str, Path], tmp_path: Path) -> None:
    plan = resolved(checkouts["new"], tmp_path).plan
    assert plan is not None
    who = Identity(Path("/r/x"), 2, 0, tuple(f"n{i}" for i in range(8)), "t")
    env = program_environment(plan, who, node_paths(plan, who), {})
    assert env["TENSORBOARD_DIR"] == "/r/x/attempts/2/metrics/tensorboard"


# -- runs of the stand-in ----------------------------------------------------------------------------


def run(
    checkout: Path, tmp_path: Path, level: str, steps: int, broken: str = "", at: str = ""
) -> tuple[dict[str, Status], dict[str, str]]:
    """Run the level's commands as the runtime does, and judge what they leave."""
    change: dict[str, Any] = {
        "coverage": {"level": level}, "train/steps": steps, "checkpoint": {},
        "train/command": [sys.executable, "-m", "skyrl.train.entrypoints.main_base"],
        "metrics": {},
    }  # fmt: skip
    plan = resolved(checkout, tmp_path, change=change).plan
    assert plan is not None
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.parquet").write_bytes(b"")
    folders = {
        "JOBSPEC_ATTEMPT_DIR": tmp_path / "attempts/1", "JOBSPEC_CHECKPOINT_DIR": tmp_path / "ckpt",
        "JOBSPEC_MODEL_PATH": data, "JOBSPEC_DATA_GSM8K": data,
        "TENSORBOARD_DIR": tmp_path / "attempts/1/metrics/tensorboard",
    }  # fmt: skip
    (tmp_path / "ckpt").mkdir()
    env = {**os.environ, "PYTHONPATH": str(checkout), **{key: str(path) for key, path in folders.items()}}
    logs = []
    for command in plan.commands:
        fault = broken if at in ("", command.name) else ""
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", command.argv[0]], cwd=command.cwd, text=True, check=False,
            env={**env, "FAKE_SKYRL": fault}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        (tmp_path / f"{command.name}.log").write_text(done.stdout)
        logs.append(LogFile(f"{command.name}.log", "n1", len(done.stdout)))
    table = read_metrics(tmp_path / "attempts/1/metrics", relative_to=tmp_path)
    attempt = Attempt(1, "attempts/1", logs=tuple(logs), metrics=table)
    found = list(frameworks.get("skyrl").judge(Evidence(tmp_path, plan, attempts=(attempt,))))
    shutil.rmtree(data)
    return {item.name: item.status for item in found}, {item.name: item.reason for item in found}


P, F = Status.PASS, Status.FAIL


@pytest.mark.parametrize(
    ("level", "steps", "broken", "at", "expected"),
    [
        ("smoke", 2, "", "", {"Training": P, "Weight transfer": P}),
        ("learning", 20, "", "", {"Training": P, "Weight transfer": P, "Learning": P}),
        ("checkpoint", 4, "", "", {"Training": P, "Weight transfer": P, "Checkpoint": P, "Resume": P}),
        ("smoke", 2, "crash", "", {"Training": F, "Weight transfer": Status.SKIPPED}),
        ("smoke", 2, "garbage", "", {"Training": P, "Weight transfer": F}),
        ("smoke", 2, "nan", "", {"Training": F, "Weight transfer": P}),
        ("checkpoint", 4, "unsaved", "", {"Checkpoint": F, "Resume": F}),
        ("checkpoint", 4, "scratch", "resume", {"Checkpoint": P, "Resume": F}),
    ],
    ids=["smoke", "learning", "checkpoint", "crash", "garbage", "nan", "unsaved", "scratch"],
)
def test_verdicts_of_the_stand_in(
    checkouts: dict[str, Path], tmp_path: Path, level: str, steps: int, broken: str, at: str,
    expected: dict[str, Status],
) -> None:  # fmt: skip
    found, reasons = run(checkouts["new"], tmp_path, level, steps, broken, at)
    assert {name: found[name] for name in expected} == expected, reasons


def test_stand_in_is_as_strict_as_the_real_one(checkouts: dict[str, Path]) -> None:
    for word, said in (("trainer.nothing=1", "Invalid fields"), ("+trainer.epochs=1", "not supported")):
        done = subprocess.run(
            [sys.executable, "-m", "skyrl.train.entrypoints.main_base", word],
            cwd=checkouts["new"], capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert said in done.stderr


def test_minimal_plan_travels(checkouts: dict[str, Path]) -> None:
    assert plan_of(context("skyrl", "smoke")).commands[0].cwd
