"""`--set KEY=VALUE`: the place it goes to and the type it gets."""

from __future__ import annotations

from typing import Any

import pytest

from jobspec.finding import JobspecError
from jobspec.spec.load import parse_spec
from jobspec.spec.paths import lookup, parse_path

SPEC = """\
version: 1
name: demo
framework: verl
resources: {nodes: 2, time: "1:00:00"}
repos: [{name: a, path: /a}]
train:
  steps: 10
  overrides: {nested: {inner: {x: 1}}, flat.key: 1}
user: {list: [1, 2]}
"""

GOOD: list[tuple[str, str, Any]] = [
    ("train.steps=5", "train.steps", 5),
    ("train.steps=1e2", "train.steps", 100),
    ("resources.time=24:00:00", "resources.time", "24:00:00"),
    ("resources.time=90", "resources.time", "90"),
    ("name=1", "name", "1"),
    ("name=true", "name", "true"),
    ("name='quoted'", "name", "quoted"),
    ('name="q"', "name", "q"),
    ("coverage.level=2", "coverage.level", 2),
    ("coverage.level=smoke", "coverage.level", "smoke"),
    ("--level learning", "coverage.level", "learning"),
    ("--level a=b", "coverage.level", "a=b"),
    ("resources.exclusive=true", "resources.exclusive", True),
    ("container.workdir=/a b: c #d", "container.workdir", "/a b: c #d"),
    ("container.workdir={x", "container.workdir", "{x"),
    ("container.workdir=a=b", "container.workdir", "a=b"),
    ("container.env.A=1", "container.env.A", "1"),
    ("container.env.A=no", "container.env.A", "no"),
    ("container.env={A: '1', B: x}", "container.env.B", "x"),
    ("repos[0].ref=0012345", "repos[0].ref", "0012345"),
    ("repos.0.ref=main", "repos[0].ref", "main"),
    ("repos[1]={name: b, path: /b}", "repos[1].name", "b"),
    ("coverage.variants=[a, b]", "coverage.variants", ["a", "b"]),
    ("coverage.variants[0]=a", "coverage.variants[0]", "a"),
    ("model.id=Qwen/Qwen3-0.6B", "model.id", "Qwen/Qwen3-0.6B"),
    ("train.overrides.trainer.batch=4", "train.overrides.'trainer.batch'", 4),
    ("train.overrides.'trainer.batch'=4", "train.overrides.'trainer.batch'", 4),
    ('train.overrides."a=b"=4', "train.overrides.'a=b'", 4),
    ("train.overrides.flat.key=2", "train.overrides.'flat.key'", 2),
    ("train.overrides.nested.inner.x=2", "train.overrides.nested.inner.x", 2),
    ("train.overrides.nested.inner.y.z=2", "train.overrides.nested.inner.'y.z'", 2),
    ("train.overrides.x=[1, {a: b}]", "train.overrides.x", [1, {"a": "b"}]),
    ("train.overrides.x=null", "train.overrides.x", None),
    ("train.overrides.x=1e-6", "train.overrides.x", 1e-6),
    ("train.overrides.x=4:00", "train.overrides.x", "4:00"),
    ("train.overrides.x=''", "train.overrides.x", ""),
    ("container.workdir=''", "container.workdir", ""),
    ("train.overrides.+new=1", "train.overrides.+new", 1),
    ("user.list[2]=3", "user.list", [1, 2, 3]),
    ("user.list[0]=3", "user.list", [3, 2]),
]


@pytest.mark.parametrize(("argument", "path", "value"), GOOD)
def test_set(argument: str, path: str, value: Any) -> None:
    loaded = parse_spec(SPEC, sets=[argument], env={})
    found = lookup(loaded.data, parse_path(path))
    assert (found, type(found)) == (value, type(value))
    assert loaded.findings == ()


UNSET = ["resources.time=null", "resources.time=~", "~resources.time", "~ resources.time"]


@pytest.mark.parametrize("argument", UNSET)
def test_unset(argument: str) -> None:
    loaded = parse_spec(SPEC, sets=[argument], env={})
    assert "time" not in loaded.data["resources"]
    assert loaded.spec.resources.time is None


def test_unset_of_an_override() -> None:
    loaded = parse_spec(SPEC, sets=["~train.overrides.flat.key", "~train.overrides.nested"], env={})
    assert loaded.data["train"]["overrides"] == {}


def test_unset_of_what_is_not_there() -> None:
    assert parse_spec(SPEC, sets=["model.id=null"], env={}).spec.model is None


def test_the_last_one_wins_and_others_stay() -> None:
    loaded = parse_spec(SPEC, sets=["train.steps=1", "train.seed=3", "train.steps=2"], env={})
    assert (loaded.spec.train.steps, loaded.spec.train.seed, loaded.spec.resources.nodes) == (2, 3, 2)


