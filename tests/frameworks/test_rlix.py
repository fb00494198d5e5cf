"""RLix: the published smoke test plans, and each mistake is named before its GPUs wait for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from fake_rlix import make_fake_nemo_fork, make_fake_rlix

from jobspec import frameworks
from jobspec.cluster import load_cluster
from jobspec.finding import Finding
from jobspec.frameworks.rlix import topology
from jobspec.frameworks.rlix.settings import hydra_value
from jobspec.plan import Plan, from_json, to_json
from jobspec.resolve import Resolved, resolve
from jobspec.spec.load import parse_spec
from jobspec.triage import scan_lines

EXAMPLES = Path(__file__).parents[2] / "examples/rlix"
SITE = """\
version: 1
name: site
scheduler: slurm
slurm: {partition: batch, gpus: gres}
container: {runtime: pyxis}
paths: {runs: /shared/runs, hf_home: /shared/hf, scratch: /shared/scratch, node_local: /mnt/local}
node: {cpus: 64, memory: 512G, gpus: 8, gpu_memory: 80G}
"""
CONFIG = "examples/configs/grpo_math_1B.yaml"
OVER = "train/overrides"


@pytest.fixture(scope="module")
def checkouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("rlix")
    return {
        "rlix": make_fake_rlix(made / "rlix"),
        "fork": make_fake_nemo_fork(made / "RL"),
        "published": make_fake_nemo_fork(made / "published", published=True),
    }


def resolved(
    checkouts: dict[str, Path], change: dict[str, Any] | None = None, fork: str = "fork", **options: Any
) -> Resolved:
    """The dual smoke test with some keys changed: `pipelines/1/train_gpus` and the like; None removes one."""
    data = yaml.safe_load((EXAMPLES / "dual_smoke.yaml").read_text())
    data["repos"] = [
        {"name": "rlix", "path": str(checkouts["rlix"]), "prove": {"import": "rlix"}},
        {"name": "nemo_rl", "path": str(checkouts[fork])},
    ]
    for key, value in (change or {}).items():
        at: Any = data
        parts: list[Any] = [int(part) if part.isdecimal() else part for part in key.split("/")]
        for part in parts[:-1]:
            at = at[part] if isinstance(part, int) else at.setdefault(part, {})
        if value is None and "~" not in key:
            at.pop(parts[-1], None)
        else:
            at[parts[-1]] = value
    site = checkouts["rlix"].parent / "site.yaml"
    site.write_text(SITE)
    env = {"USER": "u", "HOME": "/home/u"}
    loaded = parse_spec(yaml.safe_dump(data, sort_keys=False), env=env)
    return resolve(loaded, load_cluster(None, site, env=env), env=env, **options)


def errors(found: Resolved) -> dict[str, Finding]:
    return {finding.rule: finding for finding in found.findings if finding.is_error}


def pipelines(*given: dict[str, Any]) -> dict[str, Any]:
    return {
        "pipelines": [{"name": f"p{number}", "config": CONFIG, **one} for number, one in enumerate(given)],
        "resources/gpus_per_node": 8,
        "resources/cpus_per_node": 64,
    }


# -- plan --------------------------------------------------------------------------------------------


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


def wrappers(found: Resolved) -> dict[str, Any]:
    """The wrapper files that the run writes, out of the plan alone."""
    assert found.plan is not None
    text = found.plan.commands[-1].argv[0]
    files = re.findall(
        r"""cat > "\$out/configs/"(\S+)\.yaml <<'JOBSPEC_END'\n(.*?)JOBSPEC_END\n""", text, re.S
    )
    return {name: yaml.safe_load(body) for name, body in files}


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
        ("OMP_NUM_THREADS", "1"), ("RAY_num_grpc_internal_threads", "1"), ("RAY_DEDUP_LOGS", "0"),
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
    assert [(part.name, part.steps) for part in plan.expect.parts] == [("ppl1", 6), ("ppl2", 9)]
    assert plan.expect.parts[1].learning is not None
    assert plan.abort_when[0].terms[0].metric == "ppl2/train/loss"
    assert plan.abort_when[0].text == "last(ppl2/train/loss) > 9", (
        "whoever is told of it must know whose it is"
    )


@pytest.mark.parametrize(
    ("before", "works"),
    [("nothing", True), ("this run's link", True), ("dangling link", True), ("empty folder", True),
     ("another cache", False), ("folder with files", False), ("the cache itself", True)],
)  # fmt: skip
def test_cache_stands_where_rlix_looks(
    checkouts: dict[str, Path], tmp_path: Path, before: str, works: bool
) -> None:
    """RLix's actors look in one fixed folder, which an earlier or another run may have left."""
    plan = resolved(checkouts).plan
    assert plan is not None
    place, cache = tmp_path / "rlix/shared/hf", tmp_path / "cache"
    place.parent.mkdir(parents=True)
    targets = {
        "this run's link": cache,
        "dangling link": tmp_path / "gone",
        "another cache": tmp_path / "other",
    }
    (tmp_path / "other").mkdir()
    if before in targets:
        place.symlink_to(targets[before])
    elif before != "nothing":
        place.mkdir()
    if before == "folder with files":
        (place / "model").touch()
    if before == "the cache itself":
        cache = place
    text = plan.commands[0].argv[0].replace("/tmp/rlix", str(tmp_path / "rlix"))
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", text], env={**os.environ, "HF_HOME": str(cache)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) is works, done.stderr
    assert (place.resolve() == cache.resolve()) is works
    assert place.exists()
    assert works or "is not this run's cache" in done.stderr


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("code", [0, 3])
def test_end_of_the_link_is_not_the_end_of_the_run(
    checkouts: dict[str, Path], tmp_path: Path, code: int, gone: bool
) -> None:
    """The driver's exit code stays, whoever has taken the folder away in the meantime."""
    plan = resolved(checkouts).plan
    assert plan is not None
    folder = tmp_path / "rlix"
    driver = f"test -d {folder}/shared/hf/; " + (f"rm -r {folder}; " if gone else "") + f"exit {code}"
    with node_run(plan, tmp_path, driver) as run:
        assert run.wait(20) == code
    assert not folder.exists()


