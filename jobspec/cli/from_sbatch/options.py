"""The options of sbatch: which key of spec or profile each one is, and what has no key."""

from __future__ import annotations

import re
import shlex
from typing import Any

from jobspec.cli.from_sbatch.notes import Notes
from jobspec.spec.fields import DURATION_PATTERN
from jobspec.spec.sbatch import Option, bad_options, read_option

Draft = dict[str, Any]
FLAGS = frozenset(
    [
        "exclusive",
        "requeue",
        "no-requeue",
        "overcommit",
        "oversubscribe",
        "parsable",
        "wait",
        "wait-all-nodes",
        "test-only",
        "contiguous",
        "spread-job",
        "hold",
        "overlap",
        "label",
        "unbuffered",
        "no-kill",
        "kill-on-bad-exit",
        "no-container-mount-home",
        "container-remap-root",
        "container-writable",
        "no-container-remap-root",
        "container-mount-home",
        "get-user-env",
        "reboot",
        "use-min-nodes",
    ]
)  # options that may stand without a value
SHORT_FLAGS = frozenset(["-l", "-u", "-v", "-K", "-O", "-Q", "-H", "-k", "-X", "-s"])
OF_SITE = ("account", "partition", "qos")
OF_RUN = ("reservation", "constraint", "nodelist", "exclude", "licenses", "begin")
LOGS = frozenset({"output", "error", "open-mode", "input", "parsable", "wait"})


def read_options(words: list[str]) -> tuple[list[Option], list[str]]:
    """The options at the start of a command's words, in every form; and the rest."""
    options, at = [], 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word, at = words[at], at + 1
        if word == "--":
            break
        bare = "=" not in word if word.startswith("--") else len(word) == 2
        name = read_option(word).name
        if (
            bare
            and name not in FLAGS
            and not name.startswith("no-")
            and word not in SHORT_FLAGS
            and at < len(words)
        ):
            word = f"{word}={words[at]}" if word.startswith("--") else f"{word}{words[at]}"
            at += 1
        options.append(read_option(word))
    return options, words[at:]


HETJOB = re.compile(r"#SBATCH\s+(het|pack)job\b")


def directives(text: str) -> list[list[tuple[Option, int]]]:
    """The `#SBATCH` lines in front of the first command, as Slurm reads them, by the job's components."""
    found: list[list[tuple[Option, int]]] = [[]]
    for number, line in enumerate(text.splitlines(), 1):
        if HETJOB.match(line):
            found.append([])
        elif line.startswith("#SBATCH"):
            try:
                words = shlex.split(line[7:], comments=True)
            except ValueError:  # a quote that is not closed
                words = line[7:].split()
            found[-1] += [(option, number) for option in read_options(words)[0]]
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found


def put(draft: Draft, path: str, value: Any) -> None:
    *way, last = path.split("/")
    for key in way:
        draft = draft.setdefault(key, {})
    draft[last] = value


def apply(options: list[tuple[Option, int]], spec: Draft, site: Draft, notes: Notes) -> None:
    """Each option into `spec`, `site` or the notes, once."""
    given = {option.name: option.value for option, _ in options}
    for option, line in options:
        if option.value != given[option.name]:
            notes.add("told", f"`{option}` is given again as `{given[option.name]}`, which wins", line)
    options = [(option, line) for option, line in options if option.value == given[option.name]]
    per_node = str(given.get("ntasks-per-node") or 1)
    tasks = int(per_node) if per_node.isdecimal() else 1
    for option, line in options:
        name, value = option.name, option.value
        if name in OF_SITE:
            put(site, f"slurm/{name}", value)
        elif name in OF_RUN:
            put(spec, f"slurm/{name}", value)
        elif not _sizes(name, value, tasks, spec, site, notes, line):
            _others(option, spec, site, notes, line)
    _requeue(given, spec)


def _sizes(name: str, value: str, tasks: int, spec: Draft, site: Draft, notes: Notes, line: int) -> bool:
    match name:
        case "job-name":
            good = re.sub(r"[^A-Za-z0-9._-]+", "-", value).strip("-._")[:63] or "imported"
            spec["name"] = good
            if good != value:
                notes.add("told", f"the name `{value}` is written `{good}`", line)
        case "nodes":
            least = re.match(r"\d+", value)
            put(spec, "resources/nodes", int(least[0]) if least else 1)
            if not value.isdecimal():
                notes.add("told", f"`--nodes={value}`: the spec asks for {least[0] if least else 1}", line)
        case "time":
            put(spec, "resources/time", value)
            if not re.match(DURATION_PATTERN, value):
                notes.add("told", f"`--time={value}` is no time", line)
        case "cpus-per-task" if value.isdecimal():
            put(spec, "resources/cpus_per_node", int(value) * tasks)
        case "mem":
            _memory(value, spec, notes, line)
        case "exclusive":
            put(spec, "resources/exclusive", not value)
            if value:
                notes.add("listed", f"`--exclusive={value}` does not mean whole nodes", line)
        case "gres" | "gpus-per-node" | "gpus" | "gpus-per-task":
            _gpus(name, value, tasks, spec, site, notes, line)
        case "ntasks-per-node":
            if tasks > 1:
                put(spec, "launch/tasks_per_node", tasks)
            notes.add("replaced", f"`--ntasks-per-node={value}`", line)
        case _:
            return False
    return True


