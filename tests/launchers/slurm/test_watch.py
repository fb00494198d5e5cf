"""Asking once for the states of all jobs, whatever became of their names and ids, and cancelling."""

from __future__ import annotations

import getpass
import json
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.launchers.base import JobState
from jobspec.launchers.slurm.upstream import UpstreamLauncher
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, read_launch
from tests.launchers.slurm.fake_client import (
    NAME,
    RUN_ID,
    Answer,
    FakeClient,
    launcher,
    lost_submission,
    queued,
    says,
)


def launches(tmp_path: Path, count: int, first: int = 1, array: str = "") -> list[Launch]:
    return [
        Launch(
            f"run{number}", str(tmp_path / f"run{number}"), "lab", "slurm", "n", 0.0,
            job_id=str(number), root=str(tmp_path / f"run{number}"), array=array,
        )
        for number in range(first, first + count)
    ]  # fmt: skip


def test_thousand_running_jobs_cost_one_call(tmp_path: Path) -> None:
    known = launches(tmp_path, 1000)
    client = FakeClient(squeue=[says("".join(queued(launch.job_id, "RUNNING", "n") for launch in known))])
    found = launcher(client).query(known)
    assert {status.state for status in found.values()} == {JobState.RUNNING}
    assert len(client.calls) == 1


def test_ended_jobs_cost_one_call_more(tmp_path: Path) -> None:
    known = launches(tmp_path, 500)
    client = FakeClient(
        squeue=[says(stderr="slurm_load_jobs error: Invalid job id specified", code=1)],
        sacct=[says("".join(f"{launch.job_id}|FAILED|7:0|n1|x|||n\n" for launch in known))],
    )
    found = launcher(client).query(known)
    assert {(status.state, status.exit_code) for status in found.values()} == {(JobState.FAILED, 7)}
    assert len(client.calls) == 2


def test_busy_controller_is_waited_for(tmp_path: Path) -> None:
    known = launches(tmp_path, 1)
    busy = says(stderr="slurm_load_jobs error: Unable to contact slurm controller (connect failure)", code=1)
    client = FakeClient(squeue=[busy, busy, says(queued("1", "RUNNING", "n"))])
    assert launcher(client).query(known)[known[0]].state is JobState.RUNNING


def test_controller_that_stays_away_is_an_error_and_no_state(tmp_path: Path) -> None:
    client = FakeClient(squeue=[says(stderr="squeue: error: Unable to contact slurm controller", code=1)])
    with pytest.raises(JobspecError, match="state of the jobs is not known") as caught:
        launcher(client).query(launches(tmp_path, 1))
    assert "scontrol ping" in caught.value.findings[0].fix


def test_brief_limit_is_the_queues_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From when the login node is reached; a database of a large site takes longer than that limit."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def take(seconds: float) -> None:
        now[0] += seconds

    def slow(argv, secrets):  # type: ignore[no-untyped-def]
        take(4.0)
        return says("")(argv, secrets)

    client = FakeClient(squeue=[slow], sacct=[says("1|FAILED|7:0|n1|x|||n\n")])
    monkeypatch.setattr(client, "reach", lambda: take(18.0))
    known = launches(tmp_path, 1)
    assert launcher(client).query(known, 5.0)[known[0]].state is JobState.FAILED
    assert client.timeouts == {"squeue": 5.0, "sacct": 60.0}


def results(launch: Launch, outcome: str, code: int, attempt: int = 1) -> None:
    folder = Path(launch.root) / "attempts" / str(attempt)
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps({"outcome": outcome, "exit_code": code}))


@pytest.mark.parametrize(
    ("outcome", "code", "state"), [("ok", 0, JobState.COMPLETED), ("failed", 7, JobState.FAILED)]
)
def test_without_accounting_the_runs_own_result_decides(
    tmp_path: Path, outcome: str, code: int, state: JobState
) -> None:
    known = launches(tmp_path, 1)
    results(known[0], outcome, code)
    client = FakeClient(
        squeue=[says(stderr="slurm_load_jobs error: Invalid job id specified", code=1)],
        sacct=[says(stderr="Slurm accounting storage is disabled", code=1)],
    )
    status = launcher(client).query(known)[known[0]]
    assert (status.state, status.exit_code) == (state, code)


