"""What Ray waits for, in words."""

from __future__ import annotations

from jobspec.runtime.raycluster.state import told

NODES = {"n1": {"CPU": 8.0, "GPU": 2.0}, "n2": {"CPU": 16.0}}


def test_tasks_that_no_node_can_hold() -> None:
    """Eight CPUs are there, and two GPUs are, but not sixteen CPUs beside a GPU."""
    tasks = [({"judge": 1.0}, 4), ({"CPU": 8.0}, 7), ({"CPU": 16.0, "GPU": 1.0}, 1)]
    found = told({}, {}, NODES, tasks)
    assert found["pending"] == [
        "4 tasks of {judge: 1} (no node can hold it)",
        "1 task of {CPU: 16, GPU: 1} (no node can hold it)",
    ]
    assert found["have"] == "a node has at most 16 CPU, 2 GPU; 2 node(s)"


def test_tasks_for_which_no_node_has_room_now() -> None:
    tasks = [({"CPU": 4.0}, 2), ({"CPU": 1.0}, 1), ({"judge": 1.0}, 1)]
    free = [{"CPU": 3.0, "GPU": 2.0}, {"CPU": 2.0}]
    names = [("score", {"CPU": 4.0}), ("score", {"CPU": 4.0}), ("other", {"CPU": 1.0})]
    held = [("Trainer", {"GPU": 2.0}), ("Buffer", {"CPU": 5.0}), ("Engine", {"CPU": 14.0, "GPU": 1.0})]
    found = told({}, {}, NODES, tasks, free, names, held)
    assert found["queued"] == [
        "2 tasks `score` of {CPU: 4} (actors hold: `Engine` {CPU: 14}, `Buffer` {CPU: 5})"
    ]
    assert found["pending"] == ["1 task of {judge: 1} (no node can hold it)"]
    assert told({}, {}, NODES, tasks)["queued"] == []  # an older Ray does not tell what is free


def test_a_placement_group_for_which_no_node_has_room_now() -> None:
    """Who holds it is told: another group, and an actor. One of more nodes than there are is another."""
    waits = {
        "state": "PENDING", "strategy": "PACK", "bundles": {0: {"CPU": 1.0}},
        "stats": {"scheduling_state": "NO_RESOURCES"},
    }  # fmt: skip
    stands = {"state": "CREATED", "name": "generation", "bundles": {0: {"CPU": 4.0}, 1: {"CPU": 3.0}}}
    free, held = [{"GPU": 2.0}], [("Reward", {"CPU": 1.0})]
    found = told({}, {"a": stands, "b": waits}, NODES, free=free, held=held)
    assert (found["pending"], found["full"]) == (
        [],
        [
            "a placement group (PACK) of {CPU: 1}: no node has {CPU: 1} free"
            " (placement groups hold: `generation` {CPU: 7}) (actors hold: `Reward` {CPU: 1})"
        ],
    )
    assert told({}, {"b": waits}, NODES)["pending"] == [
        "a placement group (PACK) of {CPU: 1} (NO_RESOURCES)"  # an older Ray does not tell what is free
    ]
    spread = {**waits, "strategy": "STRICT_SPREAD", "bundles": {at: {"CPU": 1.0} for at in range(3)}}
    assert told({}, {"b": spread}, NODES, free=[{"CPU": 8.0}])["pending"] == [
        "a placement group (STRICT_SPREAD) of {CPU: 1}, {CPU: 1}, {CPU: 1}"
        " (it needs 3 nodes, and there are 2)"
    ]


def test_an_actor_that_waits_for_its_arguments_lacks_no_resources() -> None:
    actors = {
        name: {"State": state, "ActorClassName": name}
        for name, state in (("Engine", "PENDING_CREATION"), ("Judge", "DEPENDENCIES_UNREADY"))
    }
    assert told(actors, {}, NODES)["pending"] == ["an actor `Engine` (PENDING_CREATION)"]


def test_an_actor_that_is_started_again_is_no_demand() -> None:
    actors = {"a": {"State": "RESTARTING", "ActorClassName": "Engine", "NumRestarts": 7}}
    found = told(actors, {}, NODES, free=[{"CPU": 8.0}])
    assert found["pending"] == []
    assert found["restarting"] == ["an actor `Engine` was restarted 7 times and is not ready"]


def test_an_actor_for_which_nothing_is_asked_lacks_nothing() -> None:
    """Its constructor runs: where Ray tells what is asked for, only that shows a lack."""
    actors = {"a": {"State": "PENDING_CREATION", "ActorClassName": "Engine"}}
    free = [{"CPU": 8.0}]
    assert told(actors, {}, NODES, free=free)["pending"] == []
    found = told(actors, {}, NODES, [({"CPU": 60.0}, 1)], free)
    assert found["pending"] == [
        "an actor `Engine` (PENDING_CREATION)",
        "1 task of {CPU: 60} (no node can hold it)",
    ]


def test_nothing_waits() -> None:
    assert told({}, {}, NODES)["pending"] == []


def test_what_a_placement_group_has_reserved_is_of_the_group() -> None:
    """Ray's nodes have names of their own for it: the total decides whether it is merely taken."""
    group = "1ecae00162afa3f0065559e404c501000000"
    asked = {
        f"CPU_group_0_{group}": 0.5, f"bundle_group_0_{group}": 0.001,
        f"CPU_group_{group}": 0.5, f"bundle_group_{group}": 0.001,
    }  # fmt: skip
    whole = {"CPU": 1.0, **{key: 0.5 if key.startswith("CPU") else 1000.0 for key in asked}}
    free = {**whole, f"CPU_group_0_{group}": 0.0}
    told_of = ([(asked, 1)], [free], [("Engine.__init__", asked)], [("Engine", asked)], [whole])
    found = told({}, {}, {"n1": {"CPU": 1.0}}, *told_of)
    text = "1 task `Engine.__init__` of {CPU: 0.5} in bundle 0 of a placement group"
    held = "{CPU: 0.5} in bundle 0 of a placement group"
    assert found["pending"] == []
    assert found["queued"] == [f"{text} (actors hold: `Engine` {held})"]
    more = {key: 2.0 if key.startswith("CPU") else amount for key, amount in asked.items()}
    found = told({}, {}, {"n1": {"CPU": 1.0}}, [(more, 1)], [free], totals=[whole])
    assert found["pending"] == [
        "1 task of {CPU: 2} in bundle 0 of a placement group (no node has so much of it)"
    ]
    assert told({}, {}, {"n1": {"CPU": 1.0}}, [(asked, 1)])["pending"] == []  # an older Ray does not tell
