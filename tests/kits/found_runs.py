"""Folders as people have them after a run: logs, trackers' files, or both, in forms of upstream's sources.

Each `FoundRun` names its files and what is right: framework, points of a metric, its first and last point.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path

Point = tuple[int, float]


@dataclass(frozen=True)
class FoundRun:
    """`frameworks` are those that the files name: judging without `--framework` needs exactly one."""

    name: str
    files: dict[str, bytes]
    frameworks: tuple[str, ...]
    metric: str
    points: int
    first: Point
    last: Point
    planned: int = 0
    links: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        for name, data in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        for name, target in self.links.items():
            (folder / name).symlink_to(target)
        return folder


def reward(step: int) -> float:
    return round(0.2 + 0.01 * step, 4)


def logged(step: int, epoch: float = 0.0) -> dict[str, object]:
    """What GRPOTrainer of TRL 0.9 to 0.14 logs."""
    return {
        "loss": 0.0, "grad_norm": 0.5 + step / 7, "learning_rate": 1e-06, "rewards/accuracy_reward": 0.1,
        "reward": reward(step), "reward_std": 0.7, "completion_length": 850.5 + step, "kl": 0.0001 * step,
        "epoch": epoch,
    }  # fmt: skip


def bar(step: int, total: int) -> str:
    return (
        f"\r{100 * step // total:3d}%|{'█' * 3}       | {step}/{total} [0{step % 10}:11<2:00:01, 62.10s/it]"
    )


HEAD = "[INFO|trainer.py:2369] 2025-02-10 10:05:40,118 >> ***** Running training *****\n"
TOTAL = "[INFO|trainer.py:2378] 2025-02-10 10:05:40,119 >>   Total optimization steps = {}\n"
GRPO = '  File "/opt/venv/lib/python3.11/site-packages/trl/trainer/grpo_trainer.py", line 12: UserWarning\n'
END = {"train_runtime": 9412.2, "train_samples_per_second": 1.02, "train_loss": 0.01, "epoch": 0.1}


def trl_every_step() -> FoundRun:
    lines = [HEAD, GRPO, "  0%|          | 0/24 [00:00<?, ?it/s]\n"]
    lines += [f"{logged(step)}\n" for step in range(1, 25)]
    return run("trl-0.12", {"train.log": "".join(lines) + f"{END}\n"}, "trl", 24, (1, 0.21), (24, 0.44), 24)


def trl_every_tenth() -> FoundRun:
    """Unbuffered: the bar's state stands before and after each dict."""
    text = HEAD + TOTAL.format(100) + GRPO
    for step in range(1, 101):
        text += bar(step, 100)
        if step % 10 == 0:
            entry = {**logged(step), "completions/mean_length": 200.0, "rewards/format_reward/mean": 0.5}
            text += f"\n\r{' ' * 60}\r{entry}\n" + bar(step, 100)
    return run("trl-0.17", {"slurm-77.out": text + f"\n{END}\n"}, "trl", 10, (10, 0.3), (100, 1.2), 100)


def trl_strings_buffered() -> FoundRun:
    """Transformers 5 prints texts; standard output is a buffered file behind all bars."""
    text = "{'logging_steps': 5, 'output_dir': 'out'}\ntrl.trainer.grpo_config\n"
    text += "".join(bar(step, 50) for step in range(51)) + "\n"
    for step in range(5, 51, 5):
        values = {key: f"{value:.4g}" for key, value in logged(step).items() if isinstance(value, float)}
        text += f"{values}\n"
    end = {key: f"{value}" for key, value in END.items()}
    return run("trl-0.25", {"out.log": text + f"{end}\n"}, "trl", 10, (5, 0.25), (50, 0.7), 50)


def trl_evaluated() -> FoundRun:
    text = HEAD + TOTAL.format(12) + GRPO
    for step in range(1, 13):
        text += f"{bar(step, 12)}\n{logged(step, step / 12)}\n"
        if step % 4 == 0:
            text += "".join(f"\r{100 * at // 16}%|█  | {at}/16 [00:01<00:02,  5.1it/s]" for at in range(17))
            text += f"\n{ {'eval_loss': 0.1, 'eval_reward': reward(step), 'epoch': step / 12} }\n"
    return run("trl-eval", {"train.log": text}, "trl", 3, (4, 0.24), (12, 0.32), 12, metric="eval_reward")


