"""What a NeMo-RL spec runs, on a stand-in checkout: real bash, no GPU, no training."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.frameworks.base import FrameworkPlan
from jobspec.frameworks.nemo_rl import commands
from jobspec.frameworks.nemo_rl.levels import BY_NAME, VARIANTS, Variant
from jobspec.plan import CommandPlan, UpstreamPlan
from tests.kits.framework_kit import context, findings, make_fake_nemo_rl, rules
from tests.kits.programs_kit import skip_or_fail

HOSTILE = 'a\'b "c" $(touch hit) `touch hit`; touch hit'


def plan(name: str, **more: Any) -> FrameworkPlan:
    """The plan of one variant with what it needs."""
    variant = BY_NAME[name]
    asked: dict[str, Any] = {
        "coverage": {"variants": [name]},
        "resources": {"nodes": variant.nodes or 8, "exclusive": True},
        "launch": {"mode": "srun" if variant.owns_ray else "ray"},
        "gpus": 8,
        **({"train": {"parallel": {"tp": 2}}} if name == "sizes" else {}),
        **more,
    }
    assert not [f for f in findings("nemo_rl", variant.level, **asked) if f.is_error]
    return frameworks.get("nemo_rl").plan(context("nemo_rl", variant.level, **asked))


def text(name: str, **more: Any) -> str:
    return plan(name, **more).commands[-1].argv[0]


def shellcheck(script: str) -> None:
    tool = shutil.which("shellcheck")
    if tool is None:
        skip_or_fail("needs `shellcheck`")
    argv = [tool, "--shell=bash", "--severity=style", "--norc", "-"]
    done = subprocess.run(argv, input=f"set -eo pipefail\n{script}", text=True, capture_output=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda item: item.name)
def test_every_command_is_sound_bash(variant: Variant) -> None:
    for command in plan(variant.name).commands:
        if command.shell:
            subprocess.run(["bash", "-n", "-c", command.argv[0]], check=True)
            shellcheck(command.argv[0])


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda item: item.name)
def test_every_run_is_isolated(variant: Variant) -> None:
    """Its own folders, no switched-off guard, and no files of another run taken for its own."""
    script = text(variant.name)
    assert f"unset {commands.TP_GUARD}" in script
    assert 'export NRL_MEGATRON_CHECKPOINT_DIR="$kept/hf-import"' in script
    assert '--scratch "$kept/hf-import"' in script
    assert variant.script in script
    own = variant.own_checkpoint_dir
    assert ('checkpointing.checkpoint_dir="$checkpoints"' in script) is not own
    assert ("--checkpoints" in script) is not own
    assert all(f"--leftover '{pattern}'" in script for pattern in variant.leftovers)
    assert f"--hold {variant.script}" in script or variant.is_entry


def test_entry_point_gets_recipe_sizes_and_the_checkout_s_own_tools() -> None:
    script = text("ep")
    for part in (
        "examples/run_grpo.py --config examples/configs/recipes/llm/grpo-nanov3",
        "cluster.num_nodes=2",
        "cluster.gpus_per_node=8",
        "grpo.max_num_steps=3",
        "logger.wandb_enabled=false",
        "uv run --no-sync python tests/json_dump_tb_logs.py",
        "'median(data[\"train/token_mult_prob_error\"]) < 1.1'",
    ):
        assert part in script
    assert "policy.model_name" not in script


def test_router_replay_is_validated_without_the_suite_s_switch() -> None:
    """The maintained suite of R3 exports the guard's switch: jobspec runs its recipe, not its script."""
    script = text("r3")
    assert "export NRL_ROUTER_REPLAY_VALIDATE=1" in script
    assert "export NRL_IGNORE" not in script
    assert script.count(commands.TP_GUARD) == 1


def test_routes_are_traced_and_compared_where_the_data_plane_carries_them() -> None:
    script = text("r3-data-plane")
    assert 'NRL_R3_TRACE_DIR="$kept/r3_trace"' in script
    assert script.endswith("--require-forward-verify \\\n  --require-cp-identity\n")
    alone = text("r3-data-plane", train={"parallel": {"tp": 4, "ep": 4}})
    assert alone.endswith("--require-forward-verify\n")
    assert "R3_TRACE" not in text("r3")