@contextmanager
def node_run(plan: Plan, node: Path, driver: str) -> Iterator[subprocess.Popen[str]]:
    """The driver's script on a node whose `/tmp/rlix` is below `node`, with other words for the driver."""
    text = plan.commands[1].argv[0].replace("/tmp/rlix", str(node / "rlix"))
    head, _, _ = text.partition("\npython3 ")
    env = {**os.environ, "HF_HOME": str(node / "cache")}
    env |= {f"JOBSPEC_{name}_DIR": str(node / name) for name in ("ATTEMPT", "METRICS")}
    words = ["bash", "-eo", "pipefail", "-c", f"{head}\n{driver}"]
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        yield run


def test_run_that_ends_leaves_the_link_to_the_one_that_goes_on(
    checkouts: dict[str, Path], tmp_path: Path
) -> None:
    """Two runs of one user on one node: the first one's end must not take the second one's cache."""
    plan = resolved(checkouts).plan
    assert plan is not None
    place = tmp_path / "rlix/shared/hf"
    with node_run(plan, tmp_path, "echo ready; read -r _ || true") as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        with node_run(plan, tmp_path, "true") as run:
            assert run.wait(20) == 0
        assert place.resolve() == (tmp_path / "cache").resolve()
        other.stdin.close()
        assert other.wait(20) == 0
    assert not place.parent.exists()


