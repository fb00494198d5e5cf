"""The components of a heterogeneous job as `groups` of a spec."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobspec.cli.from_sbatch.notes import Notes
from jobspec.cli.from_sbatch.options import HETJOB, LOGS, OF_SITE, Draft, apply, directives, put
from jobspec.spec.sbatch import Option
from jobspec.spec.service_rules import PLACES

# What Slurm hands on to a later component that does not give it, and what a group has of its own.
# Source: Slurm's page on heterogeneous jobs, "Propagated options".
PROPAGATED = ("account", "qos", "reservation")
OF_GROUP = frozenset(
    {"nodes", "ntasks-per-node", "cpus-per-task", "mem", "exclusive", "gres", "gpus", "gpus-per-node",
     "gpus-per-task", "constraint", "nodelist", *OF_SITE, *PROPAGATED}
)  # fmt: skip
SIZES = ("nodes", "gpus_per_node", "gpu_type", "cpus_per_node", "memory")
PLACED = ("reservation", "constraint", "nodelist")

_HOSTS = r"\$\{?SLURM_(?:JOB_)?NODELIST_(?:HET|PACK)_GROUP_(\d+)\b\}?"
_LIST = rf"\"?{_HOSTS}\"?"
_NAMES = re.compile(rf"\$\(\s*scontrol\s+show\s+hostnames?\s+{_LIST}\s*(?:\|\s*([^()]*?)\s*)?\)")
_FIRST = re.compile(r"head\s+(-n\s*)?-?1|sed\s+-n\s+'?\"?1p'?\"?")
_COMMAS = re.compile(r"paste\s+(-sd\s*,?|-s\s+-d\s*,|-d\s*,\s*-s)['\",]*(\s+-)?|tr\s+'\\n'\s+','")
_MAPPED = re.compile(
    rf"(?:mapfile|readarray)\s+-t\s+(\w+)\s*<\s*<\(\s*scontrol\s+show\s+hostnames?\s+{_LIST}\s*\)"
)
_ARRAY = re.compile(r"\b(\w+)=\(\s*\"?\$\{JOBSPEC_GROUP_(\w+)//,/ \}\"?\s*\)")


@dataclass(frozen=True)
class Component:
    """What a heterogeneous job asks for in one of its parts, and the group that it becomes."""

    number: int
    line: int
    name: str
    options: tuple[tuple[Option, int], ...]

    @property
    def variable(self) -> str:
        return f"JOBSPEC_GROUP_{self.name.replace('-', '_').upper()}"

    @property
    def tasks(self) -> int:
        return int(self.draft[0].get("launch", {}).get("tasks_per_node", 1))

    @property
    def draft(self) -> tuple[Draft, Draft]:
        """Its part of spec and profile."""
        spec: Draft = {}
        site: Draft = {}
        apply([*self.options], spec, site, Notes())
        return spec, site


def components(text: str) -> tuple[Component, ...]:
    """Those of the job, with what Slurm hands on; one where it is not heterogeneous."""
    parts, handed = directives(text), dict[str, tuple[Option, int]]()
    if len(parts) == 1:
        return (Component(0, 0, "", tuple(parts[0])),)
    starts = [0, *(number for number, line in enumerate(text.splitlines(), 1) if HETJOB.match(line))]
    found = []
    for number, part in enumerate(parts):
        own = {option.name for option, _ in part}
        given = [*(item for name, item in handed.items() if name not in own), *_per_node(part)]
        handed |= {item[0].name: item for item in given if item[0].name in PROPAGATED}
        found.append(Component(number, starts[number], "", tuple(given)))
    return _named(found)


def _per_node(options: list[tuple[Option, int]]) -> list[tuple[Option, int]]:
    """Tasks, and `--mem-per-cpu`, as those of a node: a group has no others."""
    given = {option.name: option.value for option, _ in options}
    nodes, all_tasks = given.get("nodes", "1"), given.get("ntasks", "")
    found = {}
    known = nodes.isdecimal() and int(nodes) and ("nodes" in given or all_tasks == "1")
    if known and all_tasks.isdecimal() and not int(all_tasks) % int(nodes):
        found["ntasks"] = Option("ntasks-per-node", str(int(all_tasks) // int(nodes)))
    tasks = given.get("ntasks-per-node", found["ntasks"].value if found else "1")
    size = re.fullmatch(r"(\d+)([KMGT]?)B?", given.get("mem-per-cpu", ""), re.I)
    cpus = given.get("cpus-per-task", "1")
    if size and int(size[1]) and cpus.isdecimal() and tasks.isdecimal():
        found["mem-per-cpu"] = Option("mem", f"{int(size[1]) * int(cpus) * int(tasks)}{size[2]}")
    return [(found.get(option.name, option), line) for option, line in options]


def _named(parts: list[Component]) -> tuple[Component, ...]:
    """Each by its partition; by its number, too, where that does not tell it from the others."""

    def stem(part: Component) -> str:
        given = {option.name: option.value for option, _ in part.options}
        name = (
            re.sub(r"[^a-z0-9]+", "-", given.get("partition", "").lower())
            .lstrip("-0123456789")[:40]
            .rstrip("-")
        )
        return name if name and name not in PLACES else "group"

    stems = [stem(part) for part in parts]
    return tuple(
        replace(part, name=name if stems.count(name) == 1 and name != "group" else f"{name}-{part.number}")
        for part, name in zip(parts, stems, strict=True)
    )


def variables(parts: Sequence[Component]) -> dict[str, str]:
    """What Slurm will set to the sizes of the components."""
    found = {"SLURM_HET_SIZE": str(len(parts)), "SLURM_PACK_SIZE": str(len(parts))}
    for part in parts:
        nodes = str(part.draft[0].get("resources", {}).get("nodes", 1))
        for kind in ("HET", "PACK"):
            for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES"):
                found[f"{name}_{kind}_GROUP_{part.number}"] = nodes
    return found


def with_host_names(text: str, parts: Sequence[Component]) -> str:
    """The script with the host names of a component as a run has them: Slurm's list needs `scontrol`."""

    def shown(found: re.Match[str]) -> str:
        number, pipe = int(found[1]), found[2] or ""
        if number >= len(parts) or (pipe and not (_FIRST.fullmatch(pipe) or _COMMAS.fullmatch(pipe))):
            return found[0]
        name = parts[number].variable
        if not pipe:
            return f"${{{name}//,/ }}"
        return f"${{{name}%%,*}}" if _FIRST.fullmatch(pipe) else f"${name}"

    def mapped(found: re.Match[str]) -> str:
        number = int(found[2])
        return f"{found[1]}=(${{{parts[number].variable}//,/ }})" if number < len(parts) else found[0]

    text = _MAPPED.sub(mapped, _NAMES.sub(shown, text))
    for array, tail in dict.fromkeys(_ARRAY.findall(text)):
        count = next((part.draft[0].get("resources", {}).get("nodes", 1)
                      for part in parts if part.variable == f"JOBSPEC_GROUP_{tail}"), 1)  # fmt: skip
        name = re.escape(array)
        text = re.sub(rf"\$\{{{name}\[0\]\}}|\${name}\b(?!\[)", f"${{JOBSPEC_GROUP_{tail}%%,*}}", text)
        text = re.sub(rf"\$\{{{name}\[[@*]\]\}}", f"${{JOBSPEC_GROUP_{tail}//,/ }}", text)
        text = text.replace(f"${{#{array}[@]}}", str(count))
    return re.sub(
        _HOSTS, lambda m: f"${{{parts[int(m[1])].variable}}}" if int(m[1]) < len(parts) else m[0], text
    )


