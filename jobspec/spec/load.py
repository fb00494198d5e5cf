"""A spec file -> LoadedSpec: typed, with every value's position and origin; or every finding about it.

    text --compose--> nodes --construct--> data --sets--> data --${env}, ${spec}--> data --msgspec--> JobSpec

Pure but for reading the file. What depends on a cluster, a framework or a git checkout is checked elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

import msgspec

from jobspec.finding import Finding, JobspecError, allow, error
from jobspec.spec import rules
from jobspec.spec.bases import THIN, flat, split_variant
from jobspec.spec.interpolate import BadReferenceError, Expander, expand_cluster, map_texts
from jobspec.spec.job import JobSpec
from jobspec.spec.overrides import Setting, apply_sets, locate, put
from jobspec.spec.paths import (
    Origin,
    Path,
    Positions,
    find_path,
    format_path,
    leaves,
    lookup,
    parse_path,
    without,
)
from jobspec.spec.schema import Shape, root_shape
from jobspec.spec.site import ClusterProfile
from jobspec.spec.validate import convert, explain
from jobspec.spec.yaml.document import decode, in_order, parse_document, read_text
from jobspec.spec.yaml.dump import dump_spec
from jobspec.words import did_you_mean

__all__ = [
    "LoadedSpec", "Origin", "Positions", "dump_spec", "interpolate_cluster", "load_spec", "parse_spec",
    "validate_data", "with_values",
]  # fmt: skip

# Behind one of these, further findings about the same path only repeat it.
_CONSEQUENCE_OF = (
    "spec.not-text",
    "spec.number",
    "spec.alias",
    "spec.tag",
    "spec.reference",
    "spec.env",
    "spec.secret",
    "spec.cycle",
)


@dataclass(frozen=True)
class LoadedSpec:
    """A valid spec.

    `data` is plain data with overrides applied and `${env:}` and `${spec:}` expanded. Its texts stay escaped,
    with `${cluster:}` in place, until `interpolate_cluster`. `raw` is the data before any expansion.
    `findings` are warnings.
    """

    spec: JobSpec
    data: dict[str, Any]
    path: FilePath
    text: str
    positions: Positions
    findings: tuple[Finding, ...] = ()
    raw: dict[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    settings: tuple[Setting, ...] = ()
    env_paths: Mapping[Path, str] = field(default_factory=dict)
    cluster_paths: Mapping[Path, str] = field(default_factory=dict)
    base: LoadedSpec | None = field(default=None, repr=False)  # the spec that this is a point of
    interpolated: bool = False  # `${cluster:}` is filled in and `$${` unescaped
    allowed: tuple[str, ...] = ()  # rules whose errors are warnings, for the points of a sweep as well

    @cached_property
    def origins(self) -> Mapping[str, Origin]:
        """Dotted path -> where its value came from, for every value given and every default."""
        if self.base is not None:
            return self._origins_beside(self.base)
        defaults = _default_paths(root_shape("job"), self.data, ())
        origins = {format_path(path): Origin("default") for path in defaults}
        return {**origins, **{format_path(path): self._origin(path) for path, _ in leaves(self.data)}}

    def _origins_beside(self, base: LoadedSpec) -> Mapping[str, Origin]:
        """The origins of `base`, renewed for changed keys: a sweep has a thousand points and one spec."""
        origins = {key: origin for key, origin in base.origins.items() if not key.startswith("sweep.")}
        changed = [setting.path for setting in self.settings[len(base.settings) :]]
        for path in changed:
            text = format_path(path)
            for key in [key for key in origins if key == text or key.startswith((f"{text}.", f"{text}["))]:
                del origins[key]
            for below, _ in leaves(lookup(self.data, path), path):
                origins[format_path(below)] = self._origin(below)
        origins.update({format_path(path): self._origin(path) for path in self.cluster_paths})
        return origins

    def place(self, path: Path, key: bool = False) -> dict[str, Any]:
        """File, line and column of a path; for an overridden value its `--set` argument."""
        return _place(self.positions, self.settings, path, key)

    def setting_of(self, path: str) -> str:
        """The `--set` argument that gave the value at a dotted path; empty for a value of the file."""
        try:
            parts = parse_path(path)
        except ValueError:
            return ""
        real = find_path(self.data, parts) or parts
        place = self.place(real)
        if "line" not in place:
            return str(place["file"])
        inside = [item.where for item in self.settings if item.path[: len(real)] == real]
        return inside[-1] if inside and real not in self.positions.values else ""

    def _origin(self, path: Path) -> Origin:
        place = self.place(path)
        where = f"{place['file']}:{place['line']}" if "line" in place else place["file"]
        if path in self.cluster_paths:
            return Origin("cluster", f"{where}, from {self.cluster_paths[path]}")
        if path in self.env_paths:
            return Origin("env", f"{where}, from ${self.env_paths[path]}")
        return Origin("spec" if "line" in place else "set", where)


class BrokenSpecError(JobspecError):
    """A spec with errors. `rest` is the spec without what is wrong, where that makes one."""

    def __init__(self, *findings: Finding, rest: LoadedSpec | None = None) -> None:
        super().__init__(*findings)
        self.rest = rest


def load_spec(
    path: FilePath | str,
    sets: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    allow: Sequence[str] = (),
    content: bytes | None = None,
) -> LoadedSpec:
    """Read, override, expand and validate one spec file or variant (`spec.yaml:long`), over its bases.

    `env` is `os.environ` unless given.
    `allow` names rules whose errors become warnings when the spec can be typed all the same. With `content`
    the file is not read.
    Raises: JobspecError with every finding of the file, errors and warnings.
    """
    file, variant = split_variant(str(path))
    text = read_text(FilePath(file), "job") if content is None else decode(content, file)
    return parse_spec(text, file, sets, env, allow, variant)


def parse_spec(
    text: str,
    name: str = "<spec>",
    sets: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    allow: Sequence[str] = (),
    variant: str | None = None,
) -> LoadedSpec:
    """`load_spec` for text; `name` stands in messages where a file name would. Raises: as `load_spec`."""
    document = flat(parse_document(text, name, "job"), variant)
    applied = apply_sets(document.data, root_shape("job"), tuple(sets))
    start = LoadedSpec(
        spec=_NO_SPEC,
        data=applied.data,
        path=FilePath(name),
        text=document.text,
        positions=document.positions,
        findings=(*document.findings, *applied.findings),
        raw=applied.data,
        env=os.environ if env is None else env,
        settings=applied.settings,
        allowed=tuple(allow),
    )
    return _finish(start)


def with_values(loaded: LoadedSpec, values: Mapping[str, Any], label: str = "sweep point") -> LoadedSpec:
    """One point of a sweep: the spec without `sweep`, its dotted keys set to typed values.

    The point is expanded and validated again, in well under a millisecond.
    Raises: JobspecError; findings name `label` and the key.
    """
    shape = root_shape("job")
    data = {key: value for key, value in loaded.raw.items() if key != "sweep"}
    settings = list(loaded.settings)
    for key, value in values.items():
        argument = f"{key}={value}"
        try:
            path = locate(parse_path(key), data, shape, argument)
        except ValueError as problem:
            raise JobspecError(
                error("spec.sweep", f"`{key}` is not a path into the spec: {problem}", file=label)
            ) from problem
        setting = Setting(path, value, argument, label)
        data = put(data, setting)
        settings.append(setting)
    start = replace(loaded, data=data, raw=data, settings=tuple(settings), findings=(), base=loaded)
    return _finish(start)


def revised(loaded: LoadedSpec, settings: Sequence[Setting], dropped: Sequence[Path]) -> LoadedSpec:
    """The spec with some paths dropped and others set, expanded and validated again. Raises: JobspecError."""
    raw: Any = loaded.raw
    for path in dropped:
        raw = without(raw, path)
    for setting in settings:
        raw = put(raw, setting)
    changed = replace(loaded, data=raw, raw=raw, settings=(*loaded.settings, *settings), findings=())
    done = _finish(changed)
    return replace(done, findings=tuple(dict.fromkeys((*loaded.findings, *done.findings))))


def validate_data(data: Mapping[str, Any]) -> tuple[JobSpec | None, tuple[Finding, ...]]:
    """The typed spec of plain data, and its findings; no files, no expansion, microseconds."""
    positions = Positions("<data>")
    spec, findings = _check(dict(data), positions.place, [])
    return spec, tuple(findings)


def interpolate_cluster(loaded: LoadedSpec, profile: ClusterProfile) -> LoadedSpec:
    """The spec with `${cluster:key}` filled in from `profile` and `$${` made a literal `${`.

    `key` is a key of `paths` (`runs`, `hf_home`, `scratch`, `node_local`) or a dotted key of the profile.
    Doing it twice changes nothing.
    Raises: JobspecError with a finding for each key that the profile does not have or set.
    """
    if loaded.interpolated:
        return loaded
    findings: list[Finding] = []
    came_from: dict[Path, str] = {}

    def fill(text: str, path: Path) -> str:
        try:
            filled = expand_cluster(text, lambda key: _profile_value(profile, key))
        except BadReferenceError as problem:
            findings.append(problem.finding(path, loaded.place))
            return text
        if "${cluster:" in text:
            came_from[path] = f"profile `{profile.name}`"
        return filled

    data = {k: v if k == "user" else map_texts(v, fill, (k,)) for k, v in loaded.data.items()}
    if not findings and data == loaded.data:
        return replace(loaded, interpolated=True)
    spec, more = _check(data, loaded.place, findings)
    findings = [*allow([*findings, *more], loaded.allowed, usable=spec is not None)]
    if spec is None or any(finding.is_error for finding in findings):
        raise JobspecError(*in_order(findings))
    return replace(loaded, spec=spec, data=data, cluster_paths=came_from, interpolated=True)


def _profile_value(profile: ClusterProfile, key: str) -> str:
    known = msgspec.to_builtins(profile.paths)
    names = [*profile.paths.__struct_fields__, *profile.__struct_fields__]
    value: Any = profile
    for part in ("paths", key) if key in profile.paths.__struct_fields__ else key.split("."):
        value = (
            value.get(part, msgspec.UNSET)
            if isinstance(value, Mapping)
            else getattr(value, part, msgspec.UNSET)
        )
    if value is msgspec.UNSET or not isinstance(value, str | int | None) or isinstance(value, bool):
        fix = did_you_mean(key, names) or f"use one of {', '.join(sorted(known | {'node.gpus': 0}))}"
        raise BadReferenceError(
            "spec.cluster", f"the site profile `{profile.name}` has no text `{key}`", fix=fix
        )
    if value is None or value == "":
        where = f"paths.{key}" if key in profile.paths.__struct_fields__ else key
        what = f"the site profile `{profile.name}` does not set `{where}`"
        raise BadReferenceError(
            "spec.cluster",
            what,
            "the spec refers to it",
            f"set `{where}` in the profile, or write the value here",
        )
    return str(value)


# -- how a document becomes a spec

_NO_SPEC = JobSpec(version=1, name="none", framework="none")


def _finish(start: LoadedSpec) -> LoadedSpec:
    """Expand, validate and check; `start` has everything but the typed spec."""
    secrets = start.raw.get("secrets")
    expander = Expander(
        start.raw,
        root_shape("job"),
        start.env,
        frozenset(name for name in secrets if isinstance(name, str))
        if isinstance(secrets, list)
        else frozenset(),
        start.place,
    )
    data = expander.run()
    findings = [*start.findings, *expander.findings]
    spec, more = _check(data, start.place, findings)
    ordered = in_order(allow([*findings, *more], start.allowed, usable=spec is not None))
    if spec is None or any(finding.is_error for finding in ordered):
        rest = data if spec is not None else _pruned(data, ordered)
        usable = spec or convert(rest, JobSpec)
        sound = replace(start, spec=usable, data=rest, findings=()) if usable is not None else None
        raise BrokenSpecError(*ordered, rest=sound)
    return replace(start, spec=spec, data=data, findings=ordered, env_paths=expander.env_paths)


def _check(
    data: dict[str, Any], place: Any, earlier: Iterable[Finding]
) -> tuple[JobSpec | None, list[Finding]]:
    """The typed spec, and the findings of schema and rules that `earlier` ones do not explain."""
    known = {item.path for item in earlier if item.is_error and item.rule in _CONSEQUENCE_OF}
    spec = convert(data, JobSpec)
    findings: list[Finding] = []
    subject = spec
    if spec is None:
        refused = explain(data, "job", place)
        findings = [finding for finding in refused if finding.path not in known]
        subject = convert(_pruned(data, refused), JobSpec)
        known |= {finding.path for finding in refused}
    if subject is not None:
        for broken in rules.check(subject):
            path = format_path(broken.path)
            if not any(
                path == other or path.startswith(f"{other}.") or other.startswith(path)
                for other in known
                if other
            ):
                where = place(broken.path, False)
                findings.append(error(broken.rule, broken.what, broken.why, broken.fix, path=path, **where))
    return spec, findings


def _pruned(data: dict[str, Any], findings: Iterable[Finding]) -> dict[str, Any]:
    """`data` without the values that the schema refuses: the rules are checked on the rest."""
    rest: Any = data
    for dotted in sorted((finding.path for finding in findings), reverse=True):
        if not dotted:
            continue
        path = find_path(rest, parse_path(dotted))
        if path:
            rest = without(rest, path)
    return {"version": 1, "name": "x", "framework": "?", **rest}


def _place(positions: Positions, settings: Iterable[Setting], path: Path, key: bool) -> dict[str, Any]:
    for setting in reversed(tuple(settings)):
        if path[: len(setting.path)] == setting.path:
            return {"file": setting.where}
    return positions.place(path, key)


def _default_paths(shape: Shape, data: Any, path: Path) -> Iterable[Path]:
    """Paths of declared keys that `data` does not give."""
    for key, child in (shape.properties or {}).items():
        if not path and key in THIN:
            continue  # a spec with its bases laid below it has none
        here = (*path, key)
        given = data.get(key) if isinstance(data, Mapping) else None
        if child.properties and (given is not None or child.default == {}):
            yield from _default_paths(child, given, here)
        elif child.items and child.items.properties and isinstance(given, list):
            for index, item in enumerate(given):
                yield from _default_paths(child.items, item, (*here, index))
        elif given is None and key not in shape.required:
            yield here
