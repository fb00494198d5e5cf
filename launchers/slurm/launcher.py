"""A run as a Slurm batch job: submitted once, watched in one call, cancelled.

Modes `ray` and `srun` differ in the script of their step alone; `upstream` builds on this one.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.finding import JobspecError, fail
from jobspec.launchers.access.command import Client, Completed
from jobspec.launchers.base import HERE, Access, JobState, JobStatus, new_launch, require_files
from jobspec.launchers.file_lock import locked
from jobspec.launchers.slurm import commands
from jobspec.launchers.slurm.commands import JobRow
from jobspec.launchers.slurm.identity import Relation, Rows, by_job, doubt, is_live, own_tasks, renamed
from jobspec.launchers.slurm.retry import BACK_OFF_S, run_retrying
from jobspec.runs.owner import owner
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, read_launch, read_results, write_launch

if TYPE_CHECKING:
    from jobspec.plan import Plan

# sbatch may wait for a busy controller's own timeout (MessageTimeout, 10 s by default) several times.
SUBMIT_TIMEOUT_S = 60.0
# An sbatch whose caller was killed goes on, and tries a busy controller again for as long by itself.
IN_FLIGHT_S, SEARCH_S = 120.0, 5.0
# sacct asks a database; a name search over a day of a large site takes seconds.
ACCOUNTING_TIMEOUT_S = 60.0
_DAY_S = 86400.0
# Accounting is searched for lost submissions of this age by everybody who looks, for older ones by `submit`.
SETTLE_S = 7 * _DAY_S
_NOT_KNOWN = "whether the job was accepted is not known yet"
_TEST_ONLY = "repeat the check by `sbatch --test-only job.sbatch` in the run directory"


class SlurmLauncher:
    """Starts `job.sbatch` of a run directory."""

    name = "slurm"

    def __init__(
        self,
        client: Client,
        access: Access = HERE,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._access = access
        self._clock = clock
        self._sleep = sleep

    def submit(self, run: RunPaths, plan: Plan, secrets: Mapping[str, str]) -> Launch:
        """Submit the run once; a second call, also after a crash, finds the job of the first.

        Raises: JobspecError with sbatch's text when it refuses, or when it cannot be known whether the
        job was accepted; a later call then decides.
        """
        with locked(run.job):
            return self._submit_once(run, plan, secrets)

    def _submit_once(self, run: RunPaths, plan: Plan, secrets: Mapping[str, str]) -> Launch:
        earlier = read_launch(run)
        if earlier is not None and earlier.submitted:
            return earlier
        accepted_id = self._find_in_flight(earlier) if earlier is not None else ""
        launch = earlier
        if launch is None:
            require_files(run, plan)
            launch = new_launch(run, plan, self.name, self._access, self._clock())
            self._client.upload(run.root, launch.run_dir)
        job_id = accepted_id or self._submit(run, launch, secrets, earlier)
        launch = replace(launch, job_id=job_id, submit_time=self._clock())
        write_launch(run, launch)
        return launch

    def _find_in_flight(self, launch: Launch) -> str:
        """`_find`, and again while the sbatch of an earlier call may still be on its way."""
        accepted_id = self._find(launch)
        age = max(0.0, self._clock() - launch.intent_time)
        left = IN_FLIGHT_S - age
        if accepted_id or left <= 0:
            return accepted_id
        sys.stderr.write(
            f"run {launch.run_id}: its submission of {age:.0f} s ago may be on its way yet; its job is "
            f"looked for, {left:.0f} s at most, before another submission; Ctrl-C ends the wait\n"
        )
        sys.stderr.flush()
        for _ in range(math.ceil(left / SEARCH_S)):
            self._sleep(SEARCH_S)
            accepted_id = self._queue_by_name([launch]).get(launch.job_name, "")
            if accepted_id:
                return accepted_id
        return self._find(launch)

    def _submit(
        self, run: RunPaths, launch: Launch, secrets: Mapping[str, str], earlier: Launch | None
    ) -> str:
        """The new job's id. After a lost answer the queue is asked before sbatch is called again.

        A refusal is certain: the intent of this call is taken back. After a lost answer it stays for the next
        call, and so does what an `earlier` call wrote.
        """
        argv = commands.sbatch_argv(_script(launch), launch.job_name, launch.run_dir)
        lost = False
        for pause in (*BACK_OFF_S, None):
            write_launch(run, replace(launch, intent_time=self._clock()))
            try:
                done = self._client.run(argv, secrets, timeout_s=SUBMIT_TIMEOUT_S)
            except JobspecError as problem:
                if problem.findings[0].rule == "launch.ssh-closed":
                    return self._after_cut(launch, problem)
                if not lost:  # there is no sbatch, or no way to it
                    _take_back(run, earlier)
                raise
            if done.timed_out and launch.login != "here":  # nobody has ended it there
                what = f"sbatch on `{launch.login}` did not answer within {SUBMIT_TIMEOUT_S:.0f} s"
                return self._after_cut(launch, fail("launch.scheduler", what))
            job_id = commands.parse_submitted(done.stdout) if done.code == 0 else ""
            if job_id:
                return job_id
            # A code below 0: a signal ended it, perhaps after the controller had taken the job.
            if not (done.timed_out or done.code <= 0 or commands.is_transient(done.stderr)):
                if not lost:
                    _take_back(run, earlier)
                break
            lost = True
            if pause is not None:
                self._sleep(pause)
            accepted_id = self._find(launch)
            if accepted_id:
                return accepted_id
        raise fail(
            "launch.refused",
            f"sbatch did not accept the job (exit code {done.code})"
            if not done.timed_out
            else "sbatch did not answer",
            why=done.complaint or f"no answer within {SUBMIT_TIMEOUT_S:.0f} s",
            fix=commands.refusal_fix(done.complaint, _TEST_ONLY),
            file=_script(launch),
        )

    def _after_cut(self, launch: Launch, problem: JobspecError) -> str:
        """The id of the job after the answer of an sbatch was lost that may go on at the other end.

        For that reason it is not called again. Raises: `problem` when the job does not show up.
        """
        for pause in BACK_OFF_S:
            self._sleep(pause)
            accepted_id = self._find(launch)
            if accepted_id:
                return accepted_id
        fix = f"ask by `jobspec status {launch.run_id}` in a minute; `jobspec submit {launch.root}` goes on"
        why = "the job may still be on its way: no job of its name is known yet"
        raise JobspecError(replace(problem.findings[0], why=why, fix=fix)) from problem

    def _find(self, launch: Launch) -> str:
        """The id of a job that was accepted for this run; empty when there is none.

        The queue knows it by its script, too: a `job_submit` plugin may have changed its name.
        Raises: JobspecError when the controller cannot say, since submitting again could double the job.
        """
        in_queue = self._queue_by_name([launch]).get(launch.job_name) or self._queue_by_script(launch)
        return in_queue or self._records_by_name([launch]).get(launch.job_name, "")

    def _queue_by_script(self, launch: Launch) -> str:
        """The id of the job of this run's script. Raises: as `_find`."""
        if not RunPaths(Path(launch.root)).standard:  # an earlier run in a folder of this name had the same
            return ""
        done = run_retrying(self._client, commands.squeue_scripts_argv(), sleep=self._sleep)
        if done.code != 0:
            raise _unanswered(done, _NOT_KNOWN)
        return commands.parse_scripts(done.stdout).get(_script(launch), "")

    def _queue_by_name(self, launches: Sequence[Launch], within_s: float = math.inf) -> dict[str, str]:
        """Job ids by name, as the queue has them. Raises: as `_find`."""
        argv = commands.squeue_argv(job_name=",".join(launch.job_name for launch in launches))
        done = run_retrying(self._client, argv, within_s=within_s, sleep=self._sleep)
        if done.code != 0:
            raise _unanswered(done, _NOT_KNOWN)
        return _ids_by_name(launches, commands.parse_squeue(done.stdout))

    def _records_by_name(self, launches: Sequence[Launch]) -> dict[str, str]:
        """Job ids by name, as accounting has them. Raises: as `_find`."""
        first = min(launch.intent_time for launch in launches)
        since = datetime.fromtimestamp(first - _DAY_S).strftime("%Y-%m-%dT%H:%M:%S")
        names = ",".join(launch.job_name for launch in launches)
        done = self._account(commands.sacct_argv(job_name=names, since=since))
        if done.code != 0 and not commands.accounting_missing(done.stderr):
            raise _unanswered(done, _NOT_KNOWN)
        return _ids_by_name(launches, commands.parse_sacct(done.stdout))

    def _with_id(self, launch: Launch) -> Launch:
        """The launch with its job's id, also after a lost answer. Raises: JobspecError when none is known."""
        if launch.submitted:
            return launch
        job_id = self._find(launch)
        if not job_id:
            raise fail(
                "launch.no-job",
                f"no job `{launch.job_name}` is known, so there is none to cancel",
                why="the answer of sbatch was lost; the job may still be on its way",
                fix=f"ask again in a minute; `jobspec submit {launch.root}` submits it",
            )
        return replace(launch, job_id=job_id, submit_time=launch.intent_time)

    def query(self, launches: Sequence[Launch], within_s: float = math.inf) -> Mapping[Launch, JobStatus]:
        """States of all launches: one squeue, and one sacct when a job has ended or left the queue.

        A launch whose answer was lost is settled first, by its job's name. `within_s` is the queue's limit,
        from when the login node is reached: sacct is asked after that answer, and its database takes longer.
        """
        if within_s < math.inf:
            self._client.reach()
        settled = self._settle([launch for launch in launches if not launch.submitted], within_s)
        asked = {launch: settled.get(launch, launch) for launch in launches}
        known = [launch for launch in asked.values() if launch.submitted]
        queued = self._queued(sorted({launch.job_id for launch in known}, key=int), within_s)
        ended = {launch.job_id for launch in known if not is_live(launch, queued)}
        accounted = self._accounted(sorted(ended, key=int))
        return {launch: self._status(found, queued, accounted) for launch, found in asked.items()}

    def _settle(self, lost: Sequence[Launch], within_s: float) -> dict[Launch, Launch]:
        """The launches of `lost` whose job is known by its name, with its id, which is written down."""
        ids = self._queue_by_name(lost, within_s) if lost else {}
        recent = self._clock() - SETTLE_S
        left = [launch for launch in lost if launch.job_name not in ids and launch.intent_time > recent]
        if left:
            with contextlib.suppress(JobspecError):  # then they stay unsettled, and the others are told
                ids |= self._records_by_name(left)
        settled = {
            launch: replace(launch, job_id=ids[launch.job_name], submit_time=launch.intent_time)
            for launch in lost
            if launch.job_name in ids
        }
        for launch in settled.values():
            if launch.root and not owner(Path(launch.root)):
                with contextlib.suppress(OSError):  # a full disk: the next call asks again
                    write_launch(RunPaths(Path(launch.root)), launch)
        return settled

    def _status(self, launch: Launch, queued: Mapping[str, Rows], accounted: Mapping[str, Rows]) -> JobStatus:
        if not launch.submitted:
            reason = f"no job `{launch.job_name}` is known (yet); `jobspec submit {launch.root}` goes on"
            return JobStatus(JobState.UNKNOWN, reason)
        in_queue, in_records = own_tasks(launch, queued, accounted)
        keys = set(in_queue) | set(in_records)
        if launch.array:
            keys.discard(None)  # the array's own line beside its tasks'
        merged = {key: commands.merge(in_queue.get(key), in_records.get(key)) for key in keys}
        if launch.array and merged:
            return commands.summarise(
                {index: status for index, status in merged.items() if index is not None}
            )
        status = merged.get(None)
        likely, why = (None, "") if in_queue else renamed(launch, queued, {} if status else accounted)
        if likely is Relation.MAYBE and (status is None or status.state in _REQUEUES):
            return JobStatus(JobState.UNKNOWN, why)
        if status is None:
            status = JobStatus(JobState.UNKNOWN, why) if likely else commands.merge(None, None)
        return _restarted(launch, _from_results(launch, status))

    def _queued(self, ids: Sequence[str], within_s: float) -> dict[str, Rows]:
        if not ids:
            return {}
        done = run_retrying(self._client, commands.squeue_argv(ids), within_s=within_s, sleep=self._sleep)
        if done.code != 0:
            if commands.job_unknown(done.stderr):  # squeue says so only when it knows none of them
                return {}
            raise _unanswered(done, "the state of the jobs is not known")
        return by_job(commands.parse_squeue(done.stdout))

    def _accounted(self, ids: Sequence[str]) -> dict[str, Rows]:
        """Accounting's view; empty where a site keeps none, then the queue and the run's files decide."""
        jobs: dict[str, Rows] = {}
        for first in range(0, len(ids), commands.MAX_IDS):
            argv = commands.sacct_argv(ids[first : first + commands.MAX_IDS])
            done = self._account(argv)
            if done.code == 0:
                jobs.update(by_job(commands.parse_sacct(done.stdout)))
            elif not commands.accounting_missing(done.stderr) and not commands.is_transient(done.stderr):
                raise _unanswered(done, "how the jobs ended is not known")
        return jobs

    def _account(self, argv: Sequence[str]) -> Completed:
        """One call of sacct: it waits for its database by itself."""
        return run_retrying(
            self._client, argv, timeout_s=ACCOUNTING_TIMEOUT_S, back_off_s=(), sleep=self._sleep
        )

    def cancel(self, launches: Sequence[Launch]) -> None:
        """Raises: JobspecError for an id that may be another job's now: nothing is cancelled then."""
        known = [self._with_id(launch) for launch in launches]
        if not known:
            return
        ids = [launch.job_id for launch in known]
        queued = self._queued(ids, math.inf)
        unsure = [launch.job_id for launch in known if doubt(launch, queued, {})]
        accounted = self._accounted(unsure)  # the time of a requeued job's first submission
        for launch in known:
            if what := doubt(launch, queued, accounted):
                fix = f"look at it by `scontrol show job {launch.job_id}`; `scancel {launch.job_id}` ends it"
                why = f"it may not be the job of run `{launch.run_id}`"
                raise fail("launch.no-job", what, why, fix)
        done = run_retrying(self._client, commands.scancel_argv(ids), sleep=self._sleep)
        if done.code != 0 and not commands.job_unknown(done.stderr):
            raise _unanswered(done, "the jobs may still be running")


