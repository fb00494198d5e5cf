"""A batch script -> a spec, a site profile, and what is said beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobspec.cli.from_sbatch.bash import OPEN, comma_split, is_keyword
from jobspec.cli.from_sbatch.components import (
    Component,
    add_groups,
    apply_components,
    components,
    take_sizes,
    variables,
    with_host_names,
)
from jobspec.cli.from_sbatch.container import add_container, own_home
from jobspec.cli.from_sbatch.dangers import look_for
from jobspec.cli.from_sbatch.driver import add_command
from jobspec.cli.from_sbatch.notes import Note, Notes, is_secret, plain_secrets
from jobspec.cli.from_sbatch.options import Draft, apply, put, read_options
from jobspec.cli.from_sbatch.servers import add_services, arms, is_server
from jobspec.cli.from_sbatch.steps import Script, Step, runtime_env
from jobspec.finding import fail
from jobspec.spec.interpolate import escape

# Settings of NeMo-RL's ray.sub, which the spec has keys for or jobspec decides.
OF_RAY_SUB = frozenset(
    [
        "COMMAND",
        "CONTAINER",
        "MOUNTS",
        "GPUS_PER_NODE",
        "CPUS_PER_WORKER",
        "BASE_LOG_DIR",
        "UV_CACHE_DIR_OVERRIDE",
        "SETUP_COMMAND",
    ]
)
_OF_THE_JOB = re.compile(
    r"(MASTER_(ADDR|PORT)|RAY_ADDRESS|RAY_HEAD\w*|ip_head|head_ip|WORLD_SIZE|(NODE_)?RANK|"
    r"CUDA_VISIBLE_DEVICES)\Z", re.I
)  # fmt: skip
_OF_THE_SITE = re.compile(r"(NCCL|GLOO|UCX|FI|NVSHMEM)_\w+\Z")
REPLACED = ("sleep", "scontrol", "hostname", "wait", "getent", "mapfile", "tee")
UNTOLD = ("echo", "set", "shift", "break", "true", "exit", "local")
_CONTAINER = re.compile(r"(APPTAINER|SINGULARITY)ENV_(\w+)\Z")


@dataclass(frozen=True)
class Imported:
    """The plain data of both files, and what is said about the script."""

    spec: Draft
    site: Draft
    notes: tuple[Note, ...]


def convert(text: str, name: str) -> Imported:
    """Read a script. Raises: JobspecError when no command in it could be the run's."""
    try:
        return _converted(text, name)
    except RecursionError:
        what, fix = f"`{name}` is nested too deeply to be read", "write the spec by `jobspec init`"
        raise fail("init.sbatch", what, fix=fix, file=name) from None


def _converted(text: str, name: str) -> Imported:
    dos = "\r\n" in text
    text = text.replace("\r\n", "\n")
    notes = Notes(script=text)
    if dos:
        notes.add("danger", "the script has DOS line ends, with which `sbatch` refuses it")
    parts, script = components(text), Script()
    uneven = len(parts) > 1
    script.values.known |= _sizes(parts)
    if uneven:
        text = with_host_names(text, parts)
    script.walk(text)
    for variable, line in script.assigned.items():
        if is_secret(variable, script.values.known.get(variable, "")):
            notes.secret(variable, script.values.known[variable], line)
    for variable, value in plain_secrets(text):
        notes.secret(variable, value, 0)
    options, step = _options(parts, script, notes), _driver(script, name, uneven)
    spec: Draft = {"version": 1, "name": "imported", "framework": "command"}
    site: Draft = {"version": 1, "name": "", "scheduler": "slurm"}
    apply(options, spec, site, notes)
    driver = min((n for n in step.components if n < len(parts)), default=0)
    if uneven:
        apply_components(parts, spec, site, notes)
        take_sizes(parts[driver], spec)
    if "time" not in spec.get("resources", {}):
        notes.add("told", "there is no time limit: give `resources.time`")
    if not options:
        notes.add("told", "the script has no directives: nodes, GPUs and time are to be given")
    uses_ray = any(one.is_ray_start for one in script.steps) or bool(step.submitted) or "ray.sub" in text
    uses_ray = uses_ray or bool(re.search(r"\bray start\b", text))
    _attempts(text, script, spec, notes)
    put(spec, "launch/mode", "ray" if uses_ray else "srun")
    _step_sizes(step, spec, notes)
    _ray_sub(script, spec, notes)
    add_container(step, spec, site, notes)
    _environment(script, step, spec, site, notes)
    placed = add_services(script, step, parts, spec, notes) if uneven else []
    beside = arms(script, step, placed, parts, notes) if uneven and not uses_ray else ()
    add_command(step, script, spec, notes, beside)
    placed += [one for _, one in beside]
    look_for(text, script, step, spec, notes)
    if uneven:
        add_groups(parts, driver, spec, site, notes)
    _rest(script, step, placed, site, spec, notes)
    return _finished(spec, site, notes)