def _memory(value: str, spec: Draft, notes: Notes, line: int) -> None:
    size = re.fullmatch(r"(\d+)([KMGT]?)B?", value, re.I)
    if size and int(size[1]):
        put(spec, "resources/memory", size[1] + size[2].upper())
    elif size:
        notes.add("told", "`--mem=0` asks for all memory of a node: `resources.exclusive: true` does", line)
        spec.setdefault("resources", {}).setdefault("exclusive", True)
    else:
        notes.add("listed", f"`--mem={value}`", line)


def _gpus(name: str, value: str, tasks: int, spec: Draft, site: Draft, notes: Notes, line: int) -> None:
    for item in value.split(","):
        found = re.fullmatch(r"(?:gpu:)?(?:([A-Za-z][\w.-]*):)?(\d+)", item)
        if (name == "gres" and not item.startswith("gpu")) or not found:
            if item == "gpu":
                found = re.match(r"()()", "")
                put(spec, "resources/gpus_per_node", 1)
            else:
                notes.add("listed", f"`{item}` of `--{name}`", line)
            continue
        number = int(found[2])
        if name == "gpus":
            nodes = spec.get("resources", {}).get("nodes", 1) or 1
            notes.add(
                "told", f"`--gpus={value}` is for all nodes: {number // nodes} on each of {nodes}", line
            )
            number //= nodes
        put(spec, "resources/gpus_per_node", number * (tasks if name == "gpus-per-task" else 1))
        put(site, "slurm/gpus", "gres" if name == "gres" else "gpus-per-node")
        if found[1]:
            put(spec, "resources/gpu_type", found[1])
            put(site, f"slurm/gpu_types/{found[1]}", {"gres": found[1]})


def _others(option: Option, spec: Draft, site: Draft, notes: Notes, line: int) -> None:
    name, value = option.name, option.value
    if name == "mail-type":
        put(spec, "slurm/mail/events", value.lower().split(","))
    elif name == "mail-user":
        put(spec, "slurm/mail/user", value)
    elif name == "nice" and re.fullmatch(r"-?\d*", value) and value != "-":
        put(spec, "slurm/nice", int(value or 100))
    elif name == "dependency" and "$" in value:
        notes.add("listed", f"`{option}`: Slurm expands nothing in a directive", line)
    elif name == "dependency":
        put(spec, "slurm/dependency", value.split(","))
    elif name in ("requeue", "no-requeue", "signal"):
        if name == "signal" and not re.search(r"USR1@\d+\Z", value):
            notes.add("listed", f"`{option}`: jobspec's own signal is USR1", line)
    elif name in LOGS:
        notes.add("replaced", f"`{option}`: a run's folder has its own logs", line)
        if name == "output" and "/" in value and not value.startswith("/"):
            folder = value.rpartition("/")[0]
            notes.add(
                "danger", f"`--output` needs the folder `{folder}`, which nobody makes before the start", line
            )
    elif name == "array":
        notes.add("listed", f"`{option}`: write the points as `sweep: {{list: [...]}}`", line)
    elif name == "export":
        notes.add("listed", f"`{option}`: name what the run needs in `container.env` and `secrets`", line)
        if value.upper() == "NONE":
            notes.add("danger", "with `--export=NONE` variables of the submitting shell never arrive", line)
    elif next(iter(bad_options([str(option)], gpus_are_asked=True, of_site=True)), None) is None:
        site.setdefault("slurm", {}).setdefault("extra_sbatch", []).append(str(option))
    else:
        notes.add("listed", f"`{option}`", line)


def _requeue(given: dict[str, str], spec: Draft) -> None:
    grace = re.search(r"USR1@(\d+)\Z", given.get("signal", ""))
    if grace:
        put(spec, "launch/requeue/grace", int(grace[1]))
    if "requeue" in given:
        put(spec, "launch/requeue/max_attempts", 3)
