"""SkyRL on FSDP: the rules of that backend, and what a real run on one GPU left.

`tests/fixtures/skyrl_fsdp` is a run of examples/skyrl_smollm2.yaml at level `checkpoint` with SkyRL a9564572,
vLLM 0.26.0, torch 2.11.0 and Ray 2.57.0 on an H200 (2026-11-28): its files as they were, but for logs without
repeated lines and with other paths. docs/gpu.md has the run.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec import frameworks
from jobspec.evidence.deliverables import metrics_deliverable
from jobspec.evidence.evidence import Attempt, Evidence, LogFile
from jobspec.evidence.read import read_evidence
from jobspec.judging import foreign_run
from jobspec.judging.judge import figures, judge
from jobspec.log_text import strip_ansi
from jobspec.plan import LearningPlan
from jobspec.planning.resolve import Resolved, resolve
from jobspec.report import render_report
from jobspec.runtime.base.identity import Identity, node_paths, program_environment
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import parse_spec
from jobspec.triage import first_cause, scan_lines
from jobspec.verdict import Deliverable, Result, Status
from tests.kits.fake_skyrl import make_fake_skyrl

ROOT = Path(__file__).parents[3]
RUN = ROOT / "tests/fixtures/skyrl_fsdp"
LOGS = "attempts/1/logs/vm"
SITE = """\
version: 1
name: site
scheduler: local
paths: {runs: /shared/runs, hf_home: /shared/hf, node_local: /mnt/local}
node: {gpus: 4, cpus: 32, memory: 200G, gpu_memory: 80G}
"""
ENV = {"USER": "u", "HOME": "/home/u"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fake_skyrl(tmp_path_factory.mktemp("skyrl"))


def resolved(checkout: Path, tmp_path: Path, allow: tuple[str, ...] = (), **change: Any) -> Resolved:
    """The example with the stand-in checkout; `change` is merged into `train` and `resources`."""
    data = yaml.safe_load((ROOT / "examples/skyrl_smollm2.yaml").read_text())
    data["repos"] = [{"name": "skyrl", "path": str(checkout), "prove": {"import": "skyrl"}}]
    for part, values in change.items():
        for key, value in values.items():
            data[part][key] = {**data[part].get(key, {}), **value} if isinstance(value, dict) else value
    site = tmp_path / "site.yaml"
    site.write_text(SITE)
    loaded = parse_spec(yaml.safe_dump(data, sort_keys=False), env=ENV)
    return resolve(loaded, load_cluster(None, site, env=ENV), allow=allow, env=ENV)


def errors(found: Resolved) -> dict[str, str]:
    return {finding.rule: finding.what for finding in found.findings if finding.is_error}


# -- rules -------------------------------------------------------------------------------------------


def test_example_passes_and_sets_no_key_of_megatron(checkout: Path, tmp_path: Path) -> None:
    found = resolved(checkout, tmp_path)
    assert errors(found) == {}
    assert found.plan is not None
    text = found.plan.commands[0].argv[0]
    assert " trainer.strategy=fsdp \\\n" in text
    assert "megatron_config" not in text
    assert "the trainer is FSDP: nothing is proved about Megatron" in found.plan.expect.limitations


def test_uv_builds_the_environment_of_the_backend(checkout: Path, tmp_path: Path) -> None:
    plan = resolved(checkout, tmp_path, train={"command": None}).plan
    assert plan is not None
    words = plan.commands[0].argv[0].replace(" \\\n ", "").split()
    assert words[words.index("uv") :][:6] == ["uv", "run", "--isolated", "--extra", "fsdp", "-m"]


def test_reference_model_gets_the_trainers_gpus(checkout: Path, tmp_path: Path) -> None:
    change = {"overrides": {"trainer.algorithm.use_kl_loss": True}}
    plan = resolved(checkout, tmp_path, train=change).plan
    assert plan is not None
    text = plan.commands[0].argv[0]
    assert " trainer.placement.ref_num_gpus_per_node=1 \\\n" in text
    assert "megatron_config" not in text


def test_trainer_apart_from_the_engines(checkout: Path, tmp_path: Path) -> None:
    """One GPU each, as it ran on two real ones; the reference model lies on the trainer's."""
    apart = {
        "trainer.placement.colocate_all": False,
        "trainer.placement.policy_num_gpus_per_node": 1,
        "trainer.algorithm.use_kl_loss": True,
    }
    found = resolved(checkout, tmp_path, resources={"gpus_per_node": 2}, train={"overrides": apart})
    assert errors(found) == {}
    assert found.plan is not None
    text = found.plan.commands[0].argv[0]
    assert " trainer.placement.policy_num_gpus_per_node=1 \\\n" in text
    assert " trainer.placement.ref_num_gpus_per_node=1 \\\n" in text
    servers = {"run_engines_locally": False, "external_server_urls": ["http://n2:8000"]}
    elsewhere = {**apart, **{f"generator.inference_engine.{name}": value for name, value in servers.items()}}
    assert errors(resolved(checkout, tmp_path, train={"overrides": elsewhere})) == {}


