"""Contexts and evidence for the tests of frameworks."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from jobspec import frameworks
from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.finding import Finding
from jobspec.frameworks.base import Context
from jobspec.frameworks.nemo_rl.checkout import BRIDGE
from jobspec.frameworks.nemo_rl.commands import CHECK_METRICS, CHECK_ROUTES, DUMP_EVENTS, ENTRY
from jobspec.frameworks.nemo_rl.levels import BY_NAME, VARIANTS
from jobspec.frameworks.shared.nemo_recipe import ENGINE, SIZES
from jobspec.metrics import Row, Table
from jobspec.plan import Plan
from jobspec.planning.container import settle_container
from jobspec.planning.model import find_model
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile
from tests.kits.fake_rlix import make_fake_nemo_fork, make_fake_rlix
from tests.kits.fake_skyrl import make_fake_skyrl
from tests.kits.fake_verl import fake_checkout


def site_text(*, cpus: int, memory: str, gpu_memory: str) -> str:
    """A site profile of eight GPUs a node, as an administrator would write it."""
    return f"""\
version: 1
name: site
scheduler: slurm
slurm: {{partition: batch, gpus: gres}}
container: {{runtime: pyxis}}
paths: {{runs: /shared/runs, hf_home: /shared/hf, scratch: /shared/scratch, node_local: /mnt/local}}
node: {{cpus: {cpus}, memory: {memory}, gpus: 8, gpu_memory: {gpu_memory}}}
"""


MINIMAL: Mapping[str, Mapping[str, Any]] = {
    "trl": {"model": {"id": "org/tiny"}, "data": [{"name": "prompts", "source": "org/prompts"}]},
    "command": {"train": {"command": ["true"]}},
    "toy": {},
    "nemo_rl": {
        "repos": [
            {
                "name": "bridge",
                "path": "/src/bridge",
                "pythonpath": ["src", "3rdparty/Megatron-LM"],
                "prove": {"import": "megatron.bridge"},
            }
        ]
    },
    "rlix": {
        "model": {"id": "Qwen/Qwen2.5-0.5B"},
        "pipelines": [
            {"name": "one", "config": "examples/configs/grpo_math_1B.yaml", "train_gpus": [0]},
            {"name": "two", "config": "examples/configs/grpo_math_1B.yaml", "train_gpus": [1]},
        ],
    },
    "skyrl": {
        "model": {"id": "org/tiny", "require": ["chat_template.jinja"]},
        "data": [{"name": "gsm8k", "source": "/data/gsm8k"}],
        "train": {"rollout": {"engines": 8}},
    },
    "verl": {
        "model": {"id": "org/tiny"},
        "data": [{"name": "gsm8k", "source": "/data/gsm8k"}],
        "repos": [
            {"name": "verl", "path": "/src/verl"},
            {"name": "bridge", "path": "/src/bridge", "prove": {"import": "megatron.bridge"}},
        ],
    },
}
"""What a spec needs beside version, name and framework, for every registered framework."""
BY_LEVEL: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("verl", "parallel"): {"train": {"parallel": {"tp": 2, "pp": 2}}},
    ("verl", "architecture"): {"train": {"overrides": {"ROUTING_REPLAY_MODE": "R3"}}},
}
"""What single levels need besides."""


@cache
def fake_skyrl() -> str:
    root = Path(tempfile.mkdtemp(prefix="fake-skyrl-"))
    atexit.register(shutil.rmtree, root)
    return str(make_fake_skyrl(root))


@cache
def fake_nemo_rl() -> str:
    """A stand-in for a NeMo-RL checkout: every script of the levels, and a recipe with their keys."""
    root = Path(tempfile.mkdtemp(prefix="fake-nemo-rl-"))
    atexit.register(shutil.rmtree, root)
    make_fake_nemo_rl(root)
    return str(root)


def make_fake_nemo_rl(root: Path) -> None:
    for folder in ("nemo_rl", "tests", "tools", f"{BRIDGE}/src"):
        (root / folder).mkdir(parents=True)
    for name in (CHECK_METRICS, CHECK_ROUTES, DUMP_EVENTS):
        (root / name).touch()
    for item in VARIANTS:
        for name in (item.script, item.config):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
        if not item.is_entry:
            script = f"uv run run.py --config $PROJECT_ROOT/{item.config} \\\n  $@\n"
            (root / item.script).write_text(script)
        else:
            (root / item.script).write_text("")
        (root / item.config).write_text(json.dumps(_recipe()))
    (root / "examples/configs/base.yaml").write_text("grpo: {seed: 42}\n")
    (root / "ray.sub").write_text("#!/bin/bash\n")
    with_base = root / BY_NAME["colocated"].config
    recipe = json.loads(with_base.read_text())
    with_base.write_text(json.dumps({"defaults": "base.yaml", **recipe}))


def _recipe() -> dict[str, Any]:
    """A recipe for Megatron with every key that a variant sets."""
    keys = {text.partition("=")[0] for item in VARIANTS for text in (*item.overrides, *ENTRY)}
    recipe: dict[str, Any] = {}
    own = (BY_NAME["colocated"].steps_key, "policy.dynamic_batching.enabled")
    for key in (*keys, *SIZES.values(), *ENGINE.values(), *own):
        at = recipe
        *parents, last = key.split(".")
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = None
    recipe["policy"]["megatron_cfg"]["enabled"] = True
    recipe["policy"]["dtensor_cfg"] = {"enabled": False}
    recipe["policy"]["generation"]["backend"] = "vllm"
    return recipe


@cache
def fake_rlix() -> dict[str, str]:
    root = Path(tempfile.mkdtemp(prefix="fake-rlix-"))
    atexit.register(shutil.rmtree, root)
    return {"rlix": str(make_fake_rlix(root / "rlix")), "nemo_rl": str(make_fake_nemo_fork(root / "RL"))}


GPUS = {"nemo_rl": 2, "rlix": 4, "skyrl": 8, "verl": 8}
REPOS = {
    "nemo_rl": lambda: {"nemo_rl": fake_nemo_rl()},
    "rlix": fake_rlix,
    "skyrl": lambda: {"skyrl": fake_skyrl()},
    "verl": lambda: {"verl": fake_checkout()},
}


def context(
    framework: str,
    level: str | int = 0,
    *,
    gpus: int | None = None,
    scheduler: str = "local",
    runtime: str = "none",
    repos: Mapping[str, str] | None = None,
    **spec: Any,
) -> Context:
    wanted = frameworks.find_level(frameworks.get(framework), level)
    minimal = {**MINIMAL.get(framework, {}), **BY_LEVEL.get((framework, wanted.name), {})}
    data = {"version": 1, "name": "t", "framework": framework, **minimal, **spec}
    profile = {
        "version": 1, "name": "c", "scheduler": scheduler, "container": {"runtime": runtime},
    }  # fmt: skip
    job, site = msgspec.convert(data, JobSpec), msgspec.convert(profile, ClusterProfile)
    return Context(
        job,
        site,
        wanted,
        GPUS.get(framework, 0) if gpus is None else gpus,
        REPOS.get(framework, dict)() if repos is None else repos,
        model=find_model(job.model, Path(), "", scheduler),
        container=settle_container(job.container, site, Path(), {}),
    )


def findings(framework: str, level: str | int = 0, **more: Any) -> list[Finding]:
    asked = context(framework, level, **more)
    return list(frameworks.get(framework).validate(asked))


def rules(found: Iterable[Finding]) -> set[str]:
    return {finding.rule for finding in found}


def plan_of(asked: Context) -> Plan:
    """A Plan with what the framework chose, as far as a verdict looks at it."""
    chosen = frameworks.get(asked.spec.framework).plan(asked)
    return Plan(
        name="t",
        framework=asked.spec.framework,
        cluster="c",
        scheduler="local",
        mode="ray",
        commands=chosen.commands,
        expect=chosen.expect,
    )


def evidence(plan: Plan, table: Table, root: Path = Path("/runs/t/1")) -> Evidence:
    return Evidence(root, plan, attempts=(Attempt(1, "attempts/1", metrics=table),))


def table(**metrics: Mapping[int, float]) -> Table:
    """Rows of `metric={step: value}`; `__` in a name stands for `/`."""
    return Table(
        tuple(
            Row(name.replace("__", "/"), step, value, source="metrics.jsonl", line=step)
            for name, points in metrics.items()
            for step, value in points.items()
        )
    )