def test_a_set_value_may_refer() -> None:
    loaded = parse_spec(
        SPEC,
        sets=["container.workdir=${env:W}/${spec:train.steps}", "train.seed=${env:S}"],
        env={"W": "/w", "S": "7"},
    )
    assert (loaded.spec.container.workdir, loaded.spec.train.seed) == ("/w/10", 7)


def test_a_level_that_is_no_text_is_refused_at_its_option() -> None:
    with pytest.raises(JobspecError) as caught:
        parse_spec(SPEC, sets=["--level caf\udce9"], env={})
    assert [found.file for found in caught.value.findings] == ["--level caf\\udce9"]


BAD: list[tuple[str, str, str]] = [
    ("train.steps", "spec.set", "KEY=VALUE"),
    ("=3", "spec.set", "KEY=VALUE"),
    ("train..steps=3", "spec.set", "column 7"),
    ("train.steps[=3", "spec.set", "column"),
    ("train.stepz=3", "spec.unknown-key", "did you mean `steps`"),
    ("trian.steps=3", "spec.unknown-key", "did you mean `train`"),
    ("nodes=3", "spec.unknown-key", "did you mean `resources.nodes`"),
    ("zzz=3", "spec.unknown-key", "keys of a job spec: version, name"),
    ("train.steps.x=3", "spec.set", "`train.steps`"),
    ("train.steps=many", "spec.type", "whole number"),
    ("train.steps=0", "spec.range", "1 or more"),
    ("train.steps=010", "spec.number", "octal"),
    ("train.steps=[1", "spec.set", "not YAML"),
    ("train.overrides.x={a: 1, a: 2}", "spec.duplicate-key", "twice"),
    ("train.overrides.x=!!python/name:os.system", "spec.tag", "tag"),
    ("resources.exclusive=yes", "spec.type", "write `true`"),
    ("launch.mode=rai", "spec.choice", "`ray`"),
    ("train.steps=", "spec.set", "write `~train.steps` to remove it"),
    ("train.steps= ", "spec.set", "shell variable that is not set"),
    ("train.steps=# none", "spec.set", "given no value"),
    (
        "container.workdir=",
        "spec.set",
        "`container.workdir=''` (quoted for the shell as well) for an empty text",
    ),
    ("train.overrides.flat.key=", "spec.set", "`~train.overrides.flat.key` to remove it"),
    ("~", "spec.set", "not a path"),
    ("~train.stepz", "spec.unknown-key", "did you mean `steps`"),
    ("~train.seed", "spec.set", "the spec does not give `train.seed`"),
    ("~train.overrides.flat.kez", "spec.set", "did you mean `flat.key`"),
    ("~train.overrides.nested.inner.y", "spec.set", "the spec does not give"),
    ("~user.list[0]", "spec.set", "list item"),
    ("repos[2].ref=x", "spec.set", "too large"),
    ("repos.a.ref=x", "spec.set", "index"),
    ("repos[0]=null", "spec.set", "list item"),
    ("resources.time=soon", "spec.format", "24:00:00"),
    ("container.workdir=a\0b", "spec.characters", "NUL"),
    ("train.overrides.'a\0b'=1", "spec.characters", "NUL"),
    ("train.overrides.x='a\x07b'", "spec.set", "U+0007"),
]


@pytest.mark.parametrize(("argument", "rule", "words"), BAD)
def test_bad_set_names_its_argument(argument: str, rule: str, words: str) -> None:
    with pytest.raises(JobspecError) as caught:
        parse_spec(SPEC, sets=[argument], env={})
    (found,) = caught.value.findings
    assert (found.rule, found.file, found.line) == (rule, f"--set {argument}", 0)
    assert words in found.text()


def test_bytes_that_are_no_text_are_refused_in_printable_form() -> None:
    with pytest.raises(JobspecError) as caught:
        parse_spec(SPEC, sets=["container.workdir=/caf\udce9"], env={})
    (found,) = caught.value.findings
    assert (found.rule, found.text().encode().count(b"udce9")) == ("spec.characters", 1)


def test_bad_sets_are_all_named_with_the_errors_of_the_file() -> None:
    with pytest.raises(JobspecError) as caught:
        parse_spec(SPEC.replace("nodes: 2", "nodes: two"), sets=["train.stepz=1", "train.steps=0"], env={})
    assert [(f.file, f.rule) for f in caught.value.findings] == [
        ("--set train.stepz=1", "spec.unknown-key"),
        ("--set train.steps=0", "spec.range"),
        ("<spec>", "spec.type"),
    ]


def test_a_set_value_mends_the_file() -> None:
    text = SPEC.replace("nodes: 2", "nodes: two")
    assert parse_spec(text, sets=["resources.nodes=3"], env={}).spec.resources.nodes == 3
