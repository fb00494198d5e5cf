"""A third set of folders that people have, made after the second one was read right."""

from __future__ import annotations

import json

from tests.kits.found_runs import GRPO, HEAD, RAY, FoundRun, bar, event, logged, reward, run


def first_step_logged() -> FoundRun:
    """`logging_first_step`, and lines that end as on Windows."""
    text = GRPO + HEAD + "".join(f"{bar(s, 50)}\r\n{logged(s, s / 50)}\r\n" for s in (1, 10, 20, 30, 40, 50))
    return run("crlf", {"t.log": text}, "trl", 6, (1, 0.21), (50, 0.7), 50)


def file_of_each_node() -> FoundRun:
    dicts = "".join(f"{logged(s)}\n" for s in range(1, 6))
    files = {"out.node0": dicts, "logs/node1.out": GRPO + dicts}
    return run("file-a-node", files, "trl", 5, (1, 0.21), (5, 0.25))


def verl_everywhere() -> FoundRun:
    records = [{"critic/score/mean": reward(s), "training/global_step": s} for s in range(1, 11)]
    lines = (json.dumps({"step": s, "data": record}) + "\n" for s, record in enumerate(records, 1))
    printed = (f"{RAY}step:{s} - critic/score/mean:{reward(s)}\n" for s in range(1, 11))
    files: dict[str, str | bytes] = {
        "m.jsonl": "".join(lines),
        "run.log": "".join(printed),
        "tb/events.out.tfevents.1": b"".join(event(s, "critic/score/mean", reward(s)) for s in range(1, 11)),
    }
    return run("verl-everywhere", files, "verl", 10, (1, 0.21), (10, 0.3))


def skyrl_evaluated() -> FoundRun:
    who = "(skyrl_entrypoint pid=3) "
    head = f"{who}2025-08-20 12:00:00.1 | INFO | skyrl_train.utils.tracking:log:93 - Step"
    text = ""
    for s in range(1, 5):
        text += f"{head} {s}: \n{who}{{'eval/all/avg_score': '0.5'}}\n{head} {s}: \n"
        text += f"{who}{{'loss/avg_final_rewards': '{reward(s):.4f}',\n{who} 'timing/step': '12.0000'}}\n"
    metric = "loss/avg_final_rewards"
    return run("skyrl-eval", {"a.log": text}, "skyrl", 4, (1, 0.21), (4, 0.24), metric=metric)


def nemo_rl_epochs() -> FoundRun:
    text, number = "0: nemo_rl/algorithms/grpo.py\n", 0
    for epoch in (1, 2):
        text += f"0: ============================== Epoch {epoch}/2 ==============================\n"
        for step in (1, 2, 3):
            number += 1
            text += f"0: ========================= Step {step}/3 =========================\n"
            text += f"1: noise • Loss: 9\n0:   • Loss: 0.1\n0:   • Avg Reward: {reward(number):.4f}\n"
            text += f"0: Logged data to /x/train_data_step{number}.jsonl\n"
    files = {"slurm-9.out": text}
    return run("nemo-rl-epochs", files, "nemo_rl", 6, (1, 0.21), (6, 0.26), metric="train/reward")


def state_of_a_resume() -> FoundRun:
    history = [{"step": s, "reward": reward(s), "epoch": s / 9} for s in (1, 2, 3, 2, 3, 4)]
    ends = [{"step": 4, "eval_reward": 0.9}, {"step": 4, "train_runtime": 3.0, "train_loss": 0.1}]
    state = {"log_history": [*history, *ends], "max_steps": 4, "global_step": 4}
    files = {"o/trainer_state.json": json.dumps(state)}
    return run("state-of-a-resume", files, "", 4, (1, 0.21), (4, 0.24), 4)


def table_with_semicolons() -> FoundRun:
    text = "\ufeffstep;reward\n1;0.21\n2;0.22\n3;0.23\n"
    return run("semicolons", {"m.csv": text}, "", 3, (1, 0.21), (3, 0.23))


def one_run_of_mlflow() -> FoundRun:
    series = "".join(f"17391823{s:05d} {reward(s)} {s}\n" for s in range(1, 6))
    files = {"run42/metrics/train/reward": series, "run42/tags/mlflow.user": "x"}
    return run("mlflow-run", files, "", 5, (1, 0.21), (5, 0.25))


def trl_tables() -> FoundRun:
    """Samples in tables of `rich` between the dicts."""
    text = "".join(f"{logged(s)}\n╭──── Step {s} ────╮\n│ Prompt │\n{bar(s, 5)}\n" for s in range(1, 6))
    return run("trl-tables", {"o.log": GRPO + text}, "trl", 5, (1, 0.21), (5, 0.25), 5)


def steps_as_floats() -> FoundRun:
    lines = (json.dumps({"global_step": float(s), "train/reward": reward(s)}) + "\n" for s in range(1, 5))
    return run("float-steps", {"m.jsonl": "".join(lines)}, "", 4, (1, 0.21), (4, 0.24))


def json_behind_a_head() -> FoundRun:
    head = "2025-01-01 00:00:00,1 INFO metrics: "
    lines = (head + json.dumps({"step": s, "reward": reward(s)}) + "\n" for s in range(1, 5))
    return run("json-in-log", {"x.log": "".join(lines)}, "", 4, (1, 0.21), (4, 0.24))


def openrlhf_tensors() -> FoundRun:
    head = "(PPOTrainer pid=1) ✨ Global step"
    values = "{{'reward': tensor({}), 'kl': np.float64(0.1), 'actor_lr': 1e-07}}\n"
    lines = (f"{head} {s}: " + values.format(reward(s)) for s in range(1, 5))
    return run("openrlhf-tensors", {"x.log": "".join(lines)}, "", 4, (1, 0.21), (4, 0.24))


THIRD_FOUND_RUNS = (
    first_step_logged(), file_of_each_node(), verl_everywhere(), skyrl_evaluated(), nemo_rl_epochs(),
    state_of_a_resume(), table_with_semicolons(), one_run_of_mlflow(), trl_tables(), steps_as_floats(),
    json_behind_a_head(), openrlhf_tensors(),
)  # fmt: skip