@pytest.mark.parametrize("backend", ["simple", "mooncake-cpu"])
def test_data_plane_has_all_eight_keys(backend: str) -> None:
    script = text(f"data-plane-{backend}")
    keys = {word.partition("=")[0] for word in script.split() if word.startswith("data_plane.")}
    assert len(keys) == 8
    assert f"data_plane.backend={backend.replace('-', '_')}" in script


def test_mooncake_looks_at_each_node_s_address_first() -> None:
    look_up, announce, _ = plan("data-plane-mooncake-cpu").commands
    assert look_up.name == commands.PROBE
    assert (announce.name, announce.on, announce.argv[-1]) == (commands.ANNOUNCE, "all", "1")
    assert plan("data-plane-nodes").commands[1].argv[-1] == "2"
    assert plan("data-plane-simple").commands[1].name == "data-plane-simple"


def test_an_install_of_actors_is_tried_before_training(tmp_path: Path) -> None:
    make_fake_nemo_rl(tmp_path)
    repos = {"rl": str(tmp_path)}
    assert "git ls-remote" not in text("data-plane-simple", repos=repos)
    adapter = tmp_path / "nemo_rl/data_plane/adapters/transfer_queue.py"
    adapter.parent.mkdir(parents=True)
    adapter.write_text("_patch_tq_actor_runtime_env()\n")
    project = 'dependencies = ["TransferQueue @ git+https://example.org/a/b.git@c516143"]\n'
    (tmp_path / "pyproject.toml").write_text(project)
    script = text("data-plane-simple", repos=repos)
    assert "git ls-remote https://example.org/a/b.git HEAD" in script
    shellcheck(script)
    found = findings("nemo_rl", 5, repos=repos, coverage={"variants": ["data-plane-simple"]})
    assert rules(found) == {"nemo_rl.data-plane-install"}


def test_model_and_tokenizer_are_the_staged_one() -> None:
    script = text("colocated", model={"id": "org/x"})
    for key in ("policy.model_name", "policy.tokenizer.name"):
        assert f'{key}="$JOBSPEC_MODEL_PATH"' in script


def test_spec_s_overrides_come_after_the_variant_s() -> None:
    script = text("cp2", train={"steps": 5, "overrides": {"policy.make_sequence_length_divisible_by": 8}})
    assert script.index("divisible_by=4") < script.index("max_num_steps=5") < script.index("divisible_by=8")


def test_sizes_of_the_spec_replace_all_of_the_recipe_s() -> None:
    script = text("sizes", train={"parallel": {"tp": 2, "cp": 2, "ep": 2}, "rollout": {"tp": 2}})
    for word in (
        "policy.megatron_cfg.pipeline_model_parallel_size=1",
        "policy.megatron_cfg.expert_model_parallel_size=2",
        "policy.megatron_cfg.sequence_parallel=true",
        "policy.sequence_packing.enabled=true",
        "policy.make_sequence_length_divisible_by=8",
        "policy.generation.vllm_cfg.tensor_parallel_size=2",
        "cluster.num_nodes=8",
    ):
        assert f" {word} \\" in script


def test_shape_is_the_composed_recipe_s() -> None:
    shape = plan("sizes", train={"parallel": {"tp": 2, "cp": 2}}).shape
    assert shape is not None
    assert (shape.nodes, shape.gpus_per_node, shape.tp, shape.cp) == (8, 8, 2, 2)
    assert (shape.global_batch, shape.micro_batch, shape.samples_per_prompt) == (64, 1, 8)
    assert shape.key("tp") == "train.parallel.tp"
    fixed = plan("tp2").shape
    assert fixed is not None
    assert (fixed.tp, fixed.key("tp"), fixed.gpus_per_node) == (2, "coverage.variants", 2)


def test_generation_gpus_are_not_the_trainer_s() -> None:
    shape = plan("non-colocated").shape
    assert shape is not None
    assert (shape.nodes, shape.gpus_per_node) == (1, 1)
    assert shape.rollout is not None
    assert not shape.rollout.colocated


@pytest.mark.parametrize(("mode", "ray"), [("ray", "external"), ("upstream", "external"), ("srun", "self")])
def test_modes(mode: str, ray: str, tmp_path: Path) -> None:
    found = plan("colocated", launch={"mode": mode})
    script = found.commands[-1].argv[0]
    assert found.ray_mode == ray
    assert (found.upstream is not None) is (mode == "upstream")
    assert ("--own-ray" in script) is ("unset RAY_ADDRESS" in script) is (mode == "srun")
    if found.upstream:
        assert found.upstream == UpstreamPlan(found.commands[-1].cwd)