@pytest.mark.parametrize("name", ["train", "val"])
def test_data_file_keeps_its_suffix(checkout: Path, tmp_path: Path, name: str) -> None:
    """SkyRL takes a path without a suffix for a data set on the hub. Found by a run of the real one."""
    plan = resolved(checkout, tmp_path).plan
    assert plan is not None
    who = Identity(Path("/r/x"), 1, 0, ("n1",), "t")
    env = program_environment(plan, who, node_paths(plan, who), {})
    assert env[f"JOBSPEC_DATA_{name.upper()}"].endswith(f"/stage/{name}.jsonl")


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("unknown strategy", {"train": {"overrides": {"trainer.strategy": "fspd"}}}, "skyrl.strategy"),
    ("tensor parallel", {"train": {"parallel": {"tp": 2}}}, "skyrl.fsdp-parallel"),
    ("context parallel", {"train": {"parallel": {"cp": 2}}}, "skyrl.fsdp-parallel"),
    ("virtual pipeline", {"train": {"parallel": {"vpp": 2}}}, "skyrl.fsdp-parallel"),
    ("key of Megatron", {"train": {"overrides": {
        "trainer.policy.megatron_config.moe_grouped_gemm": False}}}, "skyrl.fsdp-megatron"),
    ("fused head", {"train": {"overrides": {"trainer.fused_lm_head_logprob": True}}}, "skyrl.fsdp-megatron"),
    ("no chunk", {"train": {"overrides": {"trainer.logprobs_chunk_size": None}}}, "skyrl.fsdp-megatron"),
    ("packing without flash attention", {"train": {"overrides": {
        "trainer.remove_microbatch_padding": True}}}, "skyrl.fsdp-padding"),
    ("sequence over 3 of 4 GPUs", {"resources": {"gpus_per_node": 4}, "train": {"rollout": {"engines": 4},
        "overrides": {"trainer.policy.sequence_parallel_size": 3}}}, "skyrl.fsdp-ulysses"),
    ("two GPUs, one engine", {"resources": {"gpus_per_node": 2}}, "skyrl.colocated"),
    ("trainer on the engines' GPUs", {"resources": {"gpus_per_node": 2}, "train": {"overrides": {
        "trainer.placement.colocate_all": False}}}, "skyrl.placement"),
    ("samples over 3 ranks", {"resources": {"gpus_per_node": 3}, "train": {"rollout": {"engines": 3}}},
     "skyrl.batch"),
    ("both kinds of KL", {"train": {"overrides": {"trainer.algorithm.use_kl_loss": True,
        "trainer.algorithm.use_kl_in_reward": True}}}, "skyrl.kl"),
    ("critic without a model", {"train": {"algorithm": "gae"}}, "skyrl.algorithm"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "rule"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_mistake_is_named_before_submission(
    checkout: Path, tmp_path: Path, change: dict[str, Any], rule: str
) -> None:
    found = errors(resolved(checkout, tmp_path, **change))
    assert set(found) == {rule}, found


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trainer.train_batch_size", "abc"),
        ("trainer.max_prompt_length", None),
        ("trainer.policy_mini_batch_size", 1.5),
        ("trainer.policy.sequence_parallel_size", 0),
        ("trainer.policy.model.lora.rank", "r"),
        ("trainer.max_tokens_per_microbatch", -2),
        ("generator.n_samples_per_prompt", True),
        ("generator.inference_engine.engine_init_kwargs.max_model_len", [512]),
        ("generator.inference_engine.gpu_memory_utilization", "much"),
        ("generator.inference_engine.gpu_memory_utilization", 1.5),
    ],
)
def test_size_that_is_no_number_is_a_mistake_and_no_bug(
    checkout: Path, tmp_path: Path, key: str, value: Any
) -> None:
    change = {"overrides": {key: value}}
    found = resolved(checkout, tmp_path, train=change)
    assert [(item.rule, item.path) for item in found.findings if item.is_error] == [
        ("skyrl.value", f"train.overrides.{key}")
    ]
    assert resolved(checkout, tmp_path, allow=("skyrl.value",), train=change).plan is None


