"""Options of sbatch given freely (`slurm.extra_sbatch`): how they are read, and which a key stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jobspec.words import did_you_mean

SHORT = {
    "A": "account", "C": "constraint", "D": "chdir", "F": "nodefile", "G": "gpus", "J": "job-name",
    "L": "licenses", "M": "clusters", "N": "nodes", "W": "wait", "a": "array", "b": "begin",
    "c": "cpus-per-task", "d": "dependency", "e": "error", "i": "input", "n": "ntasks", "o": "output",
    "p": "partition", "q": "qos", "s": "oversubscribe", "t": "time", "w": "nodelist", "x": "exclude",
}  # fmt: skip
SAME = {"tasks-per-node": "ntasks-per-node", "share": "oversubscribe", "cluster": "clusters"}
GPUS = ("gres", "gpus-per-node", "gpus", "gpus-per-task", "gpus-per-socket", "tres-per-task")
LISTED = ("gres", "tres-per-task")  # of these that name other resources, too
OF_SLURM = (
    "account", "begin", "constraint", "dependency", "exclude", "licenses", "nice", "nodelist", "partition",
    "qos", "reservation",
)  # fmt: skip
# The key that an option is written as. `OWN` has none: with another value the run has other tasks than its
# plan, or its log is not found.
OF_A_RUN = ("slurm.begin", "slurm.dependency", "slurm.nodelist")  # no key of a profile
KEYS = {name: f"slurm.{name}" for name in OF_SLURM} | {
    "mail-type": "slurm.mail.events", "mail-user": "slurm.mail.user",
    "nodes": "resources.nodes", "time": "resources.time", "mem": "resources.memory",
    "cpus-per-task": "resources.cpus_per_node", "exclusive": "resources.exclusive",
    "oversubscribe": "resources.exclusive", "requeue": "launch.requeue.max_attempts",
    "no-requeue": "launch.requeue.max_attempts", "array": "sweep",
    "ntasks-per-node": "launch.tasks_per_node", "job-name": "name", "export": "container.env",
    "export-file": "container.env",
    "container-image": "container.image", "container-mounts": "container.mounts",
    "container-workdir": "container.workdir", "container-env": "container.env",
}  # fmt: skip
LISTS = ("slurm.dependency", "slurm.mail.events")
OWN = frozenset(
    {"chdir", "error", "input", "ntasks", "ntasks-per-gpu", "open-mode", "output", "parsable", "wrap"}
)
_ANOTHER_USER = ("the run's folder is not that user's", "remove it, and submit as that user")
# With these a submission is another thing: why not, and what to do.
NOT_HERE = {
    "wait": ("sbatch would not return before the job's end", "remove it: `jobspec run` waits for the end"),
    "test-only": ("sbatch would start no job", "remove it: `jobspec submit --dry-run` asks for the start"),
    "clusters": ("jobspec asks one Slurm about its jobs", "remove it, and write a profile for that cluster"),
    "nodefile": ("`slurm.nodelist` of a spec stands for it", "write the file's nodes in `slurm.nodelist`"),
    "uid": _ANOTHER_USER, "gid": _ANOTHER_USER,
}  # fmt: skip
OTHERS = ("container",)  # of sbatch, and the beginning of a name above

KINDS = ("after", "afterany", "afterburstbuffer", "aftercorr", "afternotok", "afterok", "singleton")


@dataclass(frozen=True)
class Option:
    """One sbatch option by its long name, and its value."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"--{self.name}" + (f"={self.value}" if self.value else "")


@dataclass(frozen=True)
class BadOption:
    """What is wrong with the option at `index`, and what to write."""

    index: int
    what: str
    why: str
    fix: str


def read_option(text: str) -> Option:
    """An option in any form that sbatch takes.

    >>> str(read_option("-N 2")), str(read_option("-t30")), str(read_option("--mem=4G"))
    ('--nodes=2', '--time=30', '--mem=4G')
    """
    if text.startswith("--"):
        name, _, value = text[2:].partition("=")
        return Option(_whole(name), value)
    return Option(SHORT.get(text[1:2], text[1:2]), text[2:].strip())


