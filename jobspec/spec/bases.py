"""Thin specs: the files that `base` names and a named variant, laid together into one flat document.

    base files, in order --under--> the file's own keys --under--> its variant --under--> `--set`

A mapping is merged key by key, anything else is replaced as a whole, and null goes back to the default. Below
`train.overrides` a dotted key meets its nested form, as for `--set`. Each value keeps its file and line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

from jobspec.finding import Finding, JobspecError, error
from jobspec.spec.base_paths import beside
from jobspec.spec.fields import NAME_PATTERN
from jobspec.spec.overrides import UNSET, Setting, locate, put
from jobspec.spec.paths import Path, format_path, parse_path
from jobspec.spec.schema import Shape, root_shape
from jobspec.spec.validate import PATTERN_WORDS
from jobspec.spec.yaml.document import Document, parse_document, read_text
from jobspec.spec.yaml.dump import dump_spec
from jobspec.words import did_you_mean

MAX_DEEP = 8  # ours; a base of a base of a base is hard enough to follow
MAX_FILES = 64  # ours; two bases of two bases multiply
OVERRIDES = ("train", "overrides")
THIN = ("base", "variants")
_MAY_BE_THIN = re.compile(r"\b(?:base|variants)[\"']?\s*:")


def split_variant(spec: str) -> tuple[str, str | None]:
    """File and variant of `FILE:VARIANT`; a file of the whole name goes first."""
    file, colon, variant = spec.rpartition(":")
    if not colon or not file or "/" in variant or FilePath(spec).exists():
        return spec, None
    return file, variant


def variants_of(spec: str) -> list[str]:
    """The variants of a spec file, those of its bases included; none where it cannot be read."""
    if not FilePath(spec).is_file():  # what a pipe holds can be read once
        return []
    try:
        text = read_text(FilePath(spec), "job")
        if not _MAY_BE_THIN.search(text):
            return []  # most specs, without a second look at their YAML
        document = parse_document(text, spec, "job")
        whole = _Reader(FilePath(spec).parent).whole(document, ())
        return list(_variants(whole))
    except JobspecError:
        return []


def flat(document: Document, variant: str | None) -> Document:
    """The document with its bases below it and `variant` above it; without `base` and `variants`.

    Raises: JobspecError for a base that cannot be read, a cycle, or a variant that nobody defines.
    """
    if variant is None and not any(key in document.data for key in THIN):
        return document
    reader = _Reader(FilePath(document.positions.file).parent)
    whole = reader.whole(document, ())
    _variants(whole)
    if variant is not None:
        whole = _with_variant(whole, variant)
    data = {key: value for key, value in whole.data.items() if key not in THIN}
    text = document.text
    if variant is not None or reader.read:
        names = [*reader.read, document.positions.file + (f":{variant}" if variant else "")]
        text = f"# Laid together from {', '.join(names)}.\n{dump_spec(data)}"
    return replace(whole, data=data, text=text)


@dataclass
class _Reader:
    """Reads bases; `read` names the files so far. `top` is the folder whose relative paths stay so."""

    top: FilePath
    read: list[str] = field(default_factory=list)

    def whole(self, document: Document, inside: tuple[str, ...]) -> Document:
        """The document over its bases. `inside` are the files that led here, for cycles."""
        file = document.positions.file
        names, problem = _names(document)
        if problem is not None:
            raise JobspecError(problem)
        if not names:
            return document
        here = (*inside, os.path.realpath(file))
        if len(here) > MAX_DEEP:
            raise _wrong(document, ("base",), f"bases of bases go deeper than {MAX_DEEP} files")
        under: Document | None = None
        for at, name in names:
            base = self._base(document, at, name, here)
            under = base if under is None else laid_over(under, base)
        return document if under is None else laid_over(under, document)

    def _base(self, document: Document, at: Path, name: str, here: tuple[str, ...]) -> Document:
        folder = FilePath(document.positions.file).parent
        file, variant = split_variant(os.path.join(folder, os.path.expanduser(name)))  # noqa: PTH111, PTH118
        if os.path.realpath(file) in here:
            ring = " -> ".join(FilePath(one).name for one in (*here, file))
            raise _wrong(document, at, f"`{name}` is its own base: {ring}", "", "take one of them out")
        self.read.append(os.path.normpath(file) + (f":{variant}" if variant else ""))
        if len(self.read) > MAX_FILES:
            raise _wrong(document, at, f"the bases are more than {MAX_FILES} files")
        try:
            text = read_text(FilePath(file), "job")
        except JobspecError as problem:
            first = problem.findings[0]
            raise _wrong(document, at, f"base `{name}`: {first.what}", first.why, first.fix) from None
        base = parse_document(text, os.path.normpath(file), "job")
        version = base.data.get("version", 1)
        if version != 1:
            what = f"base `{name}` is of version {version}, and this spec of version 1"
            raise _wrong(document, at, what, fix="write both in one version")
        if "lock" in base.data:
            what = f"base `{name}` is the lock of a run"
            raise _wrong(document, at, what, "a lock is whole by itself", "name the spec of that run")
        whole = self.whole(base, here)
        if variant is not None:
            whole = _with_variant(whole, variant)
        return replace(whole, data=beside(whole.data, FilePath(file).parent, self.top))


def _names(document: Document) -> tuple[list[tuple[Path, str]], Finding | None]:
    """The files that `base` names, each with its path in the document."""
    value = document.data.get("base")
    if value is None:
        return [], None
    items = value if isinstance(value, list) else [value]
    paths: list[Path] = [("base", at) if isinstance(value, list) else ("base",) for at in range(len(items))]
    for path, item in zip(paths, items, strict=True):
        if not isinstance(item, str) or not item.strip() or "${" in item or "\0" in item:
            why = "files are laid together before anything is filled in" if "${" in str(item) else ""
            what = "a base is the name of a spec file"
            return [], _finding(document, path, what, why, "write it as `base: common.yaml`")
    if "lock" in document.data:
        return [], _finding(document, ("base",), "a lock has no `base`", "it is whole by itself", "remove it")
    return list(zip(paths, items, strict=True)), None


def _variants(document: Document) -> Mapping[str, Any]:
    """Raises: JobspecError where they are no mapping, or one has a name that no `FILE:VARIANT` could name."""
    variants = document.data.get("variants")
    if variants is None:
        return {}
    if not isinstance(variants, Mapping):
        what = "`variants` is no mapping of names to changes"
        fix = "write it like `long: {train: {steps: 9}}`"
        raise _wrong(document, ("variants",), what, "", fix, "spec.variant")
    wrong = next((name for name in variants if not re.match(NAME_PATTERN, str(name))), None)
    if wrong is not None:
        words, example = PATTERN_WORDS[NAME_PATTERN]
        what, fix = f"variant `{wrong}` has not {words}", f"write it like `{example}`"
        raise _wrong(document, ("variants", wrong), what, "", fix, "spec.variant")
    return variants


def _with_variant(document: Document, name: str) -> Document:
    variants = _variants(document)
    known = list(variants)
    if name not in known:
        what = f"the spec has no variant `{name}`" if name else "no variant is named behind the `:`"
        why = f"its variants: {', '.join(known)}" if known else "it has no `variants`"
        fix = did_you_mean(name, known) or ("name one of them" if known else "name the file alone")
        raise _wrong(document, ("variants",), what, why, fix, "spec.variant")
    over, prefix = variants[name], ("variants", name)
    if over is None:
        return document
    if not isinstance(over, Mapping):
        what = f"variant `{name}` is no mapping of keys to values"
        raise _wrong(document, prefix, what, "", "write it as a part of a spec", "spec.variant")
    wrong = next((key for key in over if key in ("version", "lock", *THIN)), None)
    if wrong is not None:
        what, fix = f"a variant cannot give `{wrong}`", "give it at the top of the file"
        raise _wrong(document, (*prefix, wrong), what, "", fix, "spec.variant")
    return laid_over(document, replace(document, data=dict(over), positions=document.positions.below(prefix)))


def laid_over(under: Document, over: Document) -> Document:
    """`over` on `under`, by the rules above."""
    shape = root_shape("job")
    data: Any = under.data
    positions = under.positions.under(over.positions)
    for path, value in _changes(over.data, ()):
        real = _real(path, data, shape)
        # In a variant, null is for what the variant will lie over.
        gone = value is None and path[0] != "variants" and bool(shape.at(path).types)
        data = put(data, Setting(real, UNSET if gone else value, ""))
        positions = positions.replaced(real, None if gone else over.positions, path)
    return Document(data, over.text, positions, tuple(dict.fromkeys((*under.findings, *over.findings))))


def _changes(data: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    """Each value that is no mapping with keys, with its path."""
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from _changes(value, (*path, key))
        else:
            yield (*path, key), value


def _real(path: Path, data: Any, shape: Shape) -> Path:
    """Where a value of the upper file goes: below `train.overrides` to the key that is there already."""
    if path[:2] != OVERRIDES or len(path) == 2:
        return path
    try:
        parts = [part for key in path[2:] for part in parse_path(str(key))]
        return locate((*OVERRIDES, *parts), data, shape, format_path(path))
    except (ValueError, JobspecError):
        return path


def _finding(
    document: Document, path: Path, what: str, why: str = "", fix: str = "", rule: str = "spec.base"
) -> Finding:
    return error(rule, what, why, fix, path=format_path(path), **document.positions.place(path))


def _wrong(
    document: Document, path: Path, what: str, why: str = "", fix: str = "", rule: str = "spec.base"
) -> JobspecError:
    return JobspecError(_finding(document, path, what, why, fix, rule))
