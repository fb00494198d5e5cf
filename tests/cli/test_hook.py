"""The examples of docs/automation.md: the hook by pre-commit itself, and the step after a run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.kits.project_kit import Project

ROOT = Path(__file__).parents[2]


def test_the_hook_checks_specs_before_a_commit(project: Project) -> None:
    manifest = (ROOT / ".pre-commit-hooks.yaml").read_text()
    hook = manifest.replace("language: python", "language: system")  # no download of jobspec
    hook = hook.replace("entry: jobspec", f"entry: {sys.executable} -m jobspec.cli")
    listed = "".join(f"    {line}\n" for line in hook.splitlines() if not line.startswith("#"))
    (project.root / ".pre-commit-config.yaml").write_text(f"repos:\n- repo: local\n  hooks:\n{listed}")
    bad, good = project.root / "bad.job.yaml", project.root / "good.job.yaml"
    good.write_text((ROOT / "examples/command_hello.yaml").read_text())
    bad.write_text(good.read_text().replace("resources:", "resuorces:"))
    subprocess.run(["git", "init", "-q"], cwd=project.root, check=True)
    subprocess.run(["git", "add", "."], cwd=project.root, check=True)
    words = [sys.executable, "-m", "pre_commit", "run", "--files"]
    for file, code in ((good, 0), (bad, 1)):
        done = subprocess.run(
            [*words, file.name], cwd=project.root, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
    assert "did you mean `resources`" in done.stdout


def test_the_step_after_a_failed_run_writes_both_files(project: Project) -> None:
    project.write("fail.yaml", "version: 1\nname: f\nframework: command\ntrain: {command: ['false']}\n")
    assert project.process("run", "fail.yaml").code == 1
    page = (ROOT / "docs/automation.md").read_text()
    step = page.split("- if: always()\n", 1)[1].split("```", 1)[0]
    script = textwrap.dedent(step.split("\n", 1)[1])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": "summary.md"}
    subprocess.run(["bash", "-e", "-c", script], cwd=project.root, env=env, check=True)
    assert "<failure" in (project.root / "verdict.xml").read_text()
    assert (project.root / "summary.md").read_text().startswith("# Fail: f")
