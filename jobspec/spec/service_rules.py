"""Rules over `services` and their groups: names, commands, and how a service shows that it is ready."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from jobspec.spec.broken import Broken
from jobspec.spec.job import JobSpec
from jobspec.spec.paths import Path
from jobspec.spec.services import Ready, Service
from jobspec.words import did_you_mean, one_of

PLACES = ("head", "all")
WAYS = ("tcp", "http", "log")
SHELLS = frozenset({"bash", "dash", "ksh", "sh", "zsh"})
# As shells write it. `${cluster:key}` is filled in later, `${oc.env:NAME}` by a program of Hydra.
_VARIABLE = re.compile(r"\$(?:\w|\{\w+(?:\}|:?[-=+?]))")
_PLAIN = re.compile(r"[\w@%+=:./$-]+")  # for bash the same without quotes


def services(spec: JobSpec) -> Iterator[Broken]:
    places = [*PLACES, *(group.name for group in spec.groups)]
    for index, service in enumerate(spec.services):
        at: Path = ("services", index)
        yield from _command(service, at)
        yield from _ready(service.ready, (*at, "ready"))
        if service.on is not None and service.nodes is not None:
            what = f"service `{service.name}` gives both `on` and `nodes`"
            yield Broken("spec.service", (*at, "on"), what, fix="remove one of the two")
        if service.on is not None and service.on not in places:
            what = f"service `{service.name}` runs on `{service.on}`, which is no group of this spec"
            fix = did_you_mean(service.on, places) or f"use {one_of(places)}"
            yield Broken("spec.service", (*at, "on"), what, fix=fix)


def groups(spec: JobSpec) -> Iterator[Broken]:
    for index, group in enumerate(spec.groups):
        if group.name in PLACES:
            what = f"a group cannot be called `{group.name}`"
            why = "`on` of a service has another meaning for it"
            yield Broken("spec.group", ("groups", index, "name"), what, why, "choose another name")


def _command(service: Service, at: Path) -> Iterator[Broken]:
    words, at = service.command, (*at, "command")
    if not words or not words[0].strip():
        what = f"service `{service.name}` has no command"
        yield Broken("spec.service", at, what, fix="name a program: `[python3, reward_server.py]`")
    elif service.shell and len(words) != 1:
        what, why = f"`command` has {len(words)} items", "`shell: true` runs one bash text"
        yield Broken("spec.service", at, what, why, "join them into one text, or remove `shell`")
    no_shell = not service.shell and SHELLS.isdisjoint(PurePosixPath(word).name for word in words)
    for place, word in enumerate(words if no_shell else ()):
        if _VARIABLE.search(word):
            what, why = f"nothing replaces the variable in `{word}`", "no shell reads the command"
            fix = f"write it as one text with `shell: true`: `command: [{_as_text(words)}]`"
            yield Broken("spec.service", (*at, place), what, why, fix)


def _as_text(words: Sequence[str]) -> str:
    """The words for bash, which fills in their variables, as one item of a list in YAML."""
    quoted = (re.sub(r'(["\\`])', r"\\\1", word) for word in words)
    text = " ".join(word if _PLAIN.fullmatch(word) else f'"{word}"' for word in quoted)
    return "'" + text.replace("'", "''") + "'"


def _ready(ready: Ready, at: Path) -> Iterator[Broken]:
    given = [key for key in WAYS if getattr(ready, key) not in (None, False)]
    if len(given) > 1:
        what = f"`ready` gives {' and '.join(f'`{key}`' for key in given)}"
        yield Broken("spec.service", (*at, given[1]), what, "one of them is waited for", "remove the others")
    if ready.tcp is False and not given:
        what = "`tcp: false` leaves nothing that shows that the service is ready"
        yield Broken("spec.service", (*at, "tcp"), what, fix="give `http` or `log`")
    if ready.status != 200 and ready.http is None:
        yield Broken("spec.service", (*at, "status"), "`status` goes with `http`", fix="give `http: /PATH`")
    if ready.http is not None and not re.fullmatch(r"/[!-~]*", ready.http):
        what = f"`{ready.http}` is no path of a URL"
        yield Broken("spec.service", (*at, "http"), what, fix="write it like `/health`")
    if ready.log is not None:
        try:
            re.compile(ready.log)
        except re.error as problem:
            what = f"`{ready.log}` is no regular expression: {problem}"
            yield Broken("spec.service", (*at, "log"), what, fix="correct it, or put `\\` before signs")
