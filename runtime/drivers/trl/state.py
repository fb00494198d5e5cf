"""Files of the TRL driver: its config, checkpoints and their commit marker, metrics and proofs.

Plain data and plain files; no torch, no Ray. Standard library only.
"""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from jobspec.runtime.base.safe_write import write_text

METRICS_FILE = "metrics.jsonl"
MARKER = "jobspec-complete.json"  # written after the last file of a checkpoint, on all ranks

EXIT_FAILED = 1
EXIT_BLOCKED = 3
EXIT_STOPPED = 143  # 128 + SIGTERM: saved and left before the last step


class BlockedError(Exception):
    """Training could not start for a reason outside the training code (package, file, resource, option)."""


@dataclass(frozen=True)
class TrainConfig:
    """One command's work: train to step `until` of a schedule of `steps`.

    `options` are GRPOConfig fields, `peft` LoraConfig fields (none: no adapter). `resume` is `auto`
    (from the newest complete checkpoint, if any), `must` (fail without one) or `never`.
    `data` names the environment variable that holds the prompts' path.
    """

    steps: int
    workers: int
    until: int = 0
    reward: Mapping[str, str] = field(default_factory=lambda: {"builtin": "digits"})
    seed: int = 42
    use_gpu: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    peft: Mapping[str, Any] = field(default_factory=dict)
    save_every: int = 0
    keep: int = 0
    resume: str = "auto"
    data: str = "JOBSPEC_DATA_PROMPTS"
    label: str = "train"

    @staticmethod
    def from_json(text: str) -> TrainConfig:
        """Raises: BlockedError for text that is not an object of exactly these fields."""
        try:
            data = json.loads(text)
            unknown = sorted(set(data) - set(TrainConfig.__dataclass_fields__))
            if unknown:
                raise ValueError(f"unknown {', '.join(unknown)}")
            config = TrainConfig(**data)
        except (TypeError, ValueError) as cause:
            raise BlockedError(f"--config is not a driver config: {cause}") from cause
        return config if config.until else dataclasses.replace(config, until=config.steps)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Folders:
    """Where one attempt reads and writes; shared storage but for what was staged."""

    model: Path
    data: Path
    metrics: Path
    checkpoints: Path
    attempt: Path

    @staticmethod
    def from_env(config: TrainConfig, env: Mapping[str, str]) -> Folders:
        """Raises: BlockedError naming the variables that the runtime should have set."""
        names = ["JOBSPEC_MODEL_PATH", config.data, "JOBSPEC_METRICS_DIR", "JOBSPEC_CHECKPOINT_DIR"]
        missing = [name for name in names if not env.get(name)]
        if missing:
            raise BlockedError(f"environment lacks {', '.join(missing)}: start this driver through jobspec")
        model, data, metrics, checkpoints = (Path(env[name]) for name in names)
        attempt = Path(env.get("JOBSPEC_ATTEMPT_DIR") or metrics.parent)
        return Folders(model, data, metrics, checkpoints, attempt)

    def stop_file(self, label: str) -> Path:
        """Empty while training goes on; the reason to stop once there is one."""
        return self.attempt / f"stop-{label}"

    def state_file(self, label: str) -> Path:
        return self.attempt / f"train_state-{label}.json"


def read_prompts(path: Path) -> List[Dict[str, Any]]:
    """Rows of a `.jsonl` file, or of all such files of a folder in name order.

    Raises: BlockedError naming file and line for a row without a prompt.
    """
    files = sorted(path.glob("**/*.jsonl")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise BlockedError(f"no prompts at `{path}`: name a .jsonl file, or a folder with .jsonl files")
    rows = []
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if line.strip():
                rows.append(_row(line, f"{file}:{number}"))
    if not rows:
        raise BlockedError(f"no prompts in {', '.join(map(str, files))}: the file is empty")
    return rows


def _row(line: str, place: str) -> Dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as cause:
        raise BlockedError(f"{place}: not JSON: {cause}") from cause
    if not isinstance(row, dict) or "prompt" not in row:
        raise BlockedError(f"{place}: no key `prompt`")
    return row


# -- checkpoints -------------------------------------------------------------------------------------


def checkpoint_step(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def complete_checkpoints(folder: Path) -> List[Path]:
    """Checkpoints with a marker whose files are all there at their size, oldest first."""
    complete = [
        path for path in folder.glob("checkpoint-*") if path.name[11:].isdecimal() and is_complete(path)
    ]
    return sorted(complete, key=checkpoint_step)


def is_complete(checkpoint: Path) -> bool:
    """Whether the marker is there and every file it lists still has the size it had."""
    try:
        files = json.loads((checkpoint / MARKER).read_text())["files"]
        return all((checkpoint / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError):
        return False


def mark_complete(checkpoint: Path, world_size: int) -> int:
    """Write the marker, once all ranks have written their files; the checkpoint's size in bytes."""
    files = {
        str(p.relative_to(checkpoint)): p.stat().st_size for p in sorted(checkpoint.rglob("*")) if p.is_file()
    }
    step = checkpoint_step(checkpoint)
    write_json(checkpoint / MARKER, {"v": 1, "step": step, "world_size": world_size, "files": files})
    return sum(files.values())


def find_resume(config: TrainConfig, folder: Path) -> Optional[Path]:
    """The checkpoint to continue from, or None for a fresh start.

    Raises: BlockedError when there must be one, naming what is there instead.
    """
    if config.resume == "never":
        return None
    complete = complete_checkpoints(folder)
    if complete:
        return complete[-1]
    if config.resume == "must":
        others = ", ".join(sorted(path.name for path in folder.glob("checkpoint-*"))) or "nothing"
        raise BlockedError(f"resume needs a complete checkpoint in `{folder}`; found {others}")
    return None


# -- metrics and proofs ------------------------------------------------------------------------------


def metrics_row(step: int, logs: Mapping[str, Any], extra: Mapping[str, float]) -> Dict[str, Any]:
    """One line of metrics.jsonl: numbers only, under the keys that TRL logs them by."""
    row: Dict[str, Any] = {"step": step, "time": round(time.time(), 3)}
    for key, value in {**logs, **extra}.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and key not in row:
            row[key] = value
    return row


def append_row(folder: Path, row: Mapping[str, Any]) -> None:
    """One line, written whole: readers may follow the file."""
    with (folder / METRICS_FILE).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Atomic: a reader sees the old file or the new one."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def throughput(previous: Optional[Tuple[float, float]], now: float, tokens: float) -> Dict[str, float]:
    """Wall time of a step in seconds and tokens a second, from the (time, token count) of the step before."""
    if previous is None or now <= previous[0]:
        return {}
    seconds = now - previous[0]
    return {"perf/step_s": round(seconds, 4), "perf/tokens_per_s": round((tokens - previous[1]) / seconds, 2)}