def test_number_in_quotes_and_what_may_be_unset_are_taken(checkout: Path, tmp_path: Path) -> None:
    change = {"trainer.train_batch_size": "32", "trainer.max_tokens_per_microbatch": None,
              "generator.inference_engine.engine_init_kwargs.max_model_len": None}  # fmt: skip
    assert errors(resolved(checkout, tmp_path, train={"overrides": change})) == {}


def test_typo_of_the_strategy_is_corrected(checkout: Path, tmp_path: Path) -> None:
    found = resolved(checkout, tmp_path, train={"overrides": {"trainer.strategy": "fspd"}})
    assert [item.fix for item in found.findings if item.rule == "skyrl.strategy"] == ["did you mean `fsdp`?"]


# -- versions ----------------------------------------------------------------------------------------

LOCK = """\
version = 1
[[package]]
name = "ray"
version = "{ray}"
source = {{ registry = "https://pypi.org/simple" }}
dependencies = [
    {{ name = "click" }},
]

[[package]]
name = "vllm"
version = "0.26.0"

[[package]]
name = "torch"
version = "{torch}+cu130"

[[package]]
name = "torch"
version = "99.0"

[[package]]
name = "megatron-core"
version = "0.19.0+71e418ea7"
"""


def said_by(checkout: Path, tmp_path: Path, lock: str) -> Deliverable:
    """The deliverable of a run whose first words are the probe's, by this interpreter."""
    (checkout / "uv.lock").write_text(lock)
    command = [sys.executable, "-m", "skyrl.train.entrypoints.main_base"]
    plan = resolved(checkout, tmp_path, train={"command": command}).plan
    (checkout / "uv.lock").unlink()
    assert plan is not None
    text = plan.commands[0].argv[0]
    probe = text[text.index(f"{sys.executable} - ") : text.index("JOBSPEC_PROBE\n", text.index("sys.exit"))]
    done = subprocess.run(["bash", "-c", f"{probe}JOBSPEC_PROBE"], capture_output=True, text=True, check=True)
    (tmp_path / "train.log").write_text(done.stdout)
    attempt = Attempt(1, "attempts/1", logs=(LogFile("train.log", "n1", len(done.stdout)),))
    found = frameworks.get("skyrl").judge(Evidence(tmp_path, plan, attempts=(attempt,)))
    return next(item for item in found if item.name == "Environment")


def test_packages_that_are_not_as_locked_are_named(checkout: Path, tmp_path: Path) -> None:
    found = said_by(checkout, tmp_path, LOCK.format(ray="1.0.0", torch=metadata.version("torch")))
    assert (found.status, found.required) == (Status.FAIL, False)
    ray = metadata.version("ray")
    differences = f"ray {ray}, locked 1.0.0; vllm is missing, locked 0.26.0"
    assert found.reason == f"versions differ from the checkout's lock: {differences}"
    assert len(found.evidence) == 2


def test_packages_as_locked_pass(checkout: Path, tmp_path: Path) -> None:
    """Of several versions for several platforms one must match, and FSDP needs nothing of Megatron."""
    lock = LOCK.format(ray=metadata.version("ray"), torch=metadata.version("torch").partition("+")[0])
    found = said_by(checkout, tmp_path, lock.replace("vllm", "else"))
    assert found.status is Status.PASS
    assert found.reason == "2 packages have the versions that the checkout locks"


def test_uv_brings_what_is_locked_itself(checkout: Path, tmp_path: Path) -> None:
    (checkout / "uv.lock").write_text(LOCK)
    plan = resolved(checkout, tmp_path, train={"command": None}).plan
    (checkout / "uv.lock").unlink()
    assert plan is not None
    assert "JOBSPEC_PROBE" not in plan.commands[0].argv[0]


# -- the real run ------------------------------------------------------------------------------------


def judged(run: Path) -> dict[str, Deliverable]:
    return {item.name: item for item in frameworks.get("skyrl").judge(read_evidence(run))}


def test_real_run_proves_its_level() -> None:
    found = judged(RUN)
    assert {name: item.status for name, item in found.items()} == dict.fromkeys(
        ("Training", "Weight transfer", "Checkpoint", "Resume"), Status.PASS
    )
    assert found["Weight transfer"].reason == (
        "trainer and engines differ by at most 0.0348 in mean log-probability, as in a healthy run"
    )
    assert found["Resume"].reason == "a new process went on from step 2 to 4"


