"""Trackers, such as wandb, beside the one whose files jobspec reads.

What they write lies in the attempt's folder, not among its metrics: a verdict reads the framework's files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from jobspec.finding import Finding, error
from jobspec.frameworks.base import Context
from jobspec.words import did_you_mean, one_of

WANDB, WANDB_KEY, WANDB_MODE = "wandb", "WANDB_API_KEY", "WANDB_MODE"
MLFLOW, TENSORBOARD = "mlflow", "tensorboard"
FOLDER = "${JOBSPEC_ATTEMPT_DIR}"  # it is there when a tracker starts: wandb passes over a missing folder
# Since release 3 MLflow refuses to write files unless it is told to; a database needs more than its client.
MLFLOW_FILES = {"MLFLOW_TRACKING_URI": f"file:{FOLDER}/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"}
# NeMo-RL's switches; each tracker writes below `logger.log_dir`.
SWITCHES = {"logger.wandb_enabled": WANDB, "logger.mlflow_enabled": MLFLOW}


def tracker_names(value: Any) -> tuple[str, ...]:
    """The names in `[console, wandb]`, `wandb` or the text of a list; () for anything else."""
    words = re.findall(r"\w+", value) if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return ()
    return tuple(dict.fromkeys(words))


def beside(own: Collection[str], value: Any) -> tuple[str, ...]:
    """jobspec's own trackers, then those that the spec adds."""
    return (*own, *(name for name in tracker_names(value) if name not in own))


def check_trackers(rule: str, key: str, value: Any, known: Collection[str]) -> Iterator[Finding]:
    """Names that the framework does not know."""
    names, path = tracker_names(value), f"train.overrides.{key}"
    if not names:
        yield error(rule, f"`{key}` names no tracker", fix=f"use a list of {one_of(known)}", path=path)
    for name in names:
        if name not in known:
            fix = did_you_mean(name, known) or f"use {one_of(known)}"
            yield error(rule, f"there is no tracker `{name}`", "its name ends the run", fix, path=path)


def environment(context: Context, names: Collection[str]) -> dict[str, str]:
    """Variables that keep what trackers write with the run, for all nodes; the spec's and the site's win.

    W&B writes files unless the spec names its key in `secrets` and the nodes reach the internet; else it
    would end the run.
    """
    found: dict[str, str] = {}
    if WANDB in names:
        online = WANDB_KEY in context.spec.secrets and context.cluster.network.internet
        found |= {"WANDB_DIR": FOLDER, **({} if online else {WANDB_MODE: "offline"})}
    if MLFLOW in names:
        found |= MLFLOW_FILES
    if TENSORBOARD in names:
        found["TENSORBOARD_DIR"] = f"{FOLDER}/tensorboard"
    return {name: value for name, value in found.items() if name not in context.spec.secrets}


def switched_on(overrides: Mapping[str, Any]) -> tuple[str, ...]:
    """The trackers that overrides of NeMo-RL switch on."""
    on = {key.lstrip("+") for key, value in overrides.items() if str(value).lower() == "true"}
    return tuple(name for key, name in SWITCHES.items() if key in on)
