"""A second set of folders that people have, made after the first one was read right."""

from __future__ import annotations

import json
import struct

from tests.kits.found_runs import GRPO, HEAD, RAY, FoundRun, bar, event, logged, reward, run


def swift() -> FoundRun:
    """ms-swift names step and total in the dict itself."""
    extra = {"memory(GiB)": 61.2, "percentage": "2.50%", "elapsed_time": "1m 2s"}
    dicts = ({**logged(s), **extra, "global_step/max_steps": f"{s}/40"} for s in range(1, 11))
    text = GRPO + "".join(f"{entry}\n" for entry in dicts)
    return run("ms-swift", {"nohup.out": text}, "trl", 10, (1, 0.21), (10, 0.3), 40)


def llama_factory() -> FoundRun:
    records = (
        {"current_steps": s, "total_steps": 60, "loss": reward(s), "epoch": s / 10} for s in range(10, 61, 10)
    )
    text = "".join(f"{json.dumps(record)}\n" for record in records)
    return run(
        "llama-factory", {"trainer_log.jsonl": text}, "", 6, (10, 0.3), (60, 0.8), metric="loss", planned=60
    )


def wandb_history_table() -> FoundRun:
    """`_step` counts calls of `wandb.log`, not train steps."""
    head = "_step,_runtime,train/global_step,train/reward,train/epoch\n"
    rows = "".join(f"{at},{at * 60},{5 * at + 5},{reward(5 * at + 5)},{at / 10}\n" for at in range(12))
    return run(
        "history-csv", {"history.csv": head + rows}, "", 12, (5, 0.25), (60, 0.8), metric="train/reward"
    )


def rloo() -> FoundRun:
    text = '  File "/x/trl/trainer/rloo_trainer.py", line 4\n' + HEAD
    for s in range(1, 9):
        entry = {"objective/kl": 0.1 * s, "objective/rlhf_reward": reward(s), "lr": 1e-6, "epoch": s / 8}
        text += f"{entry}\n{bar(s, 8)}"
    files = {"log.txt": text}
    return run("trl-rloo", files, "trl", 8, (1, 0.21), (8, 0.28), 8, metric="objective/rlhf_reward")


def ray_train() -> FoundRun:
    who = "\x1b[36m(RayTrainWorker pid=77, ip=10.0.0.3)\x1b[0m "
    text = who + GRPO
    for s in range(1, 11):
        text += f"{who}{bar(s, 10).strip()}\n{who}{logged(s)}\n\x1b[36m(pid=gcs_server)\x1b[0m [I 1 1] x\n"
    return run("ray-train", {"job-driver.log": text}, "trl", 10, (1, 0.21), (10, 0.3), 10)


def bars_in_the_line() -> FoundRun:
    lines = (f"{bar(s, 20)}{logged(s)}   {bar(s, 20).strip()}\n" for s in range(2, 21, 2))
    return run("bar-in-line", {"a.log": GRPO + "".join(lines)}, "trl", 10, (2, 0.22), (20, 0.4), 20)


def torchrun() -> FoundRun:
    lines = (f"[default0]:{logged(s)}\n[default1]:[rank1]: warning\n" for s in range(1, 7))
    return run("torchrun", {"x.err": "[default0]:" + GRPO + "".join(lines)}, "trl", 6, (1, 0.21), (6, 0.26))


def logger() -> FoundRun:
    head = "2025-06-01 10:00:00,123 - INFO - __main__ - "
    lines = (f"{head}{logged(s)}\n{head}settings {{'lr': 0.1, 'reward': 9}}\n" for s in range(1, 7))
    return run("logger", {"x.log": GRPO + "".join(lines)}, "trl", 6, (1, 0.21), (6, 0.26))


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def message(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def wandb_bytes(records: int) -> bytes:
    """A `.wandb` file; some records go over the end of a block."""
    data = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
    for step in range(1, records + 1):
        values = {"train/reward": reward(step), "train/global_step": step, "_step": step - 1}
        items = (message(1, key.encode()) + message(16, json.dumps(v).encode()) for key, v in values.items())
        record = varint(1 << 3) + varint(step) + message(2, b"".join(message(1, item) for item in items))
        kind = 2
        while record:
            left = 32768 - len(data) % 32768
            if left < 7:
                data += bytes(left)
                continue
            piece, record = record[: left - 7], record[left - 7 :]
            kind = kind if record else (1 if kind == 2 else 4)
            data += bytes(4) + struct.pack("<HB", len(piece), kind) + piece
            kind = 3
    return data


def wandb_offline_alone() -> FoundRun:
    folder = "wandb/offline-run-20250210_100312-ab12cd34"
    files: dict[str, str | bytes] = {
        f"{folder}/run-ab12cd34.wandb": wandb_bytes(699),
        f"{folder}/files/wandb-metadata.json": '{"program": "/x/trl/trainer/grpo.py"}',
    }
    return run("wandb-file", files, "trl", 699, (1, 0.21), (699, reward(699)))


def skyrl_events() -> FoundRun:
    events = b"".join(event(s, "reward/avg_raw_reward", s / 8) for s in range(1, 9))
    files: dict[str, str | bytes] = {"tensorboard_log/events.out.tfevents.1.h.1.0": events}
    return run("skyrl-events", files, "skyrl", 8, (1, 0.125), (8, 1.0))


def verl_resumed() -> FoundRun:
    def log(first: int, last: int) -> str:
        lines = (
            f"step:{s} - critic/rewards/mean:{reward(s)} - training/global_step:{s}\n"
            for s in range(first, last)
        )
        return "".join(f"{RAY}{line}" for line in lines)

    files = {"r1.log": log(1, 8) + "Traceback (most recent call last):\n", "r2.log": log(6, 15)}
    return run("verl-resume", files, "verl", 14, (1, 0.21), (14, 0.34))


def nemo_rl_validated() -> FoundRun:
    text = "nemo_rl/algorithms/grpo.py\n"
    for s in range(1, 5):
        text += f"========================= Step {s}/200 =========================\n"
        if s % 2 == 0:
            text += (
                f"\n📊 Validation Results:\n    • Accuracy: {reward(s):.4f}\n    • Samples processed: 256\n"
            )
        text += f"\n📊 Training Results:\n  • Loss: {0.1 * s:.4f}\n  • Avg Reward: {reward(s):.4f}\n"
    files = {"driver.log": text}
    return run("nemo-rl-val", files, "nemo_rl", 2, (2, 0.22), (4, 0.24), metric="validation/accuracy")


def list_of_records() -> FoundRun:
    records = [{"step": s, "reward": reward(s), "loss": None} for s in range(1, 6)]
    return run("json-list", {"log_history.json": json.dumps(records)}, "", 5, (1, 0.21), (5, 0.25))


def deep() -> FoundRun:
    files = {
        "a.json": '{"a":' * 900 + "1" + "}" * 900,
        "b.jsonl": '{"a":' * 3000 + "1" + "}" * 3000 + "\n",
        "m.jsonl": '{"step":1,"reward":0.5}\n',
    }
    return run("deep", files, "", 1, (1, 0.5), (1, 0.5))


MORE_FOUND_RUNS = (
    swift(), llama_factory(), wandb_history_table(), rloo(), ray_train(), bars_in_the_line(), torchrun(),
    logger(), wandb_offline_alone(), skyrl_events(), verl_resumed(), nemo_rl_validated(),
    list_of_records(), deep(),
)  # fmt: skip
