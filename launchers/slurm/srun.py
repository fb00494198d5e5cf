"""Mode `srun`: the batch script starts `srun.sh`, one step whose agents run the command without Ray."""

from __future__ import annotations

from jobspec.launchers.slurm.launcher import SlurmLauncher


class SrunLauncher(SlurmLauncher):
    """Submits a run whose tasks find each other by themselves (torchrun, MPI, or one process)."""

    files = ("srun.sh",)
