"""Plain data -> typed model. msgspec decides, in microseconds; jsonschema explains what msgspec refused.

A property test holds that both agree. jsonschema is imported only for an explanation: the import takes more
time than the rest of a load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from jobspec.finding import Finding, error
from jobspec.spec.fields import (
    DURATION_PATTERN,
    ENV_NAME_PATTERN,
    NAME_PATTERN,
    PATIENCE_PATTERN,
    SERVICE_NAME_PATTERN,
    SIZE_PATTERN,
    SPAN_PATTERN,
    WORD_PATTERN,
)
from jobspec.spec.job import JobSpec
from jobspec.spec.paths import Locate, Path, format_path
from jobspec.spec.schema import Kind, Shape, committed_schema, root_shape, walk
from jobspec.spec.site import ClusterProfile
from jobspec.spec.yaml import scalars
from jobspec.words import did_you_mean, nearest, one_of, shown

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

M = TypeVar("M", JobSpec, ClusterProfile)
_FIRST_USE = Lock()
_USED: set[type] = set()

# Keys that other launchers have for their services, and what to do here.
OF_NO_SERVICE = {
    "image": "write `container: {image: …}`",
    "env": "write `command: [env, NAME=VALUE, PROGRAM]`, or `container: {env: …}` with an image of its own",
}
TYPE_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
# Nobody should have to read a regular expression: each form in words, and an example.
PATTERN_WORDS = {
    NAME_PATTERN: (
        "a name: letters, digits, `.`, `_` and `-`, a letter or digit first, at most 63",
        "my-run.1",
    ),
    SERVICE_NAME_PATTERN: (
        "a name as in DNS: a small letter, then small letters, digits and `-`, at most 63",
        "code-judge",
    ),
    ENV_NAME_PATTERN: ("a variable's name: letters, digits and `_`, no digit first", "NCCL_DEBUG"),
    SIZE_PATTERN: ("a size: a whole number with K, M, G or T", "500G"),
    SPAN_PATTERN: ("a number with its unit: seconds, minutes or hours", "30m"),
    PATIENCE_PATTERN: ("`auto`, or a number with its unit: seconds, minutes or hours", "10m"),
    DURATION_PATTERN: ("a time: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS", "24:00:00"),
    WORD_PATTERN: ("one word without blanks, as sbatch takes it", "gpu-long"),
}


def convert(data: Any, model: type[M]) -> M | None:
    """The typed model of valid data; None when `explain` has something to say.

    Any thread may call it.
    """
    # msgspec 0.22 reads a type at its first use, and a second thread that meets the half-read type crashes.
    with _FIRST_USE if model not in _USED else nullcontext():
        try:
            return msgspec.convert(data, model)
        except msgspec.ValidationError:
            return None
        finally:
            _USED.add(model)


def explain(data: Any, kind: Kind, place: Locate) -> list[Finding]:
    """Everything that the schema refuses about `data`, each with its position; empty for valid data."""
    errors = sorted(_validator(kind).iter_errors(data), key=lambda e: [str(part) for part in e.absolute_path])
    mistyped = {tuple(problem.absolute_path) for problem in errors if problem.validator == "type"}
    distinct = [e for e in errors if e.validator != "enum" or tuple(e.absolute_path) not in mistyped]
    return [finding for problem in distinct for finding in _Explainer(kind, place).explain(problem)]


@cache
def _validator(kind: Kind) -> Validator:
    from jsonschema import Draft202012Validator, validators

    def is_integer(_: object, value: object) -> bool:
        # As msgspec has it: 1.0 is not a whole number. The YAML loader has already made `1e3` one.
        return isinstance(value, int) and not isinstance(value, bool)

    checker = Draft202012Validator.TYPE_CHECKER.redefine("integer", is_integer)
    strict = validators.extend(Draft202012Validator, type_checker=checker)  # type: ignore[no-untyped-call]
    validator: Validator = strict(committed_schema(kind))
    return validator


class _Explainer:
    """One schema error -> findings in our words. A method per schema keyword that the models use."""

    def __init__(self, kind: Kind, place: Locate) -> None:
        self.kind = kind
        self.place = place

    def explain(self, problem: ValidationError) -> Iterator[Finding]:
        path: Path = tuple(problem.absolute_path)
        handlers: Mapping[str, Callable[[ValidationError, Path], Iterator[Finding]]] = {
            "type": self._type,
            "enum": self._enum,
            "pattern": self._pattern,
            "minimum": self._bound,
            "maximum": self._bound,
            "required": self._required,
            "additionalProperties": self._unknown_keys,
            "anyOf": self._any_of,
        }
        if "propertyNames" in problem.absolute_schema_path:
            yield from self._key_name(problem, path)
        elif str(problem.validator) in handlers:
            yield from handlers[str(problem.validator)](problem, path)
        else:
            yield self._finding("spec.value", problem.message, path)

    def _type(self, problem: ValidationError, path: Path) -> Iterator[Finding]:
        if path == ("version",):
            yield self._version(problem.instance)
        else:
            yield self._wrong_type(problem.instance, [str(problem.validator_value)], path)

    def _any_of(self, problem: ValidationError, path: Path) -> Iterator[Finding]:
        """The findings of the branch whose type fits: the value was meant for that one."""
        by_branch: dict[Any, list[ValidationError]] = {}
        for inner in problem.context or ():
            by_branch.setdefault(inner.relative_schema_path[0], []).append(inner)
        meant = [inner for inner in by_branch.values() if not any(_is_type_error_here(e) for e in inner)]
        if meant:
            for inner in meant[0]:
                yield from self.explain(inner)
            return
        types = sorted(self._shape(path).types - {"null"}, reverse=True)
        yield self._wrong_type(problem.instance, types, path)

    def _wrong_type(self, value: Any, types: list[str], path: Path) -> Finding:
        wanted = " or ".join(TYPE_WORDS.get(name, name) for name in types)
        return self._finding(
            "spec.type",
            f"{shown(value)} is {_kind_of(value)}, {wanted} is wanted",
            path,
            fix=_type_fix(value, types),
        )

    def _enum(self, problem: ValidationError, path: Path) -> Iterator[Finding]:
        allowed = [str(value) for value in _listed(problem.validator_value)]
        if path == ("version",):
            yield self._version(problem.instance)
            return
        close = nearest(str(problem.instance), allowed)
        fix = f"write `{close}`" if close else f"use {one_of(allowed)}"
        yield self._finding(
            "spec.choice", f"{shown(problem.instance)} is none of {one_of(allowed)}", path, fix=fix
        )

    def _version(self, value: Any) -> Finding:
        newer = isinstance(value, int) and value > 1
        fix = "install a newer jobspec" if newer else "write `version: 1`"
        why = "this jobspec reads version 1"
        return self._finding("spec.version", f"version {shown(value)} is not known", ("version",), why, fix)

    def _pattern(self, problem: ValidationError, path: Path) -> Iterator[Finding]:
        wanted, example = PATTERN_WORDS[str(problem.validator_value)]
        why = (
            ""
            if "${cluster:" not in str(problem.instance)
            else "`${cluster:...}` is only known when the profile is read"
        )
        yield self._finding(
            "spec.format",
            f"{shown(problem.instance)} is not {wanted}",
            path,
            why,
            f"write it like `{example}`",
        )

    def _bound(self, problem: ValidationError, path: Path) -> Iterator[Finding]:
        least = problem.validator == "minimum"
        limit = problem.validator_value
        what = f"{shown(problem.instance)} is {'less' if least else 'more'} than {limit}"
        yield self._finding("spec.range", what, path, fix=f"use {limit} or {'more' if least else 'less'}")

    def _required(self, problem: ValidationError, path: Path) -> Iterator[Finding]:
        missing = problem.message.split("'")[1]
        shape = self._shape(path).child(missing)
        where = f" in `{format_path(path)}`" if path else ""
        why = _sentence_inside(shape.description) if shape else ""
        yield self._finding(
            "spec.missing", f"`{missing}` is missing{where}", path, why, _example(missing, shape)
        )

    def _unknown_keys(self, problem: ValidationError, path: Path) -> Iterator[Finding]:
        known = list((self._shape(path).properties or {}).keys())
        for key in _listed(problem.instance):
            if key in known:
                continue
            where = (
                f"`{format_path(path)}`"
                if path
                else "a " + {"job": "job spec", "cluster": "site profile"}[self.kind]
            )
            fix = unknown_key_fix(self.kind, str(key), known, path)
            why = f"keys of {where}: {', '.join(known)}"
            yield self._finding(
                "spec.unknown-key", f"{where} has no key `{key}`", (*path, str(key)), why, fix, key=True
            )

    def _key_name(self, problem: ValidationError, path: Path) -> Iterator[Finding]:
        key = str(problem.instance)
        wanted, example = PATTERN_WORDS[str(problem.validator_value)]
        yield self._finding(
            "spec.format",
            f"the key {shown(key)} is not {wanted}",
            (*path, key),
            fix=f"write it like `{example}`",
            key=True,
        )

    def _shape(self, path: Path) -> Shape:
        return root_shape(self.kind).at(path)

    def _finding(
        self, rule: str, what: str, path: Path, why: str = "", fix: str = "", key: bool = False
    ) -> Finding:
        return error(rule, what, why, fix, path=format_path(path), **self.place(path, key))


def _is_type_error_here(problem: ValidationError) -> bool:
    return problem.validator == "type" and not problem.relative_path


def _listed(value: Any) -> list[Any]:
    return list(value)


def _kind_of(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, float):
        return "a number with a fraction" if not value.is_integer() else "a number"
    names: list[tuple[type, str]] = [(int, "a number"), (str, "text"), (list, "a list"), (dict, "a mapping")]
    return next((name for cls, name in names if isinstance(value, cls)), type(value).__name__)


def _type_fix(value: Any, types: list[str]) -> str:
    if isinstance(value, str) and value in scalars.BOOLEAN_WORDS and "boolean" in types:
        return f"write `{str(scalars.BOOLEAN_WORDS[value]).lower()}`: only `true` and `false` are booleans"
    if isinstance(value, str) and "integer" in types and value.replace("_", "").replace(",", "").isdecimal():
        return f"write `{value.replace('_', '').replace(',', '')}` without quotes, `_` or `,`"
    if isinstance(value, str) and "${cluster:" in value:
        return "write the value: `${cluster:...}` is only allowed where text is wanted"
    if isinstance(value, str) and "boolean" in types:
        return "write `true` or `false` without quotes"
    if types == ["string"] and isinstance(value, int | float):
        return f'quote it: `"{str(value).lower()}"`'
    if types == ["array"]:
        return (
            f"write a list: `[{shown(value)[1:-1]}]`"
            if not isinstance(value, dict | type(None))
            else "write a list: `[...]`"
        )
    return f"write {' or '.join(TYPE_WORDS.get(name, name) for name in types)}"


def _sentence_inside(text: str) -> str:
    """A description as part of a message: lower case, no full stop."""
    head = text[:2]
    return (text if head.isupper() else text[:1].lower() + text[1:]).removesuffix(".")


def _example(key: str, shape: Shape | None) -> str:
    if shape is None:
        return f"add `{key}`"
    values = shape.node.get("examples") or shape.node.get("enum")
    return f"add `{key}: {values[0]}`" if values else f"add `{key}: ...`"


def unknown_key_fix(kind: Kind, key: str, known: list[str], path: Path) -> str:
    """The fix for an unknown key: the nearest key, the same key at another place, or removal."""
    if path[:1] == ("services",) and key in OF_NO_SERVICE:
        return OF_NO_SERVICE[key]
    close = nearest(key, known, cutoff=0.8)
    if close:
        return f"did you mean `{close}`?"
    places = _places_of(kind).get(key, ())
    elsewhere = [format_path(where) for where in places if where[:-1] != path and 0 not in where]
    if 0 < len(elsewhere) <= 3:
        return f"did you mean {one_of(elsewhere)}?"
    remove = "remove it" + (", or put your own notes below `user`" if kind == "job" else "")
    return did_you_mean(key, known) or remove


@cache
def _places_of(kind: Kind) -> Mapping[str, list[Path]]:
    places: dict[str, list[Path]] = {}
    for path, _ in walk(root_shape(kind)):
        places.setdefault(str(path[-1]), []).append(path)
    return places
