"""What every training worker of the TRL driver runs: one GRPOTrainer in Ray Train's process group.

Imported by Ray workers on every node. Standard library at import; torch, transformers and trl are
imported in the functions that need them.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import os
import socket
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from jobspec.runtime.drivers.trl import state as trl_state
from jobspec.runtime.drivers.trl.rewards import load_reward
from jobspec.runtime.drivers.trl.state import BlockedError, Folders, TrainConfig

# What the driver itself decides; the adapter refuses them as overrides by the same names.
OWNED_OPTIONS = (
    "output_dir", "max_steps", "seed", "use_cpu", "logging_steps", "logging_strategy",
    "save_strategy", "save_steps", "save_total_limit", "resume_from_checkpoint", "disable_tqdm",
    "overwrite_output_dir", "logging_dir", "logging_nan_inf_filter", "push_to_hub",
)  # fmt: skip


@dataclass
class Progress:
    """What one worker has done and proved; rank 0's goes to `train_state-<label>.json`."""

    rank: int
    world_size: int
    device: str = ""
    backend: str = ""
    start_step: int = 0
    end_step: int = 0
    resumed_from: str = ""
    optimizer_steps_loaded: int = 0  # Adam's own step counter, right after loading
    rng_restored: Optional[bool] = None  # the generator's state equals the checkpoint's; None: not resumed
    stopped: str = ""
    last: Optional[Tuple[float, float]] = field(default=None, repr=False)


def train_worker(settings: Mapping[str, Any]) -> None:
    """Ray Train's entry: `settings` holds the config as JSON and the folders as text."""
    import torch
    import torch.distributed as dist

    config = TrainConfig.from_json(settings["config"])
    folders = Folders(**{name: Path(path) for name, path in settings["folders"].items()})
    progress = Progress(dist.get_rank(), dist.get_world_size(), backend=dist.get_backend())
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if not config.use_gpu:
        torch.set_num_threads(int(settings["threads"]))
    trainer = build_trainer(config, folders, progress)
    progress.device = str(trainer.args.device)
    print(
        f"trainer rank {progress.rank} of {progress.world_size} on {socket.gethostname()}:"
        f" device {progress.device}, {progress.backend}, torch {torch.__version__}, pid {os.getpid()}",
        flush=True,
    )
    resume = trl_state.find_resume(config, folders.checkpoints)
    progress.resumed_from = str(resume or "")
    dist.barrier()  # nobody writes a checkpoint before everybody has looked for one
    if resume is not None and trl_state.checkpoint_step(resume) >= config.until:
        progress.start_step = progress.end_step = trl_state.checkpoint_step(resume)
        print(f"nothing to train: {resume} is of step {progress.end_step} already", flush=True)
    else:
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    write_state(config, folders, progress)


def build_trainer(config: TrainConfig, folders: Folders, progress: Progress) -> Any:
    """A GRPOTrainer with its model, data, reward, options and recorder."""
    quiet_libraries()
    transformers, dataset = library("transformers"), library("datasets").Dataset
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folders.model))
    trainer = library("trl").GRPOTrainer(
        model=str(folders.model),
        reward_funcs=load_reward(config.reward),
        args=grpo_config(config, folders),
        train_dataset=dataset.from_list(trl_state.read_prompts(folders.data)),
        processing_class=tokenizer,
        peft_config=lora_config(config.peft),
        callbacks=[make_recorder(config, folders, progress)],
    )
    trainer.remove_callback(transformers.PrinterCallback)  # it prints what the recorder prints
    prove_rng(trainer, progress)
    return trainer


def library(name: str) -> Any:
    """A package that training needs. Raises: BlockedError that says what is missing, and where."""
    try:
        return importlib.import_module(name)
    except ImportError as cause:
        raise BlockedError(f"training needs the package `{name}` in {sys.executable}: {cause}") from cause


