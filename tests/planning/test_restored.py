"""Locks as another place needs them, and what odd ones cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobspec.planning.relocated import of_site, relocated
from jobspec.planning.restored import restorable
from jobspec.spec.load import LoadedSpec, parse_spec
from jobspec.spec.yaml.dump import dump_spec

COMMIT = "a" * 40


def lock(tmp_path: Path, facts: Any, **more: Any) -> LoadedSpec:
    data = {
        "version": 1,
        "name": "x",
        "framework": "command",
        "train": {"command": ["x"]},
        **more,
        "lock": facts,
    }
    return parse_spec(dump_spec(data), str(tmp_path / "spec.lock.yaml"), env={})


def test_folders_that_lie_elsewhere_now_are_named_so_everywhere(tmp_path: Path) -> None:
    command = [
        "cd /src/lib && python x.py --out=/src/lib/out:/src/lib2",
        "/src/lib",
        "/x/src/lib",
        "/src/lib.old",
    ]
    repos = [{"name": "lib", "path": "/src/lib"}, {"name": "two", "path": "/src/lib2"}]
    loaded = lock(tmp_path, {"jobspec": "/src/lib"}, repos=repos, train={"command": command})
    found = relocated(loaded, {"/src/lib": "/new"}, ())
    assert found.spec.train.command == (
        "cd /new && python x.py --out=/new/out:/src/lib2",
        "/new",
        "/x/src/lib",
        "/src/lib.old",
    )
    assert [repo.path for repo in found.spec.repos] == ["/new", "/src/lib2"]
    assert found.data["lock"] == {"jobspec": "/src/lib"}
    assert relocated(loaded, {}, ()) is loaded


def test_values_of_a_site_are_as_the_spec_had_them(tmp_path: Path) -> None:
    given = {"hf_cache.home": None, "checkpoint.dir": "$${cluster:runs}/c", "container.python": None}
    more = {
        "hf_cache": {"home": "/a/hf"},
        "checkpoint": {"dir": "/a/runs/c"},
        "container": {"python": "/a/python"},
    }
    loaded = lock(tmp_path, {"of_site": given}, **more)
    assert set(of_site(loaded.raw)) == set(given)
    found = relocated(loaded, {}, ("hf_cache.home", "checkpoint.dir"))
    assert (found.spec.hf_cache.home, found.spec.container.python) == (None, "/a/python")
    assert found.data["checkpoint"]["dir"] == "${cluster:runs}/c"


@pytest.mark.parametrize("odd", [None, 3, [], "x", {"": 1}, {"a..b": 1}, {"[": None}])
def test_odd_values_of_a_site_are_left_alone(odd: Any, tmp_path: Path) -> None:
    assert of_site(lock(tmp_path, {"of_site": odd}).raw) == {}


@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        ({}, "it has no `origin`, and no bundle of its commits was saved"),
        ({"url": "https://h.example/x"}, ""),
        ({"url": "https://h.example/x", "patch": "p.diff", "patch_sha256": "0"}, "p.diff` is not there"),
        ({"bundle": 3, "bundle_sha256": ["x"]}, "3` is not there"),
        ({"url": "https://h.example/x", "inside": "../../etc"}, "is no place in a repository"),
        ({"url": "https://h.example/x", "inside": "/etc"}, "is no place in a repository"),
    ],
)
def test_what_a_checkout_can_be_made_of(change: dict[str, Any], lacks: str, tmp_path: Path) -> None:
    repos = [{"name": "lib", "path": f"{tmp_path}/gone"}]
    (item,) = restorable(
        lock(tmp_path, {"repos": {"lib": {"commit": COMMIT, **change}}}, repos=repos), str(tmp_path)
    )
    assert item.why == f"`{tmp_path}/gone` is gone"
    assert item.lacks == lacks or (lacks and lacks in item.lacks)


@pytest.mark.parametrize(
    "repos", [None, [], "x", {"lib": None}, {"lib": {"commit": "main"}}, {"other": {"commit": COMMIT}}]
)
def test_without_a_commit_nothing_is_made(repos: Any, tmp_path: Path) -> None:
    named = [{"name": "lib", "path": f"{tmp_path}/gone"}]
    assert restorable(lock(tmp_path, {"repos": repos}, repos=named), str(tmp_path)) == ()
