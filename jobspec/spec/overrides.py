"""`--set KEY=VALUE` and `--set ~KEY`: the place of a setting, and the type that the schema gives its value.

KEY is a dotted path. Below a mapping with free keys (`train.overrides`, `container.env`) the rest is one key:
`train.overrides.trainer.batch=4` sets the key `trainer.batch`. Nested mappings that exist go first.
A list item is `repos[0].ref` or `repos.0.ref`; the index behind the last item appends.
VALUE is YAML, but plain text where text is wanted. `~KEY` removes the key from the spec, as in Hydra.
`KEY=null` restores the default; below a mapping with free values null is a value. `KEY=` is refused:
Hydra and Helm take it for an empty text, and most often a shell variable is not set.
`--level NAME` among the settings is `coverage.level=NAME`; messages keep the form that the user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobspec.finding import Finding, JobspecError, error, fail
from jobspec.spec.interpolate import SECRET_NAME
from jobspec.spec.paths import Path, find_path, format_path, lookup, parse_path, with_value, without
from jobspec.spec.schema import Shape
from jobspec.spec.validate import unknown_key_fix
from jobspec.spec.yaml import scalars
from jobspec.spec.yaml.construct import Builder
from jobspec.spec.yaml.nodes import compose
from jobspec.words import did_you_mean

_SPLIT = re.compile(r"""((?:'[^']*'|"[^"]*"|[^='"])*)=(.*)\Z""", re.S)
SHAPE_OF_SETTING = "write it as `--set train.steps=10`"
LEVEL = "--level "


class Unset:
    """The value of a setting that removes a key."""


UNSET = Unset()


@dataclass(frozen=True)
class Setting:
    """One parsed `--set`: the real path in the spec, its typed value or `UNSET`, and who set it."""

    path: Path
    value: Any
    argument: str
    source: str = "--set"

    @property
    def where(self) -> str:
        return f"{self.source} {masked(self.argument)}"


def masked(argument: str) -> str:
    """KEY=VALUE for messages and files: without the value where the key is a secret's name."""
    key, equals, _ = argument.partition("=")
    return f"{key}=…" if equals and SECRET_NAME.search(key.rsplit(".", 1)[-1]) else argument


def option_of(argument: str) -> str:
    """The option that gave a setting: `--set`, or `--level`."""
    return LEVEL.strip() if argument.startswith(LEVEL) else "--set"


def refuse_for_folder(folder: str, sets: Iterable[str], allow: Iterable[str], rerun: bool) -> None:
    """Raises: JobspecError for an option that changes a spec: a rendered folder runs as it is."""
    options = [*map(option_of, sets), *("--allow" for _ in allow), *(["--rerun"] if rerun else [])]
    if options:
        names = ", ".join(f"`{option}`" for option in dict.fromkeys(options))
        raise fail(
            "usage.arguments",
            f"{names} cannot change a rendered folder",
            why=f"the files in `{folder}` run as they are",
            fix="submit the spec with that option, or leave it out",
        )


@dataclass(frozen=True)
class Applied:
    """Data after all settings, the settings themselves, and what is wrong with some of them."""

    data: Any
    settings: tuple[Setting, ...]
    findings: tuple[Finding, ...]


def apply_sets(data: Any, shape: Shape, sets: tuple[str, ...]) -> Applied:
    """`data` with every `KEY=VALUE` of `sets` applied in order; a bad argument becomes a finding instead."""
    settings: list[Setting] = []
    findings: list[Finding] = []
    for argument in sets:
        try:
            setting, warnings = parse_setting(argument, data, shape)
        except JobspecError as problem:
            findings += problem.findings
            continue
        findings += warnings
        settings.append(setting)
        data = put(data, setting)
    return Applied(data, tuple(settings), tuple(findings))


def put(data: Any, setting: Setting) -> Any:
    """A copy of `data` with one setting applied."""
    if isinstance(setting.value, Unset):
        return without(data, setting.path)
    return with_value(data, setting.path, setting.value)


def parse_setting(argument: str, data: Any, shape: Shape) -> tuple[Setting, list[Finding]]:
    """One `KEY=VALUE`, typed for `data`. Raises: JobspecError that names the argument."""
    _check_text(argument)
    if argument.startswith(LEVEL):
        level = argument.removeprefix(LEVEL)
        return Setting(("coverage", "level"), level, level, option_of(argument)), []
    if argument.startswith("~"):
        return Setting(_removed(argument, data, shape), UNSET, argument), []
    match = _SPLIT.match(argument)
    if match is None or not match.group(1).strip():
        raise JobspecError(_error(argument, "spec.set", "KEY=VALUE is wanted", SHAPE_OF_SETTING))
    path = locate(_parts(match.group(1), argument), data, shape, argument)
    value, findings = _typed(match.group(2), shape.at(path), path, argument)
    if isinstance(value, Unset):
        _refuse_item(path, argument)
    return Setting(path, value, argument), findings


def _removed(argument: str, data: Any, shape: Shape) -> Path:
    """The path that `~KEY` removes. Raises: JobspecError when the spec has nothing there."""
    path = locate(_parts(argument[1:], argument), data, shape, argument)
    _refuse_item(path, argument)
    if find_path(data, path) is None:
        inside = _get(data, path[:-1])
        present = [str(key) for key in inside] if isinstance(inside, Mapping) else []
        close = did_you_mean(str(path[-1]), present)
        what = f"the spec does not give `{format_path(path)}`"
        raise JobspecError(_error(argument, "spec.set", what, close or "leave this `--set` out", path))
    return path


