"""References: what they become, and what is never expanded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from jobspec.finding import JobspecError
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.interpolate import escape, expand_cluster, unescape
from jobspec.spec.load import interpolate_cluster, parse_spec
from tests.kits.strategies import texts

HEAD = "version: 1\nname: x\nframework: verl\n"
SITE = """\
version: 1
name: site
paths: {runs: /shared/runs, scratch: "/s/${user}"}
node: {gpus: 8}
"""
ENV = {
    "USER": "alice",
    "STEPS": "12",
    "TRICK": "${cluster:runs} $${x} ${env:USER}",
    "OCT": "010",
    "FLAG": "true",
}


def load(body: str) -> Any:
    return parse_spec(HEAD + body, env=ENV)


def test_env_gets_the_type_that_the_key_wants() -> None:
    spec = load(
        'train: {steps: "${env:STEPS}"}\nlaunch: {hold: "${env:FLAG}"}\ncontainer: {env: {A: "${env:STEPS}"}}'
    ).spec
    assert (spec.train.steps, spec.launch.hold, spec.container.env) == (12, True, {"A": "12"})


def test_inside_a_text_it_becomes_text() -> None:
    spec = load(
        'container: {workdir: "/${env:USER}/${spec:train.steps}/${spec:launch.hold}"}\ntrain: {steps: 3}'
    ).spec
    assert spec.container.workdir == "/alice/3/false"


def test_spec_reference_keeps_the_type_and_knows_defaults() -> None:
    spec = load(
        'train: {parallel: {tp: 4}, overrides: {a: "${spec:train.parallel}", b: "${spec:train.parallel.pp}"}}'
    ).spec
    assert spec.train.overrides == {"a": {"tp": 4}, "b": 1}


def test_spec_reference_to_a_key_with_dots() -> None:
    spec = load('train: {overrides: {a.b: 4, c: "${spec:train.overrides.a.b}"}}').spec
    assert spec.train.overrides["c"] == 4


def test_chains_are_followed() -> None:
    spec = load(
        "container: {workdir: '${spec:container.python}/w', python: '${spec:container.image}/p', image: i}"
    ).spec
    assert spec.container.workdir == "i/p/w"


def test_nothing_is_expanded_twice() -> None:
    cluster = parse_cluster(SITE, Path("site.yaml"), env=ENV)
    loaded = interpolate_cluster(load('container: {workdir: "${env:TRICK}"}'), cluster.profile)
    assert loaded.spec.container.workdir == ENV["TRICK"]
    assert interpolate_cluster(loaded, cluster.profile) is loaded


def test_cluster_keys() -> None:
    cluster = parse_cluster(SITE, Path("site.yaml"), env=ENV)
    body = (
        'container: {workdir: "${cluster:scratch}", env: {A: "${cluster:node.gpus}", B: "$${cluster:runs}"}}'
    )
    spec = interpolate_cluster(load(body), cluster.profile).spec
    assert spec.container.workdir == "/s/alice"
    assert spec.container.env == {"A": "8", "B": "${cluster:runs}"}


def test_cluster_keys_that_are_not_there_are_all_named() -> None:
    cluster = parse_cluster(SITE, Path("site.yaml"), env=ENV)
    body = (
        'container: {workdir: "${cluster:hf_home}", image: "${cluster:skratch}", python: "${cluster:node}"}'
    )
    with pytest.raises(JobspecError) as caught:
        interpolate_cluster(load(body), cluster.profile)
    found = {f.path: f for f in caught.value.findings}
    assert {f.rule for f in found.values()} == {"spec.cluster"}
    assert "paths.hf_home" in found["container.workdir"].what
    assert "did you mean `scratch`" in found["container.image"].fix
    assert found["container.python"].line == 4


def test_a_profile_value_is_validated() -> None:
    cluster = parse_cluster(SITE.replace("/shared/runs", "/shared/runs"), Path("site.yaml"), env=ENV)
    loaded = load('container: {mounts: [{source: "${cluster:runs}", target: /r}]}')
    assert interpolate_cluster(loaded, cluster.profile).spec.container.mounts[0].source == "/shared/runs"


def test_user_notes_are_left_alone() -> None:
    assert load('user: {note: "${HOME} and ${what"}').data["user"] == {"note": "${HOME} and ${what"}


BAD: list[tuple[str, str, str]] = [
    ("container: {workdir: '${HOME}'}", "spec.reference", "`$${`"),
    ("container: {workdir: '${repo:code}/t.py'}", "spec.reference", "checkout `code` by its path in it"),
    ("container: {workdir: '${env:STEPS'}", "spec.reference", "not closed"),
    ("container: {workdir: 'a ${'}", "spec.reference", "not closed"),
    ("container: {workdir: '${}'}", "spec.reference", "none of"),
    ("container: {workdir: '${env:}'}", "spec.reference", "none of"),
    ("container: {workdir: '${envv:A}'}", "spec.reference", "did you mean `env`"),
    ("container: {workdir: '${env:A B}'}", "spec.reference", "name of an environment variable"),
    ("container: {workdir: '${env:STEPZ}'}", "spec.env", "did you mean `STEPS`"),
    ("container: {workdir: '${env:NOWHERE}'}", "spec.env", "export NOWHERE"),
    ("container: {workdir: '${spec:}'}", "spec.reference", "none of"),
    ("container: {workdir: '${spec:a..b}'}", "spec.reference", "not a path"),
    ("container: {workdir: '${spec:container.imag}'}", "spec.reference", "did you mean `image`"),
    ("container: {workdir: '${spec:container.image}'}", "spec.reference", "not set"),
    (
        "container: {workdir: 'x${spec:train.parallel}'}\ntrain: {parallel: {tp: 2}}",
        "spec.reference",
        "inside a text",
    ),
    ("container: {workdir: '${spec:container.workdir}'}", "spec.cycle", "refers to itself"),
    ("container: {workdir: '${spec:container}'}", "spec.cycle", "refers to itself"),
    ("train: {steps: '${env:USER}'}", "spec.type", "whole number"),
    ("train: {steps: '${env:OCT}'}", "spec.number", "octal"),
    ("train: {steps: '${cluster:node.gpus}'}", "spec.type", "only allowed where text"),
    ("resources: {memory: '${cluster:node.memory}'}", "spec.format", "${cluster:...}"),
    ("container: {workdir: '${env:HF_TOKEN}'}", "spec.secret", "`secrets`"),
    ("container: {workdir: '${env:STEPS}'}\nsecrets: [STEPS]", "spec.secret", "`secrets`"),
]


@pytest.mark.parametrize(("body", "rule", "words"), BAD)
def test_bad_reference(body: str, rule: str, words: str) -> None:
    with pytest.raises(JobspecError) as caught:
        load(body)
    (found,) = caught.value.findings
    assert (found.rule, found.line) == (rule, 4)
    assert words in found.text()


def test_a_cycle_of_two_ends() -> None:
    with pytest.raises(JobspecError) as caught:
        load("container: {workdir: '${spec:container.image}', image: '${spec:container.workdir}'}")
    assert {f.rule for f in caught.value.findings} == {"spec.cycle"}


@pytest.mark.parametrize("pattern", ["'{0}{0}{0}{0}'", "['{0}', '{0}', '{0}', '{0}']"])
def test_references_that_multiply_are_bounded(pattern: str) -> None:
    rows = ["    a0: " + "x" * 100]
    rows += [f"    a{i}: " + pattern.format(f"${{spec:train.overrides.a{i - 1}}}") for i in range(1, 30)]
    with pytest.raises(JobspecError) as caught:
        load("train:\n  overrides:\n" + "\n".join(rows))
    assert {found.rule for found in caught.value.findings} == {"spec.reference"}
    assert "multiply" in caught.value.findings[0].why


def test_value_of_a_variable_must_be_text() -> None:
    with pytest.raises(JobspecError) as caught:
        parse_spec(HEAD + "container: {workdir: '${env:A}'}", env={"A": "\udcff"})
    assert caught.value.findings[0].rule == "spec.env"


@given(texts)
def test_escape_is_undone(text: str) -> None:
    assert unescape(escape(text)) == text
    assert expand_cluster(escape(text), lambda key: "never") == text