def test_runs_that_start_and_end_at_the_same_time_each_have_the_cache(
    checkouts: dict[str, Path], tmp_path: Path
) -> None:
    plan = resolved(checkouts).plan
    assert plan is not None
    with ExitStack() as stack:
        cache = f"test -d {tmp_path}/rlix/shared/hf/"
        driver = f"{cache}; sleep 0.0$((RANDOM % 9)); {cache}"
        runs = [stack.enter_context(node_run(plan, tmp_path, driver)) for _ in range(12)]
        assert [run.wait(30) for run in runs] == [0] * 12
    assert not (tmp_path / "rlix").exists()
    assert not (tmp_path / "cache/hf").exists(), "no link was made inside the cache"


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as two users")
def test_folder_of_another_user_is_named(checkouts: dict[str, Path]) -> None:
    """RLix writes below `/tmp/rlix`, whose name is fixed: the user who came first owns it."""
    plan = resolved(checkouts).plan
    assert plan is not None
    with tempfile.TemporaryDirectory() as name:
        node = Path(name)
        node.chmod(0o777)
        (node / "rlix/shared").mkdir(parents=True)
        text = plan.commands[0].argv[0].replace("/tmp/rlix", f"{node}/rlix")
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", text], env={**os.environ, "HF_HOME": str(node / "cache")},
            capture_output=True, text=True, check=False, user=65534, group=65534, extra_groups=(),
        )  # fmt: skip
        told = done.stderr.replace(str(node), "/tmp")
        assert (node / "rlix/shared").is_dir()
    assert done.returncode == 1
    assert "jobspec: /tmp/rlix, which RLix writes to, is of root" in told
    assert [found.signature for found in scan_lines(told.splitlines())] == ["rlix.cache"]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck")
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


# -- mistakes ----------------------------------------------------------------------------------------

