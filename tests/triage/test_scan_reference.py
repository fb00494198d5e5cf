"""The matcher against a plain one that tries every signature on every line: nothing is lost or differs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO

import pytest

from jobspec import log_search
from jobspec.log_search import plain
from jobspec.log_text import bare
from jobspec.triage import Match, blocks, landmarks, load_signatures, scan, scan_stream
from jobspec.triage.attempts import Attempt
from jobspec.triage.blocks import View
from jobspec.triage.conclusion import conclude
from jobspec.triage.course import Course
from jobspec.triage.hint_index import MARKS, HintIndex
from jobspec.triage.jobs import Part
from jobspec.triage.landmarks import Kind, Landmark
from tests.corpus.corpus_kit import EFFECTS, FIXTURES, PREAMBLE, public_cases

NAME, WRITTEN = "log", 1787400000.0
SAMPLES = [line.encode() for case in public_cases() for line in case.lines]
HEALTHY = [
    line.encode()
    for name in ("verl_log_example.txt", "nemo_rl_log_example.txt")
    for line in (FIXTURES / name).read_text().splitlines()
]
LANDMARKS = [
    b"(TaskRunner pid=7) TF config: x",
    b"Model, optimizer, and learning rate scheduler built",
    b"step:3 - actor/loss:0.5 - training/global_step:3",
    b"\x1b[36m(TaskRunner pid=7)\x1b[0m Total step time: 3.1 s",
    b"Max number of steps has been reached",
    b"Loading checkpoint shards: 100%|##########| 4/4 [00:20<00:00,  5.0s/it]",
]
CODE = b"srun: error: n1: task 0: Exited with exit code %d"
TRACEBACK = [
    b"Traceback (most recent call last):",
    b'  File "/src/megatron/bridge/models/x.py", line 3, in provide',
    b"    raise KeyError(name)",
    b"KeyError: 'decoder.layers.0'",
]


def plainly(data: bytes) -> list[Match]:
    """What is found by reading line by line, each with every signature."""
    log = scan._Log(NAME, "", HintIndex(), latest=WRITTEN)
    log._date(data[: scan.HEAD_BYTES])
    literals = {mark.literal.decode() for mark in MARKS}
    lines = data.split(b"\n")
    borders = [data.count(b"\n", 0, at) for at in log.starts.starts(data, plain(data), literals)]
    parts, begin = list[Part](), 0
    for end in [*borders, len(lines)]:
        part = part_of(log, lines, begin, end, begin > 0)
        if not part.attempt.is_empty() or end == len(lines):
            parts.append(part)
            begin = end
    ordered, order = list[Part](), 0
    for part in parts:
        matches = [replace(match, order=at) for at, match in enumerate(part.matches, order)]
        ordered.append(part._replace(matches=matches))
        order += len(matches)
    return conclude([ordered])


def part_of(log: scan._Log, lines: list[bytes], begin: int, end: int, later: bool) -> Part:
    """One attempt: the lines from `begin` to `end`, whose context may reach over these."""
    text = b"\n".join(lines[begin:end])
    view = View(text, text.count(b"\n"), lines, begin)
    log.number = begin + 1
    every = [signature for signature in log.index.signatures if not signature.trend]
    found = []
    for offset in range(begin, end):
        hit = scan.match_line(lines, offset, every)
        if hit is not None:
            found.append(log._match(hit, view, offset))
    for signature in log.index.trends:
        hints = [hint.encode() for hint in signature.hints]
        places = [at for at in range(begin, end) if any(hint in lines[at] for hint in hints)][-scan.TREND :]
        hits = [(at, scan.match_line(lines, at, (signature,))) for at in places]
        bad = [log._match(hit, view, at) for at, hit in hits if hit is not None]
        found += bad[:1] if 2 * len(bad) > len(places) else []
    start = Landmark(begin + 1, log._time(lines, begin)) if later else None
    attempt = Attempt(start, course(log, lines, begin, end))
    attempt.first.update({str(at): match for at, match in enumerate(found)})
    return Part(NAME, attempt, sorted(found, key=lambda match: match.line))


def course(log: scan._Log, lines: list[bytes], begin: int, end: int) -> Course:
    now = Course()
    for at, line in enumerate(lines[begin:end], begin):
        here = Landmark(at + 1, log._time(lines, at))

        def is_any(kinds: tuple[Kind, ...], line: bytes = line) -> bool:
            return any(kind.literal in line and landmarks.shows(line, kind) for kind in kinds)

        if now.done is not None and is_any(landmarks.STAGES):
            now = Course(
                last_step=now.last_step,
                trained=now.done or now.trained,
                wrote=now.wrote,
                good_before=now.stated_end or now.good_before,
            )
        if is_any(landmarks.STEP):
            now = replace(now, first_step=now.first_step or here, last_step=here, done=None, closed=None)
            now = replace(now, trained=here if landmarks.is_last_step(line, 0) else None)
        if is_any(landmarks.WROTE):
            now = replace(now, wrote=here)
        if is_any(landmarks.STATED_END):
            now = replace(now, stated_end=here)
        for name, kinds in (*scan._FIRST_MARKS, *scan._END_MARKS):
            if getattr(now, name) is None and is_any(kinds):
                now = replace(now, **{name: here})
    managed = any(mark.literal in line for mark in landmarks.MANAGED for line in lines[:end])
    return replace(now, managed=managed)


def quickly(data: bytes, monkeypatch: pytest.MonkeyPatch, block: int) -> list[Match]:
    monkeypatch.setattr(log_search, "BLOCK_BYTES", block)
    monkeypatch.setattr(scan, "HEAD_BYTES", block)
    log = scan._Log(NAME, "", HintIndex(), latest=WRITTEN)
    log.read(BytesIO(data))
    return conclude([log.parts()])


def compare(data: bytes, monkeypatch: pytest.MonkeyPatch, *sizes: int) -> list[Match]:
    expected = [bared(match) for match in plainly(data)]
    for size in sizes:
        got = quickly(data, monkeypatch, size)
        assert [bared(match) for match in got] == expected, size
    return got


def bared(match: Match) -> Match:
    return replace(match, order=0, facts=(), node="", doing="")


# -- pieces of logs ------------------------------------------------------------------------------------


def sample(draw: random.Random) -> bytes:
    return draw.choice(SAMPLES)


def worker(draw: random.Random) -> bytes:
    tail = draw.choice([b"", b" [repeated 7x across cluster]"])
    return b"\x1b[36m(Worker pid=%d, ip=10.0.0.2)\x1b[0m %s%s" % (draw.randint(1, 9), sample(draw), tail)


def progress_bar(draw: random.Random) -> bytes:
    bars = [b"%d%%|###   | %d/100 [00:30<00:14]" % (n, n) for n in range(draw.randint(1, 30))]
    return b"\r".join([*bars, draw.choice([sample(draw), b""])])


def long_line(draw: random.Random) -> bytes:
    filler = b"x y " * draw.randint(1, 4000)
    return draw.choice([filler + sample(draw), sample(draw) + filler, filler])


def odd_bytes(draw: random.Random) -> bytes:
    noise = draw.randbytes(draw.randint(1, 60)).replace(b"\n", b"\x00")
    return draw.choice([noise, noise + sample(draw), sample(draw) + noise, b"\x00" * 50, b"\xe2\x82"])


def traceback(draw: random.Random) -> bytes:
    other = b"(Worker pid=3) busy"
    return b"\n".join(line for frame in TRACEBACK for line in (frame, *[other] * draw.randint(0, 3)))


def timed(draw: random.Random) -> bytes:
    clock = b"%02d:%02d:%02d" % (draw.randint(0, 23), draw.randint(0, 59), draw.randint(0, 59))
    heads = (b"2026-08-22 %s,113 INFO ", b"E0822 %s.113456 4711 x.cc:7] ", b"Sat Aug 22 %s 2026 ")
    return draw.choice(heads) % clock + draw.choice([b"waiting", sample(draw)])


Piece = Callable[[random.Random], bytes]
PIECES: tuple[Piece, ...] = (
    sample,
    worker,
    progress_bar,
    long_line,
    odd_bytes,
    traceback,
    timed,
    lambda draw: draw.choice(HEALTHY),
    lambda draw: draw.choice(LANDMARKS),
    lambda draw: draw.choice([*EFFECTS, *PREAMBLE]).encode(),
    lambda draw: b"",
)


def mixture(seed: int) -> bytes:
    draw = random.Random(seed)
    pieces = draw.choices(PIECES, weights=[draw.random() for _ in PIECES], k=draw.randint(1, 60))
    ends = draw.choice([[b"\n"], [b"\r\n"], [b"\n", b"\r\n", b"\n\n"]])
    data = b"".join(piece(draw) + draw.choice(ends) for piece in pieces)
    return data if draw.random() < 0.5 else data.rstrip(b"\r\n")


# -- tests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_mixture_is_read_as_line_by_line(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    longest = max(map(len, mixture(seed).split(b"\n"))) + 1
    compare(mixture(seed), monkeypatch, longest + draw.randint(0, 300), 1024**2)


@pytest.mark.parametrize("start", range(0, len(SAMPLES), 40))
def test_corpus_is_read_as_line_by_line(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compare(b"\n".join(SAMPLES[start : start + 40]), monkeypatch, 2000, 1024**2)
    assert found


@pytest.mark.parametrize("log", [b"\n".join(HEALTHY), b"\n".join(SAMPLES * 2 + HEALTHY)])
def test_whole_logs_are_read_as_line_by_line(log: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(log, monkeypatch, 10_000)


@pytest.mark.parametrize("block", range(40, 240, 7))
def test_traceback_over_a_border_keeps_its_frames(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"2026-08-22 10:00:00,000 INFO start\n" + b"\n".join(TRACEBACK) + b"\nend\n"
    (match,) = compare(data, monkeypatch, block)
    assert match.time is not None and len(match.context) == 6


def test_each_signature_of_a_shape_is_found() -> None:
    """Only the number differs, and it is what tells the causes apart."""
    data = b"\n".join(CODE % code for code in (1, 137, 1, 1))
    assert len(scan_stream(BytesIO(data))) == len(plainly(data)) == 2


@pytest.mark.parametrize("head", [b"", b"40%|##  | 2/5\r"])
def test_beginning_of_an_endless_line_is_looked_at(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    data = head + b"OSError: [Errno 28] No space left on device: " + b"{'x': 1}, " * 50_000
    (match,) = quickly(data, monkeypatch, 30_000)
    assert match.signature == "disk.full"


def test_endless_progress_bars_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = b"\r".join(b"%d/99999 [%d it/s]" % (n, n % 7) for n in range(50_000))
    monkeypatch.setattr(log_search, "BLOCK_BYTES", 10_000)
    texts = [block.text for block in blocks.blocks(BytesIO(bars))]
    assert [len(text) < 3 * 10_000 for text in texts] == [True]


def test_hints_lack_no_line_that_a_pattern_would_match() -> None:
    """`plainly` uses no hints; each sample shows its signature by them, too."""
    index = HintIndex()
    for signature in load_signatures():
        for line in SAMPLES:
            if signature.pattern.search(bare(line.decode()).strip()):
                held = {hint for hints in index.hints.lines(plain(line)).values() for hint in hints}
                assert held & set(signature.hints), signature.id
