"""Steps beside the driver of a heterogeneous job: its servers as `services`, its other programs as arms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from jobspec.cli.from_sbatch.bash import OPEN
from jobspec.cli.from_sbatch.components import Component
from jobspec.cli.from_sbatch.container import add_container, tell_options
from jobspec.cli.from_sbatch.driver import MARKED, OF_GROUPS, SHELL_NAME, shell_text, with_env
from jobspec.cli.from_sbatch.notes import Notes
from jobspec.cli.from_sbatch.options import Draft
from jobspec.cli.from_sbatch.steps import Script, Step

# Words of a command -> name of the service, its default port, and the path that answers once it is ready.
# Sources: vLLM's and SGLang's `/health`, TRL's `vllm_serve.py`, which has `/health/`.
ENGINES = (
    (r"\btrl vllm-serve\b|trl\.scripts\.vllm_serve", "trl", 8000, "/health/"),
    (r"\bvllm serve\b|\bvllm\.entrypoints\.\S*api_server\b", "vllm", 8000, "/health"),
    (r"\bsglang\.launch_server\b|\bsglang serve\b", "sglang", 30000, "/health"),
)  # fmt: skip
ENGINE_S = 1800  # to load a model; batch scripts wait without end
_NO_NAME = re.compile(r"python[\d.]*|uv|run|bash|sh|-.*")
_SERVER = re.compile(r"(?i)(^|[._-])serv(e|er|ing)([._-]|$)|server|\Auvicorn\Z|\Agunicorn\Z")
_PORTS = (re.compile(r"(?:^| )--port[= ](\d+)\b"), re.compile(r"(?:^| )--[\w-]*port[= ](\d+)\b"))
KNOWN_IN_A_RUN = frozenset({"HOME", "USER", "SLURM_JOB_ID"})


def is_server(step: Step) -> bool:
    """Whether a step in the background is a server by its name."""
    return step.end == "&" and (_engine(step) is not None or bool(_SERVER.search(_subject(step))))


def _engine(step: Step) -> tuple[str, str, int, str] | None:
    text = " ".join(step.words)
    return next((engine for engine in ENGINES if re.search(engine[0], text)), None)


def _subject(step: Step) -> str:
    """The program or script that a step is about, without its folder and suffix."""
    word = next((word for word in step.words if not _NO_NAME.fullmatch(PurePath(word).name)), "")
    return PurePath(word).name.removesuffix(".py").removesuffix(".sh")


def _shown(step: Step) -> str:
    """The first words of a step, up to the one that it is about."""
    about = next((n for n, word in enumerate(step.words) if _subject(step) in word), 0)
    return " ".join(step.words[: max(2, about + 1)])


def add_services(
    script: Script, driver: Step, parts: Sequence[Component], spec: Draft, notes: Notes
) -> list[Step]:
    """Put the servers beside the driver into the draft where all is clear; the steps that have a place."""
    placed: list[Step] = []
    services: list[Draft] = []
    for step in script.steps:
        if step is driver or not is_server(step):
            continue
        shown = f"`{_shown(step)}`"
        if why := _unclear(step, driver, parts):
            what = f"{shown} beside the driver is started by nobody now: {why}; write it as one of `services`"
            notes.add("danger", what, step.line)
            continue
        name = _free(_name(step), [service["name"] for service in services])
        services.append(_service(name, step, parts, spec, notes) | _own_container(step, driver, notes))
        placed.append(step)
        where = f"component {step.components[0]}"
        notes.add(
            "told", f"{shown} in {where} is service `{name}`: check `port`, `ready` and `gpus`", step.line
        )
    if services:
        spec["services"] = services
        _share_gpus(services, driver, parts, notes)
    return placed


def _unclear(step: Step, driver: Step, parts: Sequence[Component]) -> str:
    """Why a server's place in the spec is not known; empty where it is."""
    if len(step.components) != 1 or step.components[0] >= len(parts):
        return "it runs in several components"
    nodes = parts[step.components[0]].draft[0].get("resources", {}).get("nodes", 1)
    of = {option.name: option.value for option in step.srun}
    if of.get("nodes", str(nodes)) != str(nodes):
        return f"it runs on {of['nodes']} of {nodes} nodes"
    if of.get("ntasks-per-node", "1") != "1" or of.get("ntasks", of.get("nodes", str(nodes))) != str(nodes):
        return "it is not one task on each node of its component"
    if not 1024 <= _port(step) <= 65535:
        return "its port is not known" if not _port(step) else "its port is below 1024"
    if bool(step.image) != bool(driver.image):
        return "of it and the driver one alone is in a container"
    for reference in MARKED.findall(" ".join([*step.words, *(value for _, value in step.env)])):
        variable = SHELL_NAME.match(reference)
        if not OF_GROUPS.match(reference) and not (variable and variable[1] in KNOWN_IN_A_RUN):
            return f"only the script knows `{reference}`"
    return ""


