"""Who ends and who begins between the samples: such a process does not stand, and may be a retry."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from jobspec.runtime.head import dumps
from jobspec.runtime.raycluster import state
from jobspec.runtime.stalls import explain, pairs, phrases, retries, stacks
from jobspec.runtime.stalls.cohorts import View
from jobspec.runtime.stalls.stacks import Process
from tests.runtime.stalls.test_claims import process
from tests.runtime.stalls.test_kinds import DUMPS

ROW = "a task `tokenize_shard` was tried again 31 times"


def tried_again(**ray: list[str]) -> View:
    samples = [
        stacks.read((DUMPS / f"ray_task_tried_again-{number}.txt").read_text(), "n1") for number in (1, 2)
    ]
    return View(*samples, ray=ray)


def test_a_worker_that_comes_anew_does_not_stand() -> None:
    view = tried_again(retried=[ROW])
    found = explain.explain(view)
    assert (found.kind, found.frozen, [one.pid for one in found.named]) == ("ray", False, [100])
    assert "uses the CPU" not in found.what
    assert "no process of the run is seen to work on it" not in found.what
    assert found.what.endswith(
        "; pid 101 on `n1` ended between the two samples, and pid 102 on `n1` began"
        f" (both are workers of Ray); Ray says: {ROW}"
    )
    assert "`max_retries`" in found.fix
    assert dumps._why(found, view).endswith("differ: processes pid 101 on `n1`; pid 102 on `n1`")


def test_a_worker_that_alone_is_seen_to_begin_is_no_end_of_the_wait() -> None:
    """The one before had ended when the first sample was taken."""
    then, now = (
        stacks.read((DUMPS / f"ray_task_tried_again-{number}.txt").read_text(), "n1") for number in (1, 2)
    )
    now = [
        *(one for one in now if one.pid != 102),
        *stacks.read(
            process(102, "f /r/a.py:9 time.sleep(1)", name="ray::tokenize_shard", parent=1,
                    calls={"102": "clock_nanosleep"}), "n1",
        ),
    ]  # fmt: skip
    view = View([one for one in then if one.pid != 101], now)
    found = explain.explain(view)
    assert (found.kind, [one.pid for one in found.named]) == ("ray", [100])
    assert "began" not in found.what
    found = explain.explain(replace(view, ray={"retried": [ROW]}))
    told = f"; pid 102 (`ray::tokenize_shard`) on `n1` began between the two samples; Ray says: {ROW}"
    assert found.what.endswith(told)
    assert "`max_retries`" in found.fix


def test_a_fault_of_the_rules_is_told_and_costs_no_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(view: View) -> explain.Explanation:
        return [][view.complete]  # type: ignore[return-value]

    monkeypatch.setattr(dumps, "explain", faulty)
    found = dumps._explained(tried_again())
    assert (found.kind, found.frozen, found.inferred) == ("unknown", None, True)
    assert re.match(r"IndexError: list index out of range \(test_retries\.py:\d+ faulty\)$", found.why)


def test_a_worker_that_still_imports_has_begun() -> None:
    """The title of the one before names the task."""
    main = (100, "main", {})
    file = "/v/ray/_private/workers/default_worker.py"
    text = process(
        102, f"<module> {file}:8 import ray", name=f"python {file} --x", parent=1, calls={"102": "running"}
    )
    then = sampled(main) + stacks.read(
        process(101, "f /r/a.py:9 work()", name="ray::tokenize_shard", parent=1)
    )
    found = explain.explain(View(then, sampled(main) + stacks.read(text)))
    says = (
        "; pid 101 (`ray::tokenize_shard`) on `n1` ended between the two samples, and pid 102 on `n1` began"
    )
    assert says in found.what
    assert found.frozen is False


def test_without_a_row_of_ray_nothing_is_said_to_be_tried_again() -> None:
    assert explain.explain(tried_again()).what.endswith("(both are workers of Ray)")


def sampled(*rows: tuple[int, str, dict[str, Any]]) -> list[Process]:
    return stacks.read(
        "\n\n".join(
            process(pid, f"{line} /r/a.py:9 work()", calls={str(pid): call}, **facts)
            for pid, line, facts in rows
            for call in [facts.pop("call", "running")]
        )
    )


@pytest.mark.parametrize(
    ("then", "now", "pids"),
    [
        ({"parent": 1}, {"parent": 1}, [(8, 9)]),
        ({"parent": 1}, {"parent": 2}, []),
        ({"parent": 1, "rank": "0"}, {"parent": 1, "rank": "1"}, []),
        ({"parent": 1, "service": True}, {"parent": 1, "service": True}, []),
    ],
)
def test_who_comes_after_whom(then: dict[str, Any], now: dict[str, Any], pids: list[tuple[int, int]]) -> None:
    view = View(sampled((7, "main", {}), (8, "work", then)), sampled((7, "main", {}), (9, "work", now)))
    assert [(one.pid, other.pid) for one, other in retries.successors(view)] == pids


def test_a_later_process_of_the_same_number_is_another_one() -> None:
    view = View(sampled((8, "work", {"began": 5})), sampled((8, "work", {"began": 900})))
    found = explain.explain(view)
    assert found.frozen is False
    assert explain.explain(View(*[sampled((8, "work", {"began": 5}))] * 2)).frozen is True


def test_of_several_none_is_said_to_stand() -> None:
    one, two = (process(pid, f"f{pid} /r/a.py:{pid} time.sleep(9)", calls={str(pid): "clock_nanosleep"},
                        name=f"python {name}.py") for pid, name in ((7, "a"), (8, "b")))  # fmt: skip
    found = explain.explain(View(stacks.read(f"{one}\n\n{two}")))
    assert found.what.startswith("of several processes none is shown to wait for another: pid 7")


def test_tasks_that_were_tried_again() -> None:
    found = state.told({}, {}, {}, tries={"tokenize_shard": 31})
    assert found["retried"] == [ROW]


def test_advice_on_what_no_dump_tells_is_a_question() -> None:
    asked = [text for _, text, _ in phrases.SPECIAL.values() if phrases.OPEN in text]
    assert len(asked) == 3
    assert all(text.endswith("?") for text in asked)
    assert all("of each pair" not in fix for _, fix in pairs.SIDES.values())
