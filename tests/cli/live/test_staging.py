"""What `status` says while nodes stage: rows as the runtime writes them."""

from __future__ import annotations

from typing import Any

from jobspec.cli.live.staging import NodeProgress, StageProgress, StageTracker


def row(node: str, **data: Any) -> dict[str, Any]:
    return {"phase": "stage", "event": "progress", "node": node, "data": {"what": "progress", **data}}


def after(events: list[dict[str, Any]]) -> StageProgress:
    tracker = StageTracker()
    tracker.take(events)
    return tracker.progress


def test_the_slowest_node_counts() -> None:
    fast = row("n1", name="model", bytes=90, total=100, rate=5_000_000, eta_s=2.0, source=50, peers=40)
    slow = row("n2", name="model", bytes=25, total=100, rate=1_000_000, eta_s=75.0)
    told = after([row("n2", name="model", bytes=1, total=100), fast, slow])
    assert told.share == 0.25
    assert told.text() == "model 25% of 100 B, 1 MB/s, 75 s left, slowest of 2 nodes: n2"
    assert (told.nodes[1].storage, told.nodes[1].peers) == (50, 40)


def test_nodes_that_were_left_out_and_locks_are_named() -> None:
    events = [
        row("n1", what="waiting", name="model", holder="process 7 of bob on n1", seconds=1),
        row("n1", what="peer", peer="n3", state="excluded", why="silent"),
        row("n2", what="peer", peer="n3", state="excluded", why="silent"),
    ]
    assert after(events).text() == "waiting for process 7 of bob on n1"
    told = after([*events, row("n1", name="model", bytes=0, total=0)])
    assert told.left_out == ("n3",) and told.text().endswith("left out: n3")


def test_the_hub_that_has_nodes_wait_and_breaks_connections_is_told() -> None:
    pause = row("n1", what="paused", why="the hub answered 429", seconds=30.0)
    assert after([pause]).text() == "the hub answered 429: n1 waits 30 s"
    copied = row("n1", name="model", bytes=25, total=100)
    told = after([copied, row("n1", what="restarted", file="u", at=5, why="no byte for 30 s"), pause])
    assert told.text().endswith("connections made anew: 1, the hub answered 429: n1 waits 30 s")
    moved = after([copied, pause, copied, row("n1", name="model", bytes=26, total=100)])
    assert "429" in after([copied, pause, copied]).text() and "429" not in moved.text()


def test_nothing_is_known_of_other_phases() -> None:
    told = after([{"phase": "driver", "event": "progress", "node": "", "data": {"what": "command"}}])
    assert (told.text(), told.share) == ("", 0.0)


def phase(event: str, attempt: int = 1, node: str = "") -> dict[str, Any]:
    return {"phase": "stage", "event": event, "node": node, "attempt": attempt}


def test_tracker_knows_when_the_phase_is_on() -> None:
    tracker = StageTracker()
    tracker.take([phase("start"), {"phase": "helpers", "event": "end", "node": "", "attempt": 1}])
    assert tracker.running
    tracker.take([{**row("n1", name="model", bytes=50, total=100), "attempt": 1}, phase("end", node="n1")])
    assert tracker.running and tracker.progress.share == 0.5  # one node's end is not the phase's
    tracker.take([phase("end")])
    assert not tracker.running


def test_new_attempt_forgets_the_one_that_was_killed() -> None:
    tracker = StageTracker()
    old = {**row("n9", name="model", bytes=99, total=100), "attempt": 1}
    tracker.take([phase("start"), old, {"phase": "preflight", "event": "start", "node": "", "attempt": 2}])
    assert not tracker.running and tracker.progress.nodes == ()
    tracker.take([phase("start", attempt=2)])
    assert tracker.running


def test_sizes_and_rates_have_units() -> None:
    one = NodeProgress("n1", "big", 300 * 10**9, 1_200 * 10**9, rate=900_000_000, eta_s=1000.4)
    assert one.text() == "big 25% of 1.2 TB, 900 MB/s, 1000 s left"
    assert NodeProgress("n1", "small", 0, 0).text() == "small 100% of 0 B, 0 B/s"
