"""Rules over sbatch options given freely: in the job script they follow those that jobspec writes.

Those that a key stands for are refused before, by `jobspec.spec.sbatch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobspec.finding import Finding, error
from jobspec.plan import Plan
from jobspec.spec.job import JobSpec
from jobspec.spec.sbatch import Option, read_option
from jobspec.spec.site import ClusterProfile

# Options of one row ask for one thing. sbatch refuses two of one row. Source: sbatch(1).
MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
CPUS = ("cpus-per-task", "cpus-per-gpu")
SPEC_KEYS = {"mem": "resources.memory", "cpus-per-task": "resources.cpus_per_node"}


def names_memory(options: Iterable[str]) -> bool:
    """Whether the options say how much memory a job gets."""
    return any(read_option(option).name in MEMORY for option in options)


def names_cpus(options: Iterable[str]) -> bool:
    """Whether the options say how many CPUs a job gets."""
    return any(read_option(option).name in CPUS for option in options)


def options_agree(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    """The options that contradict one of the job script."""
    if plan.scheduler != "slurm":
        return
    ours = {option.name: option for option in resource_options(plan)}
    of_site = len(plan.slurm.extra_sbatch) - len(spec.slurm.extra_sbatch)
    for index, text in enumerate(plan.slurm.extra_sbatch):
        theirs = read_option(text)
        row = next((row for row in (MEMORY, CPUS) if theirs.name in row), (theirs.name,))
        other = next((ours[name] for name in row if name in ours), None)
        if other is None:
            continue
        key = SPEC_KEYS.get(other.name, "")
        given = key and getattr(spec.resources, key.partition(".")[2]) is not None
        place = f"slurm.extra_sbatch[{index if index < of_site else index - of_site}]"
        who, where = ("site", "profile") if index < of_site else ("spec", "spec")
        yield error(
            "resources.sbatch",
            f"the job script asks for `{other}`, and the {who}'s `{place}` is `{text}`",
            "sbatch ends with an error: the two are mutually exclusive"
            if theirs.name != other.name
            else f"the last one holds: `{other}` has no effect",
            f"remove `{text}` from the {where}" + (f", or change `{key}` in the spec" if given else ""),
            path=place if who == "spec" else key,
        )


def resource_options(plan: Plan) -> Iterator[Option]:
    """The options for time, whole nodes, GPUs, CPUs and memory."""
    slurm = plan.slurm
    if slurm.time:
        yield Option("time", slurm.time)
    if slurm.exclusive:
        yield Option("exclusive")
    if plan.gpus_per_node and slurm.gpus != "none":
        kind = f"{slurm.gpu_type}:" if slurm.gpu_type else ""
        yield Option(slurm.gpus, f"{'gpu:' if slurm.gpus == 'gres' else ''}{kind}{plan.gpus_per_node}")
    if slurm.cpus_per_task:
        yield Option("cpus-per-task", str(slurm.cpus_per_task))
    if slurm.memory or (slurm.exclusive and not names_memory(slurm.extra_sbatch)):
        yield Option("mem", slurm.memory or "0")  # 0: all that the node has


OF_JOB = ("licenses", "begin", "dependency", "mail-type", "mail-user")


def slurm_options(plan: Plan, of_job: bool = True) -> Iterator[Option]:
    """The options that stand as keys below `slurm`, in the order of the spec.

    Without `of_job` those that a heterogeneous job has once, with its first component.
    """
    slurm = plan.slurm
    values = {
        "account": slurm.account, "partition": slurm.partition, "qos": slurm.qos,
        "reservation": slurm.reservation, "constraint": slurm.constraint, "nodelist": slurm.nodelist,
        "exclude": slurm.exclude, "licenses": slurm.licenses, "nice": str(slurm.nice or ""),
        "begin": slurm.begin, "dependency": ",".join(slurm.dependency),
        "mail-type": ",".join(slurm.mail_events).upper(),
        "mail-user": slurm.mail_user,
    }  # fmt: skip
    names = [name for name in values if of_job or name not in OF_JOB]
    return (Option(name, values[name]) for name in names if values[name])


RULES = (options_agree,)