def _name(step: Step) -> str:
    engine = _engine(step)
    found = engine[1] if engine else re.sub(r"[^a-z0-9]+", "-", _subject(step).lower())
    return found.lstrip("-0123456789")[:40].rstrip("-") or "server"


def _free(name: str, taken: list[str]) -> str:
    return next(one for one in (name, *(f"{name}-{n}" for n in range(2, 99))) if one not in taken)


def _port(step: Step) -> int:
    text, engine = " ".join(step.words), _engine(step)
    found = next((match for pattern in _PORTS if (match := pattern.search(text))), None)
    given = dict(step.env).get("PORT", "")
    if found is None and OPEN in text and "port" in text:
        return 0
    return int(found[1] if found else given if given.isdecimal() else engine[2] if engine else 0)


def _service(name: str, step: Step, parts: Sequence[Component], spec: Draft, notes: Notes) -> Draft:
    engine, seen = _engine(step), dict(step.env).get("CUDA_VISIBLE_DEVICES", "")
    env = tuple(item for item in step.env if item[0] != "CUDA_VISIBLE_DEVICES")  # jobspec sets it
    words = with_env(replace(step, env=env), spec, notes)
    shell = any(MARKED.search(word) for word in words)
    service: Draft = {"name": name, "command": [shell_text(words)] if shell else words}
    service |= {"shell": True} if shell else {}
    service |= {"on": parts[step.components[0]].name}
    if gpus := _own_gpus(step) or len([item for item in seen.split(",") if item]):
        service["gpus"] = gpus
    service["port"] = _port(step)
    if engine:
        service["ready"] = {"http": engine[3], "timeout": ENGINE_S}
    return service


def _own_container(step: Step, driver: Step, notes: Notes) -> Draft:
    """Its container where it is not the driver's; started by the site's runtime as that one."""
    if (step.image, step.mounts) == (driver.image, driver.mounts):
        tell_options(step, notes)
        return {}
    spec: Draft = {}
    add_container(step, spec, {}, notes)
    return {"container": spec["container"]}


def _own_gpus(step: Step) -> int:
    """GPUs on a node that the step's own `srun` asks for."""
    for option in step.srun:
        found = re.fullmatch(r"(?:gpu:)?(?:[A-Za-z][\w.-]*:)?(\d+)", option.value)
        if found and option.name in ("gres", "gpus-per-node", "gpus-per-task"):
            return int(found[1])
    return 0


def _share_gpus(services: list[Draft], driver: Step, parts: Sequence[Component], notes: Notes) -> None:
    """A server alone in its component has all its GPUs, as its step has."""
    of_driver = {parts[number].name for number in driver.components if number < len(parts)}
    for part in parts:
        here = [service for service in services if service["on"] == part.name]
        gpus = part.draft[0].get("resources", {}).get("gpus_per_node", 0)
        if len(here) == 1 and part.name not in of_driver and gpus and "gpus" not in here[0]:
            here[0]["gpus"] = gpus
        for service in here:
            if gpus and "gpus" not in service:
                what = (
                    f"service `{service['name']}` shares the GPUs of group `{part.name}`: give `gpus` of each"
                )
                notes.add("told", what, part.line)
        services[:] = [_ordered(service) for service in services]


def _ordered(service: Draft) -> Draft:
    order = ("name", "command", "shell", "on", "gpus", "container", "port", "ready")
    return {key: service[key] for key in order if key in service}


def arms(
    script: Script, driver: Step, placed: list[Step], parts: Sequence[Component], notes: Notes
) -> tuple[tuple[str, Step], ...]:
    """Groups and what runs on their nodes, in the order of the components; none where all run the driver.

    Beside the driver's command these are the others that the script waits for.
    """
    waits = any(step.words == ("wait",) for step in script.steps)
    found, taken = [(driver.components, driver)], {*driver.components}
    for step in script.steps:
        numbers = {*step.components}
        beside = (step.end == "&" and waits) or step.line == driver.line  # of `srun A : B`
        if step is driver or step in placed or not step.srun or step.is_ray_start or not beside:
            continue
        same = (step.image, step.mounts) == (driver.image, driver.mounts)
        if numbers and same and not numbers & taken and max(numbers) < len(parts):
            tell_options(step, notes)
            found.append((step.components, step))
            taken |= numbers
    tasks = {parts[number].tasks for number in taken if number < len(parts)}
    if len(tasks) > 1:
        what = "`launch.tasks_per_node` holds for all groups, and the components start different numbers"
        notes.add("danger", f"{what}: {', '.join(map(str, sorted(tasks)))}", driver.line)
    if len(found) == 1 and len(taken) == len(parts):
        return ()
    found.sort(key=lambda one: one[0])
    return tuple(("|".join(parts[n].name for n in numbers if n < len(parts)), one) for numbers, one in found)