MISTAKES: list[tuple[str, dict[str, Any], str, str]] = [
    ("no pipelines", {"pipelines": None}, "rlix.pipelines", "framework"),
    ("one for level multi", pipelines({"train_gpus": [0]}), "rlix.level", "coverage.level"),
    ("GPUs of its own for level multi", pipelines({"train_gpus": [0], "infer_gpus": [0, 1]},
                                                  {"train_gpus": [4], "infer_gpus": [4, 5]}),
     "rlix.level", "pipelines[1].infer_gpus"),
    ("unknown variant", {"coverage/variants": ["trac"]}, "rlix.variant", "coverage.variants"),
    ("two nodes", {"resources/nodes": 2}, "rlix.nodes", "resources.nodes"),
    ("too few CPUs", {"resources/cpus_per_node": 9}, "rlix.cpus", "resources.cpus_per_node"),
    ("other GPUs per node", {"container/env": {"RLIX_REQUIRED_GPUS_PER_NODE": "8"}},
     "rlix.gpus-per-node", "container.env.RLIX_REQUIRED_GPUS_PER_NODE"),
    ("GPU that is not there", {"pipelines/1/train_gpus": [2]}, "rlix.gpu", "pipelines[1].train_gpus"),
    ("trainer outside its engines", pipelines({"train_gpus": [0, 4], "infer_gpus": [0, 1, 2, 3]},
                                              {"train_gpus": [4]}),
     "rlix.overlap", "pipelines[0].infer_gpus"),
    ("one engine", pipelines({"train_gpus": [0], "infer_gpus": [0]}, {"train_gpus": [4]}),
     "rlix.engines", "pipelines[0].infer_gpus"),
    ("trainer on every engine", {"pipelines/0/train_gpus": [0, 1]},
     "rlix.engine-awake", "pipelines[0].infer_gpus"),
    # RLix's own rule counts GPUs: two are free here, and no whole engine is.
    ("trainer across both engines", pipelines(
        {"train_gpus": [1, 2], "infer_gpus": [0, 1, 2, 3], "train": {"rollout": {"tp": 2}}},
        {"train_gpus": [4]}),
     "rlix.engine-awake", "pipelines[0].infer_gpus"),
    ("GPUs that are no whole engines", pipelines(
        {"train_gpus": [0], "infer_gpus": [0, 1, 2], "train": {"rollout": {"tp": 2}}}, {"train_gpus": [4]}),
     "rlix.engine-tp", "pipelines[0].infer_gpus"),
    ("engine tp 3", pipelines(
        {"train_gpus": [0], "infer_gpus": [0, 1, 2, 3, 4, 5], "train": {"rollout": {"tp": 3}}},
        {"train_gpus": [4]}),
     "rlix.engine-tp", "pipelines[0].train.rollout.tp"),
    ("engine of GPUs apart", pipelines(
        {"train_gpus": [0], "infer_gpus": [0, 2, 4, 5], "train": {"rollout": {"tp": 2}}},
        {"train_gpus": [4]}),
     "rlix.engine-group", "pipelines[0].infer_gpus"),
    ("engine of two stages", {"pipelines/0/train": {"rollout": {"pp": 2}}},
     "rlix.engine-pp", "pipelines[0].train.rollout.pp"),
    ("no GPUs", {"resources/gpus_per_node": 0}, "rlix.gpu", "resources.gpus_per_node"),
    ("condition on the whole run", {"metrics": {"abort_when": ["last(train/loss) > 9"]}},
     "rlix.metrics", "metrics.abort_when"),
    ("condition whose second metric is nobody's",
     {"metrics": {"abort_when": ["last(ppl1/train/loss) > 9 and last(train/loss) > 9"]}},
     "rlix.metrics", "metrics.abort_when"),
    ("metric of a pipeline with a longer name", {"metrics": {"require": ["finite(myppl1/train/loss)"]}},
     "rlix.metrics", "metrics.require"),
    ("engine size that is text",
     {"pipelines/0/train": {"overrides": {"policy.generation.vllm_cfg.tensor_parallel_size": "two"}}},
     "rlix.number", "pipelines[0].train.overrides.policy.generation.vllm_cfg.tensor_parallel_size"),
    ("size below 1", {f"{OVER}/policy.megatron_cfg.tensor_model_parallel_size": -2},
     "rlix.number", "train.overrides.policy.megatron_cfg.tensor_model_parallel_size"),
    ("batch of nothing", {f"{OVER}/policy.train_global_batch_size": 0},
     "rlix.number", "train.overrides.policy.train_global_batch_size"),
    ("buckets of a size that is text", {f"{OVER}/+policy.rlix.bucket_size_bytes": "1G"},
     "rlix.number", "train.overrides.+policy.rlix.bucket_size_bytes"),
    ("half a worker", {f"{OVER}/rlix_max_colocated_worker_groups": 4.5},
     "rlix.number", "train.overrides.rlix_max_colocated_worker_groups"),
    ("admission before now", {f"{OVER}/admit_delay_s": -1}, "rlix.number", "train.overrides.admit_delay_s"),
    ("RLix's own setting with a plus", {f"{OVER}/+verify_model_after_sync": "often"},
     "rlix.verify", "train.overrides.+verify_model_after_sync"),
    ("line break of Unicode", {f"{OVER}/+logger.note": "a\u0085b"}, "rlix.value", "+logger.note"),
    ("key inside a list that is no word", {f"{OVER}/+logger.tags": [{"a}b": 1}]},
     "rlix.value", "+logger.tags"),
    ("too many workers on a GPU", {f"{OVER}/rlix_max_colocated_worker_groups": 2},
     "rlix.colocation", "pipelines[1].infer_gpus"),
    ("tp does not divide", {"pipelines/0/train": {"parallel": {"tp": 2}}},
     "megatron.world", "pipelines[0].train.parallel.tp"),
    ("experts do not fit the GPUs", {**pipelines(
        {"train_gpus": [0, 1], "train": {"parallel": {"ep": 4}}}, {"train_gpus": [4]}),
        "model": {"id": "Qwen/Qwen3-30B-A3B"}},
     "megatron.expert-grid", "pipelines[0].train.parallel.ep"),
    ("NCCL buffers are kept", {f"{OVER}/actor_infer.offload_nccl": False},
     "rlix.offload-nccl", "train.overrides.actor_infer.offload_nccl"),
    ("sleep level 0", {f"{OVER}/actor_infer.strategy_args.strategy_config.sleep_level": 0},
     "rlix.sleep-level", "sleep_level"),
    ("reward model on a GPU", {f"{OVER}/reward.device_mapping": [0]},
     "rlix.reward", "train.overrides.reward.device_mapping"),
    ("verify is no boolean", {f"{OVER}/verify_model_after_sync": "often"}, "rlix.verify", "verify_model"),
    ("admission of one pipeline", {"pipelines/0/train": {"overrides": {"admit_delay_s": 5}}},
     "rlix.number", "pipelines[0].train.overrides.admit_delay_s"),
    ("synchronous GRPO", {f"{OVER}/grpo.async_grpo.enabled": False},
     "rlix.async", "train.overrides.grpo.async_grpo.enabled"),
    ("no correction", {f"{OVER}/loss_fn.use_importance_sampling_correction": False},
     "rlix.async", "use_importance_sampling_correction"),
    ("DTensor", {f"{OVER}/policy.megatron_cfg.enabled": False}, "rlix.async", "megatron_cfg.enabled"),
    ("owned override", {f"{OVER}/train_device_mapping": [0]}, "rlix.owned", "train_device_mapping"),
    ("owned by the metrics", {f"{OVER}/logger.log_dir": "/x"}, "rlix.owned", "logger.log_dir"),
    ("unknown key", {f"{OVER}/grpo.num_prompt_per_step": 1}, "rlix.key", "num_prompt_per_step"),
    ("key that is none", {f"{OVER}/+a b=c": 1}, "rlix.key", "a b=c"),
    ("key that is removed", {f"{OVER}/~grpo.seed": None}, "rlix.key", "~grpo.seed"),
    ("reference", {f"{OVER}/policy.precision": "$${policy.dtype}"}, "rlix.reference", "policy.precision"),
    ("line break", {f"{OVER}/policy.precision": "a\nJOBSPEC_END\nrm"}, "rlix.value", "policy.precision"),
    ("one step", {"train/steps": 1}, "rlix.steps", "train.steps"),
    ("one step of one pipeline", {"pipelines/1/train": {"steps": 1}},
     "rlix.steps", "pipelines[1].train.steps"),
    ("short run for learning", {"coverage/level": "learning"}, "rlix.steps", "train.steps"),
    ("no such configuration", {"pipelines/0/config": "examples/configs/none.yaml"},
     "rlix.config", "pipelines[0].config"),
    ("relative model", {"model": None, f"{OVER}/policy.model_name": "./model"},
     "rlix.model", "train.overrides.policy.model_name"),
    ("metrics of the whole run", {"metrics": {"require": ["max(train/reward) > 0"]}},
     "rlix.metrics", "metrics"),
    ("bucket below the embedding", {"container/env": {"RLIX_BUCKET_SIZE_BYTES": str(256 * 1024**2)}},
     "rlix.bucket-size", "container.env.RLIX_BUCKET_SIZE_BYTES"),
    ("bucket that is no size", {"container/env": {"RLIX_BUCKET_SIZE_BYTES": "256M"}},
     "rlix.bucket-size", "container.env.RLIX_BUCKET_SIZE_BYTES"),
    ("model of unknown sizes", {"model/id": "org/unheard-of"}, "rlix.bucket-size", "container.env"),
    ("weights beyond host memory", {"model/id": "Qwen/Qwen3-8B", "resources/memory": "64G"},
     "rlix.host-memory", "resources.memory"),
    ("only one checkout", {"repos": [{"name": "rlix", "path": "RLIX"}]}, "rlix.checkout", "repos"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "rule", "path"), [row[1:] for row in MISTAKES], ids=[r[0] for r in MISTAKES]
)
def test_mistake_is_named_before_submission(
    checkouts: dict[str, Path], change: dict[str, Any], rule: str, path: str
) -> None:
    if change.get("repos"):
        change = {"repos": [{"name": "rlix", "path": str(checkouts["rlix"])}]}
    found = errors(resolved(checkouts, change))
    assert rule in found, {name: item.what for name, item in found.items()}
    assert path in found[rule].path
    assert found[rule].fix and "nodes `" not in found[rule].fix


