"""Rules over variables and texts: reserved names, secrets, and characters that no script can carry."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from jobspec.finding import Finding, error
from jobspec.plan import Plan
from jobspec.spec.interpolate import SECRET_NAME
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile

RESERVED = re.compile(r"(JOBSPEC|SLURM|SBATCH|RAY_AUTH)_\w*|RAY_ADDRESS")


def names_are_free(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    own = [(f"services[{i}].", s.container) for i, s in enumerate(spec.services) if s.container]
    named = [
        (name, f"{at}container.env.{name}") for at, one in [("", spec.container), *own] for name in one.env
    ]
    for name, path in (*named, *((name, "secrets") for name in spec.secrets)):
        if RESERVED.fullmatch(name):
            what = f"`{name}` is set by jobspec or the scheduler"
            yield error("env.reserved", what, fix="remove it", path=path)


def secrets_are_not_written(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    for name, value in plan.env.items():
        if name in plan.secrets:
            yield error(
                "env.secret-twice",
                f"`{name}` is a secret, and `container.env` gives it a value as well",
                why="the value would be written into the run directory",
                fix=f"remove `{name}` from `container.env`",
                path=f"container.env.{name}",
            )
        elif value and SECRET_NAME.search(name):
            yield error(
                "env.secret",
                f"`{name}` looks like a secret, and values in `env` are written into the run directory",
                fix=f"put `{name}` into `secrets` and export it in the shell that submits",
                path=f"container.env.{name}",
            )


def hub_has_an_address(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    endpoint = plan.env.get("HF_ENDPOINT")
    if not endpoint:
        return
    from jobspec.runtime.staging.hub_client import ENDPOINT, is_web

    if not is_web(endpoint):
        yield error(
            "env.hub-endpoint",
            f"`HF_ENDPOINT` is `{endpoint}`, which is no web address",
            "the hub cannot be asked there",
            f"write it like `{ENDPOINT}`",
            path="container.env.HF_ENDPOINT" if "HF_ENDPOINT" in spec.container.env else "",
        )


def texts_can_be_passed(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if _is_plain(plan):
        return
    for path, text in _texts(plan, ""):
        problem = _problem(text)
        if problem:
            yield error(
                "value.unpassable",
                f"`{path}` of the plan holds {problem}",
                why="neither a file name, an argument nor a variable can hold it",
                fix="remove it from the spec",
            )


def paths_can_be_written(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    """Slurm reads no line breaks in directives, and a backslash switches off `%j` in its file names."""
    for name, path in (("runs", plan.runs), ("node_local", plan.node_local)):
        if re.search(r"[\n\r\\]", path):
            yield error(
                "paths.characters",
                f"`paths.{name}` contains a line break or a backslash: {path!r}",
                why="Slurm cannot write its log there",
                fix="choose another folder in the site profile",
            )


def _is_plain(plan: Plan) -> bool:
    """Whether all texts of the plan are harmless. A quick look: False may be wrong, True never is."""
    try:
        return b"\\u0000" not in msgspec.json.encode(plan)
    except UnicodeEncodeError:
        return False


def _problem(text: str) -> str:
    if "\0" in text:
        return "a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "a character that is not valid Unicode"
    return ""


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _texts(getattr(value, field.name), f"{path}.{field.name}".strip("."))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, f"{path}.{key}")
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}[{index}]")


RULES = (
    names_are_free,
    secrets_are_not_written,
    hub_has_an_address,
    texts_can_be_passed,
    paths_can_be_written,
)
