"""Run directories as the runtime leaves them, for tests of evidence, verdict and report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jobspec.evidence.evidence import Evidence
from jobspec.frameworks.base import Context, FrameworkPlan, Level
from jobspec.plan import (
    CollectPlan,
    CommandPlan,
    ExpectPlan,
    HelpersPlan,
    ImportProof,
    LearningPlan,
    Plan,
    RayPlan,
    RepoPlan,
    StagePlan,
    to_json,
)
from jobspec.verdict import Deliverable, Status

T0 = 1_796_000_000.0
PHASES = ("preflight", "stage", "helpers", "imports", "ray", "driver", "collect")
REPO = "/src/Megatron-Bridge"

PLAN = Plan(
    name="quickstart",
    framework="standin",
    cluster="local",
    scheduler="local",
    mode="ray",
    repos=(RepoPlan("bridge", REPO, commit="1a2b3c4d5e", dirty=True, pythonpath=(f"{REPO}/src",)),),
    proofs=(ImportProof("megatron.bridge", f"{REPO}/src", "bridge"),),
    stage=(StagePlan("model", "model", "/shared/hub/models--tiny", repo_id="tiny/model", revision="abc123"),),
    helpers=HelpersPlan(package="megatron.core"),
    ray=RayPlan(),
    commands=(CommandPlan("train", ("python3", "-m", "train")),),
    collect=CollectPlan(("*.txt",)),
    expect=ExpectPlan(
        level="learning",
        steps=60,
        metrics_require=("max(reward) > 0.8", "finite(loss)"),
        learning=LearningPlan("reward"),
        files=("*.txt",),
        checkpoint=True,
        metric_keys={"reward": "reward", "loss": "loss", "grad norm": "grad_norm"},
    ),
)


class StandInFramework:
    """A stand-in adapter: two levels, and one deliverable of its own, taken from the metrics."""

    name = "standin"
    summary = "stand-in"
    levels = (
        Level("smoke", 0, "it runs", ("a smoke run proves no learning",)),
        Level("learning", 1, "it learns", ("what was learned on other data",)),
    )

    def validate(self, context: Context) -> Iterable[Any]:
        return ()

    def plan(self, context: Context) -> FrameworkPlan:
        return FrameworkPlan(())

    def judge(self, evidence: Evidence) -> Iterable[Deliverable]:
        steps = evidence.metrics.last_step() or 0
        status = Status.PASS if steps >= evidence.plan.expect.steps else Status.FAIL
        yield Deliverable("Training steps", status, reason=f"{steps} of {evidence.plan.expect.steps} steps")


@dataclass
class RunFolder:
    """Builds a run directory step by step; every method leaves files like the runtime's."""

    root: Path
    plan: Plan = PLAN
    attempt: int = 1
    events: list[dict[str, Any]] = field(default_factory=list)
    clock: float = T0

    @property
    def folder(self) -> Path:
        return self.root / "attempts" / str(self.attempt)

    def event(self, phase: str, event: str, **more: Any) -> None:
        row = {"v": 1, "t": self.clock, "phase": phase, "event": event, "node": "", **more}
        self.events.append(row)

    def phase(
        self, phase: str, outcome: str = "ok", seconds: float = 2.0, nodes: Iterable[str] = ("n1",)
    ) -> None:
        self.event(phase, "start")
        for node in nodes:
            self.event(phase, "start", node=node)
        self.clock += seconds
        for node in nodes:
            self.event(phase, "end", node=node, outcome=outcome, seconds=seconds)
        self.event(phase, "end", outcome=outcome, seconds=seconds)

    def finding(self, phase: str, rule: str, what: str, node: str = "n1", **more: Any) -> None:
        data = {"rule": rule, "severity": "error", "what": what, "node": node, **more}
        self.event(phase, "finding", node=node, finding=data)

    def log(self, text: str, name: str = "train.log", node: str = "n1") -> Path:
        path = self.folder / "logs" / node / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def metrics(self, rows: Iterable[Mapping[str, Any]]) -> Path:
        path = self.folder / "metrics" / "metrics.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def artifacts(self, files: Mapping[str, str]) -> None:
        folder = self.root / "artifacts"
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        for name, text in files.items():
            (folder / name).write_text(text)
            rows.append(
                {"path": name, "bytes": len(text), "sha256": "0" * 64, "node": "n1", "source": f"/x/{name}"}
            )
        (folder / "manifest.json").write_text(json.dumps({"v": 1, "files": rows}))

    def scheduler(self, state: str, reason: str = "None") -> None:
        data = {"state": state, "reason": reason, "exit_code": "0:0", "restarts": 0}
        (self.root / "scheduler.json").write_text(json.dumps(data))

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.root / "plan.json").write_text(to_json(self.plan))
        (self.folder / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.events))

    def results(self, outcome: str = "ok", exit_code: int = 0, **more: Any) -> None:
        command = {
            "name": "train",
            "exit_code": exit_code,
            "start": T0,
            "end": T0 + 9,
            "log": "",
            "signal": 0,
        }
        imports = {
            proof.module: {"n1": f"{proof.root}/megatron/bridge/__init__.py"} for proof in self.plan.proofs
        }
        data = {
            "v": 1,
            "attempt": self.attempt,
            "outcome": outcome,
            "exit_code": exit_code,
            "findings": [],
            "phases": [],
            "commands": [command],
            "nodes": [{"name": "n1", "index": 0, "ip": "10.0.0.1", "gpus": 0, "cpus": 4, "facts": {}}],
            "imports": imports,
            "collect": {"files": 1, "bytes": 3, "truncated": False},
            **more,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "results.json").write_text(json.dumps(data))

    def next_attempt(self) -> RunFolder:
        return replace(self, attempt=self.attempt + 1, events=[], clock=self.clock + 30)


def learning_rows(steps: int = 60, start: int = 1) -> list[dict[str, Any]]:
    """Metrics of a run whose reward rises from 0.15 to 0.84, with a fixed ripple."""
    rows = []
    for step in range(start, steps + 1):
        ripple = ((step * 37) % 11 - 5) / 100
        reward = 0.15 + 0.69 * min(1.0, step / (steps * 0.8)) + ripple * (step < steps * 0.8)
        rows.append(
            {
                "step": step,
                "time": T0 + step,
                "reward": reward,
                "loss": 1.5 / (1 + step / 9) + ripple,
                "grad_norm": 0.8 + ripple * 4,
                "tokens_per_s": 1800 + 90 * ripple * 10,
            }
        )
    return rows


def passing_run(root: Path, plan: Plan = PLAN) -> RunFolder:
    """A run whose every deliverable is proved."""
    run = RunFolder(root, plan)
    for phase in PHASES:
        run.phase(phase, seconds=9.0 if phase == "driver" else 1.5)
    run.log("INFO starting\n{'loss': 0.5}\ndone\n")
    run.metrics(learning_rows())
    run.artifacts({"notes.txt": "abc"})
    run.write()
    run.results()
    return run
