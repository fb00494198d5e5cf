"""Submitting once and asking once, against a controller that loses answers, refuses and goes away."""

from __future__ import annotations

import getpass
import json
import threading
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from jobspec.finding import JobspecError, fail
from jobspec.launchers.access.command import missing_program
from jobspec.launchers.base import Access, JobState
from jobspec.launchers.slurm.launcher import SlurmLauncher
from jobspec.launchers.slurm.upstream import UpstreamLauncher
from jobspec.plan import Plan
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, read_launch
from tests.kits.lock_kit import await_waiting_for_lock
from tests.launchers.slurm.fake_client import Answer, FakeClient, says

RUN_ID = "20261128-010203-ab12cd"
NAME = f"demo-{RUN_ID}"
PLAN = Plan("demo", "command", "lab", "slurm", "ray", runs="/shared/runs")
DOWN = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    root = tmp_path / "demo" / RUN_ID
    root.mkdir(parents=True)
    for name in ("job.sbatch", "ray.sub", "runtime.pyz", "plan.json"):
        (root / name).write_text("")
    return RunPaths(root)


def launcher(client: FakeClient) -> SlurmLauncher:
    return SlurmLauncher(client, sleep=lambda seconds: None, clock=lambda: 1000.0)


def queued(job_id: str, state: str = "PENDING", name: str = NAME, user: str = "", at: str = "") -> str:
    return f"{job_id}|{state}|{user}|{at}|n1|N/A|{name}|None\n"


def test_submission_is_recorded_and_repeating_it_asks_nobody(run: RunPaths) -> None:
    client = FakeClient(sbatch=[says("42\n")])
    first = launcher(client).submit(run, PLAN, {"TOKEN": "t0p"})
    again = launcher(client).submit(run, PLAN, {})
    assert first.job_id == again.job_id == "42"
    assert client.count("sbatch") == 1
    assert client.secrets[-1] == {"TOKEN": "t0p"}
    assert "t0p" not in run.state.read_text()
    assert "t0p" not in " ".join(client.calls[-1])
    assert f"--job-name={NAME}" in client.calls[-1]


def test_intent_is_on_disk_before_the_scheduler_is_asked(run: RunPaths) -> None:
    seen: list[Launch | None] = []

    def look(argv, secrets):  # type: ignore[no-untyped-def]
        seen.append(read_launch(run))
        return says("42\n")(argv, secrets)

    launcher(FakeClient(sbatch=[look])).submit(run, PLAN, {})
    assert seen[0] is not None
    assert (seen[0].job_name, seen[0].job_id) == (NAME, "")


def test_two_submissions_at_once_are_one_job(run: RunPaths) -> None:
    """The second one begins while sbatch has the first, and waits for what that says."""
    second: list[Launch] = []
    other = threading.Thread(target=lambda: second.append(launcher(FakeClient()).submit(run, PLAN, {})))

    def slow(argv, secrets):  # type: ignore[no-untyped-def]
        other.start()
        await_waiting_for_lock()
        return says("42\n")(argv, secrets)

    first = launcher(FakeClient(sbatch=[slow])).submit(run, PLAN, {})
    other.join(60)
    assert [first.job_id, *(launch.job_id for launch in second)] == ["42", "42"]


def test_lost_answer_is_found_in_the_queue(run: RunPaths) -> None:
    client = FakeClient(sbatch=[says(timed_out=True)], squeue=[says(queued("43"))])
    assert launcher(client).submit(run, PLAN, {}).job_id == "43"
    assert client.count("sbatch") == 1


def test_client_that_a_signal_ended_may_have_submitted(run: RunPaths) -> None:
    client = FakeClient(sbatch=[says(code=-9)], squeue=[says(queued("43"))])
    assert launcher(client).submit(run, PLAN, {}).job_id == "43"
    assert client.count("sbatch") == 1


def test_lost_answer_of_a_job_that_has_ended_is_found_in_accounting(run: RunPaths) -> None:
    client = FakeClient(
        sbatch=[says(timed_out=True)],
        squeue=[says("")],
        sacct=[says(f"44|COMPLETED|0:0|n1|2026-11-28T01:00:00|||{NAME}\n")],
    )
    assert launcher(client).submit(run, PLAN, {}).job_id == "44"
    assert client.count("sbatch") == 1


def test_crash_after_sbatch_is_found_by_the_next_call(run: RunPaths) -> None:
    def crash(argv, secrets):  # type: ignore[no-untyped-def]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launcher(FakeClient(sbatch=[crash])).submit(run, PLAN, {})
    client = FakeClient(sbatch=[says("99\n")], squeue=[says(queued("45", "RUNNING"))])
    assert launcher(client).submit(run, PLAN, {}).job_id == "45"
    assert client.count("sbatch") == 0


