"""The environment in which a job is submitted: named variables only.

An allocation's own variables that leak into a new submission bind it to the old one's cores and
container, and everything else that leaks ends up in a job that nobody can repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jobspec.finding import JobspecError, error

# What the client commands themselves need. SLURM_CONF is the one SLURM_* variable that is about the
# cluster and not about a job; without it sbatch cannot find a cluster configured outside /etc/slurm.
CLIENT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "SLURM_CONF", "LD_LIBRARY_PATH")
# A process on this machine also needs to know where it may write and which devices it was given.
# WATCHER is the process of a command that waits for the run and writes its reports: the job need not.
WATCHER = "JOBSPEC_WATCHER"
LOCAL = ("TMPDIR", "CUDA_VISIBLE_DEVICES", "XDG_RUNTIME_DIR", "VIRTUAL_ENV", WATCHER)


def submission_environment(
    env: Mapping[str, str], secrets: Mapping[str, str], extra: Iterable[str] = ()
) -> dict[str, str]:
    """Variables for sbatch or a local job: the named ones that are set, and the secrets.

    >>> submission_environment({"PATH": "/bin", "SLURM_JOB_ID": "1", "FOO": "x"}, {"HF_TOKEN": "t"})
    {'PATH': '/bin', 'HF_TOKEN': 't'}
    """
    kept = {name: env[name] for name in (*CLIENT, *extra) if name in env}
    return {**kept, **secrets}


def read_secrets(names: Iterable[str], env: Mapping[str, str]) -> dict[str, str]:
    """The values of the spec's `secrets`, from the submitting shell.

    Raises: JobspecError with one finding for each that is not set.
    """
    secrets = list(names)
    missing = [name for name in secrets if name not in env]
    if missing:
        raise JobspecError(
            *(
                error(
                    "launch.secret-missing",
                    f"`{name}` is listed in `secrets` and not set here",
                    why="a secret reaches the job only from the submitting environment, by name",
                    fix=f"export {name}=…, or take it out of `secrets`",
                    path="secrets",
                )
                for name in missing
            )
        )
    return {name: env[name] for name in secrets}
