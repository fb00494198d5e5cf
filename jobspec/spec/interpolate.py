"""`${env:NAME}`, `${spec:path}` and `${cluster:key}` in the texts of a spec. Nothing else is expanded.

`env` and `spec` are expanded when a spec is loaded, `cluster` once the profile is known. In between, texts
stay in escaped form: `$${` stands for a literal `${`, and values of environment variables are escaped. So no
value is expanded twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobspec.finding import Finding, error
from jobspec.spec.paths import Locate, Path, find_path, format_path, lookup, parse_path
from jobspec.spec.schema import ANY, Shape
from jobspec.spec.yaml import scalars
from jobspec.words import did_you_mean, one_of, shown

MAX_EXPANDED = 4 * 1024 * 1024  # ours: what references may add to a spec, in characters
KINDS = ("env", "spec", "cluster")
_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)(\}?)")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Names whose values are secrets by common use; such a value must not end up in a file of the run.
SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY(_ID)?|PRIVATE_KEY|CREDENTIALS?)\Z", re.I
)


def escape(text: str) -> str:
    """Text that means `text` literally when it is interpolated."""
    return text.replace("${", "$${")


def escape_data(data: Any) -> Any:
    """`escape` on every text of plain data, keys left as they are."""
    return map_texts(data, lambda text, _: escape(text))


def unescape(text: str) -> str:
    """Inverse of `escape`."""
    return text.replace("$${", "${")


def map_texts(data: Any, change: Callable[[str, Path], Any], path: Path = ()) -> Any:
    """A copy of plain data with `change(text, path)` for each text that holds a `${`."""
    if isinstance(data, str):
        return change(data, path) if "${" in data else data
    if isinstance(data, dict):
        return {key: map_texts(value, change, (*path, key)) for key, value in data.items()}
    if isinstance(data, list):
        return [map_texts(value, change, (*path, index)) for index, value in enumerate(data)]
    return data


class BadReferenceError(Exception):
    """A reference that cannot be expanded: what, why, fix."""

    def __init__(self, rule: str, what: str, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.rule, self.what, self.why, self.fix = rule, what, why, fix

    def finding(self, path: Path, place: Locate) -> Finding:
        where = place(path, False)
        return error(self.rule, self.what, self.why, self.fix, path=format_path(path), **where)


@dataclass
class Expander:
    """Expands `env` and `spec` references of one document, and checks the form of `cluster` references.

    After `run`, `env_paths` has the variable that each value came from.
    """

    data: Any
    shape: Shape
    env: Mapping[str, str]
    secrets: frozenset[str] = frozenset()
    place: Locate = lambda path, key: {}
    findings: list[Finding] = field(default_factory=list)
    env_paths: dict[Path, str] = field(default_factory=dict)
    _done: dict[Path, Any] = field(default_factory=dict)
    _open: list[Path] = field(default_factory=list)
    _size: int = 0

    def run(self) -> Any:
        """The document with its references expanded; each one that cannot be expanded is in `findings`."""
        if not isinstance(self.data, dict):
            return map_texts(self.data, self._text)
        # `user` is the user's own; jobspec does not read it.
        return {k: v if k == "user" else map_texts(v, self._text, (k,)) for k, v in self.data.items()}

    def _text(self, text: str, path: Path) -> Any:
        if path in self._done:
            return self._done[path]
        self._open.append(path)
        try:
            value = self._expand(text, path)
        except BadReferenceError as problem:
            self.findings.append(problem.finding(path, self.place))
            value = text
        finally:
            self._open.pop()
        self._done[path] = value
        return value

    def _expand(self, text: str, path: Path) -> Any:
        whole = _REFERENCE.fullmatch(text)
        if whole and whole.group(1) is not None:
            value = self._value(whole, path)
            if isinstance(value, str) and whole.group(1).startswith("env:"):
                return self._typed(value, path)
            return value
        return _REFERENCE.sub(lambda match: self._embedded(match, path), text)

    def _typed(self, text: str, path: Path) -> Any:
        """A whole value from the environment gets the type that the schema wants there."""
        shape = self.shape.at(path)
        if shape.is_text or not shape.types:
            return text
        try:
            value = scalars.resolve(unescape(text))
        except scalars.ScalarError as problem:
            raise BadReferenceError("spec.number", problem.what, problem.why, problem.fix) from problem
        return text if isinstance(value, str) else value

    def _embedded(self, match: re.Match[str], path: Path) -> str:
        if match.group(1) is None:
            return match.group(0)
        value = self._value(match, path)
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int | float):
            return str(value)
        what = f"`{match.group(0)}` is {shown(value)}, which cannot stand inside a text"
        raise BadReferenceError("spec.reference", what, fix="refer to text or to a number")

    def _value(self, match: re.Match[str], path: Path) -> Any:
        kind, name = check_form(match)
        if kind == "env":
            return escape(self._env(name, path))
        if kind == "spec":
            return self._spec(name)
        return match.group(0)

    def _env(self, name: str, path: Path) -> str:
        if not _ENV_NAME.match(name):
            raise BadReferenceError("spec.reference", f"`{name}` is not a name of an environment variable")
        if name in self.secrets or SECRET_NAME.search(name):
            raise BadReferenceError(
                "spec.secret",
                f"`${{env:{name}}}` would write a secret into the run's files",
                "a secret reaches the job by name only",
                f"put `{name}` into `secrets`, and read the variable in the job",
            )
        if name not in self.env:
            fix = did_you_mean(name, self.env) or f"set it: `export {name}=...`"
            raise BadReferenceError("spec.env", f"the environment variable `{name}` is not set", fix=fix)
        value = self.env[name]
        if "\0" in value or not _is_unicode(value):
            raise BadReferenceError(
                "spec.env", f"the value of `{name}` is not UTF-8 text", fix="set it to plain text"
            )
        self.env_paths[path] = name
        return value

    def _spec(self, name: str) -> Any:
        try:
            parts = parse_path(name)
        except ValueError as problem:
            raise BadReferenceError(
                "spec.reference", f"`{name}` is not a path into the spec: {problem}"
            ) from problem
        target = find_path(self.data, parts)
        if target is None:
            return self._default(parts, name)
        if target in self._open or any(target == ancestor[: len(target)] for ancestor in self._open):
            ring = " -> ".join(format_path(path) for path in (*self._open, target))
            raise BadReferenceError(
                "spec.cycle",
                f"`${{spec:{name}}}` refers to itself: {ring}",
                fix="write one of the values out",
            )
        value = map_texts(lookup(self.data, target), lambda text, below: self._text(text, (*target, *below)))
        self._size += _size(value)
        if self._size > MAX_EXPANDED:
            what = f"`${{spec:...}}` references expand to more than {MAX_EXPANDED >> 20} Mi characters"
            raise BadReferenceError(
                "spec.reference", what, "references to references multiply", "write the value out"
            )
        return value

    def _default(self, path: Path, name: str) -> Any:
        shape: Shape | None = self.shape
        known: list[str] = []
        for part in path:
            known = list((shape.properties or {}) if shape else ())
            shape = shape.child(part) if shape else None
        if shape is None or shape is ANY:
            fix = did_you_mean(str(path[-1]), known)
            raise BadReferenceError(
                "spec.reference", f"`${{spec:{name}}}`: the spec has no `{name}`", fix=fix
            )
        if shape.default is None:
            raise BadReferenceError(
                "spec.reference", f"`${{spec:{name}}}`: `{name}` is not set", fix=f"set `{name}`"
            )
        return shape.default


def check_form(match: re.Match[str]) -> tuple[str, str]:
    """Kind and name of a reference. Raises: BadReferenceError for any other form."""
    inside, closing = match.group(1), match.group(2)
    literal = "write `$${` for a literal `${`"
    if not closing:
        raise BadReferenceError(
            "spec.reference", f"`{match.group(0)}` is not closed", fix=f"close it with `}}`, or {literal}"
        )
    kind, colon, name = inside.partition(":")
    if not colon or kind not in KINDS or not name:
        forms = one_of(["${env:NAME}", "${spec:path}", "${cluster:key}"])
        close = did_you_mean(kind, KINDS) if colon else ""
        if kind in ("repo", "repos"):
            close = f"name a file of checkout `{name}` by its path in it alone: it is looked for there;"
        fix = " ".join(part for part in (close, literal) if part)
        raise BadReferenceError("spec.reference", f"`{match.group(0)}` is none of {forms}", fix=fix)
    return kind, name


def _size(value: Any) -> int:
    """Characters and values in plain data; counting stops above `MAX_EXPANDED`."""
    total, rest = 0, [value]
    while rest and total <= MAX_EXPANDED:
        item = rest.pop()
        total += 1 + (len(item) if isinstance(item, str) else 0)
        rest += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return total


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def expand_cluster(text: str, look_up: Callable[[str], str]) -> str:
    """Text with `${cluster:key}` replaced by `look_up(key)` and `$${` unescaped."""

    def replace(match: re.Match[str]) -> str:
        if match.group(1) is None:
            return "${"
        kind, name = check_form(match)
        if kind != "cluster":
            raise BadReferenceError("spec.reference", f"`{match.group(0)}` was not expanded")
        return look_up(name)

    return _REFERENCE.sub(replace, text)
