"""What a job does on each of its nodes for its container, before the step and after it."""

from __future__ import annotations

from jobspec.plan import Plan

# Slurm's own PATH may lack Enroot. Pyxis lets no variable of the user say where containers lie.
ENROOT = "PATH=$PATH:/usr/local/bin:/usr/bin; unset ENROOT_DATA_PATH\n"

# $1 is the run, the rest are folders. A container of a job that was killed stays: it fills the node's disk,
# and a requeued job would take its own, half unpacked (pyxis#161). One in use runs, or its run has a process
# here: they are asked for last, since another job may begin to unpack its own meanwhile.
PREPARE = f"""\
{ENROOT}\
run=$1; shift
{{
  idle=$(enroot list -f | awk 'NR > 1 && $1 ~ /^pyxis_jobspec-/ && $2 == "" {{ print $1 }}')
  all=$(ps -eo args=) && printf '%s\\n' "$idle" | while read -r name; do
    if [[ $name == "pyxis_jobspec-$run" || $all != *"${{name#pyxis_jobspec-}}"* ]]; then
      timeout 120 enroot remove --force "$name"
    fi
  done
}} >/dev/null 2>&1
(($# == 0)) || exec mkdir -p -- "$@"
"""
REMOVE = f'{ENROOT}enroot remove --force "$1"'


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
    return ("bash", "-c", REMOVE, "bash", f"pyxis_jobspec-{run_id}")