def test_published_fork_lacks_three_hooks(checkouts: dict[str, Path]) -> None:
    found = [item for item in resolved(checkouts, fork="published").findings if item.rule == "rlix.versions"]
    assert [re.findall("no `(.*?)`", item.what)[0] for item in found] == [
        "before_weight_sync", "build_cpu_bucket_cache", "set_active_dp_ranks",
    ]  # fmt: skip
    assert all(item.is_error for item in found)
    allowed = resolved(checkouts, fork="published", allow=["rlix.versions"])
    assert not errors(allowed)
    assert allowed.plan is not None


def test_main_of_rlix_runs_roll_alone(checkouts: dict[str, Path], tmp_path: Path) -> None:
    main = make_fake_rlix(tmp_path / "rlix")
    (main / "examples/start_nemo_rl_multi_pipeline.py").unlink()
    found = errors(resolved({**checkouts, "rlix": main}))
    assert "pipelines of ROLL alone" in found["rlix.driver"].why


def test_what_is_valid_though_rlix_s_own_rule_refuses_it(checkouts: dict[str, Path]) -> None:
    """tp x pp x cp x ep does not divide the GPUs, and need not: experts have a grid of their own."""
    change = pipelines({"train_gpus": [0, 1], "train": {"parallel": {"tp": 2, "ep": 2}}}, {"train_gpus": [4]})
    found = errors(resolved(checkouts, {**change, "model": {"id": "Qwen/Qwen3-30B-A3B"}}))
    assert not {rule for rule in found if rule.startswith(("megatron.", "rlix.e"))}, found


