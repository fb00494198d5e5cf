"""Watches a started run until its job has ended and its files are here, then prints its verdict."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from jobspec import launchers
from jobspec.cli.boundary import INTERRUPTED
from jobspec.cli.live import conclude, observe, on_end, reports
from jobspec.cli.live.metrics import ProgressReader
from jobspec.cli.live.points import PointWatch
from jobspec.cli.live.screen import Screen, open_screen
from jobspec.finding import JobspecError
from jobspec.launchers import JobStatus
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, read_results

# Files on shared storage are read often; the scheduler is asked seldom, since it serves the whole site.
FILES_S = 0.25
_QUERY_S = {"local": 0.25, "slurm": 3.0}
# A restart or failover of the controller takes minutes and does not harm the job.
SILENCE_S = 600.0
ANSWER_S = 10.0  # of the queue to one question: files are shown between two
# NFS clients keep directory entries for up to 60 s by default (acdirmax); most mounts here are quicker.
RESULTS_S = 15.0
# A remote cluster's files cost a round trip each.
REMOTE_FILES_S = 3.0


def follow_to_verdict(run: RunPaths, launch: Launch, as_json: bool) -> int:
    """Watch a started run to its end and print its verdict; the verdict's exit code."""
    screen = None if as_json else open_screen(f"{run.name} {run.run_id}")
    try:
        follow(run, launch, screen)
    except KeyboardInterrupt:
        return _interrupted(launch, screen)
    finally:
        if screen is not None:
            screen.close()
    code = conclude.conclude(run, "json" if as_json else "text")
    on_end.tell(run, reports.verdict_of(run))
    return code


def follow(run: RunPaths, launch: Launch, screen: Screen | None) -> JobStatus:
    """Show a run until its job's state is final; returns that state and records it in the run directory."""
    events, progress, points = observe.EventTail(run), ProgressReader(run), PointWatch(run)
    asker = Asker(launch)
    pause = FILES_S if launch.login == "here" else REMOTE_FILES_S
    while True:
        status = asker.ask()
        arrived = asker.sync()
        if screen is not None:
            screen.show(status, events.read(), progress.read(), points.read())
        if status.state.final and arrived and _results_have_arrived(run, status, asker.final_since):
            launchers.record_final(run, status)
            return status
        time.sleep(pause)


class Asker:
    """Asks the scheduler at intervals, and bears an absent controller for a while."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._launcher = launchers.for_launch(launch)
        self._next = 0.0
        self._of_scheduler, self._of_files = _Patience(), _Patience()
        self._status = JobStatus(launchers.JobState.PENDING)
        self.final_since = 0.0

    def ask(self) -> JobStatus:
        """The newest status that is known. Raises: JobspecError after `SILENCE_S` without an answer."""
        now = time.monotonic()
        if now < self._next or self._status.state.final:
            return self._status
        with self._of_scheduler():
            self._status = self._launcher.query([self._launch], ANSWER_S)[self._launch]
        self._next = time.monotonic() + _QUERY_S[self._launch.launcher]
        if self._status.state.final:
            self.final_since = now
        return self._status

    def sync(self) -> bool:
        """Bring the run's files here; returns whether they came. Raises: as `ask`."""
        with self._of_files():
            launchers.sync(self._launch)
            return True
        return False


class _Patience:
    """Hides the errors of a source until it has failed for `SILENCE_S` without a break."""

    def __init__(self) -> None:
        self._since = 0.0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        now = time.monotonic()
        try:
            yield
            self._since = 0.0
        except JobspecError:
            self._since = self._since or now
            if now - self._since > SILENCE_S:
                raise


def _results_have_arrived(run: RunPaths, status: JobStatus, final_since: float) -> bool:
    """False while a shared file system may still hide the last file of a job that ended by itself."""
    by_itself = status.state in (launchers.JobState.COMPLETED, launchers.JobState.FAILED)
    late = time.monotonic() - final_since > RESULTS_S
    return late or not by_itself or not run.attempts() or read_results(run) is not None


def _interrupted(launch: Launch, screen: Screen | None) -> int:
    if screen is not None:
        screen.close()
    if launch.launcher == "local":
        print(f"\ninterrupted: cancelling run {launch.run_id} on this machine", file=sys.stderr)
        launchers.cancel(launch)
    else:
        print(
            f"\ninterrupted: job {launch.job_id} goes on; `jobspec status {launch.run_id}` watches it, "
            f"`jobspec cancel {launch.run_id}` ends it",
            file=sys.stderr,
        )
    return INTERRUPTED
