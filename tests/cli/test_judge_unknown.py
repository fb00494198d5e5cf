"""Files of a run whose framework jobspec does not know: `judge` takes `command` for it."""

from __future__ import annotations

from tests.kits.project_kit import Project

AUTOMODEL = """+ torchrun --nproc-per-node=8 nemo_automodel/cli/app.py a.yaml --step_scheduler.max_steps 50
{steps}
slurmstepd: error: *** JOB 4410927 ON n1 CANCELLED AT 2026-06-18T03:11:45 DUE TO TIME LIMIT ***
"""


def test_run_of_an_unknown_framework_is_judged_as_command(project: Project) -> None:
    """It counts its steps from 0, so that step 13 is the 14th."""
    steps = "\n".join(f"step {step} | epoch 0 | loss {2.7 - step / 10:.4f}" for step in range(14))
    metrics = "\n".join(f'{{"step": {step}, "loss": {2.7 - step / 10:.4f}}}' for step in range(14))
    folder = project.root / "run"
    folder.mkdir()
    (folder / "slurm-1.out").write_text(AUTOMODEL.format(steps=steps))
    (folder / "training.jsonl").write_text(metrics + "\n")
    done = project.cli("judge", str(folder), "--steps", "50")
    assert done.code == 3, done.text
    assert "time limit; step 13 of 50, counted from 0, is the last that was read" in done.out
    assert "jobspec recognized no framework" in done.out


def test_level_of_an_unknown_framework_is_an_error(project: Project) -> None:
    (project.root / "x.log").write_text("step 1 loss 0.3\n")
    done = project.cli("judge", str(project.root / "x.log"), "--level", "grpo")
    assert done.code == 2
    assert "jobspec found no sign of a framework" in done.err
