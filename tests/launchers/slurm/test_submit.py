"""Submitting once, against a controller that loses answers, refuses and goes away."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from jobspec.finding import JobspecError, fail
from jobspec.launchers.access.command import missing_program
from jobspec.launchers.base import Access
from jobspec.launchers.slurm.launcher import SlurmLauncher
from jobspec.launchers.slurm.upstream import UpstreamLauncher
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, read_launch
from tests.kits.lock_kit import await_waiting_for_lock
from tests.launchers.slurm.fake_client import (
    NAME,
    PLAN,
    RUN_ID,
    Answer,
    FakeClient,
    launcher,
    lost_submission,
    queued,
    says,
)

DOWN = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"


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
    assert client.count("squeue") == 4, "the queue is looked at before each further sbatch, in two ways"


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


@pytest.mark.parametrize("listed", ["43|{script}", "43_[0-3]|{script}", "42|bash\n43|{script}\n44|"])
def test_lost_answer_of_a_job_of_another_name_is_found_by_its_script(run: RunPaths, listed: str) -> None:
    """A `job_submit` plugin names jobs by the site's rules."""
    scripts = says(listed.format(script=f"{run.root}/job.sbatch") + "\n")
    client = FakeClient(sbatch=[says(timed_out=True)], squeue=[says(""), scripts])
    assert launcher(client).submit(run, PLAN, {}).job_id == "43"
    assert client.count("sbatch") == 1
    assert "--name" not in " ".join(client.calls[-1])


def test_job_of_an_earlier_run_in_a_folder_of_the_same_name_is_not_ours(run: RunPaths) -> None:
    """`render --out DIR`, twice: both have the same script, and only the name of the job differs."""
    out = RunPaths(run.root.rename(run.root.with_name("out")))
    earlier = says(f"43|{out.job}\n")
    client = FakeClient(
        sbatch=[says(timed_out=True), says("47\n")], squeue=[says(""), earlier], sacct=[says("")]
    )
    assert launcher(client).submit(out, PLAN, {}).job_id == "47"


def test_controller_that_does_not_tell_the_scripts_stops_the_submission(run: RunPaths) -> None:
    client = FakeClient(
        sbatch=[says(timed_out=True)], squeue=[says(""), says(stderr="squeue: error: x", code=1)]
    )
    with pytest.raises(JobspecError, match="is not known yet"):
        launcher(client).submit(run, PLAN, {})
    assert client.count("sbatch") == 1


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
