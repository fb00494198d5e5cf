"""Facts that decide between causes with the same text, from the line itself or from the runtime's records.

Pure. An unknown fact is left out, never guessed. `cli/machine_facts.py` asks this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from jobspec.triage.match import Match
from jobspec.units import gib

DISK_KINDS = frozenset({"disk"})
PORT_KIND, CREDENTIALS, OPEN_FILES, GPU = "port", "credentials", "limits.open-files", "gpu-memory"
_PATH = re.compile(r"(?<![\w:/])/(?:[\w.@+-]+/)*[\w.@+-]+")
# Behind the word, or behind an address: the line of a source file (`server.cc:1063`) and a clock are none.
_PORT = re.compile(
    r"\b[Pp]ort(?: is|'|\")?[:=]? ?`?(\d{2,5})\b(?!\.\d)|in use: (\d{2,5})\b|'[\w.:-]*', (\d{2,5})[,)]"
    r"|(?:(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}|\blocalhost|\]|\*|::|//[\w.-]+):(\d{2,5})(?![\d:]|\.\d)"
)
# A page that explains the answer is not the server that gave it.
_REGISTRY = re.compile(
    r"(?<!check: )(?<!isit )(?<![Ss]ee )(?<!ead )https?://([\w.-]+(?::\d+)?)/"
    r"|importing docker image: ([\w.-]+\.[\w.-]+(?::\d+)?)[#/]"
)
_IMAGE_HOST = re.compile(r"/v2/([\w-]+(?:\.[\w-]+)+(?::\d+)?)/")
_TRIED = re.compile(r"Tried to allocate ([\d.]+ [KMG]iB)")
_FREE = re.compile(r"of which ([\d.]+ [KMG]iB) is free")
# What one process and the whole GPU hold, where the line tells of no other process.
_HELD = re.compile(
    r"capacity of ([\d.]+) GiB of which ([\d.]+) ([MG])iB is free\."
    r" (?:Including non-PyTorch memory, this process|Process (\d+)) has ([\d.]+) GiB memory in use\."
    r" (?!Process|Including)"
)
_MUCH = 0.1  # of a GPU: held by others
_ALLOWED = re.compile(r"([\d.]+ [KMG]iB) allowed;")  # the process's share, where one is set
# A part of a weight that does not divide by a block of its quantization is one of a size chosen already.
_DIVIDED = re.compile(r"(\d+)\)? (?:must be|is not) (?:evenly )?divisible by (?!weight quantization)")
_MOST_GPUS = 64  # of one parallel size


def with_recorded_facts(matches: Iterable[Match], nodes: Mapping[str, Mapping[str, Any]]) -> list[Match]:
    """The matches with what their own lines and the facts of their nodes add."""
    return [
        replace(
            match, facts=(*match.facts, *facts_of_line(match), *recorded(match, nodes.get(match.node, {})))
        )
        for match in matches
    ]


def facts_of_line(match: Match) -> tuple[str, ...]:
    """Facts in the line itself that readers easily overlook."""
    if match.kind == CREDENTIALS or match.signature == "container.registry-separator":
        host = registry_host(match.text)
        server = "registry" if match.signature.startswith("container.") else "server"
        return (f"the {server} is {host}",) if host else ()
    divided = _DIVIDED.search(match.text)
    if match.signature == "engine.divide" and divided is not None:
        number = int(divided[1])
        sizes = (size for size in range(1, _MOST_GPUS + 1) if number % size == 0)
        most = f" up to {_MOST_GPUS}" if number > _MOST_GPUS else ""
        return (f"sizes{most} that divide {number}: {', '.join(map(str, sizes))}",)
    tried, free = _TRIED.search(match.text), _FREE.search(match.text)
    if match.kind == GPU and tried is not None:
        allowed = _ALLOWED.search(match.text)
        limit = f"; the process may take {allowed[1]} in all" if allowed else ""
        said = f"asked for {tried[1]}" + (f", {free[1]} were free" if free else "") + limit
        return (f"{said}{_of_others(match.text, tried[1])}",)
    return ()


def _of_others(text: str, tried: str) -> str:
    """How much of the GPU is held by others than the process, where that is much."""
    held = _HELD.search(text)
    if held is None:
        return ""
    total, own = float(held[1]), float(held[5])
    others = total - own - float(held[2]) / (1024 if held[3] == "M" else 1)
    if others <= _MUCH * total:
        return ""
    whose = f"of process {held[4]}, the only one that the line names" if held[4] else "this process's"
    said = f"; about {others:.1f} of {total:g} GiB are neither free nor {whose}"
    if total - own < _gib(tried):
        said += f": with these free it would be {total - own:.1f} GiB, still less than was asked for"
    return said


def _gib(size: str) -> float:
    number, unit = size.split()
    return float(number) / {"G": 1, "M": 1 << 10, "K": 1 << 20}[unit[0]]


def recorded(match: Match, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The deciding fact that the runtime recorded on the match's node before the run; `()` without one."""
    if match.kind == PORT_KIND and isinstance(facts.get("ephemeral"), list):
        return port_fact(port_of(match.text), tuple(facts["ephemeral"]), f"on {match.node}")
    if match.kind in DISK_KINDS and isinstance(facts.get("local_free"), int):
        return (f"before the run {match.node} had {gib(facts['local_free'], 1)} free node-locally",)
    if match.signature.startswith(OPEN_FILES) and isinstance(facts.get("open_files"), int):
        return (f"{match.node} allows a process {facts['open_files']} open files",)
    return ()


def path_of(text: str) -> str:
    """The last path in a line, or "": in a failed copy it is the target."""
    paths = [path for path in _PATH.findall(text) if len(PurePosixPath(path).parts) > 1]
    return paths[-1] if paths else ""


def port_of(text: str) -> int | None:
    match = _PORT.search(text)
    port = int(next(group for group in match.groups() if group)) if match is not None else 0
    return port if 0 < port < 65536 else None


def port_fact(port: int | None, ephemeral: tuple[int, ...], where: str) -> tuple[str, ...]:
    """A fact that says whether the kernel may have given the port to another process."""
    if len(ephemeral) != 2:
        return ()
    low, high = ephemeral
    kernel = f"the kernel gives out ports {low} to {high} {where}"
    if port is None:
        return (kernel,)
    if low <= port <= high:
        return (f"{kernel}: port {port} is one of them, so any process may have got it",)
    return (f"{kernel}: port {port} is not one of them, so something asked for it by its number",)


def registry_host(text: str) -> str:
    """The host of an image's registry, with a note where the image's name holds another host; else empty."""
    inside = _IMAGE_HOST.search(text)
    match = _REGISTRY.search(text)
    host = next((group for group in match.groups() if group), "") if match is not None else ""
    return f"{host}, though the image names {inside[1]}" if inside is not None and host else host