def trl_resumed() -> FoundRun:
    files = {}
    for name, first, last in (("slurm-1.out", 1, 7), ("slurm-2.out", 6, 12)):
        text = HEAD + TOTAL.format(12) + GRPO + bar(first - 1, 12)
        files[name] = text + "".join(f"{bar(step, 12)}\n{logged(step)}\n" for step in range(first, last + 1))
    return run("trl-resume", files, "trl", 12, (1, 0.21), (12, 0.32), 12)


def trainer_state(last: int, every: int = 1, total: int = 0) -> str:
    history = [{**logged(step), "step": step} for step in range(every, last + 1, every)]
    if history:
        history[0]["kl"] = float("nan")
    state = {"global_step": last, "max_steps": total or last, "logging_steps": every, "log_history": history}
    return json.dumps(state, indent=2)


def trl_checkpoints() -> FoundRun:
    files = {
        f"out/checkpoint-{step}/trainer_state.json": trainer_state(step, 5, 40) for step in (20, 100, 40)
    }
    files["out/checkpoint-100/trainer_state.json"] = '{"global_step": 100, "log_history": [{"step": 1, "re'
    files["out/README.md"] = "This model was trained with TRL, a GRPOTrainer.\n"
    files["out/checkpoint-40/training.txt"] = "trl/trainer/grpo_trainer.py"
    return run("trl-checkpoints", files, "trl", 8, (5, 0.25), (40, 0.6), 40)


def trl_two_nodes() -> FoundRun:
    text = "0: " + GRPO
    for step in range(1, 9):
        text += f"0: {logged(step)}\n8: {logged(step)}\n"
    return run("trl-label", {"job.out": text}, "trl", 8, (1, 0.21), (8, 0.28))


def wandb_offline() -> FoundRun:
    folder = "wandb/offline-run-20250210_100312-ab12cd34"
    log = GRPO + "".join(f"{logged(step)}\n{bar(step, 9)}\n" for step in range(1, 10))
    summary = {
        "reward": reward(9),
        "train/reward": reward(9),
        "_step": 9,
        "_runtime": 99.5,
        "_timestamp": 1.7e9,
    }
    files = {
        f"{folder}/files/output.log": log,
        f"{folder}/files/wandb-summary.json": json.dumps(summary),
        f"{folder}/files/wandb-metadata.json": json.dumps({"program": "/src/train.py", "cpu_count": 64}),
        f"{folder}/logs/debug.log": "2025-02-10 10:03:12,000 INFO MainThread:1 [wandb_init.py:init():1] ok\n",
        "train.log": log,
    }
    found = run("wandb-offline", files, "trl", 9, (1, 0.21), (9, 0.29), 9)
    found.links["wandb/latest-run"] = folder.removeprefix("wandb/")
    return found


def wandb_summary_alone() -> FoundRun:
    summary = {"critic/rewards/mean": 0.625, "actor/pg_loss": 0.01, "_step": 99, "_wandb": {"runtime": 300}}
    files = {
        "wandb/run-20250210_100312-ab12cd34/files/wandb-summary.json": json.dumps(summary),
        "wandb/run-20250210_100312-ab12cd34/files/config.yaml": "actor_rollout_ref:\n  desc: null\n",
    }
    return run("wandb-summary", files, "verl", 1, (99, 0.625), (99, 0.625), metric="critic/rewards/mean")


def mlflow() -> FoundRun:
    folder = "mlruns/123456789/0a1b2c3d4e5f60718293a4b5c6d7e8f9"
    series = "".join(f"17391823{step:05d} {reward(step)} {step}\n" for step in range(1, 31))
    files = {
        f"{folder}/metrics/reward/avg_raw_reward": series,
        f"{folder}/metrics/policy/final_loss": "1739182300001 nan 1\n1739182300002 0.5 2\n17391823",
        f"{folder}/params/trainer/algorithm": "grpo",
        f"{folder}/meta.yaml": "lifecycle_stage: active\n",
        "run.log": "INFO skyrl_train.entrypoints.main_base:main:1 - started\n",
    }
    return run("mlflow", files, "skyrl", 30, (1, 0.21), (30, 0.5), metric="reward/avg_raw_reward")


