"""The TRL driver: GRPO with data-parallel workers over all nodes of a Ray cluster.

    python -m jobspec.runtime.drivers.trl.driver --config '{"steps": 30, "workers": 2, ...}'

The driver runs on the head node with the environment that the runtime gives every command (RAY_ADDRESS,
JOBSPEC_MODEL_PATH, JOBSPEC_DATA_PROMPTS, JOBSPEC_METRICS_DIR, JOBSPEC_CHECKPOINT_DIR, ...). Exit codes: 0
trained to the last step of the command, 1 training failed, 3 training could not start, 143 stopped by a
signal after saving. The last line of standard error is the cause. Standard library only at import.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from jobspec.runtime.drivers.trl.rewards import RewardError, describe
from jobspec.runtime.drivers.trl.state import (
    EXIT_BLOCKED,
    EXIT_FAILED,
    EXIT_STOPPED,
    BlockedError,
    Folders,
    TrainConfig,
)

# Handed to every worker: they may run on other nodes, where the raylet's environment is older.
PASSED_ON = ("PYTHONPATH", "RAY_ADDRESS", "HF_", "TRANSFORMERS_", "NCCL_", "GLOO_", "TORCH_", "JOBSPEC_")
# Read by Ray at import. Ray Train would change directory and scrape metrics; the log is for people, so
# lines of different ranks stay apart, without colours, and without what only a dashboard could answer.
RAY_SETTINGS = {
    "RAY_COLOR_PREFIX": "0",
    "RAY_DEDUP_LOGS_ALLOW_REGEX": "^(trainer rank|train step|checkpoint) ",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "Failed to query Ray Train Controller actor state",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",  # it would print every line of a worker twice
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
}
MAX_THREADS = 8  # of a worker without a GPU; more hardly helps the small models one trains so


@dataclass(frozen=True)
class Share:
    """What one worker gets of a node."""

    cpus: float
    threads: int


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="trl_grpo", description="GRPO by TRL in Ray Train")
    parser.add_argument("--config", required=True, help="JSON object; see TrainConfig")
    args = parser.parse_args(argv)
    try:
        config = TrainConfig.from_json(args.config)
        return run(config, Folders.from_env(config, os.environ))
    except BlockedError as cause:
        return report(f"blocked: {cause}", EXIT_BLOCKED)
    except RewardError as cause:
        return report(f"training failed: {cause}", EXIT_FAILED)


def run(config: TrainConfig, folders: Folders) -> int:
    """Connect, train, say how it ended; the exit code."""
    for folder in (folders.metrics, folders.checkpoints, folders.attempt):
        folder.mkdir(parents=True, exist_ok=True)
    stop = folders.stop_file(config.label)
    stop.write_text("")
    os.environ.update({key: value for key, value in RAY_SETTINGS.items() if key not in os.environ})
    ray = connect()
    stop_on_signal(stop)
    try:
        share = worker_share(config, ray.nodes())
        fit(config, folders, share)
    finally:
        ray.shutdown()
    return conclude(config, folders)


def connect() -> Any:
    """Ray, connected to the running cluster. Raises: BlockedError when it is missing or unreachable."""
    try:
        import ray
        import ray.train
    except ImportError as cause:
        raise BlockedError(f"the driver needs `ray[train]` in its Python: {describe(cause)}") from cause
    probe(os.environ.get("RAY_ADDRESS", ""))
    try:
        ray.init(
            log_to_driver=True, logging_level=logging.WARNING, runtime_env={"env_vars": passed_on(os.environ)}
        )
    except ConnectionError as cause:
        raise BlockedError(f"no Ray cluster at {os.environ['RAY_ADDRESS']}: {describe(cause)}") from cause
    return ray


def probe(address: str, timeout_s: float = 20.0) -> None:
    """Raises: BlockedError unless something listens there: `ray.init` would try for ever."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise BlockedError(
            f"RAY_ADDRESS is `{address}`, not HOST:PORT: this driver joins a cluster, never starts one"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
    except OSError as cause:
        raise BlockedError(f"no Ray cluster at {address}: {describe(cause)}") from cause