def _whole(name: str) -> str:
    """A long name in full: sbatch takes any beginning that is no other option's.

    >>> _whole("outp"), _whole("tasks-per-node"), _whole("container"), _whole("mem")
    ('output', 'ntasks-per-node', 'container', 'mem')
    """
    name = SAME.get(name, name)
    refused = (*KEYS, *OWN, *NOT_HERE, *GPUS)
    if name in (*refused, *OTHERS):
        return name
    known = [whole for whole in refused if name and whole.startswith(name)]
    return known[0] if len(known) == 1 else name


def bad_options(options: Iterable[str], gpus_are_asked: bool, of_site: bool = False) -> Iterator[BadOption]:
    """Options that are none, that hold a blank, or that a key of the document stands for.

    `gpus_are_asked`: jobspec asks for the GPUs, so that no option may. `of_site`: they stand in a profile.
    """
    for index, text in enumerate(options):
        blank = re.fullmatch(r"(--[\w-]+)(?:\s+=?\s*|\s*=\s+)(.*?)\s*", text)
        option = Option(_whole(blank[1][2:]), blank[2]) if blank else read_option(text)
        what = f"`{text}` is not an sbatch option"
        if not re.fullmatch(r"--?\w[^\n]*", text):  # behind a bare `--` sbatch reads no further option
            yield BadOption(index, what, "", "write it like `--switches=1`")
        elif problem := _managed(index, text, option, gpus_are_asked, of_site):
            yield problem
        elif blank:
            yield BadOption(index, what, "a blank stands between name and value", f"write `{option}`")


def _managed(index: int, text: str, option: Option, gpus_are_asked: bool, of_site: bool) -> BadOption | None:
    what = f"`{text}` is an option that jobspec sets itself"
    key = KEYS.get(option.name, "")
    owner = " of a spec" if of_site and (not key.startswith("slurm.") or key in OF_A_RUN) else ""
    if key.startswith("slurm."):
        value = f"[{option.value.lower()}]" if key in LISTS else option.value
        fix = f"write `{key}: {value}` in {'a spec' if owner else 'its place'}"
        return BadOption(index, what, f"`{key}`{owner} stands for it", fix)
    if key:
        return BadOption(index, what, f"`{key}`{owner} stands for it", f"use `{key}`{owner} in its place")
    if option.name in OWN:
        return BadOption(index, what, "with another value the run's tasks or logs are not found", "remove it")
    if option.name in NOT_HERE:
        why, fix = NOT_HERE[option.name]
        return BadOption(index, f"`{text}` is no option of a run", why, fix)
    if gpus_are_asked and _names_gpus(option):
        why = "`resources.gpus_per_node` of a spec stands for it"
        fix = (
            "remove it; a kind of GPU is `resources.gpu_type`, and `slurm.gpu_types` of the profile names it"
        )
        return BadOption(index, what, why, fix)
    return None


def _names_gpus(option: Option) -> bool:
    if option.name not in LISTED:
        return option.name in GPUS
    return any(re.match("(gres/)?gpu([:=]|$)", item) for item in option.value.split(","))


@dataclass(frozen=True)
class Dependency:
    """One condition of `--dependency`: its kind, and the run or job that it waits for."""

    kind: str
    ref: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.ref}" if self.ref else self.kind


def read_dependency(text: str) -> Dependency:
    """Raises: ValueError with what is wrong and, after a line break, what to write."""
    kind, _, ref = text.partition(":")
    if kind not in KINDS:
        close = did_you_mean(kind, KINDS) or f"use one of {', '.join(KINDS)}"
        raise ValueError(f"sbatch knows no dependency `{kind}`\n{close}")
    if bool(ref) != (kind != "singleton"):
        what = "`singleton` takes no job" if ref else f"`{text}` names no run and no job"
        raise ValueError(f"{what}\nwrite it like `singleton`, `afterok:RUN` or `afterany:4711`")
    if re.search("[,?:]", ref):
        raise ValueError(f"`{text}` names several\ngive each an entry of its own; all must hold")
    minutes = ref.partition("+")[2]
    if "+" in ref and not re.fullmatch("0*[1-9][0-9]*", minutes):  # sbatch takes `5x` for 5
        raise ValueError(f"`{minutes}` in `{text}` is no number of minutes\nwrite it like `after:4711+30`")
    return Dependency(kind, ref)