def csv_export() -> FoundRun:
    head = '"Step","rl-7 - train/reward","rl-7 - train/reward__MIN","rl-7 - train/reward__MAX"\n'
    rows = "".join(f'"{step}","{reward(step)}","0","1"\n' for step in range(0, 20, 2))
    return run(
        "wandb-csv", {"wandb_export.csv": head + rows}, "", 10, (0, 0.2), (18, 0.38), metric="train/reward"
    )


def csv_own() -> FoundRun:
    rows = "".join(f"{step},{reward(step)},{'' if step % 2 else step / 3},x\n" for step in range(1, 16))
    files = {"progress.csv": "global_step,reward,loss,note\n" + rows, "data.csv": "question,score\nwhy,3\n"}
    return run("own-csv", files, "", 15, (1, 0.21), (15, 0.35))


def event(step: int, tag: str, value: float) -> bytes:
    """A record of an event file with one scalar, without checksums."""
    scalar = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(scalar)]) + scalar
    body = b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary
    return struct.pack("<Q", len(body)) + bytes(4) + body + bytes(4)


def tensorboard_and_console() -> FoundRun:
    """Events hold every step under a prefix; the log was cut and holds three."""
    events = b"".join(event(step, "train/reward", step / 4) for step in range(1, 21))
    files = {
        "out/runs/Feb10_host/events.out.tfevents.1739.host.1.0": events,
        "train.log": GRPO + "".join(f"{logged(step)}\n" for step in (1, 2, 3)),
    }
    return run("tensorboard", files, "trl", 20, (1, 0.25), (20, 5.0))


RAY = "\x1b[36m(TaskRunner pid=4711, ip=10.0.0.7)\x1b[0m "


def verl_old() -> FoundRun:
    text = RAY + "{'actor_rollout_ref': {'actor': {'ppo_mini_batch_size': 64,\n"
    for step in range(1, 13):
        text += (
            f"{RAY}step:{step} - critic/score/mean:{reward(step)} - actor/pg_loss:-0.01 - timing/gen:3.5\n"
        )
        text += "\x1b[36m(WorkerDict pid=99)\x1b[0m step 3 - nothing\n"
    return run("verl-0.2", {"run.log": text}, "verl", 12, (1, 0.21), (12, 0.32), metric="critic/score/mean")


def verl_new() -> FoundRun:
    text = RAY + " 'actor_rollout_ref': {'rollout': {'name': 'vllm'}},\n"
    text += RAY + "step:0 - val-core/openai/gsm8k/acc/mean@1:np.float64(0.1)\n"
    for step in range(1, 8):
        bars = f"{RAY}\rTraining Progress:  {step}%|▏ | {step}/100 [00:10<10:00,  6.1s/it]\r"
        text += f"{bars}step:{step} - critic/rewards/mean:{reward(step)} - actor/grad_norm:np.float64(0.3)\n"
    return run("verl-0.7", {"log": text}, "verl", 7, (1, 0.3), (7, 0.3), 100, metric="actor/grad_norm")


def skyrl() -> FoundRun:
    """loguru's head and a dict over many lines, each behind Ray's prefix, vLLM's lines in between."""
    who, engine = (
        "\x1b[36m(skyrl_entrypoint pid=314)\x1b[0m ",
        "\x1b[36m(AsyncVLLMInferenceEngine pid=9)\x1b[0m ",
    )
    text = ""
    for step in range(1, 7):
        text += f"{who}2025-08-20 12:00:0{step}.123 | INFO     | skyrl_train.utils.tracking:log:93 - "
        text += f"Step {step}: \n"
        text += f"{who}{{'generate/avg_num_tokens': '512.{step}000',\n"
        text += (
            f"{engine}INFO 08-20 12:00:01 [loggers.py:118] Engine 000: Avg prompt throughput: 1.0 tokens/s\n"
        )
        text += f"{engine}{{'other': '9',\n"
        text += f"{who} 'policy/grad_norm': '0.0123',\n{who} 'reward/avg_raw_reward': '{reward(step):.4f}',\n"
        text += f"{who} 'trainer/global_step': {step}}}\n"
    return run(
        "skyrl", {"driver.log": text}, "skyrl", 6, (1, 0.21), (6, 0.26), metric="reward/avg_raw_reward"
    )