def _script(launch: Launch) -> str:
    return f"{launch.run_dir}/job.sbatch"


def _take_back(run: RunPaths, earlier: Launch | None) -> None:
    """Undo the intent of a call that has submitted nothing."""
    if earlier is None:
        run.state.unlink()
    else:
        write_launch(run, earlier)


# The controller starts a job again after these: accounting calls the attempt ended.
_REQUEUES = frozenset({JobState.PREEMPTED, JobState.NODE_FAIL, JobState.BOOT_FAIL, JobState.LAUNCH_FAILED})


def _ids_by_name(launches: Sequence[Launch], rows: Sequence[JobRow]) -> dict[str, str]:
    wanted = {launch.job_name for launch in launches}
    return {row.job_name: row.job_id for row in reversed(rows) if row.job_name in wanted}


def _from_results(launch: Launch, status: JobStatus) -> JobStatus:
    """Fill in from the run's own result what the scheduler has forgotten or never recorded."""
    if status.state.final and status.state is not JobState.MISSING and status.exit_code is not None:
        return status
    if not status.state.final and status.state is not JobState.UNKNOWN:
        return status
    results = read_results(RunPaths(Path(launch.root or launch.run_dir)))
    if results is None:
        return status
    code = results.get("exit_code")
    if status.state.final and status.state is not JobState.MISSING:
        return replace(status, exit_code=code)
    state = JobState.COMPLETED if results.get("outcome") == "ok" else JobState.FAILED
    return replace(
        status, state=state, exit_code=code, reason="from results.json, the scheduler has forgotten the job"
    )


def _restarted(launch: Launch, status: JobStatus) -> JobStatus:
    """Restarts as accounting counts them, or as many attempts as have left a folder."""
    attempts = RunPaths(Path(launch.root or launch.run_dir)).attempts()
    counted = max(attempts, default=1) - 1
    return replace(status, restarts=counted) if counted > status.restarts else status


def _unanswered(done: Completed, consequence: str) -> Exception:
    said = done.complaint or ("no answer in time" if done.timed_out else "no output")
    return fail(
        "launch.scheduler",
        f"`{done.argv[0]}` failed with exit code {done.code}: {consequence}",
        why=said,
        fix=commands.refusal_fix(said, "try again"),
    )