def test_without_accounting_and_result_the_job_is_missing(tmp_path: Path) -> None:
    known = launches(tmp_path, 1)
    client = FakeClient(
        squeue=[says("")], sacct=[says(stderr="Slurm accounting storage is disabled", code=1)]
    )
    assert launcher(client).query(known)[known[0]].state is JobState.MISSING


def test_restarts_of_a_live_job_are_counted_by_its_attempts(tmp_path: Path) -> None:
    known = launches(tmp_path, 1)
    for number in (1, 2, 3):
        (Path(known[0].root) / "attempts" / str(number)).mkdir(parents=True)
    client = FakeClient(squeue=[says(queued("1", "RUNNING", "n"))])
    assert launcher(client).query(known)[known[0]].restarts == 2


def test_array_reports_its_tasks(tmp_path: Path) -> None:
    known = launches(tmp_path, 1, first=5, array="0-5")
    client = FakeClient(
        squeue=[says("5_2|RUNNING|||n1|N/A|n|None\n5_3|PENDING||||N/A|n|Resources\n")],
        sacct=[
            says(
                "5_0|COMPLETED|0:0|n1|x|||n\n5_1|FAILED|3:0|n1|x|||n\n5_2|RUNNING|0:0|n1|x|||n\n"
                "5_[3-5]|PENDING|0:0|||||n\n"
            )
        ],
    )
    status = launcher(client).query(known)[known[0]]
    assert status.state is JobState.RUNNING
    assert [status.tasks[task].state.value for task in range(4)] == [
        "COMPLETED",
        "FAILED",
        "RUNNING",
        "PENDING",
    ]
    assert status.tasks[1].exit_code == 3


def test_lost_submission_is_settled_by_the_name_of_its_job(run: RunPaths, tmp_path: Path) -> None:
    """Beside a run that is known, each for its own state, and written down for every later command."""
    lost, known = lost_submission(run), launches(tmp_path, 1)[0]
    client = FakeClient(
        squeue=[says(queued("45", "RUNNING")), says(queued("45", "RUNNING") + queued("1", name="n"))]
    )
    found = launcher(client).query([lost, known])
    assert [found[item].state for item in (lost, known)] == [JobState.RUNNING, JobState.PENDING]
    settled = read_launch(run)
    assert settled is not None and (settled.job_id, settled.submit_time) == ("45", lost.intent_time)
    assert client.count("sacct") == 0


def test_lost_submission_whose_job_has_ended_is_settled_by_accounting(run: RunPaths) -> None:
    lost = lost_submission(run)
    ended = says(f"44|COMPLETED|0:0|n1|2026-11-28T01:00:00|||{NAME}\n")
    client = FakeClient(squeue=[says("")], sacct=[ended])
    assert launcher(client).query([lost])[lost].state is JobState.COMPLETED


def test_accounting_is_not_searched_for_what_was_lost_long_ago(run: RunPaths) -> None:
    lost = replace(lost_submission(run), intent_time=1000.0 - 8 * 86400)
    client = FakeClient(squeue=[says("")])
    assert launcher(client).query([lost])[lost].state is JobState.UNKNOWN
    assert client.count("squeue") == 1


@pytest.mark.parametrize("silent", [says(""), says(stderr="sacct: error: no answer", code=1)])
def test_lost_submission_of_which_no_job_is_known_says_how_to_go_on(run: RunPaths, silent: Answer) -> None:
    lost = lost_submission(run)
    status = launcher(FakeClient(squeue=[says("")], sacct=[silent])).query([lost])[lost]
    assert status.state is JobState.UNKNOWN
    assert status.reason == f"no job `{NAME}` is known (yet); `jobspec submit {run.root}` goes on"
    assert read_launch(run) == lost


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_job_of_somebody_else_that_has_the_id_now_is_not_ours(tmp_path: Path, state: str) -> None:
    """Slurm begins anew after its largest job id, or when its controller lost what it knew."""
    known = launches(tmp_path, 1)
    client = FakeClient(
        squeue=[says(queued("1", state, "somebody-elses"))],
        sacct=[says("1|FAILED|7:0|n1|x|||n\n1|RUNNING|0:0|n9|x|||somebody-elses\n")],
    )
    status = launcher(client).query(known)[known[0]]
    assert (status.state, status.exit_code, status.nodes, status.restarts) == (JobState.FAILED, 7, "n1", 0)


