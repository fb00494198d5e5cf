"""Mode `upstream`: the framework's own submission script instead of jobspec's step.

`upstream.sh` in the run directory calls that script; the result is a batch job like any other. Only its end
differs: the script's shells pass no signal on, so the signal goes to the batch script, and from there to the
head's agent.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobspec.launchers.base import JobState
from jobspec.launchers.slurm import commands
from jobspec.launchers.slurm.launcher import SlurmLauncher
from jobspec.launchers.slurm.retry import run_retrying
from jobspec.runs.records import Launch

# For the command to end, the collection, and the results; then the job is cancelled as any other.
END_S, POLL_S = 40.0, 1.0


class UpstreamLauncher(SlurmLauncher):
    """Submits a run through the script that the framework's developers maintain."""

    def cancel(self, launches: Sequence[Launch]) -> None:
        """Ask the runs to end by themselves, and end those that have not after `END_S`."""
        launches = [self._with_id(launch) for launch in launches]
        running = self._running(launches)
        if running:
            run_retrying(self._client, commands.signal_batch_argv(running), sleep=self._sleep)
        left = END_S
        while running and left > 0:
            self._sleep(POLL_S)
            left -= POLL_S
            running = self._running(launches)
        ended = (JobState.COMPLETING,)
        states = {launch: status.state for launch, status in self.query(launches).items()}
        super().cancel([launch for launch, state in states.items() if not state.final and state not in ended])

    def _running(self, launches: Sequence[Launch]) -> list[str]:
        states = self.query(launches).items()
        return [launch.job_id for launch, status in states if status.state is JobState.RUNNING]