def test_busy_controller_is_asked_again_and_the_job_not_doubled(run: RunPaths) -> None:
    client = FakeClient(
        sbatch=[says(stderr=DOWN, code=1), says(stderr=DOWN, code=1), says("46\n")],
        squeue=[says("")],
        sacct=[says("")],
    )
    assert launcher(client).submit(run, PLAN, {}).job_id == "46"
    assert client.count("sbatch") == 3
    assert client.count("squeue") == 2, "the queue is looked at before each further sbatch"


def test_controller_that_cannot_say_stops_the_submission(run: RunPaths) -> None:
    """Submitting again without knowing could run the job twice."""
    gone = says(stderr="squeue: error: Unable to contact slurm controller (connect failure)", code=1)
    client = FakeClient(sbatch=[says(timed_out=True)], squeue=[gone])
    with pytest.raises(JobspecError, match="is not known yet"):
        launcher(client).submit(run, PLAN, {})
    assert client.count("sbatch") == 1
    launch = read_launch(run)
    assert launch is not None and not launch.submitted, "the intent stays for the next call"


@pytest.mark.parametrize(
    "silent",
    [says(timed_out=True), says(stderr="sacct: error: Socket timed out on send/recv operation", code=1)],
)
def test_accounting_that_does_not_answer_stops_the_submission_too(run: RunPaths, silent: Answer) -> None:
    """The queue forgets a short job after minutes: then accounting alone knows that it has run."""

    def crash(argv, secrets):  # type: ignore[no-untyped-def]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launcher(FakeClient(sbatch=[crash])).submit(run, PLAN, {})
    client = FakeClient(squeue=[says("")], sacct=[silent], sbatch=[says("99\n")])
    with pytest.raises(JobspecError, match="is not known yet"):
        launcher(client).submit(run, PLAN, {})
    assert client.count("sbatch") == 0


def test_refusal_shows_sbatchs_words_and_takes_the_intent_back(run: RunPaths) -> None:
    said = "sbatch: error: invalid partition specified: nosuch"
    client = FakeClient(sbatch=[says(stderr=said, code=1)])
    with pytest.raises(JobspecError) as caught:
        launcher(client).submit(run, PLAN, {})
    finding = caught.value.findings[0]
    assert finding.why == said
    assert "slurm.partition" in finding.fix
    assert client.count("sbatch") == 1
    assert read_launch(run) is None


def test_another_job_of_a_like_name_is_not_ours(run: RunPaths) -> None:
    client = FakeClient(
        sbatch=[says(timed_out=True), says("47\n")],
        squeue=[says(queued("1", name="other"))],
        sacct=[says("")],
    )
    assert launcher(client).submit(run, PLAN, {}).job_id == "47"


def test_job_of_a_submission_of_a_moment_ago_is_waited_for(run: RunPaths) -> None:
    lost_submission(run)
    slept: list[float] = []
    client = FakeClient(squeue=[says("")] * 5 + [says(queued("45"))], sacct=[says("")], sbatch=[says("99\n")])
    made = SlurmLauncher(client, sleep=slept.append, clock=lambda: 1100.0)
    assert made.submit(run, PLAN, {}).job_id == "45"
    assert (client.count("sbatch"), client.count("sacct")) == (0, 1)


def test_after_two_minutes_it_is_submitted_again(run: RunPaths) -> None:
    lost_submission(run)
    slept: list[float] = []
    client = FakeClient(squeue=[says("")], sacct=[says("")], sbatch=[says("99\n")])
    made = SlurmLauncher(client, sleep=slept.append, clock=lambda: 1030.0)
    assert made.submit(run, PLAN, {}).job_id == "99"
    assert sum(slept) == 90.0, "what is left of two minutes"
    slept.clear()
    run.state.unlink()
    lost_submission(run)
    made = SlurmLauncher(client, sleep=slept.append, clock=lambda: 1120.0)
    assert (made.submit(run, PLAN, {}).job_id, slept) == ("99", [])


def test_each_sbatch_begins_the_two_minutes_anew(run: RunPaths) -> None:
    lost_submission(run)

    def crash(argv, secrets):  # type: ignore[no-untyped-def]
        raise KeyboardInterrupt

    client = FakeClient(squeue=[says("")], sacct=[says("")], sbatch=[crash])
    with pytest.raises(KeyboardInterrupt):
        SlurmLauncher(client, clock=lambda: 5000.0).submit(run, PLAN, {})
    launch = read_launch(run)
    assert launch is not None and launch.intent_time == 5000.0


@pytest.mark.parametrize("how", ["refused", "no sbatch"])
def test_intent_of_an_earlier_call_stays_when_a_later_one_is_refused(run: RunPaths, how: str) -> None:
    """The job of the earlier one may still come."""
    lost = lost_submission(run)

    def missing(argv, secrets):  # type: ignore[no-untyped-def]
        raise missing_program("sbatch", "here")

    refused = says(stderr="sbatch: error: invalid partition specified: nosuch", code=1)
    answer = refused if how == "refused" else missing
    client = FakeClient(squeue=[says("")], sacct=[says("")], sbatch=[answer])
    with pytest.raises(JobspecError, match="sbatch"):
        launcher(client).submit(run, PLAN, {})
    assert read_launch(run) == lost


