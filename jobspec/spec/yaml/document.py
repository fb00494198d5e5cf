"""A YAML file -> plain data with positions. Shared by job specs and site profiles."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from jobspec.finding import Finding, JobspecError, error, fail
from jobspec.spec.paths import Positions
from jobspec.spec.schema import Kind, root_shape
from jobspec.spec.yaml.construct import Builder
from jobspec.spec.yaml.nodes import compose
from jobspec.spec.yaml.wrong_kind import WORDS, binary, mistaken
from jobspec.words import did_you_mean, some

MAX_BYTES = 4 * 1024 * 1024  # ours; a spec has a few kilobytes
MOST_NAMED = 8  # files that a message names


@dataclass(frozen=True)
class Document:
    """The data of one file as written, the positions of its values, and the findings about its YAML."""

    data: dict[str, Any]
    text: str
    positions: Positions
    findings: tuple[Finding, ...] = field(default=())


def _files_there(path: FilePath) -> str:
    """The fix for a missing file: a similar name, or the files that are there."""
    if str(path) == "-":
        return "name `/dev/stdin` to read standard input"
    if not path.parent.is_dir():
        return f"check the path: there is no folder `{path.parent}`"
    names = _specs_in(path.parent)
    return did_you_mean(path.name, names) or (
        f"name one of the files there: {some(names, MOST_NAMED)}" if names else "check the path"
    )


def _specs_in(folder: FilePath) -> list[str]:
    try:
        return sorted(item.name for item in folder.glob("*.y*ml") if not item.name.startswith("."))
    except OSError:
        return []  # a folder that this user may enter but not list


def _without_waiting(path: str, flags: int) -> int:
    """Open a pipe as `<(command)` gives it; one into which nobody writes is empty."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def read_text(path: FilePath, kind: Kind) -> str:
    """The text of a file, without a byte order mark.

    Raises: JobspecError with rule `spec.file` when there is no such file, it is too large, or not UTF-8.
    """
    name, word = str(path), WORDS[kind]
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise fail("spec.file", "there is no such file", fix=_files_there(path), file=name) from None
    except IsADirectoryError:
        raise fail(
            "spec.file",
            f"this is a directory, and a {word} is a file",
            fix="name a `.yaml` file in it"
            + (f": {some(names, MOST_NAMED)}" if (names := _specs_in(path)) else ""),
            file=name,
        ) from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise fail(
            "spec.file",
            f"the file cannot be read: {reason.lower()}",
            fix="check its path and permissions",
            file=name,
        ) from problem
    return decode(raw, name, kind)


def decode(raw: bytes, name: str, kind: Kind = "job") -> str:
    """UTF-8 text without a byte order mark. Raises: JobspecError at the first wrong byte, or too many."""
    if len(raw) > MAX_BYTES:
        what = f"the file is larger than {MAX_BYTES >> 20} MiB"
        raise fail("spec.file", what, fix=f"name a {WORDS[kind]}", file=name)
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise fail("spec.encoding", "the file is UTF-16", fix="save it as UTF-8", file=name, line=1, column=1)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        if b"\0" in raw:
            raise JobspecError(binary(kind, name)) from problem
        start = problem.start + (len(codecs.BOM_UTF8) if raw.startswith(codecs.BOM_UTF8) else 0)
        before = raw[:start].decode("utf-8-sig", "replace")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        what = f"byte 0x{raw[start]:02X} is not UTF-8"
        raise fail(
            "spec.encoding", what, fix="save the file as UTF-8", file=name, line=line, column=column
        ) from problem


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings from the top of the file to its end, as an editor lists them."""
    return tuple(sorted(findings, key=lambda finding: (finding.line, finding.column)))


def parse_document(text: str, name: str, kind: Kind) -> Document:
    """The document in `text`, typed by the schema of `kind`.

    Raises: JobspecError when the text holds no mapping: a syntax error, an empty file.
    """
    text = text.removeprefix("\ufeff")
    root = compose(text, name)
    if root is None:
        fix = "start from `jobspec init`" if kind == "job" else "see docs/sites.md"
        raise JobspecError(error("spec.empty", "the file is empty", fix=fix, file=name, line=1, column=1))
    builder = Builder(name)
    data = builder.build(root, root_shape(kind))
    positions = Positions(name, builder.values, builder.keys)
    if not isinstance(data, dict):
        line, column = positions.at(())
        if builder.findings:
            raise JobspecError(*builder.findings)
        what = f"a {WORDS[kind]} is a mapping of keys to values"
        raise fail("spec.top", what, fix="start with `version: 1`", file=name, line=line, column=column)
    wrong_file = mistaken(data, kind, name)
    if wrong_file is not None:
        raise JobspecError(wrong_file)
    return Document(data, text, positions, tuple(builder.findings))