def passed_on(env: Mapping[str, str]) -> Dict[str, str]:
    """The variables that workers need, without the run's token."""
    names = [name for name in env if name.startswith(PASSED_ON) and "TOKEN" not in name]
    return {name: env[name] for name in sorted(names)}


def stop_on_signal(stop: Path) -> None:
    """On SIGTERM or SIGUSR1 ask the workers to save and leave. After `ray.init`: it sets its own handler."""

    def ask(number: int, frame: Any) -> None:
        stop.write_text(signal.Signals(number).name)
        print(f"{signal.Signals(number).name}: saving after this step", file=sys.stderr, flush=True)

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGUSR1, ask)


def worker_share(config: TrainConfig, nodes: Sequence[Mapping[str, Any]]) -> Share:
    """CPUs and threads of a worker when they are spread evenly. Raises: BlockedError when GPUs lack.

    Less than one CPU each is fine: Ray would otherwise wait for a CPU for ever.
    """
    alive: List[Mapping[str, float]] = [node["Resources"] for node in nodes if node.get("Alive")]
    gpus = sum(int(resources.get("GPU", 0)) for resources in alive)
    if config.use_gpu and gpus < config.workers:
        raise BlockedError(f"{config.workers} workers need one GPU each, the Ray cluster has {gpus} GPUs")
    per_node = -(-config.workers // max(1, len(alive)))
    share = min((resources.get("CPU", 0.0) for resources in alive), default=0.0) / per_node
    if share <= 0:
        raise BlockedError("a node of the Ray cluster offers no CPU")
    return Share(
        cpus=1.0 if share >= 1 else int(share * 100) / 100, threads=max(1, min(MAX_THREADS, int(share)))
    )


def fit(config: TrainConfig, folders: Folders, share: Share) -> None:
    """Run the workers to their end. Raises: what a worker raised, or Ray Train itself."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    from jobspec.runtime.drivers.trl.loop import train_worker

    trainer = TorchTrainer(
        train_worker,
        train_loop_config={
            "config": config.to_json(),
            "folders": {name: str(path) for name, path in vars(folders).items()},
            "threads": share.threads,
        },
        torch_config=TorchConfig(backend="nccl" if config.use_gpu else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=config.workers,
            use_gpu=config.use_gpu,
            resources_per_worker={"CPU": share.cpus, **({"GPU": 1} if config.use_gpu else {})},
            placement_strategy="SPREAD",
        ),
        run_config=RunConfig(
            name=config.label,
            storage_path=str(folders.attempt / "ray_train"),
            failure_config=FailureConfig(
                max_failures=0
            ),  # requeueing is the scheduler's, and is counted there
        ),
    )
    try:
        trainer.fit()
    except Exception as failure:
        raise first_cause(failure) from failure


def first_cause(failure: BaseException) -> BaseException:
    """What a worker raised, freed of Ray's wrappers; the lowest rank's if several did."""
    workers = getattr(failure, "worker_failures", None) or {}
    cause = workers[min(workers)] if workers else failure
    for _ in range(8):  # wrappers of wrappers, never that deep
        inner = getattr(cause, "_base_exc", None) or getattr(cause, "cause", None)
        if not isinstance(inner, BaseException):
            return cause
        cause = inner
    return cause


def conclude(config: TrainConfig, folders: Folders) -> int:
    """The exit code by what rank 0 wrote down, with a line for people."""
    import json

    state = json.loads(folders.state_file(config.label).read_text())
    span = f"train steps {state['start_step']} to {state['end_step']} of {config.steps}"
    if state["stopped"]:
        return report(f"stopped by {state['stopped']} after {span}; checkpoint saved", EXIT_STOPPED)
    if state["end_step"] < config.until:
        return report(f"training ended early: {span}, {config.until} asked", EXIT_FAILED)
    print(f"trl_grpo: {span} done, {state['world_size']} workers on {state['device']}", flush=True)
    return 0


def report(text: str, code: int) -> int:
    """The last line of standard error is the cause."""
    sys.stdout.flush()
    print(f"trl_grpo: {text}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