def quiet_libraries() -> None:
    """No progress bars in a log file, and no notices about the libraries' own use of each other."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers|trl")
    library("datasets").disable_progress_bars()
    library("transformers").utils.logging.disable_progress_bar()


def grpo_config(config: TrainConfig, folders: Folders) -> Any:
    """GRPOConfig of the user's options and the driver's own. Raises: BlockedError for an unknown field."""
    cls = library("trl").GRPOConfig
    known = {item.name for item in dataclasses.fields(cls) if item.init}
    refuse_unknown("GRPOConfig", config.options, known)
    owned: Dict[str, Any] = {
        "output_dir": str(folders.checkpoints),
        "max_steps": config.steps,
        "seed": config.seed,
        "use_cpu": not config.use_gpu,
        "logging_steps": 1,
        "logging_strategy": "steps",
        "save_strategy": "steps" if config.save_every else "no",
        "save_steps": config.save_every or 500,
        "save_total_limit": config.keep or None,
        "disable_tqdm": True,
        "logging_nan_inf_filter": False,  # a loss that is not a number must be seen, not averaged away
    }
    try:
        return cls(**{"report_to": [], **config.options, **owned})
    except (TypeError, ValueError) as cause:
        raise BlockedError(f"TRL refuses these options: {cause}") from cause


def lora_config(options: Mapping[str, Any]) -> Any:
    """LoraConfig of `peft.*` overrides, None without any."""
    if not options:
        return None
    cls = library("peft").LoraConfig  # only for overrides `peft.*`
    refuse_unknown("LoraConfig", options, {item.name for item in dataclasses.fields(cls)})
    return cls(**{"task_type": "CAUSAL_LM", **options})


def refuse_unknown(owner: str, options: Mapping[str, Any], known: Any) -> None:
    """Raises: BlockedError naming every option that `owner` does not have, with the nearest it has."""
    problems: List[str] = []
    for name in sorted(set(options) - set(known)):
        near = difflib.get_close_matches(name, sorted(known), n=1)
        problems.append(f"`{name}`" + (f" (did you mean `{near[0]}`?)" if near else ""))
    if problems:
        raise BlockedError(f"{owner} has no field {', '.join(problems)}")


def make_recorder(config: TrainConfig, folders: Folders, progress: Progress) -> Any:
    """The callback that writes metrics, marks checkpoints, stops in time and proves a resume."""
    base: Any = library("transformers").TrainerCallback

    class Recorder(base):  # type: ignore[misc] # the class is only known once transformers is there
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            progress.start_step = progress.end_step = state.global_step
            progress.optimizer_steps_loaded = optimizer_steps(more.get("optimizer"))
            self.board = open_tensorboard(folders.metrics) if progress.rank == 0 else None
            progress.last = (time.time(), float(state.num_input_tokens_seen or 0))

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            progress.end_step = state.global_step
            if progress.resumed_from and progress.end_step == progress.start_step + 1:
                write_proof(folders, progress)
            progress.stopped = stop_reason(folders.stop_file(config.label), progress)
            if progress.stopped or state.global_step >= config.until:
                control.should_training_stop = True
                control.should_save = bool(config.save_every) or bool(progress.stopped)

        def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            finish_checkpoint(folders, state.global_step, progress)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
            if progress.rank == 0 and logs and "train_runtime" not in logs:
                record(folders, progress, state.global_step, logs, self.board)

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if self.board is not None:
                self.board.close()

    return Recorder()


def record(folders: Folders, progress: Progress, step: int, logs: Mapping[str, Any], board: Any) -> None:
    """One step's numbers to metrics.jsonl, to TensorBoard, and a line for people to the log."""
    tokens = float(logs.get("num_tokens", 0.0))
    extra = trl_state.throughput(progress.last, time.time(), tokens)
    progress.last = (time.time(), tokens)
    row = trl_state.metrics_row(step, logs, extra)
    trl_state.append_row(folders.metrics, row)
    if board is not None:
        for key, value in row.items():
            if key not in ("step", "time"):
                board.add_scalar(key, value, step)
    shown = [f"{key} {row[key]:.4g}" for key in ("reward", "loss", "grad_norm", "perf/step_s") if key in row]
    print(f"train step {step}: {', '.join(shown)}", flush=True)


