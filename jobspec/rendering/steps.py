"""What the steps of a run have in common: their options for srun, their interpreter, their variables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jobspec.plan import ContainerPlan, Plan
from jobspec.rendering.quoting import Quoted

# Variables that change how the batch host's own bash, srun and loader work, or that bash refuses to set.
# The agent still gives them to the driver, from plan.json.
HOST_NAMES = re.compile(
    r"PATH|HOME|USER|SHELL|PWD|OLDPWD|IFS|ENV|PS\d|UID|EUID|PPID|GROUPS|SHELLOPTS|RANDOM|SECONDS|LINENO|FUNCNAME|DIRSTACK"
    r"|HOSTNAME|BASH.*|LD_.*|PYTHON.*|SLURM_.*|SBATCH_.*|JOBSPEC_.*"
)

# A node that does not see the run directory has no agent to report it: python would end at once, and srun
# would end the head before it can name the missing node. Network file systems may also be seconds late.
WAIT_FOR_AGENT = """\
import os, socket, sys, time
end = time.monotonic() + 8
while not os.path.exists(sys.argv[1]):
    if time.monotonic() > end:
        sys.exit("jobspec: node %s does not see %s" % (socket.gethostname(), sys.argv[1]))
    time.sleep(0.2)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def interpreter(plan: Plan, container: ContainerPlan) -> tuple[str, ...]:
    """The interpreter that runs runtime.pyz; with several nodes it first waits until the file is there."""
    alone = plan.scheduler != "slurm" or plan.nodes == 1
    return (container.python,) if alone else (container.python, "-c", WAIT_FOR_AGENT)


def one_task_each(plan: Plan) -> tuple[str, ...]:
    """srun's options for a task on every node; over components it takes no number of nodes."""
    last = len(plan.components) - 1
    nodes = (f"--het-group=0-{last}",) if last else (f"--nodes={plan.nodes}", f"--ntasks={plan.nodes}")
    return (*nodes, "--ntasks-per-node=1")


def step_flags(plan: Plan, where: Sequence[str], mpi: str = "") -> tuple[str, ...]:
    """A step's options. `--cpu-bind=none`: one task per node must not be pinned to one core."""
    flags = ["--export=ALL", *where]
    flags += ["--kill-on-bad-exit=1", "--cpu-bind=none", f"--mpi={mpi or 'none'}"]
    cpus = {part.slurm.cpus_per_task for part in plan.components}
    if len(cpus) == 1 and plan.slurm.cpus_per_task:  # one number holds for all; without it a step has all
        flags.append(f"--cpus-per-task={plan.slurm.cpus_per_task}")
    return tuple(flags)


def apart(plan: Plan, flags: Sequence[str], command: Sequence[str]) -> tuple[str, ...]:
    """srun's words up to the last `command`: each component is a part of the step with an input of its own.

    srun gives the input of a step over components to the first of them alone (seen with Slurm 22.05). These
    it opens as files; `step_env` is a function of the script.
    """
    count = len(plan.components)
    heads = [(f"--het-group={part}", *flags, Quoted("--input=<(step_env)")) for part in range(count)]
    return tuple(word for head in heads[:-1] for word in (*head, *command, ":")) + heads[-1]


def host_env(env: Mapping[str, str]) -> list[tuple[str, str]]:
    """The variables that the batch host exports. The agent fills in folders of the attempt."""
    return [(k, v) for k, v in sorted(env.items()) if not HOST_NAMES.fullmatch(k) and "${JOBSPEC_" not in v]