def test_advice_is_no_error(checkouts: dict[str, Path]) -> None:
    found = resolved(checkouts, {
        "pipelines/1/train_gpus": [0], "checkpoint": {"every": 2}, f"{OVER}/admit_delay_s": 0,
    })  # fmt: skip
    assert not errors(found)
    told = {finding.rule for finding in found.findings}
    assert {"rlix.train-shared", "rlix.checkpoint", "rlix.admit-delay"} <= told


def test_thirty_pipelines_are_told_once_that_they_take_turns(checkouts: dict[str, Path]) -> None:
    found = resolved(checkouts, {
        **pipelines(*({"train_gpus": [number % 6]} for number in range(30))),
        f"{OVER}/rlix_max_colocated_worker_groups": 64, "resources/memory": "400G",
    })  # fmt: skip
    assert not errors(found)
    turns = [item for item in found.findings if item.rule == "rlix.train-shared"]
    assert [item.what for item in turns] == ["5 pipelines train on GPU 0: `p0`, `p6`, `p12`, `p18`, ..."]
    assert turns[0].path == "pipelines[6].train_gpus"
    assert len(wrappers(found)) == 30


def every_topology() -> Iterator[tuple[int, int, int, tuple[int, ...], tuple[int, ...]]]:
    for nodes, per_node in ((1, 2), (1, 4), (2, 2), (2, 3)):
        ids = range(nodes * per_node)
        some = [one for size in range(1, len(ids) + 1) for one in combinations(ids, size)]
        for tp, infer, train in product((1, 2, 3, 4), some, some):
            yield nodes, per_node, tp, train, infer


