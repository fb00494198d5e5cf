"""Every YAML trap has one right outcome, with its position and what to write."""

from __future__ import annotations

from typing import Any

import pytest

from jobspec.finding import Finding, JobspecError
from jobspec.spec.load import LoadedSpec, parse_spec
from jobspec.spec.paths import lookup, parse_path

HEAD = "version: 1\nname: x\nframework: command\ntrain: {command: [a]}\n"  # four lines; cases start in line 5


def findings_of(text: str) -> list[Finding]:
    with pytest.raises(JobspecError) as caught:
        parse_spec(text, env={})
    return caught.value.findings


def load(text: str) -> LoadedSpec:
    return parse_spec(text, env={})


# -- what a plain scalar becomes

BECOMES: list[tuple[str, str, Any, bool]] = [
    # text, path, value, warned about
    ("resources: {time: 4:00:00}", "resources.time", "4:00:00", True),
    ("resources: {time: 04:00:00}", "resources.time", "04:00:00", False),
    ('resources: {time: "4:00:00"}', "resources.time", "4:00:00", False),
    ("resources: {time: 90}", "resources.time", "90", True),
    ("resources: {memory: 1e3}", "resources.memory", None, True),
    ("resources: {exclusive: true}", "resources.exclusive", True, False),
    ("resources: {exclusive: False}", "resources.exclusive", False, False),
    ("resources: {nodes: 1e1}", "resources.nodes", 10, False),
    ("resources: {nodes: 0x10}", "resources.nodes", 16, False),
    ("resources: {nodes: 0o10}", "resources.nodes", 8, False),
    ("metrics: {learning: {metric: m, min_change: 1e-6}}", "metrics.learning.min_change", 1e-6, False),
    ("container: {env: {A: NO}}", "container.env.A", "NO", True),
    ("container: {env: {A: 'NO'}}", "container.env.A", "NO", False),
    ("container: {env: {A: 010}}", "container.env.A", "010", True),
    ("container: {env: {A: 1.10}}", "container.env.A", "1.10", True),
    ("container: {env: {A: 1_000}}", "container.env.A", "1_000", True),
    ("container: {env: {A: .inf}}", "container.env.A", ".inf", True),
    ("container: {env: {A: 2024-01-01}}", "container.env.A", "2024-01-01", False),
    ("container: {env: {A: y}}", "container.env.A", "y", False),
    ("container: {workdir: ~}", "container.workdir", None, False),
    ("repos: [{name: r, path: /r, ref: 0012345}]", "repos[0].ref", "0012345", True),
    ("repos: [{name: r, path: /r, ref: 12e4567}]", "repos[0].ref", "12e4567", True),
    ("launch: {mode: !!str ray}", "launch.mode", "ray", False),
    ("user: {a: yes}", "user.a", "yes", True),
    ("user: {a: 190:20:30}", "user.a", "190:20:30", True),
    ("user: {a: 1e3}", "user.a", 1000.0, False),
    ("user: {a: 12}", "user.a", 12, False),
    ("user: {on: 1}", "user.on", 1, False),
    ("user: {1: 1}", "user.'1'", 1, False),
    ("sweep: {grid: {resources.time: [4:00:00]}}", "sweep.grid.'resources.time'[0]", "4:00:00", True),
    ("sweep: {grid: {model.revision: [0012345]}}", "sweep.grid.'model.revision'[0]", "0012345", True),
    ("sweep: {grid: {train.steps: [1e2]}}", "sweep.grid.'train.steps'[0]", 100, False),
]


@pytest.mark.parametrize(
    ("text", "path", "value", "warned"), [case for case in BECOMES if case[2] is not None]
)
def test_plain_scalar_becomes(text: str, path: str, value: Any, warned: bool) -> None:
    loaded = load(HEAD + text)
    found = lookup(loaded.data, parse_path(path))
    assert (found, type(found)) == (value, type(value))
    assert [(f.rule, f.severity, f.line) for f in loaded.findings] == [
        ("spec.unquoted", "warning", 5)
    ] * warned


def test_null_of_an_optional_key_is_its_default() -> None:
    assert load(HEAD + "container: {workdir: ~}").spec.container.workdir is None


# -- what is refused