def open_tensorboard(folder: Path) -> Any:
    """A TensorBoard writer, or None where the package is missing: metrics.jsonl is the record."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        print("no tensorboard package here: metrics go to metrics.jsonl alone", file=sys.stderr)
        return None
    return SummaryWriter(log_dir=str(folder / "tensorboard"))


def stop_reason(path: Path, progress: Progress) -> str:
    """The driver's reason to stop now, the same on every rank; empty to go on.

    Rank 0 opens the file anew each step: opening is what makes network file systems look again.
    """
    import torch.distributed as dist

    reason = [path.read_text() if progress.rank == 0 and path.is_file() else ""]
    dist.broadcast_object_list(reason, src=0)
    return str(reason[0])


def finish_checkpoint(folders: Folders, step: int, progress: Progress) -> None:
    """Mark a checkpoint once every rank has written its part: the Trainer itself does not wait."""
    import torch.distributed as dist

    dist.barrier()
    if progress.rank == 0:
        checkpoint = folders.checkpoints / f"checkpoint-{step}"
        size = trl_state.mark_complete(checkpoint, progress.world_size)
        trl_state.append_row(folders.metrics, trl_state.metrics_row(step, {"checkpoint/bytes": size}, {}))
        print(f"checkpoint {checkpoint} complete, {size} bytes", flush=True)


def optimizer_steps(optimizer: Any) -> int:
    """The optimizer's own step counter: 0 for a fresh one, the saved count for a loaded one."""
    steps = [entry["step"] for entry in getattr(optimizer, "state", {}).values() if "step" in entry]
    return int(max((float(step) for step in steps), default=0))


def prove_rng(trainer: Any, progress: Progress) -> None:
    """Compare the random generator with the checkpoint's file each time the Trainer has restored it."""
    restore = getattr(trainer, "_load_rng_state", None)
    if restore is None:  # another Trainer: the proof is then missing, and the report says so
        return

    def proved(checkpoint: Optional[str]) -> None:
        restore(checkpoint)
        if checkpoint is not None:
            progress.rng_restored = rng_equals(Path(checkpoint), progress)

    trainer._load_rng_state = proved


def rng_equals(checkpoint: Path, progress: Progress) -> bool:
    import torch

    name = f"rng_state_{progress.rank}.pth" if progress.world_size > 1 else "rng_state.pth"
    if not (checkpoint / name).is_file():
        return False
    saved = torch.load(checkpoint / name, weights_only=False)["cpu"]  # this run's own file
    return bool(torch.equal(saved, torch.random.get_rng_state()))


def gather(progress: Progress) -> List[Dict[str, Any]]:
    """Every rank's progress, in rank order, on every rank."""
    import torch.distributed as dist

    everyone: List[Any] = [None] * progress.world_size
    mine = {key: value for key, value in vars(progress).items() if key != "last"}
    dist.all_gather_object(everyone, {**mine, "host": socket.gethostname()})
    return everyone


def write_proof(folders: Folders, progress: Progress) -> None:
    """Write what all ranks loaded as a metrics row of the first step after the resume.

    The step that training continued from belongs to the process before.
    """
    everyone = gather(progress)
    if progress.rank == 0:
        proof = {
            "resume/from_step": progress.start_step,
            "resume/optimizer_steps": min(rank["optimizer_steps_loaded"] for rank in everyone),
            "resume/rng_restored": int(all(rank["rng_restored"] for rank in everyone)),
        }
        trl_state.append_row(folders.metrics, trl_state.metrics_row(progress.end_step, proof, {}))


def write_state(config: TrainConfig, folders: Folders, progress: Progress) -> None:
    """Rank 0 writes `train_state-<label>.json`, with every rank's part."""
    everyone = gather(progress)
    if progress.rank == 0:
        more = {"v": 1, "label": config.label, "steps": config.steps, "until": config.until}
        trl_state.write_json(folders.state_file(config.label), {**everyone[0], **more, "ranks": everyone})