def apply_components(parts: Sequence[Component], spec: Draft, site: Draft, notes: Notes) -> None:
    """What the run has once, from the first component; what is only in another one is told or listed."""
    first = {option.name: option for option, _ in parts[0].options}
    for text in site.get("slurm", {}).get("extra_sbatch", ()):
        notes.add("told", f"`{text}` of component 0 holds for all groups")
    for part in parts[1:]:
        notes.add(
            "told", f"component {part.number} of the heterogeneous job is group `{part.name}`", part.line
        )
        sites: Draft = {}
        apply([item for item in part.options if item[0].name in OF_GROUP], {}, sites, notes)
        for key in ("gpus", "gpu_types"):
            if key in sites.get("slurm", {}):
                kinds = site.get("slurm", {}).get(key, {})
                both = {**kinds, **sites["slurm"][key]} if key == "gpu_types" else sites["slurm"][key]
                put(site, f"slurm/{key}", both)
        for option, line in part.options:
            if option.name not in OF_GROUP and option != first.get(option.name):
                _further(option, line, part, first, spec, notes)


def take_sizes(part: Component, spec: Draft) -> None:
    """The driver's component as if the job were that one alone."""
    draft = part.draft[0]
    asked = draft.get("resources", {})
    kept = {key: value for key, value in spec.get("resources", {}).items() if key not in SIZES}
    spec["resources"] = {**kept, **{key: asked[key] for key in SIZES if key in asked}}
    spec.setdefault("launch", {}).pop("tasks_per_node", None)
    if part.tasks > 1:
        put(spec, "launch/tasks_per_node", part.tasks)