def _parts(key: str, argument: str) -> Path:
    try:
        return parse_path(key.strip())
    except ValueError as problem:
        raise JobspecError(
            _error(argument, "spec.set", f"the key is not a path: {problem}", SHAPE_OF_SETTING)
        ) from problem


def _refuse_item(path: Path, argument: str) -> None:
    if isinstance(path[-1], int):
        raise JobspecError(
            _error(argument, "spec.set", "a list item cannot be taken out", "set the whole list", path)
        )


def locate(parts: Path, data: Any, shape: Shape, argument: str) -> Path:
    """The real path of dotted `parts`: known keys by the schema, free keys with dots by the spec.

    Raises: JobspecError that names the known keys, or the length of a list.
    """
    path: Path = ()
    here: Shape = shape
    while len(path) < len(parts):
        part = parts[len(path)]
        if "array" in here.types or (not here.types and isinstance(_get(data, path), list)):
            path = (*path, _index(part, _get(data, path), path, argument))
        elif here.properties is not None:
            if part not in here.properties:
                raise JobspecError(_unknown(argument, path, str(part), list(here.properties)))
            path = (*path, part)
        elif not here.types or "object" in here.types:
            return (*path, *_free_path(parts[len(path) :], _get(data, path), path, argument))
        else:
            what = f"`{format_path(path)}` has no keys of its own"
            raise JobspecError(_error(argument, "spec.set", what, f"set `{format_path(path)}` itself", path))
        here = here.child(path[-1]) or Shape()
    return path


def _free_path(parts: Path, data: Any, path: Path, argument: str) -> Path:
    """The path below a mapping with free keys: along existing mappings, then one key for the rest."""
    existing = find_path(data, parts)
    if existing is not None or not parts:
        return existing or ()
    if isinstance(data, list):
        step: str | int = _index(parts[0], data, path, argument)
    elif len(parts) > 1 and isinstance(data, Mapping) and isinstance(data.get(parts[0]), Mapping | list):
        step = parts[0]
    else:
        return (".".join(map(str, parts)),)
    return (step, *_free_path(parts[1:], _get(data, (step,)), (*path, step), argument))


def _index(part: str | int, items: Any, path: Path, argument: str) -> int:
    length = len(items) if isinstance(items, list) else 0
    if not isinstance(part, int):
        what = f"`{format_path(path)}` is a list, and `{part}` is no index"
        raise JobspecError(_error(argument, "spec.set", what, f"write `{format_path(path)}[0]`", path))
    if part > length:
        what = f"`{format_path(path)}` has {length} items, so the index [{part}] is too large"
        raise JobspecError(
            _error(argument, "spec.set", what, f"use an index from 0 to {length}; {length} appends", path)
        )
    return part


def _typed(source: str, shape: Shape, path: Path, argument: str) -> tuple[Any, list[Finding]]:
    text = source.strip()
    nullable = not shape.types or "null" in shape.types
    if text == "":
        raise JobspecError(_empty(shape, path, argument))
    if text in scalars.NULLS and (shape.types or not nullable):
        return UNSET, []
    if shape.is_text and not (text[0] == text[-1] and text[0] in "'\"" and len(text) > 1):
        return source, []
    name = _where(argument)
    try:
        node = compose(source, name)
    except JobspecError as problem:
        first = problem.findings[0]
        raise JobspecError(
            _error(argument, "spec.set", f"the value is {first.what}", first.fix, path)
        ) from problem
    if node is None:  # a comment alone
        raise JobspecError(_empty(shape, path, argument))
    builder = Builder(name)
    value = builder.build(node, shape, path)
    findings = [_without_place(finding) for finding in builder.findings]
    if any(finding.is_error for finding in findings):
        raise JobspecError(*findings)
    # On a command line the quotes belong to the shell: there is nothing to warn about.
    return value, []


def _empty(shape: Shape, path: Path, argument: str) -> Finding:
    key = argument.partition("=")[0]
    text = f"`{key}=''` (quoted for the shell as well) for an empty text, " if _takes_text(shape) else ""
    fix = f"write {text}`~{key}` to remove it"
    finding = _error(argument, "spec.set", f"`{key}` is given no value", fix, path)
    return replace(finding, why="the value may be a shell variable that is not set")


def _takes_text(shape: Shape) -> bool:
    return shape.is_text or not shape.types


def _check_text(argument: str) -> None:
    """Refuse NUL, and bytes that Python could not decode and carries as lone surrogates."""
    shown = argument.encode("utf-8", "backslashreplace").decode()
    if shown != argument:
        what = "the argument is not UTF-8"
        raise JobspecError(_error(shown, "spec.characters", what, "set the terminal to UTF-8"))
    if "\0" in argument:
        raise JobspecError(
            _error(argument, "spec.characters", "the argument holds a NUL character", "remove it")
        )


def _without_place(finding: Finding) -> Finding:
    return finding.at(finding.file)


def _get(data: Any, path: Path) -> Any:
    try:
        return lookup(data, path)
    except KeyError:
        return None


def _unknown(argument: str, path: Path, key: str, known: list[str]) -> Finding:
    where = f"`{format_path(path)}`" if path else "a job spec"
    what, fix = f"{where} has no key `{key}`", unknown_key_fix("job", key, known, path)
    why = f"keys of {where}: {', '.join(known)}"
    return replace(_error(argument, "spec.unknown-key", what, fix, (*path, key)), why=why)


def _error(argument: str, rule: str, what: str, fix: str, path: Path = ()) -> Finding:
    return error(rule, what, fix=fix, path=format_path(path), file=_where(argument))


def _where(argument: str) -> str:
    return argument if argument.startswith(LEVEL) else f"--set {masked(argument)}"
