"""The user's list of nodes to avoid: kept, ended, shared by processes, and never taken for more than data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from jobspec.finding import JobspecError
from jobspec.runs import avoided
from jobspec.runs.avoided import Avoided

NOW = time.time()
ROW: dict[str, Any] = {"node": "n3", "cluster": "lab", "until": NOW + 3600}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


def entry(node: str = "n3", hours: float = 1, **more: Any) -> Avoided:
    return Avoided(node, more.pop("cluster", "lab"), NOW + 3600 * hours, **more)


def names(env: dict[str, str], now: float | None = None) -> list[str]:
    return [item.node for item in avoided.listed(env, now)[0]]


def write(env: dict[str, str], text: str | bytes) -> Path:
    file = Path(env["XDG_STATE_HOME"], "jobspec", "nodes.json")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_entries_are_kept_until_they_end(env: dict[str, str]) -> None:
    avoided.add(env, [entry("n3", 1, reason="ECC"), entry("n1", 3)])
    found, problems = avoided.listed(env)
    assert problems == []
    assert [(item.node, item.reason) for item in found] == [("n1", ""), ("n3", "ECC")]
    assert names(env, NOW + 2 * 3600) == ["n1"]
    assert names(env, NOW + 4 * 3600) == []


def test_what_has_ended_goes_with_the_next_change(env: dict[str, str]) -> None:
    file = write(env, json.dumps({"version": 1, "nodes": [{**ROW, "until": NOW - 1}]}))
    avoided.add(env, [entry("n4")])
    assert "n3" not in file.read_text()


def test_one_node_of_two_clusters_is_two_nodes(env: dict[str, str]) -> None:
    avoided.add(env, [entry(), entry(cluster="other")])
    avoided.add(env, [entry(reason="again")])
    assert len(avoided.listed(env)[0]) == 2
    assert [item.cluster for item in avoided.remove(env, ["n3"], "lab")] == ["lab"]
    assert [item.cluster for item in avoided.listed(env)[0]] == ["other"]
    assert [item.cluster for item in avoided.remove(env, ["n3", "n9"], None)] == ["other"]


def test_a_report_adds_a_node_once_and_not_again_after_its_removal(env: dict[str, str]) -> None:
    told = entry(run="20261128-010203-ab12cd", attempt=1, file="a.log", line=7)
    assert avoided.add_once(env, [told]) == (told,)
    assert avoided.add_once(env, [told]) == ()
    avoided.remove(env, ["n3"], None)
    assert names(env) == []
    assert avoided.add_once(env, [told]) == ()
    assert names(env) == []
    later = entry(hours=2, run="20261129-010203-ab12cd", attempt=1)
    assert avoided.add_once(env, [later]) == (later,)
    assert names(env) == ["n3"]


def test_a_report_shortens_no_entry_and_brings_none_that_has_ended(env: dict[str, str]) -> None:
    avoided.add(env, [entry(hours=48, reason="mine")])
    assert avoided.add_once(env, [entry(hours=24, run="r", attempt=1), entry("n4", -1, attempt=1)]) == ()
    assert [(item.node, item.reason) for item in avoided.listed(env)[0]] == [("n3", "mine")]


ADD = """
import os, sys, time
from jobspec.runs import avoided
for number in range(10):
    node = f"n{sys.argv[1]}{number}"
    avoided.add(os.environ, [avoided.Avoided(node, "lab", time.time() + 600)])
"""


def test_processes_at_once_lose_no_entry(env: dict[str, str]) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", ADD, str(n)], env={**os.environ, **env}) for n in range(1, 5)
    ]
    assert [process.wait(120) for process in running] == [0] * 4
    assert len(names(env)) == 40
    left = [path.name for path in Path(env["XDG_STATE_HOME"], "jobspec").iterdir()]
    assert sorted(left) == ["nodes.json", "nodes.lock"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "no list `nodes`"),
        ('{"version": 2, "nodes": []}', "version 2"),
        (json.dumps({"version": 1, "nodes": [7]}), "entry 1 names no node"),
        (json.dumps({"version": 1, "nodes": [ROW, {"node": "n3"}]}), "entry 2 names no node"),
        (json.dumps({"version": 1, "nodes": [{**ROW, "node": "n3,--partition=x"}]}), "names no node"),
        (json.dumps({"version": 1, "nodes": [{**ROW, "node": "n3\n"}]}), "names no node"),
        (json.dumps({"version": 1, "nodes": [{**ROW, "until": "soon"}]}), "`until` of entry 1"),
        (json.dumps({"version": 1, "nodes": [{**ROW, "until": float("inf")}]}), "`until` of entry 1"),
        (json.dumps({"version": 1, "nodes": [{**ROW, "until": True}]}), "`until` of entry 1"),
        (json.dumps({"version": 1, "nodes": [{**ROW, "attempt": 1.5}]}), "`attempt` of entry 1"),
        (json.dumps({"version": 1, "nodes": [{**ROW, "text": "x" * 5000}]}), "`text` of entry 1"),
        (json.dumps({"version": 1, "nodes": [ROW] * 5000}), "more than 4096 entries"),
        (b" " * (4 * 1024**2 + 1), "larger than 4 MiB"),
        (b"\xff", "no JSON"),
    ],
    ids=lambda value: type(value).__name__,  # texts that hold the time name a test anew in each process
)
def test_a_damaged_list_excludes_nothing_and_is_never_replaced(
    text: str | bytes, why: str, env: dict[str, str]
) -> None:
    file = write(env, text)
    before = file.read_bytes()
    found, (problem,) = avoided.listed(env)
    assert (found, problem.rule, problem.severity) == ((), "nodes.damaged", "warning")
    assert why in problem.why
    assert str(file) in problem.fix
    for change in (lambda: avoided.add(env, [entry()]), lambda: avoided.remove(env, ["n3"], None)):
        with pytest.raises(JobspecError) as caught:
            change()
        assert caught.value.findings[0].rule == "nodes.damaged"
    assert file.read_bytes() == before


@pytest.mark.parametrize(("count", "reason"), [(5000, ""), (2000, "\u0436" * 400)], ids=["entries", "bytes"])
def test_a_list_that_could_not_be_read_again_is_not_written(
    count: int, reason: str, env: dict[str, str]
) -> None:
    avoided.add(env, [entry("n3")])
    with pytest.raises(JobspecError) as caught:
        avoided.add(env, [entry(f"n{number}", reason=reason) for number in range(count)])
    (problem,) = caught.value.findings
    assert problem.rule == "nodes.too-long"
    assert f"would have {count} entries in " in problem.what
    assert names(env) == ["n3"]


def test_a_pipe_in_its_place_is_no_list(env: dict[str, str]) -> None:
    folder = Path(env["XDG_STATE_HOME"], "jobspec")
    folder.mkdir()
    os.mkfifo(folder / "nodes.json")
    found, (problem,) = avoided.listed(env)
    assert (found, problem.why) == ((), "not a regular file; no node is excluded by it")


def test_unknown_keys_of_an_entry_are_left_out(env: dict[str, str]) -> None:
    write(env, json.dumps({"version": 1, "nodes": [{**ROW, "colour": "red"}]}))
    assert names(env) == ["n3"]


def test_texts_of_an_entry_are_made_fit_to_be_shown(env: dict[str, str]) -> None:
    odd = "a\x1b[2Jb\nwarning[x]\ud800\u202e"
    write(env, json.dumps({"version": 1, "nodes": [{**ROW, "reason": odd, "text": odd}]}))
    (found,) = avoided.listed(env)[0]
    assert found.reason == found.text == "a\\x1b[2Jb warning[x]\\ud800\\u202e"
