"""Trackers beside the files that a verdict reads: where they write, and when they send."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.frameworks.shared import trackers
from jobspec.spec.site import Network
from tests.kits.framework_kit import context

ASKS = {
    "trl": {"report_to": ["wandb", "mlflow"]},
    "verl": {"trainer.logger": ["wandb", "mlflow"]},
    "nemo_rl": {"logger.wandb_enabled": True, "+logger.mlflow_enabled": "true"},
}
FILES = {
    "WANDB_DIR": "${JOBSPEC_ATTEMPT_DIR}",
    "MLFLOW_TRACKING_URI": "file:${JOBSPEC_ATTEMPT_DIR}/mlruns",
    "MLFLOW_ALLOW_FILE_STORE": "true",
}


def environment(framework: str, **spec: Any) -> dict[str, str]:
    env = frameworks.get(framework).plan(context(framework, **spec)).env
    return {name: value for name, value in env.items() if name.startswith(("WANDB", "MLFLOW"))}


@pytest.mark.parametrize("framework", ASKS)
def test_trackers_write_into_the_attempt_and_send_nothing_without_a_key(framework: str) -> None:
    train = {"overrides": ASKS[framework]}
    assert environment(framework, train=train) == {**FILES, "WANDB_MODE": "offline"}
    assert environment(framework, train=train, secrets=["WANDB_API_KEY"]) == FILES
    assert environment(framework) == {}


def test_nodes_without_internet_send_nothing() -> None:
    asked = context("trl", secrets=["WANDB_API_KEY"])
    apart = replace(asked, cluster=_with_network(asked.cluster, Network(internet=False)))
    assert trackers.environment(asked, ["wandb"]) == {"WANDB_DIR": FILES["WANDB_DIR"]}
    assert trackers.environment(apart, ["wandb"])["WANDB_MODE"] == "offline"


def test_a_variable_that_is_a_secret_stays_the_users() -> None:
    asked = context("trl", secrets=["MLFLOW_TRACKING_URI"])
    assert trackers.environment(asked, ["mlflow"]) == {"MLFLOW_ALLOW_FILE_STORE": "true"}
    assert trackers.environment(asked, ["tensorboard"]) == {
        "TENSORBOARD_DIR": "${JOBSPEC_ATTEMPT_DIR}/tensorboard"
    }


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        ({"logger.wandb_enabled": True}, ("wandb",)),
        ({"++logger.mlflow_enabled": "True"}, ("mlflow",)),
        ({"logger.wandb_enabled": False, "logger.wandb.project": "x"}, ()),
    ],
)
def test_switches_of_nemo_rl(overrides: dict[str, Any], names: tuple[str, ...]) -> None:
    assert trackers.switched_on(overrides) == names


def _with_network(profile: Any, network: Network) -> Any:
    import msgspec

    return msgspec.structs.replace(profile, network=network)