def _finished(spec: Draft, site: Draft, notes: Notes) -> Imported:
    ordered = {**{key: spec[key] for key in ("version", "name", "framework")}, **_shorn(spec)}
    put(site, "paths/runs", "${home}/runs")
    notes.add("told", "`paths.runs` of the profile is a guess: name a folder that all nodes share")
    site["name"] = f"{ordered['name']}-site"[:63]
    profile = _clean({key: value for key, value in _shorn(site).items() if key != "paths"}, notes)
    return Imported(_clean(ordered, notes), {**profile, "paths": site["paths"]}, tuple(_said(notes)))


def _options(parts: Sequence[Component], script: Script, notes: Notes) -> list[Any]:
    """The directives of the first component, and the options of a call of `sbatch` in the script."""
    found = [*parts[0].options]
    for step in script.steps:
        if step.program == "sbatch":
            found += [(option, step.line) for option in read_options(list(step.words[1:]))[0]]
            if ":" in step.words:
                further = " ".join(step.words[step.words.index(":") :])
                what = f"`sbatch … {further}`: further components; write each as one of `groups`"
                notes.add("listed", what, step.line)
    return found


def _sizes(parts: Sequence[Component]) -> dict[str, str]:
    """What Slurm will set to the sizes that the directives ask for."""
    asked = parts[0].draft[0].get("resources", {})
    nodes, gpus, cpus = (asked.get(key) for key in ("nodes", "gpus_per_node", "cpus_per_node"))
    names = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_GPUS_PER_NODE": gpus,
             "SLURM_GPUS_ON_NODE": gpus, "SLURM_CPUS_PER_TASK": cpus}  # fmt: skip
    known = {name: str(value) for name, value in names.items() if value}
    return known | (variables(parts) if len(parts) > 1 else {})


def _attempts(text: str, script: Script, spec: Draft, notes: Notes) -> None:
    """How often a script that requeues itself does so."""
    if "scontrol requeue" not in text:
        return
    found = re.search(r"(?:<|-lt)\s*\"?\$?\{?(\w+)", text[: text.index("scontrol requeue")][-300:])
    limit = script.values.known.get(found[1], found[1]) if found else ""
    if limit.isdecimal():
        put(spec, "launch/requeue/max_attempts", int(limit) + 1)
    notes.add("replaced", "`scontrol requeue`: `launch.requeue` does it")


