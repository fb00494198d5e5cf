"""Mode `ray`: the batch script starts `ray.sub`, one step whose agents bring Ray up and run the driver."""

from __future__ import annotations

from jobspec.launchers.slurm.launcher import SlurmLauncher


class RaySubLauncher(SlurmLauncher):
    """Submits a run whose nodes form one Ray cluster."""

    files = ("ray.sub",)