def fits(per_node: int, tp: int, train: tuple[int, ...], infer: tuple[int, ...]) -> bool:
    """The scheduler's and the overlap's conditions, stated anew: engines are laid from the lowest GPU on."""
    left, engines = set(infer), list[set[int]]()
    while left:
        engine = {min(left) + place for place in range(tp)}
        if not engine <= left:
            return False
        left -= engine
        engines.append(engine)
    nodes = [{gpu // per_node for gpu in engine} for engine in engines]
    whole = all(len(on) * per_node == tp if tp > per_node else len(on) == 1 for on in nodes)
    awake = any(not engine & set(train) for engine in engines)
    known = tp in (1, 2, 4, 8) or tp % per_node == 0
    return set(train) <= set(infer) and known and whole and awake and len(engines) > 1


def test_every_topology_of_few_gpus_is_judged_rightly() -> None:
    wrong = []
    for nodes, per_node, tp, train, infer in every_topology():
        size = {"policy": {"generation": {"vllm_cfg": {"tensor_parallel_size": tp}}}}
        spec = SimpleNamespace(name="a", train=SimpleNamespace(rollout=None))
        shared = SimpleNamespace(spec=SimpleNamespace(train=SimpleNamespace(rollout=SimpleNamespace(tp=tp))))
        one: Any = SimpleNamespace(
            name="a", path="pipelines[0]", train=train, infer=infer, engine_tp=tp, config=size, spec=spec,
            context=shared,
        )  # fmt: skip
        found = [*topology.check_gpus(one, nodes * per_node), *topology.check_engines(one, per_node)]
        if fits(per_node, tp, train, infer) is any(item.is_error for item in found):
            wrong.append((nodes, per_node, tp, train, infer))
    assert not wrong


def test_pipelines_apart_prove_nothing_about_sharing(checkouts: dict[str, Path]) -> None:
    change = pipelines(*({"train_gpus": [gpu], "infer_gpus": [gpu, gpu + 1]} for gpu in (0, 1, 6)))
    plan = resolved(checkouts, {**change, "coverage/level": "smoke"}).plan
    assert plan is not None
    told = [text for text in plan.expect.limitations if "GPUs of its own" in text]
    assert told == ["pipeline `p2` had GPUs of its own: nothing is proved about sharing them"]


def test_staged_data_reaches_a_pipeline_by_its_variable(checkouts: dict[str, Path]) -> None:
    data = {"data": [{"name": "gsm8k", "source": "/shared/data/gsm8k"}]}
    unread = {finding.rule: finding for finding in resolved(checkouts, data).findings}["rlix.data"]
    assert "JOBSPEC_DATA_GSM8K" in unread.fix
    key, value = "+data.train.data_path", "${oc.env:JOBSPEC_DATA_GSM8K}/train.jsonl"
    found = resolved(checkouts, {**data, f"{OVER}/{key}": f"${value}"})
    assert not errors(found)
    assert "rlix.data" not in {finding.rule for finding in found.findings}
    assert f"{key}='{value}'" in wrappers(found)["ppl1"]["nemo_config_overrides"]


def test_any_text_is_taken_as_it_stands(checkouts: dict[str, Path]) -> None:
    """Characters outside the Basic Multilingual Plane once broke the reading of the own settings."""
    found = resolved(checkouts, {f"{OVER}/+logger.wandb_name": "🚀 it's: {a, b}"})
    assert not errors(found)
    assert r"+logger.wandb_name='🚀 it\'s: {a, b}'" in wrappers(found)["ppl1"]["nemo_config_overrides"]


def test_rlix_s_own_setting_needs_no_plus(checkouts: dict[str, Path]) -> None:
    found = resolved(checkouts, {f"{OVER}/+verify_model_after_sync": True})
    assert wrappers(found)["ppl1"]["verify_model_after_sync"] is True
    assert not [text for text in wrappers(found)["ppl1"]["nemo_config_overrides"] if "verify_model" in text]


@pytest.mark.parametrize("parents", ["null", "5", "{a: b}"])
def test_configuration_with_odd_defaults_is_named(
    checkouts: dict[str, Path], tmp_path: Path, parents: str
) -> None:
    config = tmp_path / "odd.yaml"
    config.write_text(f"defaults: {parents}\n")
    found = errors(resolved(checkouts, {"pipelines/0/config": str(config)}))
    assert "neither a name nor a list" in found["rlix.config"].why


@pytest.mark.parametrize("name", [name for name in frameworks.names() if name != "rlix"])
def test_other_frameworks_refuse_pipelines(name: str) -> None:
    text = (
        f"version: 1\nname: x\nframework: {name}\n"
        f"pipelines: [{{name: a, config: {CONFIG}, train_gpus: [0]}}]\n"
    )
    text += "train: {command: ['true']}\n" if name == "command" else ""
    env = {"USER": "u", "HOME": "/home/u"}
    found = errors(resolve(parse_spec(text, env=env), load_cluster("local", None, env=env), env=env))
    assert found["spec.pipelines"].path == "pipelines"
    assert "framework: rlix" in found["spec.pipelines"].fix


def test_checkouts_that_are_not_cloned_yet_are_looked_at_later() -> None:
    text = (EXAMPLES / "dual_smoke.yaml").read_text()
    text = text.replace("path: ~/src/rlix", "url: https://github.com/rlops/rlix, ref: f77d913")
    text = text.replace("path: ~/src/RL", "url: https://github.com/TianyeGGBond/RL, ref: nemo")
    env = {"USER": "u", "HOME": "/home/u"}
    found = resolve(parse_spec(text, env=env), load_cluster("slurm-pyxis", None, env=env), env=env)
    assert not errors(found)
    assert {item.rule for item in found.findings} >= {"repo.not-fetched"}
    assert found.plan is not None