def test_a_hostile_path_stays_one_word(tmp_path: Path) -> None:
    """The checkout's path, and everything that a step's environment gives, with signs of the shell."""
    root = tmp_path / HOSTILE
    make_fake_nemo_rl(root)
    (root / "src/megatron/bridge").mkdir(parents=True)
    for command in plan("colocated", repos={"rl": str(root)}).commands:
        shellcheck(command.argv[0])
        run_dry(command, tmp_path)
    assert not list(tmp_path.rglob("hit"))


def run_dry(command: CommandPlan, folder: Path) -> str:
    """The command with a `uv` and a `python3` that only say how they were called."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    for name in ("uv", "python3", "python-MegatronPolicyWorker"):
        (tools / name).write_text('#!/bin/sh\nprintf "[%s]" "$0" "$@"; echo\n')
        (tools / name).chmod(0o755)
    env = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "JOBSPEC_ATTEMPT_DIR": f"{folder}/a {HOSTILE.replace('/', '')}",
        "JOBSPEC_METRICS_DIR": f"{folder}/m",
        "JOBSPEC_CHECKPOINT_DIR": f"{folder}/c",
        "JOBSPEC_RUN_DIR": f"{folder}/runs/r1",
        "JOBSPEC_ATTEMPT": "2",
        "JOBSPEC_MODEL_PATH": f"{folder}/model x",
    }
    argv = ["bash", "-eo", "pipefail", "-c", command.argv[0], command.name]
    done = subprocess.run(argv, env=env, cwd=command.cwd, text=True, capture_output=True, check=True)
    return done.stdout


def test_folders_carry_run_and_attempt(tmp_path: Path) -> None:
    out = run_dry(plan("lora", model={"id": "org/x"}).commands[-1], tmp_path)
    assert f"[checkpointing.checkpoint_dir={tmp_path}/c/r1/attempt-2/lora]" in out
    assert f"[policy.model_name={tmp_path}/model x]" in out


def test_missing_check_tool_blocks_before_training(tmp_path: Path) -> None:
    command = plan("colocated").commands[-1]
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "uv").write_text("#!/bin/sh\nexit 2\n")
    (tools / "uv").chmod(0o755)
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "JOBSPEC_ATTEMPT_DIR": str(tmp_path)}
    argv = ["bash", "-eo", "pipefail", "-c", command.argv[0]]
    done = subprocess.run(argv, env=env, cwd=command.cwd, text=True, capture_output=True)
    assert done.returncode == 3
    assert "jobspec: blocked: tests/check_metrics.py" in done.stderr


def test_bridge_is_looked_up_by_the_worker_s_interpreter(tmp_path: Path) -> None:
    make_fake_nemo_rl(tmp_path / "rl")
    (tmp_path / "bridge/src/megatron/bridge").mkdir(parents=True)
    (tmp_path / "bridge/src/megatron/bridge/__init__.py").touch()
    repos = {"rl": str(tmp_path / "rl"), "bridge": str(tmp_path / "bridge")}
    command = plan("colocated", repos=repos).commands[0]
    worker = tmp_path / f"rl/venvs/{commands.WORKER}/bin/python"
    worker.parent.mkdir(parents=True)
    worker.symlink_to(shutil.which("python3") or "")
    argv = ["bash", "-eo", "pipefail", "-c", command.argv[0]]

    def look(path: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": path}
        return subprocess.run(argv, env=env, cwd=command.cwd, text=True, capture_output=True)

    found, missing = look(f"{tmp_path}/bridge/src"), look(str(tmp_path))
    assert (
        found.stdout == f"jobspec: megatron.bridge from {tmp_path}/bridge/src/megatron/bridge/__init__.py\n"
    )
    assert (found.returncode, missing.returncode) == (0, 1)
    assert "jobspec: blocked: " in missing.stderr


# -- unit tests of the checkouts ---------------------------------------------------------------------


def test_unit_tests_are_the_guide_s_that_exist(tmp_path: Path) -> None:
    make_fake_nemo_rl(tmp_path)
    for name in (
        "models/megatron/test_megatron_setup.py",
        "utils/test_checkpoint.py",
        "utils/test_weight_transfer_stream.py",
    ):
        (tmp_path / "tests/unit" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests/unit" / name).touch()
    asked: dict[str, Any] = {"repos": {"rl": str(tmp_path)}}
    check = {"checks": [{"repo": "rl"}]}
    assert rules(findings("nemo_rl", 1, **asked, coverage=check)) == {"nemo_rl.checks"}
    argv = plan("lora", **asked, coverage={"variants": ["lora"], **check}).checks[0].argv
    assert argv[:2] == ("uv", "run")
    assert argv[argv.index("-m", 12) + 1].startswith("not (automodel")  # all marks but Megatron's
    assert [Path(name).name for name in argv if name.startswith("tests/")] == [
        "test_megatron_setup.py",
        "test_weight_transfer_stream.py",
        "test_checkpoint.py",
    ]
    refit = plan("reshard", **asked, coverage={"variants": ["reshard"], **check}).checks[0].argv
    assert refit[-1] == "tests/unit/utils/test_weight_transfer_stream.py"


def test_bridge_tests_run_by_nemo_rl_s_environment(tmp_path: Path) -> None:
    make_fake_nemo_rl(tmp_path / "rl")
    tests = tmp_path / "bridge/tests/unit_tests/models"
    tests.mkdir(parents=True)
    (tmp_path / "bridge/src/megatron/bridge").mkdir(parents=True)
    (tests / "test_param_mapping.py").touch()
    repos = {"rl": str(tmp_path / "rl"), "bridge": str(tmp_path / "bridge")}
    coverage = {"variants": ["colocated"], "checks": [{"repo": "bridge"}]}
    check = plan("colocated", repos=repos, coverage=coverage).checks[0]
    assert (check.name, check.cwd) == ("checks-bridge", str(tmp_path / "bridge"))
    assert check.argv[2:4] == ("--project", str(tmp_path / "rl"))
    assert check.argv[-1] == "tests/unit_tests/models/test_param_mapping.py"
    (tests / "test_param_mapping.py").unlink()
    found = [f for f in findings("nemo_rl", 0, repos=repos, coverage=coverage) if f.is_error]
    assert rules(found) == {"nemo_rl.checks"}


def test_asked_tests_join_the_guide_s_or_replace_them(tmp_path: Path) -> None:
    make_fake_nemo_rl(tmp_path)
    guide, mine, more = "tests/unit/utils/test_weight_transfer.py", "tests/mine.py", "tests/more.py"
    (tmp_path / guide).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / guide).touch()

    def tests(**coverage: Any) -> list[tuple[str, list[str], str]]:
        found = plan(
            "colocated", repos={"rl": str(tmp_path)}, coverage={"variants": ["colocated"], **coverage}
        )
        return [
            (item.name, [word for word in item.argv if word.startswith("tests/")], item.argv[0])
            for item in found.checks
        ]

    entries = [{"repo": "rl", "tests": [mine, guide]}, {"repo": "rl", "tests": [more], "command": ["make"]}]
    assert tests(checks=entries) == [("checks-rl", [guide, mine], "uv"), ("checks-rl+2", [more], "make")]
    assert tests(checks_only=entries[:1]) == [("checks-rl", [mine, guide], "uv")]
    assert tests(checks_only=[{"repo": "rl", "tests": [more]}]) == [("checks-rl", [more], "uv")]


def test_given_command_and_tests_win(tmp_path: Path) -> None:
    check = {"repo": "nemo_rl", "command": ["pytest", "-x"], "tests": ["a.py"]}
    found = plan("colocated", coverage={"variants": ["colocated"], "checks": [check]}).checks
    assert [item.argv for item in found] == [("pytest", "-x", "a.py")]


@pytest.mark.parametrize(("layers", "limited"), [(2, True), (64, False)])
def test_model_made_for_a_test_shows_mechanics_alone(layers: int, limited: bool) -> None:
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "intermediate_size": 4096,
        "vocab_size": 1024,
    }
    made = plan("colocated", model={"id": "acme/minimal", "config": sizes})
    said = [item for item in made.expect.limitations if "the mechanics alone are shown" in item]
    assert bool(said) is limited
    if limited:  # 2 layers of 4 x 1024^2 and 3 x 1024 x 4096, two tables of 1024 x 1024
        assert said == ["a model of 35.7 million parameters: the mechanics alone are shown"]