@pytest.mark.parametrize("name", ["", "allocation"])
def test_accounting_that_does_not_know_the_name_yet_is_believed(tmp_path: Path, name: str) -> None:
    """slurmdbd hears of a short job's end before its start: as_mysql_job_start writes `allocation`."""
    known = launches(tmp_path, 1)
    client = FakeClient(
        squeue=[says(queued("1", "FAILED", "n"))],
        sacct=[says(f"1|FAILED|7:0|n1|x|||{name}\n")],
    )
    assert launcher(client).query(known)[known[0]].exit_code == 7


SUBMITTED_AT = datetime.fromisoformat("2026-11-28T01:02:03").timestamp()


def renamed(tmp_path: Path, array: str = "") -> Launch:
    launch = launches(tmp_path, 1, array=array)[0]
    Path(launch.root).mkdir()
    return replace(launch, intent_time=SUBMITTED_AT, submit_time=SUBMITTED_AT + 5)


ME = getpass.getuser()
OURS, REQUEUED, OLD = "2026-11-28T01:02:07", "2026-11-29T04:00:00", "2026-10-01T00:00:00"


def test_job_that_has_another_name_now_is_ours_by_owner_and_time(tmp_path: Path) -> None:
    """`scontrol update JobName=`, or a job_submit plugin."""
    launch = renamed(tmp_path)
    client = FakeClient(squeue=[says(queued("1", "RUNNING", "prod-n", ME, OURS))])
    assert launcher(client).query([launch])[launch].state is JobState.RUNNING
    ended = FakeClient(squeue=[says("")], sacct=[says(f"1|FAILED|7:0|n1|x|{ME}|{OURS}|prod-n\n")])
    status = launcher(ended).query([launch])[launch]
    assert (status.state, status.exit_code) == (JobState.FAILED, 7)


def test_renamed_job_that_was_requeued_is_ours_by_its_first_attempt(tmp_path: Path) -> None:
    """A requeue gives a job a new time of submission."""
    launch = renamed(tmp_path)
    client = FakeClient(
        squeue=[says(queued("1", "RUNNING", "prod-n", ME, REQUEUED))],
        sacct=[says(f"1|PREEMPTED|0:0|n1|x|{ME}|{OURS}|prod-n\n1|RUNNING|0:0|n1|x|{ME}|{REQUEUED}|prod-n\n")],
    )
    status = launcher(client).query([launch])[launch]
    assert (status.state, status.restarts) == (JobState.RUNNING, 1)


def test_renamed_array_is_ours_with_all_its_tasks(tmp_path: Path) -> None:
    launch = renamed(tmp_path, array="0-1")
    rows = "".join(queued(f"1_{task}", "RUNNING", "prod-n", ME, OURS) for task in (0, 1))
    assert len(launcher(FakeClient(squeue=[says(rows)])).query([launch])[launch].tasks) == 2


@pytest.mark.parametrize("recorded", ["", f"1|PREEMPTED|0:0|n1|x|{ME}|{OURS}|n\n"])
def test_own_job_of_another_name_that_was_submitted_later_may_be_ours(tmp_path: Path, recorded: str) -> None:
    launch = renamed(tmp_path)
    results(launch, "failed", 7)  # of an attempt before the requeue
    client = FakeClient(
        squeue=[says(queued("1", "RUNNING", "other", ME, REQUEUED))], sacct=[says(recorded)], scancel=[says()]
    )
    status = launcher(client).query([launch])[launch]
    assert status.state is JobState.UNKNOWN
    assert status.reason == f"id 1 now has the name `other` (of {ME}, submitted {REQUEUED})"
    with pytest.raises(JobspecError, match="id 1 now has the name `other`"):
        launcher(client).cancel([launch])
    assert client.count("scancel") == 0


@pytest.mark.parametrize(("user", "at"), [("bob", OURS), (ME, OLD)])
@pytest.mark.parametrize("in_queue", [True, False])
def test_id_that_another_job_has_is_not_missing(tmp_path: Path, user: str, at: str, in_queue: bool) -> None:
    launch = renamed(tmp_path)
    client = FakeClient(
        squeue=[says(queued("1", "RUNNING", "theirs", user, at) if in_queue else "")],
        sacct=[says("" if in_queue else f"1|COMPLETED|0:0|n1|x|{user}|{at}|theirs\n")],
    )
    status = launcher(client).query([launch])[launch]
    assert status.state is JobState.UNKNOWN
    assert status.reason == f"id 1 now has the name `theirs` (of {user}, submitted {at})"
    results(launch, "ok", 0)
    assert launcher(client).query([launch])[launch].state is JobState.COMPLETED


