"""Rules over a site's own sbatch options: in the job script they follow those that jobspec writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jobspec.finding import Finding, error, warning
from jobspec.plan import Plan
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile

SHORT = {
    "A": "account", "D": "chdir", "G": "gpus", "J": "job-name", "N": "nodes", "a": "array",
    "c": "cpus-per-task", "n": "ntasks", "o": "output", "p": "partition", "q": "qos",
    "s": "oversubscribe", "t": "time",
}  # fmt: skip
SAME = {"tasks-per-node": "ntasks-per-node", "share": "oversubscribe"}
# Options of one row ask for one thing. sbatch refuses two of the first two rows. Source: sbatch(1).
MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
CPUS = ("cpus-per-task", "cpus-per-gpu")
GPUS = ("gres", "gpus-per-node", "gpus", "gpus-per-task")
ROWS = (MEMORY, CPUS, GPUS, ("requeue", "no-requeue"), ("exclusive", "oversubscribe"))
# With another value the run has other nodes, tasks or variables than its plan, or its log is not found.
PLANNED = frozenset({"array", "export", "nodes", "ntasks", "ntasks-per-node", "output"})
SPEC_KEYS = {
    "mem": "resources.memory", "time": "resources.time", "nodes": "resources.nodes",
    "cpus-per-task": "resources.cpus_per_node", "exclusive": "resources.exclusive",
    "gres": "resources.gpus_per_node", "gpus-per-node": "resources.gpus_per_node",
}  # fmt: skip


@dataclass(frozen=True)
class Option:
    """One sbatch option by its long name, and its value."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"--{self.name}" + (f"={self.value}" if self.value else "")


def read_option(text: str) -> Option:
    """An option in any form that sbatch takes.

    >>> str(read_option("-N 2")), str(read_option("-t30")), str(read_option("--mem=4G"))
    ('--nodes=2', '--time=30', '--mem=4G')
    """
    if text.startswith("--"):
        name, _, value = text[2:].partition("=")
        return Option(SAME.get(name, name), value)
    return Option(SHORT.get(text[1:2], text[1:2]), text[2:].strip())


def names_memory(options: Iterable[str]) -> bool:
    """Whether a site says itself how much memory a job gets."""
    return any(read_option(option).name in MEMORY for option in options)


def options_agree(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    """The site's options that contradict or repeat one of the job script."""
    if plan.scheduler != "slurm":
        return
    ours = {option.name: option for option in written(plan)}
    for index, text in enumerate(plan.slurm.extra_sbatch):
        theirs = read_option(text)
        row = next((row for row in ROWS if theirs.name in row), (theirs.name,))
        other = next((ours[name] for name in row if name in ours), None)
        problem = other and _problem(plan, other, theirs)
        if other is None or not problem:
            continue
        key = SPEC_KEYS.get(other.name, "")
        given = key and getattr(spec.resources, key.partition(".")[2]) is not None
        refused, why = problem
        yield (error if refused else warning)(
            "resources.sbatch",
            f"the job script asks for `{other}`, and the site's `slurm.extra_sbatch[{index}]` is `{text}`",
            why,
            f"remove `{text}` from the profile" + (f", or change `{key}` in the spec" if given else ""),
            path=key,
        )


def _problem(plan: Plan, ours: Option, theirs: Option) -> tuple[bool, str] | None:
    """Whether a pair of options is refused or ruins the run, and why; None where both say the same."""
    if theirs.name in GPUS:
        count = _gpus_of_a_node(theirs, plan.nodes)
        if count == plan.gpus_per_node:
            return None if theirs.name == ours.name else (False, "the same GPUs are asked for twice")
        if count == 0 and theirs.name != ours.name:
            return None  # another resource beside the GPUs
        asked = f"it asks for {count} GPUs a node" if count is not None else "it asks for other GPUs"
        return True, f"{asked}, the run is planned for {plan.gpus_per_node}"
    if theirs.name != ours.name and theirs.name in MEMORY + CPUS:
        return True, "sbatch ends with an error: the two are mutually exclusive"
    if theirs == ours:
        return False, "it stands there twice, and a change of one would not change the other"
    if theirs.name in PLANNED:
        return True, f"the last one holds, and the run is planned for `{ours}`"
    return False, f"the last one holds: `{ours}` has no effect"


def _gpus_of_a_node(option: Option, nodes: int) -> int | None:
    """How many GPUs of a node an option asks for, 0 for other resources, None where it cannot be read.

    >>> _gpus_of_a_node(Option("gres", "gpu:h100:8,nvme:1"), 2), _gpus_of_a_node(Option("gpus", "16"), 2)
    (8, 8)
    """
    items = [item.removeprefix("gres/").split(":") for item in option.value.split(",")]
    if option.name == "gres":
        items = [item[1:] or ["1"] for item in items if item[0] == "gpu"]
    numbers = [item[-1].split("(")[0] for item in items]
    if not all(number.isdecimal() for number in numbers):
        return None
    total = sum(map(int, numbers))
    return total if option.name != "gpus" else total // nodes if total % nodes == 0 else None


def written(plan: Plan) -> Iterator[Option]:
    """What the job script asks for itself, in its order. Paths are left out: each run has its own."""
    slurm = plan.slurm
    yield Option("job-name", plan.name)
    yield Option("output", "job-%j.log")
    for name, value in (("account", slurm.account), ("partition", slurm.partition), ("qos", slurm.qos)):
        if value:
            yield Option(name, value)
    yield Option("nodes", str(plan.nodes))
    yield Option("ntasks", str(plan.nodes))
    yield Option("ntasks-per-node", "1")
    yield from resource_options(plan)
    yield Option("requeue" if slurm.requeue_max else "no-requeue")
    yield Option("export", ",".join(plan.passed) or "NIL")
    if slurm.array:
        yield Option("array", slurm.array)


def resource_options(plan: Plan) -> Iterator[Option]:
    """The options for time, whole nodes, GPUs, CPUs and memory."""
    slurm = plan.slurm
    if slurm.time:
        yield Option("time", slurm.time)
    if slurm.exclusive:
        yield Option("exclusive")
    if plan.gpus_per_node and slurm.gpus != "none":
        yield Option(slurm.gpus, f"{'gpu:' if slurm.gpus == 'gres' else ''}{plan.gpus_per_node}")
    if slurm.cpus_per_task:
        yield Option("cpus-per-task", str(slurm.cpus_per_task))
    if slurm.memory or (slurm.exclusive and not names_memory(slurm.extra_sbatch)):
        yield Option("mem", slurm.memory or "0")  # 0: all that the node has


RULES = (options_agree,)