def test_refusal_after_a_lost_answer_leaves_the_intent(run: RunPaths) -> None:
    refused = says(stderr="sbatch: error: invalid partition specified: nosuch", code=1)
    client = FakeClient(squeue=[says("")], sacct=[says("")], sbatch=[says(timed_out=True), refused])
    with pytest.raises(JobspecError, match="did not accept"):
        launcher(client).submit(run, PLAN, {})
    assert read_launch(run) is not None


def test_incomplete_run_directory_is_refused(run: RunPaths) -> None:
    (run.root / "ray.sub").unlink()
    with pytest.raises(JobspecError, match=r"lacks `ray.sub`"):
        launcher(FakeClient()).submit(run, PLAN, {})


def test_upstream_mode_wants_the_file_that_calls_the_script(run: RunPaths) -> None:
    with pytest.raises(JobspecError, match=r"lacks `upstream.sh`"):
        UpstreamLauncher(FakeClient()).submit(run, replace(PLAN, mode="upstream"), {})


def test_remote_run_is_uploaded_to_the_clusters_folder(run: RunPaths) -> None:
    client = FakeClient(sbatch=[says("48\n")])
    made = SlurmLauncher(client, Access("login.example", "me"), sleep=lambda seconds: None)
    launch = made.submit(run, PLAN, {})
    assert launch.run_dir == f"/shared/runs/demo/{RUN_ID}"
    assert client.calls[0] == ("upload", launch.run_dir)
    assert client.calls[1][-1] == f"{launch.run_dir}/job.sbatch"
    assert (launch.login, launch.user) == ("login.example", "me")


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


def lost_submission(run: RunPaths) -> Launch:
    """The record of a submission that was interrupted while sbatch had it."""

    def crash(argv, secrets):  # type: ignore[no-untyped-def]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launcher(FakeClient(sbatch=[crash])).submit(run, PLAN, {})
    launch = read_launch(run)
    assert launch is not None and not launch.submitted
    return launch


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


def test_cancel_ends_a_renamed_job(tmp_path: Path) -> None:
    client = FakeClient(squeue=[says(queued("1", "RUNNING", "prod-n", ME, OURS))], scancel=[says()])
    launcher(client).cancel([renamed(tmp_path)])
    assert client.calls[-1] == ("scancel", "1")


def cut(argv, secrets):  # type: ignore[no-untyped-def]
    raise fail("launch.ssh-closed", "the connection to `login` was lost", fix="try again")


def test_connection_lost_in_mid_submit_is_looked_up_at_once(run: RunPaths) -> None:
    client = FakeClient(sbatch=[cut], squeue=[says(""), says(queued("46"))], sacct=[says("")])
    assert launcher(client).submit(run, PLAN, {}).job_id == "46"
    assert client.count("sbatch") == 1


def test_sbatch_of_a_login_node_that_does_not_answer_is_not_called_again(run: RunPaths) -> None:
    client = FakeClient(sbatch=[says(timed_out=True), says("99\n")], squeue=[says("")], sacct=[says("")])
    made = SlurmLauncher(client, Access("login.example"), sleep=lambda seconds: None)
    with pytest.raises(JobspecError, match=r"sbatch on `login.example` did not answer within 60 s"):
        made.submit(run, PLAN, {})
    assert client.count("sbatch") == 1


def test_submission_that_no_sbatch_took_is_not_lost(run: RunPaths) -> None:
    def missing(argv, secrets):  # type: ignore[no-untyped-def]
        raise missing_program("sbatch", "here")

    with pytest.raises(JobspecError, match="sbatch"):
        launcher(FakeClient(sbatch=[missing])).submit(run, PLAN, {})
    assert read_launch(run) is None


def test_login_node_that_is_gone_after_a_lost_answer_leaves_the_intent(run: RunPaths) -> None:
    def gone(argv, secrets):  # type: ignore[no-untyped-def]
        raise fail("launch.ssh", "no SSH connection to `login`")

    client = FakeClient(sbatch=[says(timed_out=True), gone], squeue=[says("")], sacct=[says("")])
    with pytest.raises(JobspecError, match="no SSH connection"):
        launcher(client).submit(run, PLAN, {})
    launch = read_launch(run)
    assert launch is not None and not launch.submitted


def test_sbatch_that_may_go_on_at_the_other_end_is_not_called_again(run: RunPaths) -> None:
    client = FakeClient(sbatch=[cut, says("99\n")], squeue=[says("")], sacct=[says("")])
    with pytest.raises(JobspecError, match="connection to `login` was lost") as caught:
        launcher(client).submit(run, PLAN, {})
    assert f"jobspec submit {run.root}" in caught.value.findings[0].fix
    assert client.count("sbatch") == 1
    launch = read_launch(run)
    assert launch is not None and not launch.submitted, "the intent stays for the next call"


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