def _driver(script: Script, name: str, uneven: bool) -> Step:
    calls = [step for step in script.steps if step.program == "sbatch"]
    env = dict(calls[-1].env) if calls else {}
    if command := env.get("COMMAND"):  # NeMo-RL's ray.sub takes its command in a variable
        inner = Script(values=script.values).walk(command)
        steps = [step for step in inner.steps if step.is_driver]
        mounts = tuple(comma_split(env.get("MOUNTS", "")))
        if steps:
            step = steps[-1]
            others = tuple((k, v) for k, v in env.items() if k not in OF_RAY_SUB)
            return Step(step.words, calls[-1].line, "\n", (*others, *step.env), inside=True,
                        image=env.get("CONTAINER", ""), mounts=mounts, workdir=step.folder)  # fmt: skip
    drivers = [step for step in script.steps if step.is_driver]
    inside = [step for step in drivers if step.inside]
    if not drivers:
        what = f"`{name}` has no command that could be the run's"
        raise fail(
            "init.sbatch",
            what,
            "looked for: python, torchrun, accelerate, uv run, a script",
            "write the spec by `jobspec init`",
            file=name,
        )
    return _of_components(inside or drivers) if uneven else (inside or drivers)[-1]


def _of_components(drivers: list[Step]) -> Step:
    """The driver of a heterogeneous job: none in the background where there are others, and no server.

    Of programs that start together it is that of the first component, where the script runs.
    """
    programs = [step for step in drivers if not is_server(step)] or drivers
    found = [step for step in programs if step.end != "&"] or programs
    together = [step for step in found if step.line == found[-1].line or found[-1].end == "&"]
    return min(together, key=lambda step: step.components or (0,))


def _ray_sub(script: Script, spec: Draft, notes: Notes) -> None:
    for step in script.steps:
        env = dict(step.env) if step.program == "sbatch" else {}
        if env.get("CPUS_PER_WORKER", "").isdecimal():
            put(spec, "resources/cpus_per_node", int(env["CPUS_PER_WORKER"]))
        for name in sorted(OF_RAY_SUB - {"COMMAND", "CONTAINER", "MOUNTS", "CPUS_PER_WORKER"}):
            if name in env:
                notes.add("listed", f"`{name}={env[name]}`: a setting of ray.sub", step.line)


def _step_sizes(step: Step, spec: Draft, notes: Notes) -> None:
    """Where the driver's own `srun` asks for other sizes than the job."""
    of = {option.name: option.value for option in step.srun}
    tasks, gpus, nodes = of.get("ntasks-per-node", ""), of.get("gpus-per-node", ""), of.get("nodes", "")
    launch, resources = spec.setdefault("launch", {}), spec.setdefault("resources", {})
    if tasks.isdecimal() and launch.pop("tasks_per_node", 1) != int(tasks):
        notes.add("told", f"`srun --ntasks-per-node={tasks}` wins over the job's own", step.line)
        if int(tasks) > 1:
            launch["tasks_per_node"] = int(tasks)
    if gpus.isdecimal():
        resources["gpus_per_node"] = int(gpus)
    if nodes and nodes != str(resources.get("nodes", 1)) and launch.get("mode") == "srun":
        what = f"the job has {resources.get('nodes', 1)} nodes, and the driver's step asks for `{nodes}`"
        notes.add("danger", what, step.line)


def _environment(script: Script, step: Step, spec: Draft, site: Draft, notes: Notes) -> None:
    given = [(name, script.values.known.get(name), line) for name, line in script.exported.items()]
    given += [(name, value, step.line) for name, value in step.env]
    if step.submitted:
        variables, others, workdir = runtime_env(step.submitted)
        given += [(name, value, step.line) for name, value in variables.items()]
        if workdir and "workdir" not in spec.get("container", {}):
            put(spec, "container/workdir", workdir)
        for other in others:
            notes.add("listed", f"`{other}` of `--runtime-env-json`", step.line)
    for name, value, line in given:
        _variable(name, value, line, spec, site, notes)
    if "secrets" in spec:
        spec["secrets"] = sorted({*spec["secrets"]})


