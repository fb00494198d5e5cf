"""Answers about a run, and the deliverable that several of them make."""

from __future__ import annotations

from jobspec.frameworks.shared.answer import Answer, blocked, combine, failed, passed, worst
from jobspec.verdict import Deliverable, EvidenceItem, Status

LINE, OTHER = EvidenceItem("log", 1, "a"), EvidenceItem("log", 2, "b")


def test_the_worst_status_wins_and_its_first_answer() -> None:
    skipped = Answer(Status.SKIPPED, "not here")
    answers = [passed(), skipped, blocked("unseen"), failed("wrong"), failed("also wrong")]
    assert worst(answers) == failed("wrong")
    assert worst(answers[:3]) == blocked("unseen")
    assert worst(answers[:2]) == skipped
    assert worst(answers[:1]) is None


def test_a_pass_has_the_evidence_of_all_once() -> None:
    answers = [passed("one", [LINE]), passed("", [LINE, OTHER]), passed("two")]
    assert combine("x", answers, "all") == Deliverable("x", Status.PASS, (LINE, OTHER), "one; two")
    assert combine("x", [passed("", [LINE])], "all").reason == "all"


def test_no_answer_is_no_pass() -> None:
    assert combine("x", [], "all").status is Status.SKIPPED


def test_one_bad_answer_decides_with_its_own_evidence() -> None:
    answers = [passed("fine", [LINE]), blocked("unseen", [OTHER])]
    assert combine("x", answers, "all") == Deliverable("x", Status.BLOCKED, (OTHER,), "unseen")