REFUSED: list[tuple[str, str, int, int, str, str]] = [
    # case, rule, line, column, words in `what`, words in `fix`
    ("resources: {exclusive: yes}", "spec.type", 5, 24, "yes", "write `true`"),
    ("resources: {exclusive: NO}", "spec.type", 5, 24, "NO", "write `false`"),
    ("resources: {exclusive: 1}", "spec.type", 5, 24, "`1` is a number", "true"),
    ("resources: {exclusive: 'true'}", "spec.type", 5, 24, "text", "without quotes"),
    ("resources: {nodes: 010}", "spec.number", 5, 20, "octal", "write `10`"),
    ("user: {a: 010}", "spec.number", 5, 11, "octal", "quote"),
    ("user: {a: -007}", "spec.number", 5, 11, "octal", "write `7`"),
    ("resources: {nodes: 1_000}", "spec.type", 5, 20, "1_000", "write `1000`"),
    ("resources: {nodes: '8'}", "spec.type", 5, 20, '"8"', "without quotes"),
    ("resources: {nodes: 1.5}", "spec.type", 5, 20, "fraction", "whole number"),
    ("resources: {nodes: true}", "spec.type", 5, 20, "boolean", "whole number"),
    ("resources: {nodes: 0}", "spec.range", 5, 20, "less than 1", "1 or more"),
    ("resources: {nodes: .nan}", "spec.number", 5, 20, "finite", "leave"),
    ("user: {a: -.inf}", "spec.number", 5, 11, "finite", "quote"),
    ("user: {a: 1e999}", "spec.number", 5, 11, "out of range", "smaller"),
    (f"user: {{a: {'9' * 5000}}}", "spec.number", 5, 11, "out of range", "quote"),
    ("container: {env: {A: true}}", "spec.not-text", 5, 22, "boolean", '`"true"`'),
    ("container: {env: {A: null}}", "spec.not-text", 5, 22, "null", '`""`'),
    ("container: {env: {A: }}", "spec.not-text", 5, 22, "nothing", '`""`'),
    ("container: {env: {A: [1]}}", "spec.type", 5, 22, "list", "text"),
    ("container: {env: {a-b: x}}", "spec.format", 5, 19, "a-b", "NCCL_DEBUG"),
    ("train: {steps: 3}", "spec.duplicate-key", 5, 1, "`train` is given twice", "remove"),
    ("user:\n  a: 1\n  a: 2", "spec.duplicate-key", 7, 3, "`a`", "remove"),
    ("user: {a: &a {x: 1}, b: {<<: *a, x: 2}}", "spec.merge", 5, 26, "`x`", "remove `x`"),
    ("user: {a: &a {x: 1}, b: &b {x: 2}, c: {<<: [*a, *b]}}", "spec.merge", 5, 40, "`x`", "remove `x`"),
    ("user: {<<: 3}", "spec.merge", 5, 12, "needs a mapping", "anchor"),
    ("user: &u {<<: *u}", "spec.alias", 5, 11, "into itself", "write the keys out"),
    ("user: &u {x: *u}", "spec.alias", 5, 7, "contains it", "write the value out"),
    ("user: {a: !!python/object/apply:os.system [id]}", "spec.tag", 5, 11, "!!python", "remove the tag"),
    ("user: {a: !!int '3'}", "spec.tag", 5, 11, "!!int", "remove the tag"),
    ("user: !x {a: b}", "spec.tag", 5, 7, "!x", "remove the tag"),
    ("user: {[a]: b}", "spec.key", 5, 8, "list", "key: value"),
    ("user: {~: b}", "spec.key", 5, 8, "missing", "null"),
    ('user: {a: "x\\0y"}', "spec.characters", 5, 11, "NUL", "remove"),
    ('user: {"a\\0": y}', "spec.characters", 5, 8, "NUL", "remove"),
    ("user: {a: x\x07y}", "spec.characters", 5, 12, "U+0007", "escape"),
    ("launch: {mode: rai}", "spec.choice", 5, 16, "rai", "write `ray`"),
    ("launch: {mode: 3}", "spec.choice", 5, 16, '"3"', "`ray`"),
    ("resources: {time: soon}", "spec.format", 5, 19, "soon", "24:00:00"),
    ("resources: {memory: 5 GB}", "spec.format", 5, 21, "5 GB", "500G"),
    ("secrets: HF_TOKEN", "spec.type", 5, 10, "list is wanted", '["HF_TOKEN"]'),
    ("coverage: {level: 1.5}", "spec.type", 5, 19, "text or a whole number", "text"),
    ("model: 3", "spec.type", 5, 8, "a mapping is wanted", "mapping"),
    ("data: [{name: d}]", "spec.missing", 5, 8, "`source` is missing in `data[0]`", "add `source:"),
]


@pytest.mark.parametrize(("case", "rule", "line", "column", "what", "fix"), REFUSED)
def test_refused(case: str, rule: str, line: int, column: int, what: str, fix: str) -> None:
    errors = [found for found in findings_of(HEAD + case) if found.is_error]
    assert [(f.rule, f.file, f.line, f.column) for f in errors] == [(rule, "<spec>", line, column)]
    assert what in errors[0].what
    assert fix in errors[0].fix


