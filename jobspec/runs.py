"""Run directories: one object owns every file name (design section 6), and the index of runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunPaths:
    """The files of one run. Nobody else builds a path inside a run directory."""

    root: Path

    @property
    def run_id(self) -> str:
        return self.root.name

    spec = property(lambda self: self.root / "spec.yaml")
    lock = property(lambda self: self.root / "spec.lock.yaml")
    plan = property(lambda self: self.root / "plan.json")
    job = property(lambda self: self.root / "job.sbatch")
    runtime = property(lambda self: self.root / "runtime.pyz")
    patches = property(lambda self: self.root / "patches")
    artifacts = property(lambda self: self.root / "artifacts")
    manifest = property(lambda self: self.root / "artifacts" / "manifest.json")
    state = property(lambda self: self.root / "launch.json")  # job id, launcher, submit time; no secrets

    def attempt(self, number: int) -> Path:
        return self.root / "attempts" / str(number)

    def attempts(self) -> list[int]:
        folder = self.root / "attempts"
        return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit()) if folder.is_dir() else []
