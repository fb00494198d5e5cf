"""The variables of a framework's own batch script in mode `upstream`. Pure: words and texts.

Source: ray.sub of NVIDIA-NeMo/RL, main of 2026-08. The script takes everything from variables. It writes
`COMMAND` and `SETUP_COMMAND` to files as they are, and runs both by bash: `COMMAND` on the head once Ray is
complete, `SETUP_COMMAND` on every node before each try to start Ray there. A failed setup is ignored.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from jobspec.plan import Plan, UpstreamPlan
from jobspec.planning.container import with_mount

HEAD_CONTAINER, WORKER_CONTAINER = "ray-head", "ray-worker"
# Variables of the script that jobspec sets; the last one in the batch script, which knows the attempt.
OURS = (
    "CONTAINER", "MOUNTS", "COMMAND", "SETUP_COMMAND", "GPUS_PER_NODE", "CPUS_PER_WORKER", "BASE_LOG_DIR",
)  # fmt: skip

# The logs are the evidence of a node whose container has no interpreter that could write any.
SETUP = """\
node=$(uname -n)
folder={attempts}/$JOBSPEC_ATTEMPT/logs/${{node%%.*}}
mkdir -p -- "$folder"
rm -f -- "$folder/setup.failed"
status=0
{agent} >>"$folder/setup.log" 2>&1 || status=$?
((status == 0)) || echo "$status" >"$folder/setup.failed"
exit "$status"
"""
# `pipefail` here, since the script runs it without; `exec`, so that the exit status is the agent's own.
COMMAND = "set -eo pipefail\nexec {agent}\n"


@dataclass(frozen=True)
class UpstreamStep:
    """The variables for the script, and where it is."""

    env: Mapping[str, str]
    root: str
    script: str


def upstream_step(plan: Plan, upstream: UpstreamPlan, run_dir: str, runtime: str) -> UpstreamStep:
    """Everything that the script needs to run `plan`. The agents set the plan's own variables.

    Set in the container, a variable wins over the image's own; an exported one does not. No text holds a
    secret: the script traces its commands.
    """
    container = with_mount(with_mount(plan.container, runtime.rpartition("/")[0]), run_dir)
    agent = (plan.container.python, runtime)
    env = {
        **upstream.env,
        "CONTAINER": container.image,
        "MOUNTS": ",".join(
            f"{mount.source}:{mount.target}" + (":ro" if mount.read_only else "")
            for mount in container.mounts
        ),
        "COMMAND": COMMAND.format(agent=shlex.join((*agent, "upstream", "--run-dir", run_dir))),
        "SETUP_COMMAND": SETUP.format(
            attempts=shlex.quote(f"{run_dir}/attempts"),
            agent=shlex.join((*agent, "upstream-setup", "--run-dir", run_dir)),
        ),
        # The script waits for this number of `worker_units` a node; with 0 it would wait for no node.
        "GPUS_PER_NODE": str(plan.gpus_per_node or 1),
    }
    if plan.slurm.cpus_per_task:
        env["CPUS_PER_WORKER"] = str(plan.slurm.cpus_per_task)
    return UpstreamStep(env, upstream.root, f"{upstream.root}/{upstream.script}")


def stale_containers(plan: Plan) -> tuple[str, ...]:
    """The command that removes the containers of an earlier run from a node; `()` on shared nodes.

    The script gives its containers fixed names, and pyxis would take an old container for the new image.
    Source: pyxis README, `--container-name`.
    """
    if plan.upstream is None or not plan.slurm.exclusive or plan.container.runtime != "pyxis":
        return ()
    remove = 'for name; do enroot remove --force "pyxis_$name"; done'
    return ("bash", "-c", remove, "bash", HEAD_CONTAINER, WORKER_CONTAINER)
