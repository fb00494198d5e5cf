"""Contexts and plans for the tests of framework `verl`, over a stand-in checkout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from jobspec import frameworks
from jobspec.finding import Finding
from jobspec.frameworks.base import Context
from jobspec.plan import ImportProof, Plan
from jobspec.planning.container import settle_container
from jobspec.planning.model import find_model
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile
from tests.kits.fake_verl import fake_bridge, fake_checkout

MINIMAL: Mapping[str, Any] = {
    "version": 1,
    "name": "t",
    "framework": "verl",
    "model": {"id": "org/tiny"},
    "data": [{"name": "gsm8k", "source": "/data/gsm8k"}],
    "repos": [
        {"name": "verl", "path": "/src/verl"},
        {
            "name": "bridge",
            "path": "/src/bridge",
            "pythonpath": ["src", "3rdparty/Megatron-LM"],
            "prove": {"import": "megatron.bridge"},
        },
    ],
}
BY_LEVEL: Mapping[str, Mapping[str, Any]] = {
    "architecture": {"train": {"overrides": {"ROUTING_REPLAY_MODE": "R3"}}},
}


def context(
    level: str | int = 0,
    *,
    gpus: int = 8,
    release: str = "0.8.0",
    repos: Mapping[str, str] | None = None,
    runtime: str = "none",
    **spec: Any,
) -> Context:
    """What the adapter sees of a minimal spec with `spec` on top, on a machine with `gpus` a node."""
    wanted = frameworks.find_level(frameworks.get("verl"), level)
    data = {**MINIMAL, **BY_LEVEL.get(wanted.name, {}), **spec}
    profile = {"version": 1, "name": "c", "scheduler": "local", "container": {"runtime": runtime}}
    places = {"verl": fake_checkout(release), "bridge": fake_bridge()} if repos is None else repos
    job, site = msgspec.convert(data, JobSpec), msgspec.convert(profile, ClusterProfile)
    return Context(
        job,
        site,
        wanted,
        gpus,
        places,
        model=find_model(job.model, Path(), "", "local"),
        container=settle_container(job.container, site, Path(), {}),
    )


def findings(level: str | int = 0, **more: Any) -> list[Finding]:
    return list(frameworks.get("verl").validate(context(level, **more)))


def errors(level: str | int = 0, **more: Any) -> list[Finding]:
    return [finding for finding in findings(level, **more) if finding.is_error]


def plan_of(asked: Context) -> Plan:
    """A Plan with what the adapter chose, as far as a verdict looks at it."""
    chosen = frameworks.get("verl").plan(asked)
    return Plan(
        name="t",
        framework="verl",
        cluster="c",
        scheduler="local",
        mode=asked.spec.launch.mode,
        nodes=asked.spec.resources.nodes,
        checks=chosen.checks,
        commands=chosen.commands,
        proofs=(ImportProof("megatron.bridge", "/src/bridge", "bridge"),),
        expect=chosen.expect,
    )
