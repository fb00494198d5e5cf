"""The registry of RL frameworks: built-in adapters and plug-ins, each imported only when asked for.

A plug-in is a distribution with an entry point of group `jobspec.frameworks` whose object is a
`Framework`, or a class that makes one without arguments. Only one adapter can have a name, so no plug-in
replaces a built-in adapter. The look-up of plug-ins reads the metadata of every installed distribution, some
50 ms. A built-in name needs no look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType

from jobspec.finding import fail
from jobspec.frameworks.base import Context, Framework, FrameworkPlan, Level
from jobspec.words import did_you_mean, one_of

__all__ = ["Context", "Framework", "FrameworkPlan", "Level", "find_level", "get", "names"]

GROUP = "jobspec.frameworks"
INTERFACE = ("name", "summary", "levels", "validate", "plan", "expect", "judge")
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "command": "jobspec.frameworks.command:CommandFramework",
        "nemo_rl": "jobspec.frameworks.nemo_rl:NemoRlFramework",
        "rlix": "jobspec.frameworks.rlix:RlixFramework",
        "skyrl": "jobspec.frameworks.skyrl:SkyRlFramework",
        "trl": "jobspec.frameworks.trl:TrlFramework",
        "verl": "jobspec.frameworks.verl:VerlFramework",
    }
)


def names() -> tuple[str, ...]:
    """Every framework that a spec can name, in alphabetical order.

    Raises: JobspecError when two distributions register the same name; jobspec itself is one of them.
    """
    return tuple(sorted(_registered()))


@cache
def get(name: str) -> Framework:
    """The adapter called `name`; the same object each time.

    Raises: JobspecError for an unregistered name, and for a plug-in that cannot be loaded.
    """
    known = _built_in() if name in BUILT_IN else _registered()
    if name not in known:
        fix = did_you_mean(name, known) or f"use {one_of(sorted(known))}, or install a plug-in that has it"
        raise fail("framework.unknown", f"there is no framework `{name}`", fix=fix, path="framework")
    return load(known[name])


def find_level(framework: Framework, name_or_number: str | int) -> Level:
    """The level of that name or number.

    Raises: JobspecError when the framework has no such level.
    """
    for level in framework.levels:
        if str(name_or_number) in (level.name, str(level.number)):
            return level
    known = [level.name for level in framework.levels]
    raise fail(
        "coverage.level-unknown",
        f"`{framework.name}` has no level `{name_or_number}`",
        why=f"its levels are {', '.join(f'`{level.name}` ({level.number})' for level in framework.levels)}",
        fix=did_you_mean(str(name_or_number), known) or f"use {one_of(known)}",
        path="coverage.level",
    )


@dataclass(frozen=True)
class Source:
    """Where an adapter comes from: `module:object`, and the distribution that registers it."""

    name: str
    target: str
    distribution: str = "jobspec"

    def __str__(self) -> str:
        return f"`{self.target}` of {self.distribution}"


def _built_in() -> Mapping[str, Source]:
    return {name: Source(name, target) for name, target in BUILT_IN.items()}


@cache
def _registered() -> Mapping[str, Source]:
    from importlib.metadata import entry_points

    plug_ins = [
        Source(point.name, point.value, point.dist.name if point.dist else "an unnamed distribution")
        for point in entry_points(group=GROUP)
    ]
    return merge([*_built_in().values(), *plug_ins])


def merge(sources: Iterable[Source]) -> Mapping[str, Source]:
    """Sources by name. Raises: JobspecError when two different sources have the same name."""
    by_name: dict[str, Source] = {}
    for source in sources:
        other = by_name.setdefault(source.name, source)
        if other.target != source.target:
            raise fail(
                "framework.duplicate",
                f"two frameworks are called `{source.name}`",
                why=f"{other} and {source} register it",
                fix="uninstall one of the two",
            )
    return by_name


def load(source: Source) -> Framework:
    """Import an adapter. Raises: JobspecError when it cannot be imported or lacks part of the interface."""
    module, _, attribute = source.target.partition(":")
    try:
        adapter = getattr(import_module(module), attribute)
        framework = adapter() if isinstance(adapter, type) else adapter
    except Exception as cause:  # a plug-in is foreign code; its error is the user's to see
        raise fail(
            "framework.plugin",
            f"framework `{source.name}` cannot be loaded",
            why=f"{source}: {type(cause).__name__}: {cause}",
            fix="update or uninstall the distribution that registers it",
        ) from cause
    missing = [item for item in INTERFACE if not hasattr(framework, item)]
    if missing or framework.name != source.name:
        why = f"it lacks {one_of(missing)}" if missing else f"it calls itself `{framework.name}`"
        what = f"{source} is no framework adapter for `{source.name}`"
        raise fail("framework.plugin", what, why, "see jobspec/frameworks/base.py for the interface")
    return framework  # type: ignore[no-any-return]
