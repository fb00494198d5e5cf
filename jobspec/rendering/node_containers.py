"""What a job does on each of its nodes for its container, before the step and after it."""

from __future__ import annotations

from collections.abc import Sequence

from jobspec.plan import Plan
from jobspec.rendering.quoting import Quoted, quote

# Slurm's own PATH may lack Enroot. Pyxis lets no variable of the user say where containers lie.
ENROOT = "PATH=$PATH:/usr/local/bin:/usr/bin; unset ENROOT_DATA_PATH\n"

# $1 is the run, the rest are folders. A container of a job that was killed stays and fills the node's disk.
# One in use runs, or its run has a process here: they are asked for last, since another job may begin to
# unpack its own meanwhile. Those of this run's attempts before go in any case.
PREPARE = f"""\
{ENROOT}\
run=$1; shift
{{
  idle=$(enroot list -f | awk 'NR > 1 && $1 ~ /^pyxis_jobspec-/ && $2 == "" {{ print $1 }}')
  all=$(ps -eo args=) && printf '%s\\n' "$idle" | while read -r name; do
    of=${{name#pyxis_jobspec-}} of=${{of%_*}}
    if [[ $of == "$run" || $all != *"$of"* ]]; then
      timeout 120 enroot remove --force "$name"
    fi
  done
}} >/dev/null 2>&1
(($# == 0)) || exec mkdir -p -- "$@"
"""
REMOVE = f'{ENROOT}enroot remove --force "$1"'


def container_name(run_id: str) -> str:
    """Of the run's step, without the attempt: `of_attempt` adds it where the script knows it.

    An attempt that was killed leaves its container, perhaps half unpacked, and pyxis would take that for the
    image when the job is requeued (pyxis#161).
    """
    return f"jobspec-{run_id}"


def of_attempt(words: Sequence[str], name: str) -> tuple[str, ...]:
    """The words, with the attempt's number in those that are the container's name for pyxis or podman."""
    forms = {
        before + name + after: Quoted(f'{before}{quote(name)}_"$JOBSPEC_ATTEMPT"{after}')
        for before in ("", "--container-name=", "pyxis_")
        for after in ("", ":exec")
    }
    return tuple(forms.get(word, word) for word in words)


def prepare(plan: Plan, run_id: str) -> tuple[str, ...]:
    """The command that makes the mounted folders that may not exist yet; a container cannot mount others."""
    container = plan.container
    if container.runtime == "none":
        return ()
    of_run = (plan.node_local, plan.checkpoint_dir, plan.hf_home)  # without the sources of the spec
    folders = tuple(mount.source for mount in container.mounts if mount.source in of_run)
    if container.runtime == "pyxis":
        return ("bash", "-c", PREPARE, "bash", run_id, *folders)
    return ("mkdir", "-p", "--", *folders) if folders else ()


def remove(plan: Plan, run_id: str) -> tuple[str, ...]:
    """The command that removes the run's container."""
    if plan.container.runtime != "pyxis":
        return ()
    name = container_name(run_id)
    return of_attempt(("bash", "-c", REMOVE, "bash", f"pyxis_{name}"), name)