def _variable(name: str, value: str | None, line: int, spec: Draft, site: Draft, notes: Notes) -> None:
    from jobspec.spec.interpolate import SECRET_NAME

    of_container = _CONTAINER.match(name)
    name = of_container[2] if of_container else name
    value = None if value is None else own_home(value)
    if value is not None and is_secret(name, value):
        spec.setdefault("secrets", []).append(notes.secret(name, value, line))
    elif SECRET_NAME.search(name) or notes.has_secret(value or ""):
        spec.setdefault("secrets", []).append(name)
    elif _OF_THE_JOB.match(name):
        notes.add("replaced", f"`{name}`", line)
    elif name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LD_PRELOAD"):
        notes.add(
            "listed", f"`{name}={value or ''}`: name checkouts in `repos`, or set it in the command", line
        )
    elif value is None or OPEN in value:
        notes.add(
            "told", f"`{name}={value or ''}`: only the job knows its value; set it in the command", line
        )
    elif name == "HF_HOME":
        put(site, "paths/hf_home", _host(value, spec))
    elif name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        put(spec, "hf_cache/offline", value == "1")
    elif _OF_THE_SITE.match(name) and not of_container:
        put(site, f"env/{name}", value)
        if name == "NCCL_SOCKET_IFNAME" and re.fullmatch(r"[a-z]\w+", value):
            put(site, "network/interface", value)
    else:
        put(spec, f"container/env/{name}", value)


def _host(folder: str, spec: Draft) -> str:
    """The host's folder of one inside the container."""
    for mount in spec.get("container", {}).get("mounts", ()):
        if folder == mount["target"] or folder.startswith(mount["target"] + "/"):
            return str(mount["source"]) + folder[len(mount["target"]) :]
    return folder


def _rest(script: Script, driver: Step, placed: list[Step], site: Draft, spec: Draft, notes: Notes) -> None:
    setup = [text for text, _ in script.setup if not text.startswith("ulimit")]
    if setup:
        put(site, "hooks/setup", setup)
        notes.add("danger", "modules and environments are loaded on the first node alone", script.setup[0][1])
    for text, line in script.setup:
        if text.startswith("ulimit"):
            notes.add("listed", f"`{text}`", line)
    for text, line in script.sourced:
        notes.add("listed", f"`source {text}`: not read; name its secrets in `secrets`", line)
    replaced = (*REPLACED, *(("curl", "wget", "nc", "kill", "trap") if spec.get("services") else ()))
    for step in script.steps:
        known = step is driver or any(step is one for one in placed)
        same_line = step.line == driver.line and step.is_driver and not placed
        if known or same_line or not step.words or step.program == "sbatch":
            continue
        beside = step.end == "&" and not step.is_ray_start and step.inside
        size = len(step.words) if beside else 4
        shown = " ".join(step.words[:size]) + (" …" if len(step.words) > size else "")
        if beside and not (spec.get("groups") and is_server(step)):
            what = f"`{' '.join(step.words[:3])}` beside the driver is started by nobody now"
            notes.add("danger", f"{what}: make it one of `services`", step.line)
        if step.is_ray_start or step.program in replaced:
            notes.add("replaced", f"`{shown}`", step.line)
        elif step.program not in UNTOLD and not is_keyword(step.program):
            notes.add("listed", f"`{shown}`", step.line)


def _shorn(draft: Draft) -> Draft:
    order = (
        "version",
        "name",
        "framework",
        "scheduler",
        "resources",
        "slurm",
        "groups",
        "launch",
        "container",
        "train",
        "services",
    )
    return {key: draft[key] for key in (*order, *(k for k in draft if k not in order)) if key in draft}


def _clean(data: Any, notes: Notes) -> Any:
    """Text as a spec has it: no secret, and nothing that would be taken for a reference."""
    if isinstance(data, dict):
        return {notes.masked(str(key)): _clean(value, notes) for key, value in data.items()}
    if isinstance(data, list):
        return [_clean(item, notes) for item in data]
    return (
        escape(notes.masked(data)).replace("$${env:HOME}", "${env:HOME}") if isinstance(data, str) else data
    )


def _said(notes: Notes) -> list[Note]:
    return list(dict.fromkeys(Note(note.kind, notes.masked(note.text), note.line) for note in notes.items))