def test_figures_have_short_names_and_reasons_name_their_metric() -> None:
    """SkyRL's own keys are long; what is to be learned is called by its usual name as well."""
    evidence = read_evidence(RUN)
    asked = replace(evidence.plan.expect, learning=LearningPlan("reward/avg_raw_reward"))
    learning = replace(evidence, plan=replace(evidence.plan, expect=asked))
    for seen in (evidence, learning):
        names = [figure.name for figure in figures(seen)]
        assert names[0] == "reward"
        assert {"loss", "grad norm", "tokens/s", "step time"} < set(names)
    reason = metrics_deliverable(evidence, finished=True).reason
    assert "all 4 values of `policy/grad_norm` are finite" in reason


def test_files_of_the_run_alone_prove_its_last_checkpoint(tmp_path: Path) -> None:
    """Without a plan nobody knows which log is the later one: `resume.log` sorts before `train.log`."""
    for name in ("logs", "metrics"):
        shutil.copytree(RUN / "attempts/1" / name, tmp_path / "files" / name)
    wanted = foreign_run.expected(frameworks.get("skyrl"), "checkpoint", (), 0, (), "", ())
    evidence, verdict = foreign_run.judge_files(tmp_path / "files", wanted)
    assert verdict.result is Result.PASS
    found = {item.name: item.reason for item in verdict.deliverables}
    assert found["Checkpoint"] == "complete up to step 4"
    first = render_report(verdict, evidence, "text").splitlines()[2]
    assert first == "  judged as skyrl"  # and no duration: no file says one


def test_report_of_a_run_that_did_all_its_steps_does_not_say_that_it_was_stopped() -> None:
    evidence = read_evidence(RUN)
    short = render_report(judge(evidence), evidence, "summary")
    assert short.splitlines()[0] == (
        "Result: Blocked - Artifacts: `manifest.json` is missing or torn; "
        "this is not evidence against what is tested"
    )
    assert '"$TENSORBOARD_DIR"; python -m skyrl.train.entrypoints.main_base trainer.strategy=fsdp' in short
    text = render_report(judge(evidence), evidence, "text")
    assert "skyrl, on gpu, 1 node, 1 GPU, 6 min 06 s" in text
    markdown = render_report(judge(evidence), evidence, "md")
    assert "**Blocked** (Artifacts)\n" in markdown
    assert "- model: jobspec/smollm2-135m-instruct 4e3f6cf0" in markdown


def test_evidence_names_the_line_that_an_editor_shows() -> None:
    """Progress bars of real logs hold carriage returns, which end no line."""
    for name in ("Checkpoint", "Resume"):
        for item in judged(RUN)[name].evidence:
            lines = (RUN / item.file).read_bytes().split(b"\n")
            assert item.text == strip_ansi(lines[item.line - 1].decode())[: len(item.text)]


def test_last_command_decides_whatever_its_log_is_called(tmp_path: Path) -> None:
    """`resume.log` sorts before `train.log`, whose checkpoint is the older one."""
    shutil.copytree(RUN, tmp_path / "run")
    marker = f"{LOGS}/resume.log"
    assert judged(tmp_path / "run")["Checkpoint"].evidence[0].file == marker
    (tmp_path / "run" / marker).unlink()
    found = judged(tmp_path / "run")
    assert (found["Checkpoint"].status, found["Resume"].status) == (Status.FAIL, Status.FAIL)


@pytest.mark.parametrize("log", ["train", "resume"])
def test_log_of_a_run_that_went_well_has_no_cause(log: str) -> None:
    """vLLM warns of its limit of open files by quoting the error that it might become."""
    text = (RUN / f"{LOGS}/{log}.log").read_text(encoding="utf-8", errors="replace")
    assert "OSError: [Errno 24] Too many open files" in text
    assert first_cause(scan_lines(text.split("\n"))) is None


def test_checkpoint_of_fsdp_is_one_file_of_each_kind_for_a_rank() -> None:
    listed = (RUN / "checkpoints.txt").read_text().split()
    for part in ("model", "optim", "extra_state"):
        assert f"checkpoints/global_step_4/policy/{part}_world_size_1_rank_0.pt" in listed


def test_sums_of_the_example_are_right_and_always_the_same(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        words = [sys.executable, str(ROOT / "examples/make_sums.py"), str(tmp_path / name), "--rows", "40"]
        subprocess.run(words, check=True, capture_output=True)
        made.append((tmp_path / name / "train.jsonl").read_text())
    assert made[0] == made[1]
    for row in map(json.loads, made[0].splitlines()):
        first, second = re.findall(r"What is (\d) \+ (\d)\?", row["prompt"][-1]["content"])[0]
        assert row["reward_spec"]["ground_truth"] == str(int(first) + int(second))
        assert row["env_class"] == "gsm8k"