def nemo_rl() -> FoundRun:
    who, text = (
        "\x1b[36m(pid=5)\x1b[0m ",
        "Loaded configuration from: /src/nemo_rl/examples/configs/grpo_math_1B.yaml\n",
    )
    for step in range(1, 6):
        text += (
            f"\n========================= Step {step}/50 =========================\n▶ Generating responses\n"
        )
        text += (
            f"{who}INFO worker\n\n📊 Training Results:\n  • Loss: 0.0{step}\n  • Avg Reward: {reward(step)}\n"
        )
        text += "  • Mean Generation Length: 254.1250\n\n⏱️  Timing:\n  • Total step time: 5.99s\n"
    return run("nemo-rl", {"ray-driver.log": text}, "nemo_rl", 5, (1, 0.21), (5, 0.25), metric="train/reward")


def openrlhf() -> FoundRun:
    who, text = "\x1b[36m(PPOTrainer pid=66)\x1b[0m ", "openrlhf.cli.train_ppo_ray\n"
    for step in range(1, 9):
        status = {"policy_loss": 0.01, "reward": reward(step), "response_length": 400.5, "actor_lr": 1e-7}
        text += f"{who}2025-06-01 10:00:0{step} INFO     ppo_trainer.py:120 ✨ Global step {step}: {status}\n"
    return run("openrlhf", {"run.log": text}, "", 8, (1, 0.21), (8, 0.28))


def slime() -> FoundRun:
    who, text = "(RolloutManager pid=18, ip=10.0.0.1) ", ""
    for step in range(6):
        at = f"{who}[2026-04-15 07:57:5{step}]"
        text += f"{at} rollout.py:1193 - perf {step}: { {'perf/rollout_time': 371.2} }\n"
        text += f"{at} data.py:12 - rollout {step}: { {'rollout/raw_reward': reward(step)} }\n"
        values = {"train/loss": 0.1, "train/grad_norm": 0.2, "train/step": step}
        text += f"(MegatronTrainRayActor pid=7) [2026-04-15 07:57:59] model.py:653 - step {step}: {values}\n"
    return run("slime", {"slime.log": text}, "", 6, (0, 0.2), (5, 0.25), metric="rollout/raw_reward")


def three_sources() -> FoundRun:
    """Every step in the trainer's state, each fifth in the log, some in a file of one's own: once each."""
    rows = "".join(json.dumps({"step": step, "reward": reward(step)}) + "\n" for step in (1, 2, 3))
    files = {
        "out/trainer_state.json": trainer_state(25),
        "out/train.log": GRPO + HEAD + "".join(f"{bar(s, 25)}\n{logged(s)}\n" for s in range(5, 26, 5)),
        "metrics.jsonl": rows,
    }
    return run("three-sources", files, "trl", 25, (1, 0.21), (25, 0.45), 25)


def damaged() -> FoundRun:
    files: dict[str, str | bytes] = {
        "train.log": b"\0\0\xff\xfe" + b"x" * 300_000 + b"{'reward': 7}" + b"x" * 300_000 + b"\n"
        + b"".join(f"{logged(step)}\n".encode() for step in range(1, 4)) + f"{logged(4)}"[:-80].encode(),
        "trainer_state.json": '{"log_history": 7, "global_step": "x"}',
        "a/trainer_state.json": "[" * 5000,
        "wandb-summary.json": '{"reward": Infinity, "_step": NaN}',
        "m.csv": b"step,reward\n\xff\xfe,3\n1e999,4\nnan,5\n\"un\nended,",
        "mlruns/0/a/metrics/kl": b"\xff\xfe\0\0",
        "core": b"\x7fELF" + bytes(range(256)) * 40,
    }  # fmt: skip
    return run("damaged", files, "trl", 3, (1, 0.21), (3, 0.23))


def run(
    name: str, files: dict[str, str] | dict[str, str | bytes], framework: str, points: int, first: Point,
    last: Point, planned: int = 0, metric: str = "reward",
) -> FoundRun:  # fmt: skip
    data = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
    frameworks = (framework,) if framework else ()
    return FoundRun(name, data, frameworks, metric, points, first, last, planned)


FOUND_RUNS = (
    trl_every_step(), trl_every_tenth(), trl_strings_buffered(), trl_evaluated(), trl_resumed(),
    trl_checkpoints(), trl_two_nodes(), wandb_offline(), wandb_summary_alone(), mlflow(), csv_export(),
    csv_own(), tensorboard_and_console(), verl_old(), verl_new(), skyrl(), nemo_rl(), openrlhf(), slime(),
    three_sources(), damaged(),
)  # fmt: skip
