"""A save that was in flight when a run was ended is named; one that had ended before is not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from jobspec.runtime.head.in_flight import JUST_S, in_flight
from tests.kits.agent_lab import running, shell

ENDED = 1_000_000.0


def saved(folder: Path, name: str, age: float) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (ENDED - age, ENDED - age))


def test_a_save_of_this_moment_is_named_by_its_last_file(tmp_path: Path) -> None:
    saved(tmp_path, "global_step_10/actor/rank_0.pt", 600)
    saved(tmp_path, "global_step_20/actor/rank_0.pt", 4)
    saved(tmp_path, "global_step_20/actor/rank_1.pt", 0.5)
    (finding,) = in_flight(tmp_path, ENDED)
    assert (finding.rule, finding.is_error) == ("checkpoint.in-flight", False)
    assert finding.what.startswith(
        "`global_step_20/actor/rank_1.pt` in the checkpoint folder was written 0.5 s before the run was "
        "ended, 2 files within 5 s"
    )


def test_saves_that_had_ended_and_no_saves_say_nothing(tmp_path: Path) -> None:
    assert list(in_flight(tmp_path / "none", ENDED)) == []
    saved(tmp_path, "global_step_10/data.pt", JUST_S + 1)
    (tmp_path / "link").symlink_to("/proc")
    assert list(in_flight(tmp_path, ENDED)) == []


SAVE = "mkdir -p $JOBSPEC_CHECKPOINT_DIR/step_3; echo half >$JOBSPEC_CHECKPOINT_DIR/step_3/w; "


def test_cancelled_run_names_the_save(tmp_path: Path) -> None:
    with running(tmp_path, shell(SAVE + "sleep 600")) as run:
        agent = run.agent()
        run.wait_event("driver", "start")
        run.wait_file(run.root / "checkpoints/step_3/w")
        os.kill(agent.pid, signal.SIGTERM)
        assert run.finish(agent)[0] == 143
        (found,) = (row for row in run.results()["findings"] if row["rule"] == "checkpoint.in-flight")
        assert found["what"].startswith("`step_3/w` in the checkpoint folder was written")


def test_command_that_ends_by_itself_has_no_save_in_flight(tmp_path: Path) -> None:
    with running(tmp_path, shell(SAVE + "exit 5")) as run:
        run.agent()
        assert run.finish()[0] == 5
        assert run.rules() == ["driver.exit-code"]