SYNTAX: list[tuple[str, str, int, int, str]] = [
    # text, rule, line, column, words in what, why or fix
    ("", "spec.empty", 1, 1, "jobspec init"),
    ("# nothing\n", "spec.empty", 1, 1, "jobspec init"),
    ("---\n", "spec.top", 2, 1, "mapping"),
    ("- a\n", "spec.top", 1, 1, "mapping"),
    ("text", "spec.top", 1, 1, "mapping"),
    ("a: 1\n---\nb: 2\n", "spec.syntax", 2, 1, "one document"),
    ("a:\n\tb: 1\n", "spec.tab", 2, 1, "spaces"),
    ("version: 1\n\tname: x\n", "spec.tab", 2, 1, "spaces"),
    ("a:\n  b: 1\n  \tc: 1\n", "spec.tab", 3, 3, "spaces"),
    ("a: [1, 2\nb: 3\n", "spec.syntax", 2, 2, "not closed"),
    ("a: {b: 2\nb: 3\n", "spec.syntax", 2, 2, "not closed"),
    ('a: "x\nb: 2\n', "spec.syntax", 3, 1, "quote is not closed"),
    ("a: b: c\n", "spec.syntax", 1, 5, "quote the value"),
    ("a: *.log\n", "spec.syntax", 1, 5, "glob"),
    ("a: *log\n", "spec.syntax", 1, 4, "glob"),
    ("a: @x\n", "spec.syntax", 1, 4, "`@`"),
    ("a: `x`\n", "spec.syntax", 1, 4, "backtick"),
    ("a: {x: ${env:Y}}\n", "spec.syntax", 1, 9, '"${...}"'),
    (" a: 1\nb: 2\n", "spec.syntax", 2, 1, "same column"),
    ("a:\n  - 1\n - 2\n", "spec.syntax", 3, 2, "same column"),
    ("a: " + "[" * 100, "spec.syntax", 1, 62, "nested deeper"),
    ("a: " + "{b: " * 2000, "spec.syntax", 1, 0, "nested deeper"),
]


@pytest.mark.parametrize(("text", "rule", "line", "column", "words"), SYNTAX)
def test_syntax(text: str, rule: str, line: int, column: int, words: str) -> None:
    findings = findings_of(text)
    assert [(f.rule, f.line) for f in findings] == [(rule, line)]
    assert column in (0, findings[0].column)
    assert words in findings[0].text()


def test_every_tab_is_named() -> None:
    assert [f.line for f in findings_of("a:\n\tb: 1\n\tc: 1\n")] == [2, 3]


def test_alias_bomb_ends_with_one_finding() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert [f.rule for f in findings_of("\n".join(rows))] == ["spec.alias"]


@pytest.mark.parametrize("more", ["", "\ny: &y x\nz: *y"])
def test_file_with_too_many_values_does_not_blame_aliases(more: str) -> None:
    rows = "\n".join(f"key{i}: {i}" for i in range(200_000))
    (finding,) = findings_of(rows + more)
    assert (finding.rule, finding.what) == ("spec.size", "the file has more than 100000 values")


def test_merge_bomb_ends_with_a_finding() -> None:
    rows = ["a0: &a0 {k: v}"]
    rows += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 12)]
    assert "spec.alias" in {f.rule for f in findings_of("\n".join(rows))}


def test_merge_without_conflict() -> None:
    loaded = load(HEAD + "user: {a: &a {x: 1}, b: {<<: *a, y: 2}, c: {'<<': 3}}")
    assert loaded.data["user"] == {"a": {"x": 1}, "b": {"y": 2, "x": 1}, "c": {"<<": 3}}


def test_every_error_of_a_file_at_once() -> None:
    text = """\
version: 1
name: bad name
framework: command
resources: {nodes: many, exclusive: yes}
repos:
  - {name: r}
  - {name: r, path: /x}
nodez: 3
train: {steps: 0}
train: {steps: 1}
container: {env: {A: true, HF_TOKEN: x}}
"""
    found = {(f.rule, f.line, f.column) for f in findings_of(text)}
    assert found == {
        ("spec.format", 2, 7),
        ("spec.type", 4, 20),
        ("spec.type", 4, 37),
        ("spec.repo-source", 6, 5),
        ("spec.duplicate-name", 7, 5),
        ("spec.unknown-key", 8, 1),
        ("spec.range", 9, 16),
        ("spec.command", 9, 8),
        ("spec.duplicate-key", 10, 1),
        ("spec.not-text", 11, 22),
        ("spec.secret", 11, 38),
    }


def test_findings_come_in_the_order_of_the_file() -> None:
    text = HEAD + "zzz: 1\ncontainer: {env: {A: true, HF_TOKEN: x}}\nnodes: 3\nresources: {nodes: 0}\n"
    places = [(f.line, f.column) for f in findings_of(text)]
    assert places == sorted(places)
    assert len(places) == 5