def _further(
    option: Option, line: int, part: Component, first: dict[str, Option], spec: Draft, notes: Notes
) -> None:
    """An option of a later component that a run has once."""
    shown = f"`{option}` of component {part.number}"
    if option.name == "exclude":
        all_of_them = [item for item in (spec.get("slurm", {}).get("exclude", ""), option.value) if item]
        put(spec, "slurm/exclude", ",".join(dict.fromkeys(all_of_them)))
        notes.add("told", f"{shown} holds for all groups", line)
    elif option.name == "time" and "time" not in first:
        put(spec, "resources/time", option.value)
    elif option.name in LOGS:
        notes.add("replaced", f"{shown}: a run's folder has its own logs", line)
    else:
        why = ": a run has one time limit" if option.name == "time" else ": a group has no key for it"
        notes.add("listed", shown + why, line)


def add_groups(parts: Sequence[Component], driver: int, spec: Draft, site: Draft, notes: Notes) -> None:
    """Write `groups`, the driver's first; `spec` has the sizes of that one as if it were alone."""
    drafts = [part.draft for part in parts]
    drafts[driver][0]["resources"] = {**drafts[driver][0].get("resources", {}), **spec["resources"]}
    for part in parts:
        first = ", and the first: the driver runs there" if 0 < part.number == driver else ""
        what = f"component {part.number} of the heterogeneous job is group `{part.name}`{first}"
        notes.add("told", what, part.line)
    order = sorted(parts, key=lambda part: part.number != driver)
    spec["groups"] = [_group(part.name, *drafts[part.number], site) for part in order]
    for key in PLACED:
        spec.get("slurm", {}).pop(key, None)
    reserved = {group["slurm"].get("reservation") for group in spec["groups"]}
    if len(reserved) == 1 and reserved != {None}:
        put(spec, "slurm/reservation", *reserved)
        for group in spec["groups"]:
            group["slurm"].pop("reservation")
    spec["groups"] = [{key: value for key, value in group.items() if value != {}} for group in spec["groups"]]
    if not spec.get("slurm", True):
        del spec["slurm"]
    for key in (*SIZES, "exclusive"):
        spec["resources"].pop(key, None)
    _exclusive([draft.get("resources", {}).get("exclusive") for draft, _ in drafts], parts, spec, notes)


def _group(name: str, draft: Draft, own: Draft, site: Draft) -> Draft:
    asked = {"nodes": 1, "gpus_per_node": 0, **draft.get("resources", {})}
    here, everywhere = own.get("slurm", {}), site.get("slurm", {})
    slurm = {key: here.get(key, "") for key in OF_SITE if here.get(key, "") != everywhere.get(key, "")}
    slurm |= {key: value for key, value in draft.get("slurm", {}).items() if key in PLACED}
    return {"name": name, **{key: asked[key] for key in SIZES if key in asked}, "slurm": slurm}


def _exclusive(given: list[bool | None], parts: Sequence[Component], spec: Draft, notes: Notes) -> None:
    if not any(given):
        return
    put(spec, "resources/exclusive", True)
    for part, whole in zip(parts, given, strict=True):
        if not whole:
            what = (
                f"component {part.number} asks for no whole nodes: `resources.exclusive` holds for all groups"
            )
            notes.add("told", what, part.line)
