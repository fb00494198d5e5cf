"""Report and watch judge the same files: each comparison has one answer, whoever is asked."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobspec.metrics import read_metrics
from jobspec.metrics.requirements import FUNCTIONS, evaluate, parse_condition, parse_requirement
from jobspec.runtime.head.metric_watch import Watch
from tests.kits import strategies as _strategies  # no time limit for an example

Pieces = list[tuple[str, bytes]]
assert _strategies.settings
COMPARED = [name for name in FUNCTIONS if name != "finite"]  # which ends no run
TEXTS = [
    f"{function}({metric}) {sign}"
    for function in COMPARED
    for metric in ("score", "b/score")
    for sign in ("<= 1", "> 1")
]
NUMBERS = st.sampled_from([0, 1, 2, -1.5, 0.1, 1e308, -1e308, 10**400, math.inf, -math.inf, math.nan])
VALUES = st.one_of(NUMBERS, st.sampled_from([None, True, False, "2", [3], {"mean": 1}]))
STEPS = st.one_of(st.integers(0, 3), st.sampled_from([2.0, 2.5, math.nan, True, "3", None, 10**400]))


@st.composite
def records(draw: st.DrawFn) -> bytes:
    record: dict[str, object] = {}
    if draw(st.booleans()):
        record[draw(st.sampled_from(["step", "global_step", "_step"]))] = draw(STEPS)
    values = {draw(st.sampled_from(["score", "loss"])): draw(VALUES)}
    record.update({"data": values} if draw(st.booleans()) else values)
    return json.dumps(record).encode()


LINES = st.one_of(records(), records(), st.sampled_from([b"", b"[1]", b"{", b"\xff", b'{"score": 1} x']))


def event(step: int, value: float) -> bytes:
    """A record of an event file with one scalar, `score`, without checksums."""
    scalar = b"\x0a\x05score\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(scalar)]) + scalar
    body = b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary
    return struct.pack("<Q", len(body)) + bytes(4) + body + bytes(4)


EVENTS = st.builds(event, st.integers(0, 3), st.sampled_from([0.5, 2.0, math.nan, math.inf]))


@st.composite
def growth(draw: st.DrawFn) -> Pieces:
    """Files by name, cut anywhere, their pieces in the order in which they are written."""
    files: Pieces = []
    for name in draw(st.lists(st.sampled_from(["m.jsonl", "a/n.jsonl", "@b/m.jsonl"]), unique=True)):
        end = draw(st.sampled_from([b"\n", b"\n", b"", b'\n{"step": 9, "sco']))
        files.append((name, b"\n".join(draw(st.lists(LINES, max_size=5))) + end))
    for name in draw(st.lists(st.sampled_from(["events.tfevents.1", "@b/tfevents.2"]), unique=True)):
        end = draw(st.sampled_from([b"", b"", b"\x05\0\0", b"\xff" * 12]))
        files.append((name, b"".join(draw(st.lists(EVENTS, max_size=3))) + end))
    cut = [(name, data, draw(st.integers(0, len(data)))) for name, data in files]
    begun = draw(st.permutations([(name, data[:at]) for name, data, at in cut]))
    ended = draw(st.permutations([(name, data[at:]) for name, data, at in cut]))
    return [*begun, *ended]


def score(*records: str) -> bytes:
    return "".join(f"{{{record}}}\n" for record in records).encode()


@example([("m.jsonl", score(*(f'"score": {number}' for number in range(5))))])
@example([("m.jsonl", score('"step": 1, "score": 3', '"step": 2, "score": 4', '"step": 1, "score": 5'))])
@example([("m.jsonl", score('"step": 1, "loss": 3')), ("events.tfevents.1", event(1, 2.0))])
@example([("m.jsonl", b'{"step": 1, "loss": 3}'), ("events.tfevents.1", event(1, 2.0))])
@example([("m.jsonl", score('"step": 1, "score": 3')), ("a/n.jsonl", score('"step": 1, "score": 0'))])
@example([("gpus.jsonl", score('"time": 1, "util": 3')), ("events.tfevents.1", event(1, 2.0))])
@example([("m.jsonl", b'{"step": 1, "score": 3}'), ("m.jsonl", b" x"), ("tfevents.1", event(1, 2.0))])
@example([("m.jsonl", b'{"score": 3}\n{"score": 4}'), ("a/n.jsonl", b'{"score": 3')])
@settings(max_examples=60)
@given(growth())
def test_report_and_watch_give_the_same_answer(pieces: Pieces) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        watches = {text: Watch(folder, [parse_condition(text)]) for text in TEXTS}
        for file, piece in pieces:
            (folder / file).parent.mkdir(exist_ok=True)
            with (folder / file).open("ab") as target:
                target.write(piece)
            for watch in watches.values():
                watch.look()
        table = read_metrics(folder)
        for text, watch in watches.items():
            outcome, tripped = evaluate(parse_requirement(text), table), watch.look()
            assert outcome.holds == (tripped is not None), text
            if tripped is not None:
                assert [value for _, value in tripped.values] == [outcome.value]


def test_the_answers_are_right(tmp_path: Path) -> None:
    """One file by hand, so that both cannot be wrong alike."""
    (tmp_path / "m.jsonl").write_text(
        '{"score": 3}\n{"score": true}\n{"score": "9"}\n{"score": 5}\n{"step": 0.5, "score": 1}\n{"score": 7'
    )
    answers = {"count": 3, "first": 3, "last": 1, "max": 5, "min": 1, "mean": 3}
    assert set(answers) == set(COMPARED)
    table = read_metrics(tmp_path)
    for function, value in answers.items():
        text = f"{function}(score) == {value}"
        tripped = Watch(tmp_path, [parse_condition(text)]).look()
        assert evaluate(parse_requirement(text), table).holds and tripped is not None, text
