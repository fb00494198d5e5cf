"""RLix: what the published smoke test becomes: wrappers, environment and the two commands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jobspec.frameworks.rlix.settings import hydra_value
from jobspec.plan import from_json, to_json
from jobspec.planning.resolve import resolve
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import parse_spec
from tests.frameworks.rlix.rlix_kit import CONFIG, EXAMPLES, errors, make_checkouts, resolved, wrappers
from tests.kits.fake_rlix import make_fake_nemo_fork, make_fake_rlix
from tests.kits.programs_kit import needs


@pytest.fixture(scope="module")
def checkouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_checkouts(tmp_path_factory.mktemp("rlix"))


@pytest.mark.parametrize("example", sorted(path.stem for path in EXAMPLES.glob("*.yaml")))
def test_example_plans_on_checkouts_that_fit(
    checkouts: dict[str, Path], tmp_path: Path, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    make_fake_rlix(home / "src/rlix")
    make_fake_nemo_fork(home / "src/RL")
    monkeypatch.setenv("HOME", str(home))
    env = {"USER": "u", "HOME": str(home)}
    text = (EXAMPLES / f"{example}.yaml").read_text()
    assert text.splitlines()[0] == "# yaml-language-server: $schema=../../jobspec/spec/job.schema.json"
    assert f"#   jobspec run examples/rlix/{example}.yaml" in text
    found = resolve(parse_spec(text, env=env), load_cluster("slurm-pyxis", None, env=env), env=env)
    assert not errors(found)
    assert found.plan is not None


def test_plan_holds_every_wrapper(checkouts: dict[str, Path]) -> None:
    found = resolved(checkouts)
    files = wrappers(found)
    assert list(files) == ["ppl1", "ppl2"]
    one = files["ppl1"]
    assert (one["train_device_mapping"], one["infer_device_mapping"]) == ([0], [0, 1])
    assert files["ppl2"]["actor_train"]["device_mapping"] == [1]
    assert one["nemo_config_path"] == f"{checkouts['fork']}/{CONFIG}"
    assert one["actor_infer"]["strategy_args"]["strategy_config"] == {"sleep_level": 2}
    assert {one["actor_train"]["offload_nccl"], one["actor_infer"]["offload_nccl"]} == {True}
    assert "reward" not in one
    for word in (
        "grpo.async_grpo.enabled=true", "loss_fn.use_importance_sampling_correction=true",
        "policy.generation.colocated.enabled=false", "policy.generation.vllm_cfg.async_engine=true",
        "policy.megatron_cfg.enabled=true", "policy.dtensor_cfg.enabled=false",
        "policy.model_name='${oc.env:JOBSPEC_MODEL_PATH}'", "grpo.max_num_steps=6",
        "logger.log_dir='${oc.env:JOBSPEC_ATTEMPT_DIR}/rlix/ppl1'", "cluster.gpus_per_node=2",
        "+policy.generation.vllm_cfg.num_gpu_blocks_override=64", "checkpointing.enabled=false",
        f"data.default.prompt_file='{checkouts['fork']}/examples/prompts/cot.txt'",
    ):  # fmt: skip
        assert word in one["nemo_config_overrides"], word


def test_folders_of_pipelines_never_collide(checkouts: dict[str, Path]) -> None:
    values = [
        {key: value for key, _, value in (text.partition("=") for text in file["nemo_config_overrides"])}
        for file in wrappers(resolved(checkouts, {"checkpoint": {"every": 2, "keep": 1}})).values()
    ]
    for key in ("logger.log_dir", "checkpointing.checkpoint_dir"):
        assert len({value[key] for value in values}) == 2
    assert {value["checkpointing.save_period"] for value in values} == {"2"}


def test_driver_runs_once_with_what_ray_needs_before_it_starts(checkouts: dict[str, Path]) -> None:
    plan = resolved(checkouts, {"coverage/variants": ["trace"]}).plan
    assert plan is not None
    assert [(one.name, one.on) for one in plan.commands] == [("cache-link", "all"), ("rlix", "head")]
    assert plan.ray is not None
    assert plan.commands[1].cwd == str(checkouts["fork"])
    for word in ("--config_name ppl1,ppl2", "--admit-delay-s 900", '--config_path "$out/configs"'):
        assert word in plan.commands[1].argv[0]
    for name, value in (
        ("OMP_NUM_THREADS", "1"), ("RAYON_NUM_THREADS", "1"), ("RAY_DEDUP_LOGS", "0"),
        ("RAY_num_grpc_internal_threads", "1"),
        ("TORCH_NCCL_ENABLE_MONITORING", "0"), ("RLIX_REQUIRED_GPUS_PER_NODE", "2"),
        ("RLIX_ENABLE_GPU_TRACING", "1"),
        ("RLIX_TRACE_OUTPUT_DIR", "${JOBSPEC_ATTEMPT_DIR}/rlix/trace"),
        # The embedding of 151936 x 896 in bfloat16 has 260 MiB: RLix's usual 256 MiB would not hold it.
        ("RLIX_BUCKET_SIZE_BYTES", str(320 * 1024**2)),
    ):  # fmt: skip
        assert plan.env[name] == value, name
    assert "rlix/trace/*" in plan.collect.patterns
    assert from_json(to_json(plan)) == plan


def test_pipeline_s_own_settings_win(checkouts: dict[str, Path]) -> None:
    found = resolved(checkouts, {
        "pipelines/1/train": {"steps": 9, "seed": 7, "overrides": {"grpo.num_prompts_per_step": 4,
                                                                   "verify_model_after_sync": True}},
        "pipelines/1/metrics": {"abort_when": ["last(train/loss) > 9"], "learning": {"metric": "train/loss"}},
    })  # fmt: skip
    files, plan = wrappers(found), found.plan
    assert plan is not None
    assert "grpo.num_prompts_per_step=4" in files["ppl2"]["nemo_config_overrides"]
    assert "grpo.num_prompts_per_step=1" in files["ppl1"]["nemo_config_overrides"]
    assert (files["ppl1"]["verify_model_after_sync"], files["ppl2"]["verify_model_after_sync"]) == (
        False,
        True,
    )
    assert plan.expect.options == {"verify": "ppl2"}
    assert [(part.name, part.steps) for part in plan.expect.parts] == [("ppl1", 6), ("ppl2", 9)]
    assert plan.expect.parts[1].learning is not None
    assert plan.abort_when[0].terms[0].metric == "ppl2/train/loss"
    assert plan.abort_when[0].text == "last(ppl2/train/loss) > 9", (
        "whoever is told of it must know whose it is"
    )


@needs("shellcheck")
def test_scripts_have_no_fault_that_shellcheck_knows(checkouts: dict[str, Path]) -> None:
    plan = resolved(checkouts).plan
    assert plan is not None
    for command in plan.commands:
        text = "#!/bin/bash\nset -eo pipefail\n" + command.argv[0]
        done = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"), (True, "true"), (64, "64"), (0.1, "0.1"), ("bfloat16", "bfloat16"),
        ("a/b.txt", "a/b.txt"), ("true", "'true'"), ("1e-6", "'1e-6'"), ("", "''"), ("it's", r"'it\'s'"),
        ("/x y,z", "'/x y,z'"), (["a", 1, None], "[a,1,null]"), ({"k": "v w"}, "{k:'v w'}"),
        ("end\\", "'end\\\\'"),
    ],
)  # fmt: skip
def test_value_in_hydra_s_grammar(value: object, text: str) -> None:
    assert hydra_value(value) == text