def test_renamed_job_that_was_requeued_is_cancelled(tmp_path: Path) -> None:
    """What `status` calls ours, `cancel` does too."""
    client = FakeClient(
        squeue=[says(queued("1", "RUNNING", "prod-n", ME, REQUEUED))],
        sacct=[says(f"1|PREEMPTED|0:0|n1|x|{ME}|{OURS}|prod-n\n")],
        scancel=[says()],
    )
    launcher(client).cancel([renamed(tmp_path)])
    assert client.calls[-1] == ("scancel", "1")


def test_cancel_ends_a_renamed_job(tmp_path: Path) -> None:
    client = FakeClient(squeue=[says(queued("1", "RUNNING", "prod-n", ME, OURS))], scancel=[says()])
    launcher(client).cancel([renamed(tmp_path)])
    assert client.calls[-1] == ("scancel", "1")


def test_cancelling_an_ended_job_is_no_error(tmp_path: Path) -> None:
    client = FakeClient(
        squeue=[says("")],
        scancel=[says(stderr="scancel: error: Kill job error on job id 1: Invalid job id specified", code=1)],
    )
    launcher(client).cancel(launches(tmp_path, 2))
    assert client.calls[-1] == ("scancel", "1", "2")


def test_cancelling_that_fails_is_said(tmp_path: Path) -> None:
    denied = says(stderr="scancel: error: Access/permission denied", code=1)
    client = FakeClient(squeue=[says(queued("1", name="n"))], scancel=[denied])
    with pytest.raises(JobspecError, match="may still be running"):
        launcher(client).cancel(launches(tmp_path, 1))


def test_an_upstream_run_is_asked_to_end_before_it_is_cancelled(run: RunPaths) -> None:
    """The script's shells pass no signal on: the batch script alone can reach the head's agent."""
    launch = Launch(RUN_ID, "/r", "lab", "slurm", NAME, 1.0, job_id="51", mode="upstream", root=str(run.root))
    client = FakeClient(
        squeue=[says(queued("51", "RUNNING")), says(queued("51", "RUNNING")), says(queued("51", "FAILED"))],
        sacct=[says("51|FAILED|143:0|n1|2026-11-28T00:00:00|||x\n")],
        scancel=[says()],
    )
    UpstreamLauncher(client, sleep=lambda seconds: None).cancel([launch])
    asked = [call for call in client.calls if call[0] == "scancel"]
    assert asked == [("scancel", "--batch", "--signal=TERM", "51")]


def test_an_upstream_run_whose_answer_was_lost_is_asked_by_the_id_of_its_job(run: RunPaths) -> None:
    lost = replace(lost_submission(run), mode="upstream")
    client = FakeClient(
        squeue=[says(queued("51", "RUNNING"))] * 3 + [says(queued("51", "FAILED"))],
        sacct=[says(f"51|FAILED|143:0|n1|2026-11-28T00:00:00|||{NAME}\n")],
        scancel=[says()],
    )
    UpstreamLauncher(client, sleep=lambda seconds: None).cancel([lost])
    asked = [call for call in client.calls if call[0] == "scancel"]
    assert asked == [("scancel", "--batch", "--signal=TERM", "51")]


def test_an_upstream_run_that_does_not_end_is_cancelled(run: RunPaths) -> None:
    launch = Launch(RUN_ID, "/r", "lab", "slurm", NAME, 1.0, job_id="51", mode="upstream", root=str(run.root))
    client = FakeClient(squeue=[says(queued("51", "RUNNING"))], scancel=[says()])
    waited: list[float] = []
    UpstreamLauncher(client, sleep=waited.append).cancel([launch])
    assert client.calls[-1] == ("scancel", "51")
    assert 30 < sum(waited) < 60


def test_job_whose_answer_was_lost_is_cancelled_by_its_name(run: RunPaths) -> None:
    lost = Launch(RUN_ID, str(run.root), "lab", "slurm", NAME, 1000.0)
    client = FakeClient(squeue=[says(queued("43", "RUNNING"))], scancel=[says()])
    launcher(client).cancel([lost])
    assert client.calls[-1] == ("scancel", "43")
    client = FakeClient(squeue=[says("")], sacct=[says("")], scancel=[says()])
    with pytest.raises(JobspecError, match="none to cancel"):
        launcher(client).cancel([lost])
    assert client.count("scancel") == 0
