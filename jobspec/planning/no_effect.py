"""Keys of a spec that its framework does nothing with, in its mode and at its level.

No adapter keeps a list. Each is asked again without the key and with another value: where plans and findings
are the same, nobody reads the key. So this holds for adapters of other packages, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from jobspec import frameworks
from jobspec.finding import Finding, warning
from jobspec.planning.placed import placed
from jobspec.spec.job import JobSpec
from jobspec.spec.paths import Path, format_path, leaves
from jobspec.spec.schema import root_shape

if TYPE_CHECKING:
    from jobspec.frameworks.base import Context, Framework, FrameworkPlan
    from jobspec.planning.resolve import Resolved

# What adapters interpret; jobspec itself honours all else, and the folder of checkpoints.
OF_ADAPTERS = ("train", "checkpoint")
ITS_OWN = {("checkpoint", "dir")}


def told_idle(resolved: Resolved) -> tuple[Finding, ...]:
    """The warnings of a resolved spec. Asked once for a sweep, not for each point."""
    if resolved.context is None:
        return ()
    told = {finding.path for finding in resolved.findings}
    framework = frameworks.get(resolved.spec.framework)
    found = without_effect(framework, resolved.context, resolved.loaded.data, told)
    return tuple(placed(finding, resolved.loaded) for finding in found)


def without_effect(
    framework: Framework, context: Context, data: Mapping[str, Any], told: Iterable[str] = ()
) -> Iterator[Finding]:
    """A warning for each key of `data`, the spec as it was given, that changes nothing of the adapter's plan.

    `told` are the paths of which the adapter has said something itself.
    """
    known, planned = set(told), _plan(framework, context, context.spec)
    if planned is None:
        return
    for path in _given(data):
        if format_path(path) not in known and _is_idle(framework, context, path, planned):
            yield warning(
                "spec.no-effect",
                f"`{format_path(path)}` does nothing for framework `{framework.name}` in mode "
                f"`{context.spec.launch.mode}` at level `{context.level.name}`",
                "the plan is the same with any value of it",
                "remove it",
                path=format_path(path),
            )


def _given(data: Mapping[str, Any]) -> Iterator[Path]:
    """The keys that the spec has; a mapping with free keys and a list count as one each."""
    found: dict[Path, None] = {}
    for section in OF_ADAPTERS:
        for path, _ in leaves(data[section]) if data.get(section) else ():
            whole = (section, *path)
            cut = next((n for n in range(1, len(whole)) if _is_free(whole[:n])), len(whole))
            found[whole[:cut]] = None
    for index, item in enumerate(data.get("data") or ()):
        if "prepare" in item:
            found["data", index, "prepare"] = None
    if "tasks_per_node" in (data.get("launch") or {}):
        found["launch", "tasks_per_node"] = None
    return (path for path in found if path not in ITS_OWN)


def _is_free(path: Path) -> bool:
    return root_shape("job").at(path).properties is None


def _is_idle(framework: Framework, context: Context, path: Path, planned: FrameworkPlan) -> bool:
    """Whether no value of the key changes the plan, or what the adapter says of the spec."""
    if _at(context.spec, path) is None:
        return False  # the default in words asks for nothing
    tried = [_with(context.spec, path, value) for value in (None, *_others(context.spec, path))]
    specs = [spec for spec in tried if spec is not None]
    if any(_plan(framework, context, spec) != planned for spec in specs):
        return False
    said = _said(framework, context, context.spec)
    return all(_said(framework, context, spec) == said for spec in specs)


def _others(spec: JobSpec, path: Path) -> Iterator[Any]:
    """Another value of the same kind: the key's default may be what the spec says."""
    shape, value = root_shape("job").at(path), _at(spec, path)
    choices = shape.node.get("enum") or [c for a in shape.node.get("anyOf", ()) for c in a.get("enum", ())]
    if value is None:
        value = shape.default
    if choices:
        yield from (choice for choice in choices if choice != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
    elif isinstance(value, str):
        yield f"{value}-other"


def _at(spec: JobSpec, path: Path) -> Any:
    """The value; None for a default, which plain data leaves out."""
    data = msgspec.to_builtins(spec)
    for part in path:
        if isinstance(part, int):
            data = data[part]
        elif isinstance(data, Mapping):
            data = data.get(part)
    return data


def _with(spec: JobSpec, path: Path, value: Any) -> JobSpec | None:
    """The spec with another value at `path`, None taking the key out; None where it is no spec then."""
    data = msgspec.to_builtins(spec)
    inner = data
    for part in path[:-1]:
        inner = inner.setdefault(part, {}) if isinstance(inner, dict) else inner[part]
    if value is None:
        inner.pop(path[-1], None)
    else:
        inner[path[-1]] = value
    try:
        return msgspec.convert(data, JobSpec)
    except msgspec.ValidationError:
        return None


def _plan(framework: Framework, context: Context, spec: JobSpec) -> FrameworkPlan | None:
    """The adapter's plan, but for the sizes that only checks read; None where it fails on the value."""
    try:
        return replace(framework.plan(replace(context, spec=spec)), shape=None)
    except Exception:  # noqa: BLE001 - of any kind: nobody asked for this value
        return None


def _said(framework: Framework, context: Context, spec: JobSpec) -> set[tuple[str, str, str]] | None:
    """The adapter's findings; None where it fails."""
    try:
        found = framework.validate(replace(context, spec=spec))
        return {(item.rule, item.path, item.what) for item in found}
    except Exception:  # noqa: BLE001 - as above
        return None
