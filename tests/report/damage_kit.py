"""Healthy run directories of every framework, written as the runtime does, for tests that damage them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobspec.evidence.read import read_evidence
from jobspec.judging.judge import judge
from jobspec.plan import CollectPlan, ImportProof, Plan
from jobspec.verdict import Verdict
from tests.kits import framework_kit, verl_kit
from tests.kits.verdict_kit import PHASES, T0, RunFolder

FIXTURES = Path(__file__).parents[1] / "fixtures"
STEPS = 24
Rows = list[dict[str, Any]]


def rising(step: int) -> float:
    """From 0.15 to 0.9, with a ripple that repeats nothing."""
    return 0.9 - 0.75 * math.exp(-step / 6) + ((step * 37) % 11 - 5) / 500


SKYRL: Mapping[str, Callable[[int], float]] = {
    "reward/avg_raw_reward": rising,
    "policy/final_loss": lambda step: 0.1 + step / 1000,
    "policy/grad_norm": lambda step: 1 + step / 100,
    "policy/rollout_train_logprobs_abs_diff_mean": lambda step: 0.2,
    "generate/avg_num_tokens": lambda step: 200.0 + step,
}
VERL_HEAD = """\
+ VANILLA_MBRIDGE=False
+ VALUE_VANILLA_MBRIDGE=False
+ python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml
(TaskRunnerV1 pid=1)   'vanilla_mbridge': False,
(TaskRunnerV1 pid=1)   'x': 1
(WorkerDict pid=2)   Adapter parameters:   2,523,136
"""


def rows(names: Mapping[str, Callable[[int], float]], steps: int = STEPS) -> Rows:
    return [
        {"step": step, "time": T0 + step, **{name: make(step) for name, make in names.items()}}
        for step in range(1, steps + 1)
    ]


VERL_STEP = "(TaskRunnerV1 pid=1) step:{step} - actor/grad_norm:0.5 - training/global_step:{step}\n"
VERL_VALUES = {
    "actor/pg_loss": 0.1,
    "actor/grad_norm": 0.5,
    "critic/vf_loss": 0.2,
    "critic/rewards/mean": 0.1,
}


def healthy(root: Path, framework: str) -> RunFolder:
    """A run of `framework` whose every deliverable is proved."""
    return MAKERS[framework](root)


def verdict(root: Path) -> Verdict:
    return judge(read_evidence(root))


def _run(root: Path, plan: Plan, log: str, metrics: Mapping[str, Rows], imports: Any = None) -> RunFolder:
    plan = replace(plan, collect=CollectPlan(("*.txt",)), stage=(), ray=None)
    run = RunFolder(root, plan)
    for phase in PHASES:
        run.phase(phase, seconds=9.0 if phase == "driver" else 1.5)
    for command in plan.commands:
        run.log(log, f"{command.name}.log")
    for name, found in metrics.items():
        path = run.metrics(found)
        path.rename(_made(path.parent / name))
    run.artifacts({"notes.txt": "abc"})
    run.write()
    done = [
        {
            "name": command.name,
            "exit_code": 0,
            "start": T0,
            "end": T0 + 9,
            "log": f"logs/n1/{command.name}.log",
        }
        for command in plan.commands
    ]
    run.results(commands=done, imports=imports or {})
    return run


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def trl(root: Path) -> RunFolder:
    plan = framework_kit.plan_of(framework_kit.context("trl", "learning", train={"steps": STEPS}))
    found = rows({"reward": rising, "loss": lambda s: 0.1 + s / 1000, "grad_norm": lambda s: 1 + s / 100})
    return _run(root, plan, "INFO starting\n", {"driver.jsonl": found})


def trl_checkpoint(root: Path) -> RunFolder:
    plan = framework_kit.plan_of(framework_kit.context("trl", "checkpoint"))
    found = rows({"reward": rising, "loss": lambda s: 0.1, "grad_norm": lambda s: 1.0}, plan.expect.steps)
    start = plan.expect.options["resume_from"]
    proofs = {"resume/from_step": start, "resume/optimizer_steps": start, "resume/rng_restored": 1}
    saved = [
        {"step": step, "time": T0 + step, "checkpoint/bytes": 4096} for step in (start, plan.expect.steps)
    ]
    found += [*saved, {"step": start + 1, "time": T0 + 9, **proofs}]
    return _run(root, plan, "INFO starting\n", {"driver.jsonl": found})


def command(root: Path) -> RunFolder:
    wanted = {"require": ["max(reward) > 0.8", "finite(loss)"], "learning": {"metric": "reward"}}
    plan = framework_kit.plan_of(framework_kit.context("command", "run", metrics=wanted))
    found = rows({"reward": rising, "loss": lambda s: 0.1 + s / 1000})
    return _run(root, plan, "INFO starting\n", {"m.jsonl": found})


def skyrl(root: Path) -> RunFolder:
    asked = framework_kit.context("skyrl", "learning", train={"steps": STEPS, "rollout": {"engines": 8}})
    return _run(root, framework_kit.plan_of(asked), "INFO starting\n", {"m.jsonl": rows(SKYRL)})


def skyrl_checkpoint(root: Path) -> RunFolder:
    asked = framework_kit.context("skyrl", "checkpoint", train={"rollout": {"engines": 8}})
    plan = framework_kit.plan_of(asked)
    start, last = plan.expect.options["resume_from"], plan.expect.steps
    log = (
        f"Resuming from global_step: {start}\n"
        f"Successfully loaded complete checkpoint state from global_step_{start}\n"
        f"Successfully saved checkpoint for global_step_{last} to: /c/global_step_{last}\n"
        f"jobspec: the last complete checkpoint is of step {last}\n"
    )
    return _run(root, plan, log, {"m.jsonl": rows(SKYRL, last)})


def verl(root: Path) -> RunFolder:
    plan = verl_kit.plan_of(verl_kit.context("smoke"))
    steps = range(1, plan.expect.steps + 1)
    log = VERL_HEAD + "".join(VERL_STEP.format(step=step) for step in steps)
    found = [{"step": step, "data": {"training/global_step": step, **VERL_VALUES}} for step in steps]
    imports = {"megatron.bridge": {"n1": "/src/bridge/src/megatron/bridge/__init__.py"}}
    return _run(root, plan, log, {f"{plan.commands[0].name}.jsonl": found}, imports)


def nemo_rl(root: Path) -> RunFolder:
    plan = framework_kit.plan_of(framework_kit.context("nemo_rl", "smoke"))
    text = (FIXTURES / "nemo_rl_log_example.txt").read_text(encoding="utf-8")
    log = text.partition("### SECTION A:")[2].partition("\n")[2].partition("\n### SECTION ")[0]
    plan = replace(plan, proofs=(ImportProof("megatron.bridge", "/src/bridge", "bridge"),))
    imports = {"megatron.bridge": {"n1": "/src/bridge/src/megatron/bridge/__init__.py"}}
    run = _run(root, plan, log.replace("/hf/nemo_rl", f"{root}/attempts/1/hf-import"), {}, imports)
    name = plan.commands[-1].name  # the first one looks up the Bridge
    dump = _made(run.folder / "metrics" / name / "metrics.json")
    dump.write_text((FIXTURES / "nemo_rl_metrics_example.json").read_text())
    return run


def rlix(root: Path) -> RunFolder:
    steps = 3
    plan = framework_kit.plan_of(framework_kit.context("rlix", "multi", train={"steps": steps}))
    names = {"train/reward": lambda s: s / 10, "train/loss": lambda s: 0.1, "train/grad_norm": lambda s: 0.2}
    metrics = {f"@{name}/m.jsonl": rows(names, steps) for name in ("one", "two")}
    return _run(root, plan, (FIXTURES / "rlix_log_made.txt").read_text("utf-8"), metrics)


MAKERS: Mapping[str, Callable[[Path], RunFolder]] = {
    "trl": trl,
    "trl, checkpoint": trl_checkpoint,
    "command": command,
    "nemo_rl": nemo_rl,
    "verl": verl,
    "skyrl": skyrl,
    "skyrl, checkpoint": skyrl_checkpoint,
    "rlix": rlix,
}
