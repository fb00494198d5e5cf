"""RLix: each mistake is named before its GPUs wait for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.finding import JobspecError
from jobspec.frameworks.rlix import topology
from jobspec.planning.resolve import resolve
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import parse_spec
from tests.frameworks.rlix.rlix_kit import (
    CONFIG,
    EXAMPLES,
    OVER,
    errors,
    make_checkouts,
    pipelines,
    resolved,
    wrappers,
)
from tests.kits.fake_rlix import make_fake_rlix


@pytest.fixture(scope="module")
def checkouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_checkouts(tmp_path_factory.mktemp("rlix"))


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
    assert "only pipelines of ROLL" in found["rlix.driver"].why


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


# -- memory of GPUs ----------------------------------------------------------------------------------

TEN_B = {
    "model_type": "qwen2", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 48, "intermediate_size": 14336, "vocab_size": 152064, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize("gpu_memory", ["12G", "16G"])
def test_published_run_fits_on_the_gpus_that_it_ran_on(checkouts: dict[str, Path], gpu_memory: str) -> None:
    """RTX 3060 and 4060 Ti, with two pipelines on each."""
    found = resolved(checkouts, gpu_memory=gpu_memory)
    assert "memory.gpu" not in errors(found), errors(found)["memory.gpu"].text()


def test_pipeline_that_cannot_train_on_its_gpus_is_named(checkouts: dict[str, Path]) -> None:
    """18 bytes of each weight, on one GPU: 180 GB."""
    finding = errors(resolved(checkouts, {"model/config": TEN_B}))["memory.gpu"]
    assert finding.what.startswith(
        "training of pipeline `ppl2` needs about 198 GiB of a GPU, and 79 GiB are usable: "
    )
    assert finding.path == "pipelines[1].train_gpus"
    assert "engines and other pipelines take an unknown amount on top" in finding.why


@pytest.mark.parametrize(
    ("train_gpus", "override"),
    [([0, 1, 2, 3], {}), ([0], {"policy.megatron_cfg.optimizer.optimizer_cpu_offload": True})],
)
def test_what_the_advice_says_is_of_help(
    checkouts: dict[str, Path], train_gpus: list[int], override: dict[str, Any]
) -> None:
    model = {"model/config": {**TEN_B, "num_hidden_layers": 24}, "resources/memory": "1800G"}
    alone = pipelines({"train_gpus": [0], "infer_gpus": [*range(8)]})
    assert "memory.gpu" in errors(resolved(checkouts, {**alone, **model}))
    change = pipelines(
        {"train_gpus": train_gpus, "infer_gpus": [*range(8)], "train": {"overrides": override}}
    )
    assert "memory.gpu" not in errors(resolved(checkouts, {**change, **model}))


def test_nothing_is_said_where_the_gpus_memory_is_not_known(checkouts: dict[str, Path]) -> None:
    found = resolved(checkouts, {"model/config": TEN_B}, gpu_memory="null")
    assert "memory.gpu" not in {finding.rule for finding in found.findings}


@pytest.mark.timeout(120)  # work that goes with the square of the run's GPUs does not end
def test_many_nodes_are_answered_as_one_too_many(checkouts: dict[str, Path]) -> None:
    change = {
        **pipelines({"train_gpus": [0]}, {"train_gpus": [5]}),
        "resources/nodes": 65_536,
        f"{OVER}/rlix_max_colocated_worker_groups": 64,
    }
    assert set(errors(resolved(checkouts, change))) == {"rlix.nodes"}


@pytest.mark.parametrize(
    ("key", "value", "most"),
    [("nodes", 65_537, 65_536), ("gpus_per_node", 1025, 1024), ("cpus_per_node", 10**18, 65_536)],
)
def test_more_than_any_machine_has_is_refused_by_its_key(
    checkouts: dict[str, Path], key: str, value: int, most: int
) -> None:
    with pytest.raises(JobspecError) as refused:
        resolved(checkouts, {f"resources/{key}": value})
    (found,) = refused.value.findings
    assert (found.rule, found.path, found.fix) == ("spec.range", f"resources.{key}", f"use {most} or less")
