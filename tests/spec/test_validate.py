"""msgspec decides and jsonschema explains: they must never disagree, and the explanation must help."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.spec.job import JobSpec
from jobspec.spec.paths import Positions, leaves, with_value, without
from jobspec.spec.schema import Kind, root_shape, walk
from jobspec.spec.site import ClusterProfile
from jobspec.spec.validate import PATTERN_WORDS, convert, explain
from tests.kits.strategies import scalars, specs, texts

PLACE = Positions("<data>").place
MODELS: dict[Kind, Any] = {"job": JobSpec, "cluster": ClusterProfile}


def agree(data: Any, kind: Kind) -> bool:
    """Whether the data is valid; fails when the two validators differ."""
    accepted = convert(data, MODELS[kind]) is not None
    findings = explain(data, kind, PLACE)
    assert accepted == (not findings), findings
    return accepted


@given(specs())
def test_valid_specs(data: dict[str, Any]) -> None:
    assert agree(data, "job")


@st.composite
def broken_specs(draw: st.DrawFn) -> dict[str, Any]:
    """A valid spec with some places changed at random: other types, keys gone, keys added."""
    data: Any = draw(specs())
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([path for path, _ in leaves(data)] or [("name",)]))
        cut = path[: draw(st.integers(1, len(path)))]
        change = draw(st.sampled_from(["value", "remove", "add", "list"]))
        if change == "value":
            data = with_value(data, cut, draw(scalars))
        elif change == "remove":
            data = without(data, cut)
        elif change == "add":
            data = with_value(data, (*cut[:-1], draw(texts)), draw(scalars))
        else:
            data = with_value(data, cut, [draw(scalars)])
        if not isinstance(data, dict) or not data:
            return {}
    return dict(data)


@given(broken_specs())
def test_broken_specs(data: dict[str, Any]) -> None:
    agree(data, "job")


KEYS = [(kind, path) for kind in ("job", "cluster") for path, _ in walk(root_shape(kind))]
ODD_VALUES = [
    None,
    True,
    0,
    -1,
    1,
    70_000,
    1.0,
    1.5,
    "",
    "x",
    "10",
    "bad name!",
    "x\n",
    [],
    ["x"],
    [1],
    {},
    {"x": 1},
    {"a b": "x"},
]
HEAD: dict[Kind, dict[str, Any]] = {
    "job": {
        "version": 1, "name": "x", "framework": "trl",
        "container": {"mounts": [{"source": "/a", "target": "/b"}]},
        "repos": [{"name": "r", "prove": {"import": "m"}}], "data": [{"name": "d", "source": "s"}],
        "metrics": {"learning": {"metric": "m"}}, "model": {}, "mcore_helpers": {}, "sweep": {},
        "pipelines": [{"name": "p", "config": "c", "train_gpus": [0]}],
    },
    "cluster": {"version": 1, "name": "x"},
}  # fmt: skip


@pytest.mark.parametrize("value", ODD_VALUES, ids=repr)
@pytest.mark.parametrize("kind", ["job", "cluster"])
def test_odd_value_at_every_key(kind: Kind, value: Any) -> None:
    for path in [path for of, path in KEYS if of == kind]:
        data = with_value(copy.deepcopy(HEAD[kind]), path, value)
        agree(data, kind)


@pytest.mark.parametrize("kind", ["job", "cluster"])
def test_every_finding_says_what_to_do(kind: Kind) -> None:
    for path in [path for of, path in KEYS if of == kind]:
        for value in ODD_VALUES:
            for found in explain(with_value(copy.deepcopy(HEAD[kind]), path, value), kind, PLACE):
                assert found.what and found.fix and found.path, found
                assert not found.what.endswith("."), found
                assert "anyOf" not in found.text() and "schema" not in found.text(), found


def test_every_pattern_has_words() -> None:
    used = {
        str(shape.node["pattern"])
        for kind in ("job", "cluster")
        for _, shape in walk(root_shape(kind))
        if "pattern" in shape.node
    }
    assert used <= set(PATTERN_WORDS)


@pytest.mark.parametrize(
    ("data", "fix"),
    [
        ({"nmae": "x"}, "did you mean `name`?"),
        ({"Name": "x"}, "did you mean `name`?"),
        ({"nodes": 3}, "did you mean `resources.nodes`?"),
        ({"image": "x"}, "did you mean `container.image`?"),
        ({"resources": {"gpus-per-node": 3}}, "did you mean `gpus_per_node`?"),
        ({"resources": {"image": 3}}, "did you mean `container.image`?"),
        ({"zzz": 3}, "remove it, or put your own notes below `user`"),
        ({"resources": {"zzz": 3}}, "remove it, or put your own notes below `user`"),
    ],
)
def test_unknown_key(data: dict[str, Any], fix: str) -> None:
    findings = explain({"version": 1, "name": "x", "framework": "y", **data}, "job", PLACE)
    assert [(f.rule, f.fix) for f in findings] == [("spec.unknown-key", fix)]


@pytest.mark.parametrize(
    ("version", "fix"),
    [(2, "install a newer jobspec"), (0, "write `version: 1`"), ("1", "write `version: 1`")],
)
def test_version(version: Any, fix: str) -> None:
    findings = explain({"version": version, "name": "x", "framework": "y"}, "job", PLACE)
    assert [(f.rule, f.fix) for f in findings] == [("spec.version", fix)]


def test_missing_keys_say_what_they_are_for() -> None:
    findings = explain({}, "job", PLACE)
    assert sorted(f.what for f in findings) == [
        "`framework` is missing",
        "`name` is missing",
        "`version` is missing",
    ]
    assert {f.fix for f in findings} >= {"add `version: 1`"}
    assert all(f.why for f in findings)


FIRST_USE = """
import sys, threading
from jobspec.spec.job import JobSpec
from jobspec.spec.validate import convert
sys.setswitchinterval(1e-6)
data = {"version": 1, "name": "a", "framework": "command", "train": {"command": ["true"]}}
start = threading.Barrier(8)
def load():
    start.wait()
    assert convert(data, JobSpec).name == "a"
threads = [threading.Thread(target=load) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_threads_may_load_the_first_spec_together() -> None:
    """msgspec 0.22 crashes the process in three of twenty such starts without the lock."""
    for _ in range(10):
        done = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
