"""What trackers such as W&B wrote into a run's attempts, to be sent or looked at later."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_DEPTH = 7  # below an attempt: NeMo-RL keeps `NAME/logs/exp_001/wandb/wandb/offline-run-...`
OFFLINE, MLFLOW = "offline-run-", "mlruns"


@dataclass(frozen=True)
class TrackerFiles:
    """A folder that a tracker wrote, relative to the run's; `command` sends or shows it."""

    tracker: str
    folder: str
    command: str


def tracker_files(root: Path, attempts: Iterable[Path]) -> tuple[TrackerFiles, ...]:
    """The offline runs of W&B and the stores of MLflow, in the order of attempts and names."""
    return tuple(item for attempt in attempts for item in _below(root, attempt))


def _below(root: Path, attempt: Path) -> Iterator[TrackerFiles]:
    for folder, names, files in os.walk(attempt):
        names.sort()
        place = Path(folder)
        if len(place.relative_to(attempt).parts) >= MAX_DEPTH:
            names.clear()
        relative, shown = place.relative_to(root).as_posix(), shlex.quote(str(place.absolute()))
        if place.name.startswith(OFFLINE) and any(name.endswith(".wandb") for name in files):
            names.clear()
            yield TrackerFiles("W&B", relative, f"wandb sync {shown}")
        elif place.name == MLFLOW:
            names.clear()
            yield TrackerFiles(
                "MLflow", relative, f"MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {shown}"
            )
