"""What `status` says while nodes stage: rows as the runtime writes them."""

from __future__ import annotations

from typing import Any

from jobspec.stage_progress import stage_progress


def row(node: str, **data: Any) -> dict[str, Any]:
    return {"phase": "stage", "event": "progress", "node": node, "data": {"what": "progress", **data}}


def test_the_slowest_node_counts() -> None:
    fast = row("n1", name="model", bytes=90, total=100, rate=5_000_000, eta_s=2.0, source=50, peers=40)
    slow = row("n2", name="model", bytes=25, total=100, rate=1_000_000, eta_s=75.0)
    told = stage_progress([row("n2", name="model", bytes=1, total=100), fast, slow])
    assert told.share == 0.25
    assert told.text() == "model 25%, 1 MB/s, 75 s left, slowest of 2 nodes: n2"
    assert (told.nodes[1].storage, told.nodes[1].peers) == (50, 40)


def test_nodes_that_were_left_out_and_locks_are_named() -> None:
    events = [
        row("n1", what="waiting", name="model", holder="process 7 of bob on n1", seconds=1),
        row("n1", what="peer", peer="n3", state="excluded", why="silent"),
        row("n2", what="peer", peer="n3", state="excluded", why="silent"),
    ]
    assert stage_progress(events).text() == "waiting for process 7 of bob on n1"
    told = stage_progress([*events, row("n1", name="model", bytes=0, total=0)])
    assert told.left_out == ("n3",) and told.text().endswith("left out: n3")


def test_nothing_is_known_of_other_phases() -> None:
    told = stage_progress([{"phase": "driver", "event": "progress", "node": "", "data": {"what": "command"}}])
    assert (told.text(), told.share) == ("", 0.0)
