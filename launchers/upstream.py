"""Mode `upstream`: the framework's own submission script instead of jobspec's.

An adapter that has one puts it into the run directory as `upstream.sub`, with `job.sbatch` calling it;
from there on it is a batch job like any other. An adapter without one is told so before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping

from jobspec.finding import fail
from jobspec.launchers.batch import SlurmLauncher
from jobspec.plan import Plan
from jobspec.runs import Launch, RunPaths

SCRIPT = "upstream.sub"


class UpstreamLauncher(SlurmLauncher):
    """Submits a run through the script that the framework's developers maintain."""

    files = (SCRIPT,)

    def submit(self, run: RunPaths, plan: Plan, secrets: Mapping[str, str]) -> Launch:
        if not self._has(run, SCRIPT):
            raise fail(
                "launch.upstream-unsupported",
                f"`launch.mode: upstream` is not supported by the framework `{plan.framework}`",
                why="it has no submission script of its own",
                fix="use `launch: {mode: ray}`, or `srun` for a command without Ray",
                path="launch.mode",
            )
        return super().submit(run, plan, secrets)
