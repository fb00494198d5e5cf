"""What files of a NeMo-RL run prove: another's folders through `jobspec judge`. Real formats, no GPU."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.cli import main
from jobspec.frameworks.nemo_rl.levels import VARIANTS
from jobspec.frameworks.nemo_rl.log_lines import numbers, read_lines
from jobspec.frameworks.nemo_rl.proof_lines import PROOFS, TRAINERS
from jobspec.judging import foreign_run
from jobspec.verdict import Status, Verdict
from tests.kits.fake_nemo_rl import write_events

FIXTURES = Path(__file__).parents[2] / "fixtures"
IMPORT, RUN = "Local Bridge import in NeMo-RL", "NeMo-RL Megatron policy run"
REQUESTED, CAPTURE = "Requested variants", "Metrics/log capture"
WORKER = "\x1b[36m(MegatronPolicyWorker[rank=0] pid=1)\x1b[0m "
BRIDGE = "/lustre/Megatron-Bridge/src/megatron/bridge/__init__.py"
CHECKOUT = ("megatron.bridge=/lustre/Megatron-Bridge",)
LOADED = f"{WORKER}  successfully loaded checkpoint from /c/step_2/policy/weights [ t 1/1 ] at iteration 0\n"
PEFT = f"{WORKER}PEFT Statistics:\n{WORKER}  Trainable parameters: 8,798,208\n"


def section(name: str) -> str:
    """One section of the log sample."""
    text = (FIXTURES / "nemo_rl_log_example.txt").read_text(encoding="utf-8")
    body = text.partition(f"### SECTION {name}:")[2]
    return body.partition("\n")[2].partition("\n### SECTION ")[0]


def sample() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads((FIXTURES / "nemo_rl_metrics_example.json").read_text())
    return found


def write(folder: Path, log: str | None = None, metrics: dict[str, Any] | None = None) -> Path:
    """A folder as people keep them: a log under any name and the JSON dump, each only where given.

    A log comes with the line of a worker's import beside it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if log is not None:
        (folder / "zz-import.log").write_text(f"{WORKER}{BRIDGE}\n")
        (folder / "ray-driver.log").write_text(log)
    if metrics is not None:
        (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def judged(
    folder: Path, level: str = "smoke", *variants: str, steps: int = 0, imports: tuple[str, ...] = CHECKOUT
) -> Verdict:
    wanted = foreign_run.expected(frameworks.get("nemo_rl"), level, variants, steps, (), "", imports)
    return foreign_run.judge_files(folder, wanted)[1]


def status(verdict: Verdict, name: str) -> Status:
    found = verdict.deliverable(name)
    assert found is not None
    return found.status


def reason(verdict: Verdict, name: str) -> str:
    found = verdict.deliverable(name)
    assert found is not None
    return found.reason


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return write(tmp_path / "run", section("A"), sample())


# -- a healthy run, and what is missing from it ------------------------------------------------------


def test_healthy_smoke_run_passes(healthy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["judge", str(healthy), "--framework", "nemo_rl", "--level", "0", "--json"]
    assert main([*words, "--expect-import", *CHECKOUT]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["result"], report["first_cause"]) == ("Pass", None)
    guide = frameworks.get("nemo_rl").guide  # type: ignore[attr-defined]
    assert tuple(name for name in report["deliverables"] if name in guide) == guide
    policy = report["deliverables"][RUN]["evidence"]
    assert policy[0] == {"file": "ray-driver.log", "line": 55, "text": policy[0]["text"]}
    assert policy[-1]["metric"] == "train/loss"


@pytest.mark.parametrize("name", ["run.log", "slurm-1980204.out", "run.log.2step_baseline", "driver.txt"])
def test_a_log_may_have_any_name(healthy: Path, name: str) -> None:
    (healthy / "ray-driver.log").rename(healthy / name)
    assert judged(healthy).result == "Pass"


def test_a_log_alone_claims_no_more_than_it_prints(tmp_path: Path) -> None:
    verdict = judged(write(tmp_path / "run", section("A")))
    assert (verdict.result, status(verdict, RUN)) == ("Blocked", Status.PASS)
    assert "`train/token_mult_prob_error` was not found" in reason(verdict, CAPTURE)


def test_metrics_alone_claim_no_trainer(tmp_path: Path) -> None:
    verdict = judged(write(tmp_path / "run", None, sample()))
    assert (verdict.result, status(verdict, RUN)) == ("Blocked", Status.BLOCKED)


def test_event_files_stand_for_the_json_dump(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", section("A"))
    write_events(folder / "logs/exp_001/tensorboard", sample())
    verdict = judged(folder)
    assert verdict.result == "Pass"
    (folder / "ray-driver.log").unlink()
    assert judged(folder).result == "Blocked"


def test_asked_steps_must_have_run(healthy: Path) -> None:
    """Samples of GPUs have seconds where others have steps: 30 s are no 30 steps."""
    assert judged(healthy, steps=2).result == "Pass"
    verdict = judged(healthy, steps=30)
    assert (verdict.result, status(verdict, RUN)) == ("Fail", Status.FAIL)
    assert "train step 3 of 30" in reason(verdict, RUN)


def test_other_features_are_told_but_not_claimed(healthy: Path) -> None:
    write(healthy, section("A") + PEFT)
    verdict = judged(healthy)
    assert status(verdict, REQUESTED) is Status.NOT_REQUESTED
    assert reason(verdict, REQUESTED).endswith("the files also show LoRA")


def test_megatrons_count_of_parameters_shows_a_model_that_it_built(healthy: Path) -> None:
    counted = " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 1235814400"
    write(healthy, section("A").replace("Model, optimizer, and learning rate scheduler built", counted))
    assert status(judged(healthy), RUN) == Status.PASS


@pytest.mark.parametrize("count, small", [(1_235_814_400, False), (2_377_728, True)])
def test_a_model_made_for_a_test_shows_mechanics_alone(healthy: Path, count: int, small: bool) -> None:
    counted = f" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): {count}"
    log = section("A").replace("Model, optimizer, and learning rate scheduler built", counted)
    write(healthy, log.replace("'tensor_model", "'expert_model_parallel_size': 1, 'tensor_model"))
    said = "a model of at most 2.4 million parameters: the mechanics alone are shown"
    assert (said in judged(healthy).limitations) is small


# -- what files show to be wrong ---------------------------------------------------------------------

Change = Callable[[str], str]
STEPS = "\n========================= Step 1/2"


def no_steps(log: str) -> str:
    """From the trainer's start on nothing but the clean end: as where the last step was loaded."""
    return (
        log.partition(STEPS)[0] + LOADED + "Max number of steps has been reached, stopping training early\n"
    )


def not_built(log: str) -> str:
    return log.replace("Model, optimizer, and learning rate scheduler built", "x")


def dtensor(log: str) -> str:
    return not_built(log).replace("MegatronPolicyWorker", "DTensorPolicyWorkerV2")


def switched_off(log: str) -> str:
    return not_built(log).replace("'megatron_cfg': {'enabled': True", "'megatron_cfg': {'enabled': False")


WRONG: dict[str, tuple[Change, str]] = {
    "table": (lambda log: log.replace("PASS  ", "FAIL  ", 1), CAPTURE),
    "ascii-table": (lambda log: log.replace("│ PASS ", "| FAIL ").replace("│", "|"), CAPTURE),
    "finished": (no_steps, RUN),
}


@pytest.mark.parametrize(
    "change",
    [dtensor, lambda log: log.replace("MegatronPolicyWorker", "DTensorPolicyWorkerV2"), switched_off],
    ids=["dtensor", "dtensor-workers", "megatron-off"],
)
def test_run_on_another_backend_is_no_evidence(healthy: Path, change: Change) -> None:
    """Somebody else's run may be healthy, and proves nothing of this level."""
    write(healthy, change(section("A")))
    verdict = judged(healthy)
    assert (verdict.result, status(verdict, RUN)) == ("Blocked", Status.BLOCKED)
    assert "the policy is set up on DTensor, not on Megatron" in reason(verdict, RUN)


@pytest.mark.parametrize("name", WRONG)
def test_log_that_shows_a_fault_fails(healthy: Path, name: str) -> None:
    change, deliverable = WRONG[name]
    write(healthy, change(section("A")))
    verdict = judged(healthy)
    assert (verdict.result, status(verdict, deliverable)) == ("Fail", Status.FAIL)


def test_named_variant_needs_its_own_trainer(healthy: Path) -> None:
    """Without a name any GRPO trainer is a smoke run; a variant that is named has one."""
    write(healthy, section("A").replace("synchronous GRPO training (legacy)", "async GRPO training"))
    assert judged(healthy).result == "Pass"
    assert status(judged(healthy, "smoke", "colocated"), RUN) is Status.FAIL


@pytest.mark.parametrize("metric", ["train/grad_norm", "train/loss", "train/token_mult_prob_error"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_value_that_is_no_number_fails(healthy: Path, metric: str, value: float | None) -> None:
    """The script's own `max(…) < 1.05` holds with a NaN in the last step."""
    metrics = sample()
    metrics[metric]["2"] = value  # type: ignore[assignment]
    verdict = judged(write(healthy, None, metrics))
    assert (verdict.result, status(verdict, CAPTURE)) == ("Fail", Status.FAIL)
    assert f"`{metric}` of step 2" in reason(verdict, CAPTURE)


@pytest.mark.parametrize(
    ("metric", "value"),
    [("train/token_mult_prob_error", 1.31), ("train/probs_ratio_clamped_min", 0.4)],
)
def test_condition_is_evaluated_again(healthy: Path, metric: str, value: float) -> None:
    metrics = sample()
    metrics[metric]["1"] = value
    verdict = judged(write(healthy, None, metrics))
    assert (verdict.result, status(verdict, CAPTURE)) == ("Fail", Status.FAIL)
    assert "does not hold" in reason(verdict, CAPTURE)


@pytest.mark.parametrize(
    ("model", "metric", "value", "want"),
    [
        ("Qwen/Qwen3-8B", "train/probs_ratio_clamped_min", 0.4, Status.BLOCKED),
        ("Qwen/Qwen3-8B", "train/probs_ratio_clamped_max", 2.0, Status.BLOCKED),
        ("Qwen/Qwen3-8B", "train/probs_ratio_clamped_max", 12.2, Status.FAIL),  # ten times the limit
        ("Qwen/Qwen3-8B", "train/token_mult_prob_error", 1.31, Status.FAIL),  # of any model
        ("/models/Qwen2.5-0.5B", "train/probs_ratio_clamped_min", 0.4, Status.FAIL),  # the same, from a disk
    ],
)
def test_condition_for_another_model_fails_no_run_that_nobody_named(
    tmp_path: Path, model: str, metric: str, value: float, want: Status
) -> None:
    metrics = sample()
    metrics[metric]["1"] = value
    folder = write(tmp_path / "run", section("A").replace("Qwen/Qwen2.5-0.5B", model), metrics)
    verdict = judged(folder)
    assert status(verdict, CAPTURE) is want
    assert ("name the variant" in reason(verdict, CAPTURE)) is (want is Status.BLOCKED)
    named = judged(folder, "smoke", "colocated")
    assert status(named, CAPTURE) is Status.FAIL


def test_validation_is_no_train_step(tmp_path: Path) -> None:
    log = section("A").partition(STEPS)[0] + section("B").partition("Saving checkpoint")[0]
    verdict = judged(write(tmp_path / "run", log, {"validation/accuracy": {"2": 0.2}}))
    assert (verdict.result, status(verdict, RUN)) == ("Fail", Status.FAIL)
    assert "jobspec found no line and no record that shows a completed train step" in reason(verdict, RUN)


def test_exit_code_of_the_batch_script_proves_nothing(tmp_path: Path) -> None:
    verdict = judged(write(tmp_path / "run", section("D")))
    assert verdict.result == "Blocked"


# -- which Bridge, and where the weights came from ---------------------------------------------------


def test_import_path_is_compared(healthy: Path) -> None:
    unnamed = judged(healthy, imports=())
    assert (unnamed.result, status(unnamed, IMPORT)) == ("Blocked", Status.BLOCKED)
    assert "--expect-import megatron.bridge=/lustre/Megatron-Bridge/src" in reason(unnamed, IMPORT)
    right = judged(healthy, imports=("megatron.bridge=/lustre/Megatron-Bridge",))
    assert (right.result, status(right, IMPORT)) == ("Pass", Status.PASS)
    wrong = judged(healthy, imports=("megatron.bridge=/home/me/Megatron-Bridge",))
    assert (wrong.result, status(wrong, IMPORT)) == ("Blocked", Status.BLOCKED)
    assert "the run is void" in wrong.reason


def test_import_path_that_no_log_shows_is_not_claimed(healthy: Path) -> None:
    (healthy / "zz-import.log").unlink()
    verdict = judged(healthy)
    assert (verdict.result, status(verdict, IMPORT)) == ("Blocked", Status.BLOCKED)


def test_a_worker_that_imports_another_checkout_voids_the_run(healthy: Path) -> None:
    """The driver's probe is right; a warning of the actor shows that its environment has its own copy."""
    away = f"{WORKER}/opt/nemo-rl/3rdparty/Megatron-Bridge/src/megatron/bridge/models/x.py:9: UserWarning: y"
    write(healthy, section("A") + f"jobspec: megatron.bridge from {BRIDGE}\n{away}\n")
    verdict = judged(healthy, imports=("megatron.bridge=/lustre/Megatron-Bridge",))
    assert (verdict.result, status(verdict, IMPORT)) == ("Blocked", Status.BLOCKED)
    assert "/opt/nemo-rl" in reason(verdict, IMPORT)


def test_existing_conversion_is_no_import(healthy: Path) -> None:
    skip = f"{WORKER}Checkpoint already exists at /hf/nemo_rl/Qwen/Qwen2.5-0.5B. Skipping import.\n"
    first, found, rest = section("A").partition(f"{WORKER[:5]}(MegatronPolicyWorker[rank=0] pid=40112)")
    write(healthy, first + skip + found + rest)
    verdict = judged(healthy)
    assert (verdict.result, status(verdict, "HF import")) == ("Blocked", Status.BLOCKED)
    write(healthy, section("A") + skip)  # a second process of the same run: the first one imported
    assert status(judged(healthy), "HF import") is Status.PASS


def test_saved_import_is_one_without_the_line_of_its_folder(healthy: Path) -> None:
    text = "\n".join(line for line in section("A").splitlines() if "Using default megatron" not in line)
    write(healthy, text + "\n")
    assert status(judged(healthy), "HF import") is Status.BLOCKED
    saved = f"{WORKER}  successfully saved checkpoint from iteration       0 to"
    write(healthy, f"{saved} /ckpts/tmp_step_2/policy/weights [ t 1/1, p 1/1 ]\n{text}\n")
    assert status(judged(healthy), "HF import") is Status.BLOCKED
    write(healthy, f"{saved} /hf/nemo_rl/Qwen/Qwen2.5-0.5B [ t 1/1, p 1/1 ]\n{text}\n")
    assert status(judged(healthy), "HF import") is Status.PASS


# -- LoRA, checkpoints, resume -----------------------------------------------------------------------


def checkpoint(folder: Path, step: int, complete: bool = True) -> None:
    weights = folder / f"{'' if complete else 'tmp_'}step_{step}" / "policy/weights/iter_0000000"
    weights.mkdir(parents=True)
    (weights / "__0_0.distcp").write_text("x")
    if complete:
        (folder / f"step_{step}" / "training_info.json").write_text('{"current_step": 2}')
    (folder / "latest_checkpoint_status.json").write_text(f'{{"last_checkpoint_step": {step}}}')


def test_lora_with_a_complete_checkpoint_passes(healthy: Path) -> None:
    checkpoint(healthy / "ckpts", 2)
    write(healthy, section("A") + PEFT)
    verdict = judged(healthy, "lora", "lora")
    assert (verdict.result, status(verdict, "Checkpoint")) == ("Pass", Status.PASS)
    assert "8798208 trainable parameters" in reason(verdict, REQUESTED)
    claim = "GRPO of a LoRA adapter, and a complete checkpoint of its last step"
    assert claim in reason(verdict, REQUESTED)
    guessed = reason(judged(healthy, "lora"), REQUESTED)
    assert "`lora`: the log holds what tells this variant" in guessed and claim not in guessed


def test_adapter_without_parameters_fails(healthy: Path) -> None:
    checkpoint(healthy / "ckpts", 2)
    write(healthy, section("A") + PEFT.replace("8,798,208", "0"))
    verdict = judged(healthy, "lora", "lora")
    assert (verdict.result, status(verdict, REQUESTED)) == ("Fail", Status.FAIL)


def test_adapter_that_is_not_shown_is_not_claimed(healthy: Path) -> None:
    checkpoint(healthy / "ckpts", 2)
    verdict = judged(healthy, "lora", "lora")
    assert (verdict.result, status(verdict, REQUESTED)) == ("Blocked", Status.BLOCKED)


def test_unfinished_save_is_no_checkpoint(healthy: Path) -> None:
    checkpoint(healthy / "ckpts", 2, complete=False)
    write(healthy, section("A") + PEFT)
    verdict = judged(healthy, "lora", "lora")
    assert (verdict.result, status(verdict, "Checkpoint")) == ("Fail", Status.FAIL)
    assert "tmp_step_2" in reason(verdict, "Checkpoint")


def test_line_of_a_save_without_its_folder_is_not_claimed(healthy: Path) -> None:
    write(healthy, section("A") + PEFT + section("B"))
    verdict = judged(healthy, "lora", "lora")
    assert status(verdict, "Checkpoint") is Status.BLOCKED


def resumed(folder: Path, new_steps: bool = True) -> Path:
    """Two processes: the first one saved step 2, the second one loaded it."""
    write(folder, None, {"train/loss": {str(step): 0.5 for step in (1, 2, *((3, 4) if new_steps else ()))}})
    (folder / "run1.log").write_text(section("A") + section("B"))
    (folder / "zz-import.log").write_text(f"{WORKER}{BRIDGE}\n")
    second = section("A").partition(STEPS)[0].replace("synchronous", "async") + LOADED
    second += "📦 Restoring replay buffer from checkpoint: /c/step_2/replay_buffer.pt\n"
    second += "ReplayBuffer restored: 4 trajectories, last target 3\n"
    for step in (3, 4) if new_steps else ():
        second += f"{STEPS.replace('1/2', f'{step}/4')} =========================\n"
        second += f"Logged data to /x/exp_002/train_data_step{step}.jsonl\n"
    (folder / "run2.log").write_text(second)
    return folder


def test_resume_needs_save_load_and_new_steps(tmp_path: Path) -> None:
    folder = resumed(tmp_path / "run")
    checkpoint(folder / "ckpts", 4)
    verdict = judged(folder, "lora", "async-checkpoint")
    assert (status(verdict, "Resume"), verdict.result) == (Status.PASS, "Pass")
    (folder / "run1.log").unlink()
    assert status(judged(folder, "lora", "async-checkpoint"), "Resume") is Status.BLOCKED


def test_resume_without_new_steps_fails(tmp_path: Path) -> None:
    verdict = judged(resumed(tmp_path / "run", new_steps=False), "lora", "async-checkpoint")
    assert (verdict.result, status(verdict, "Resume")) == ("Fail", Status.FAIL)
    assert status(verdict, RUN) is Status.FAIL


# -- single paths ------------------------------------------------------------------------------------


def test_single_controller_has_step_lines_of_its_own(tmp_path: Path) -> None:
    log = section("A").partition("🚀")[0] + "🚀 Launching SingleControllerActor\n"
    log += "MasterConfig(data_plane={'enabled': True, 'impl': 'transfer_queue', 'backend': 'simple'})\n"
    log += "".join(
        f"(SingleControllerActor pid=9) train step {n}/2  trainer_v={n}  lag=0  \n" for n in (1, 2)
    )
    metrics = sample() | {
        "train/num_masked_seqs_by_logprob_error": {"1": 0.0, "2": 0.0},
        "train/max_seq_mult_prob_error": {"1": 1.02, "2": 1.01},
    }
    verdict = judged(write(tmp_path / "run", log, metrics), "features", "data-plane-single-controller")
    assert verdict.result == "Pass", verdict.reason
    assert status(judged(tmp_path / "run", "features", "data-plane-simple"), RUN) is Status.FAIL


@pytest.mark.parametrize(
    ("more", "result"),
    [
        ("  • Draft Loss: 1.7\n", "Pass"),
        ("Speculative decoding is enabled without draft refit sync. x\n  • Draft Loss: 1.7\n", "Fail"),
        ("", "Blocked"),
    ],
)
def test_draft_model_must_be_trained_and_sent(tmp_path: Path, more: str, result: str) -> None:
    metrics = sample() | {"train/draft_loss": {"1": 1.7, "2": 1.6}}
    verdict = judged(write(tmp_path / "run", section("A") + more, metrics), "features", "draft")
    assert verdict.result == result, verdict.reason


def test_replayed_routes_count_their_fallbacks(tmp_path: Path) -> None:
    log = section("A").replace("'dtensor_cfg'", "'router_replay': {'enabled': True}, 'dtensor_cfg'")
    log += "WARNING: R3 router replay fallback: vLLM returned incomplete routed_experts for 1/8 samples\n"
    folder = write(tmp_path / "run", log, sample())
    verdict = judged(folder, "features", "r3")
    assert "1 warnings" in reason(verdict, REQUESTED)
    assert verdict.result == "Pass", verdict.reason
    write(folder, log + "Trace dir: /x/r3_trace\n\nFAIL:\n  - routes differ\n")
    assert status(judged(folder, "features", "r3"), REQUESTED) is Status.FAIL


def test_the_variant_that_the_files_show_is_found(healthy: Path) -> None:
    line = "  ✓ Ray inference cluster initialized with 1 nodes with 1 GPUs per node\n"
    write(
        healthy,
        line
        + section("A").replace(
            "Overrides: [", "Overrides: ['policy.generation.refit_transport=nccl_reshard', "
        ),
    )
    verdict = judged(healthy, "refit")
    assert verdict.result == "Pass", verdict.reason
    write(healthy, section("A"))
    assert judged(healthy, "refit").result == "Blocked"


CONFIG = "{{'policy': {{'model_name': '/models/llama-sft', 'megatron_cfg': {{'enabled': True}}}}, {}}}\n"
DPO = CONFIG.format("'dpo': {'sft_loss_weight': 0, 'sft_average_log_probs': False}")
FILE = "Loaded configuration from: /x/configs/{}\n"


@pytest.mark.parametrize(
    ("said", "variant"),
    [
        (DPO, "dpo-lora"),  # NeMo-RL's own configuration of DPO has these keys
        (CONFIG.format("'sft': {'max_num_steps': 20}"), "sft-lora"),
        (FILE.format("dpo.yaml"), "dpo-lora"),
        (FILE.format("sft_openmathinstruct2.yaml"), "sft-lora"),
        ("Overrides: ['policy.model_name=/models/llama-sft', '++dpo.max_num_steps=2']\n", "dpo-lora"),
        (FILE.format("sft/rm.yaml"), "lora"),  # the level's first one: nothing tells
        (CONFIG.format("'grpo': {}"), "lora"),
    ],
)
def test_trainer_that_prints_no_start_is_told_by_its_configuration(
    tmp_path: Path, said: str, variant: str
) -> None:
    folder = write(
        tmp_path / "run", f"{said}{WORKER}Model, optimizer, and learning rate scheduler built\n{PEFT}"
    )
    assert f"`{variant}`: " in reason(judged(folder, "lora"), REQUESTED)


@pytest.mark.parametrize(("lora", "start", "named"), [
    ("", "", ""), ("", "Running synchronous GRPO training\n", "full-learning"), (PEFT, "", "lora-learning"),
])  # fmt: skip
def test_variant_of_a_level_is_what_the_files_show_or_none(
    tmp_path: Path, lora: str, start: str, named: str
) -> None:
    built = f"{start}{WORKER}Model, optimizer, and learning rate scheduler built\n{lora}"
    verdict = judged(write(tmp_path / "run", built), "learning")
    told = {part for item in verdict.deliverables for part in re.findall(r"`([\w-]+-learning)`", item.reason)}
    assert told == ({named} if named else set())
    unknown = "jobspec found no line that shows which one of this level ran" in reason(verdict, REQUESTED)
    assert unknown is not bool(named)


def test_traced_command_is_no_applied_override(healthy: Path) -> None:
    """ray.sub traces what it was asked to run; whether it reached the trainer is another thing."""
    traced = (
        "+ COMMAND='run_grpo.py policy.generation.colocated.enabled=false refit_transport=nccl_reshard'\n"
    )
    write(healthy, traced + section("A"))
    assert judged(healthy, "refit").result == "Blocked"


def test_printed_value_that_is_no_number_fails_without_metrics(tmp_path: Path) -> None:
    log = section("A").replace("• Loss: 0.0219", "• Loss: nan")
    verdict = judged(write(tmp_path / "run", log))
    assert (verdict.result, status(verdict, CAPTURE)) == ("Fail", Status.FAIL)


def test_files_of_samples_show_steps(tmp_path: Path) -> None:
    """Without the lines that show them: what is printed of a step shows it, too."""
    lines = section("A").replace("Logged data to", "x").splitlines(keepends=True)
    log = "".join(line for line in lines if "•" not in line)
    folder = write(tmp_path / "run", log)
    assert status(judged(folder), RUN) is Status.FAIL
    for step in (1, 2):
        (folder / f"train_data_step{step}.jsonl").write_text('{"rewards": [0.0, 1.0]}\n')
    assert status(judged(folder), RUN) is Status.PASS


# -- failures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["D3", "E1", "E2", "E4", "E5", "E6", "E8", "E9", "E11", "E12"])
def test_failure_before_the_model_blocks(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "slurm-7.out").write_text(section("A").partition("Initializing vllm_policy")[0] + section(name))
    verdict = judged(folder)
    assert verdict.result == "Blocked"
    assert status(verdict, RUN) is Status.BLOCKED
    assert verdict.first_cause is not None
    assert (verdict.first_cause.file, verdict.first_cause.line > 10) == ("slurm-7.out", True)


@pytest.mark.parametrize("name", ["E3"])
def test_failure_in_the_provider_fails(tmp_path: Path, name: str) -> None:
    verdict = judged(write(tmp_path / "run", section("A").partition(STEPS)[0] + section(name)))
    assert verdict.result == "Fail"


def test_the_sections_are_whole() -> None:
    assert all(section(name).strip() for name in ("A", "B", "D3", "E12"))


def test_every_variant_names_known_proofs() -> None:
    for variant in VARIANTS:
        assert set(variant.proofs) <= PROOFS.keys(), variant.name
        assert variant.trainer in TRAINERS or variant.trainer in ("sft", "dpo", "distillation")


def test_an_empty_folder_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    shutil.copyfile(FIXTURES / "nemo_rl_log_example.txt", tmp_path / "elsewhere.log")
    assert judged(tmp_path / "run").result == "Nothing ran"


def test_line_that_a_progress_bar_overwrote_was_printed(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(
        b"start\n\r 10%|#\r========= Step 3/9 =========\r 90%|###\r\n========= Step 4/9 ========="
    )
    steps = numbers(read_lines([(log, "run.log")]), "header")
    assert {step: item.line for step, item in steps.items()} == {3: 2, 4: 3}


# -- processes ---------------------------------------------------------------------------------------


def process(*steps: int, load: int = 0, saves: tuple[int, ...] = ()) -> str:
    """What one process prints: its start, a load, steps, saves."""
    text = section("A").partition(STEPS)[0]
    if load:
        loaded = LOADED.replace("step_2", f"step_{load}")
        text = text.replace("🚀 Running", f"{loaded}🚀 Running")
    for step in steps:
        text += f"{STEPS.replace('1/2', f'{step}/4')} =========================\n"
        text += f"Logged data to /x/exp/train_data_step{step}.jsonl\n"
        if step in saves:
            where = f"/c/tmp_step_{step}/policy/weights"
            text += f"{WORKER}  successfully saved checkpoint from iteration 0 to {where}\n"
    return text


SECOND = {
    "went on": (process(1, 2, saves=(2,)), process(3, 4, load=2), Status.PASS),
    "had nothing left": (process(1, 2, 3, 4, saves=(2, 4)), process(load=4), Status.FAIL),
    "never trained": (process(1, 2, 3, 4, saves=(2, 4)), process(load=2), Status.FAIL),
    "began again": (process(1, 2, saves=(2,)), process(1, 2, 3, load=2), Status.FAIL),
    "saved by itself": (process(1, 2), process(3, 4, load=2, saves=(3, 4)), Status.BLOCKED),
}


@pytest.mark.parametrize("name", SECOND)
@pytest.mark.parametrize("files", [("a.log", "b.log"), ("b.log", "a.log"), ("one.log", "one.log")])
def test_resume_is_judged_by_process(name: str, files: tuple[str, str], tmp_path: Path) -> None:
    first, second, want = SECOND[name]
    write(tmp_path, None, {"train/loss": {str(step): 0.5 for step in (1, 2, 3, 4)}})
    for file, text in zip(files, (first, second), strict=True):
        with (tmp_path / file).open("a") as out:
            out.write(text)
    verdict = judged(tmp_path, "lora", "async-checkpoint")
    assert status(verdict, "Resume") is want, reason(verdict, "Resume")
    if want is Status.FAIL:  # also where only an adapter was asked for
        assert status(judged(tmp_path, "lora", "lora"), RUN) is Status.FAIL


@pytest.mark.parametrize(
    ("warning", "want"),
    [
        ("WARNING: No mapping found for megatron_param: decoder.layers.0.x", Status.FAIL),
        ("WARNING: Can't find model.norm.weight in hf_keys", Status.FAIL),
        ("WARNING: Can't find the following HF parameters in hf_keys: ['a', 'b']", Status.FAIL),
        ("export: skipping model.x.weight: no mapping", Status.FAIL),
        ("2 unmapped parameters: a, b", Status.FAIL),
        ("0 unmapped parameters", Status.PASS),
        ("unmapped weights: []", Status.PASS),
        ("Skipping conversion of weights: already converted", Status.PASS),
        ("(VllmGenerationWorker pid=3) Skipping weight rotary_emb.inv_freq: not found", Status.PASS),
        ("no mapping for the rank of this node", Status.PASS),
        ("Skipped 2 parameters on export", Status.FAIL),
        ("Unmapped parameter decoder.final_norm.weight", Status.FAIL),
        ("Checkpoint written. Skipping parameter server start.", Status.PASS),
    ],
)
def test_weights_without_a_mapping_fail_the_import(healthy: Path, warning: str, want: Status) -> None:
    write(healthy, section("A").replace("Loading the Reference Model", f"x\n{WORKER}{warning}"))
    assert status(judged(healthy), "HF import") is want


# -- settings that limit a pass ----------------------------------------------------------------------


@pytest.mark.parametrize("plus", ["", "+", "++"])
@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("loss_fn.force_on_policy_ratio=true", "every ratio 1"),
        ("grpo.seq_logprob_error_threshold=2.0", "are masked"),
        ("policy.generation.backend=sglang", "came from sglang"),
        ("policy.generation.vllm_cfg.enforce_eager=True", "without CUDA graphs"),
        ("policy.megatron_cfg.optimizer.lr=0.0", "learning rate was 0"),
        ("policy.hf_config_overrides.num_hidden_layers=2", "pretrained weights are not what ran"),
        ("policy.megatron_cfg.peft.enabled=true", "only an adapter"),
    ],
)
def test_setting_limits_the_pass(healthy: Path, plus: str, override: str, part: str) -> None:
    write(healthy, section("A").replace("Overrides: [", f"Overrides: ['{plus}{override}', "))
    assert [text for text in judged(healthy).limitations if part in text]
    write(healthy, section("A"))
    assert not [text for text in judged(healthy).limitations if part in text]


def test_printed_configuration_outweighs_an_override(healthy: Path) -> None:
    log = section("A").replace("Overrides: [", "Overrides: ['policy.generation.backend=megatron', ")
    write(healthy, log.replace("'dtensor_cfg'", "'generation': {'backend': 'vllm'}, 'dtensor_cfg'"))
    assert not [text for text in judged(healthy).limitations if "came from" in text]


def test_switched_off_guard_is_told(healthy: Path) -> None:
    write(healthy, "+ export NRL_IGNORE_TP_ACCURACY_CHECK=1\n" + section("A"))
    assert [text for text in judged(healthy).limitations if "TP of 4" in text]


@pytest.mark.parametrize(
    ("backend", "key", "told"),
    [
        ("vllm", "vllm_cfg.enforce_eager=true", True),
        ("megatron", "vllm_cfg.enforce_eager=true", False),
        ("megatron", "mcore_generation_config.num_cuda_graphs=null", True),
        ("vllm", "mcore_generation_config.num_cuda_graphs=null", False),
    ],
)
def test_setting_of_an_engine_that_did_not_run_limits_nothing(
    healthy: Path, backend: str, key: str, told: bool
) -> None:
    given = f"'policy.generation.backend={backend}', 'policy.generation.{key}', "
    write(healthy, section("A").replace("Overrides: [", f"Overrides: [{given}"))
    assert any("without CUDA graphs" in text for text in judged(healthy).limitations) is told
