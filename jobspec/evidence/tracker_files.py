"""What trackers such as W&B wrote into a run's attempts, to be sent or looked at later."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jobspec.log_text import clean
from jobspec.runtime.base.run_files import open_file

MAX_DEPTH = 7  # below an attempt: NeMo-RL keeps `NAME/logs/exp_001/wandb/wandb/offline-run-...`
OFFLINE, MLFLOW = "offline-run-", "mlruns"
# W&B names a run's page when the run begins, behind the start of the model at worst, and when it ends.
HEAD_BYTES, TAIL_BYTES = 8 * 1024**2, 256 * 1024
PAGE = re.compile(r"\bwandb: .*\bView run\b.*?(https?://[^\s/]+/[^\s/]+/[^\s/]+/runs/[\w.-]+)")


@dataclass(frozen=True)
class TrackerFiles:
    """A folder that a tracker wrote, relative to the run's; `command` sends or shows it.

    Of what was sent at once `url` is the page, as the log says that stands in place of the folder.
    """

    tracker: str
    folder: str
    command: str
    url: str = ""


def tracker_files(root: Path, attempts: Iterable[Path]) -> tuple[TrackerFiles, ...]:
    """The offline runs of W&B and the stores of MLflow, in the order of attempts and names.

    Those of framework `command` lie where it runs, in the run's folder.
    """
    folders = [*attempts, root / "wandb", root / MLFLOW]
    return tuple(item for folder in folders for item in _below(root, folder))


def tracker_pages(root: Path, logs: Iterable[str]) -> tuple[TrackerFiles, ...]:
    """The pages of W&B that the logs name, each once. Logs are told by their names below `root`."""
    pages: dict[str, TrackerFiles] = {}
    for log in logs:
        for line in _ends(root / log):
            if match := PAGE.search(clean(line)):
                pages.setdefault(match[1], TrackerFiles("W&B", log, "", match[1]))
    return tuple(pages.values())


def _ends(log: Path) -> list[str]:
    """The lines of a log's beginning and end; none of one that cannot be read."""
    try:
        with open_file(log) as file:
            text = file.read(HEAD_BYTES)
            file.seek(max(file.tell(), file.seek(0, os.SEEK_END) - TAIL_BYTES))
            text += file.read()
    except OSError:
        return []
    if b"View run" not in text:  # as in most logs: a split takes longer than all else here
        return []
    return [line.decode("utf-8", "replace") for line in re.split(rb"[\r\n]", text) if b"View run" in line]


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
