"""Which signatures' hints a text holds. See `jobspec.triage.scan`.

There are some four hundred hints, and one search of a text for each of them would be slower than everything
else. A text of a log has few words, so each word is looked at once, however often it comes again: a hint can
only be where its longest word, its anchor, is part of a word. Words that were never seen, such as the ids of
requests, are searched for all anchors by one expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from jobspec.triage import landmarks
from jobspec.triage.blocks import plain
from jobspec.triage.signatures import Signature, load_signatures

MAX_WORDS = 200_000  # distinct words remembered, about 20 MB; then the memory starts anew
FEW_BYTES = 64 * 1024  # of new words, for which making the expression would take longer than it saves
MIN_ANCHOR = 5  # bytes: shorter words are parts of too many others
PIECE_BYTES = 128 * 1024  # of text that is taken apart at once: its words stay in the processor's cache
# Bytes of words from the rarest to the most frequent in logs of trainers; what is not named is rarer still.
FREQUENT = b"JQZXYjHKUGqBVWDPMFCzx,AN#SLRTEIOvgf'w/()-:.=_bkyupmdhlicnsoatre"


@dataclass
class HintIndex:
    """The hints of all signatures and landmarks, without their digits, and the words seen so far."""

    signatures: tuple[Signature, ...] = field(default_factory=load_signatures)

    def __post_init__(self) -> None:
        self.trends = tuple(signature for signature in self.signatures if signature.trend)
        # Of landmarks and trends it is enough to know that a text holds them.
        self.hints: dict[bytes, list[int]] = {plain(kind.literal): [] for kind in landmarks.ALL}
        for number, signature in enumerate(self.signatures):
            for hint in signature.hints:
                numbers = self.hints.setdefault(plain(hint.encode()), [])
                if not signature.trend:
                    numbers.append(number)
        self.anchors = {hint: _anchors(hint) for hint in self.hints}
        self.all_anchors = frozenset(chain.from_iterable(self.anchors.values()))
        self.learnt = 0  # bytes of new words
        self.plain_words: set[bytes] = set()
        self.hot_words: dict[bytes, frozenset[bytes]] = {}

    def hints_in(self, text: bytes) -> set[bytes]:
        """The hints that `text`, which has no digits, holds."""
        words: set[bytes] = set()
        start = 0
        while start < len(text):
            end = text.find(b" ", start + PIECE_BYTES)
            end = end if end >= 0 else len(text)
            words.update(text[start:end].split())
            start = end
        self._learn(words)
        held = set(chain.from_iterable(self.hot_words[word] for word in words & self.hot_words.keys()))
        return {hint for hint, anchors in self.anchors.items() if anchors <= held and hint in text}

    def hot(self, text: bytes, hints: Iterable[bytes]) -> dict[bytes, tuple[Signature, ...]]:
        """Each line of `text` with one of the hints, and the signatures of its hints by precedence."""
        found: dict[bytes, set[int]] = {}
        for hint in hints:
            numbers = self.hints[hint]
            at = text.find(hint) if numbers else -1
            while at >= 0:
                start, end = line_at(text, at)
                found.setdefault(text[start:end], set()).update(numbers)
                at = text.find(hint, end)
        return {
            line: tuple(self.signatures[number] for number in sorted(numbers))
            for line, numbers in found.items()
        }

    def _learn(self, words: set[bytes]) -> None:
        """Sort words that were never seen into those that hold an anchor and those that do not."""
        if len(self.plain_words) + len(self.hot_words) > MAX_WORDS:
            self.plain_words.clear()
            self.hot_words.clear()
        fresh = words - self.plain_words - self.hot_words.keys()
        text = b"\n".join(fresh)
        self.learnt += len(text)
        few = self.learnt < FEW_BYTES
        places = _places(text, self.all_anchors) if few else _places_of(text, one_of(self.all_anchors))
        hot = {text[slice(*line_at(text, at))] for at in places}
        for word in hot:
            self.hot_words[word] = frozenset(anchor for anchor in self.all_anchors if anchor in word)
        self.plain_words |= fresh - hot


def _anchors(hint: bytes) -> frozenset[bytes]:
    """Words without which the hint cannot be there: the long ones, else the longest."""
    words = hint.split()
    return frozenset(word for word in words if len(word) >= MIN_ANCHOR) or frozenset({max(words, key=len)})


def _places(text: bytes, literals: Iterable[bytes]) -> Iterator[int]:
    """Where each literal is, once a line."""
    for literal in literals:
        at = text.find(literal)
        while at >= 0:
            yield at
            at = text.find(literal, line_at(text, at)[1])


def _places_of(text: bytes, expression: re.Pattern[bytes]) -> Iterator[int]:
    return (found.start() for found in expression.finditer(text))


def line_at(text: bytes, at: int) -> tuple[int, int]:
    """Where the line around `at` starts and ends."""
    end = text.find(b"\n", at)
    return text.rfind(b"\n", 0, at) + 1, end if end >= 0 else len(text)


@lru_cache(maxsize=2)
def one_of(literals: frozenset[bytes]) -> re.Pattern[bytes]:
    """An expression that finds one byte of every place where one of the literals is.

    Python's `re` passes quickly over bytes that cannot begin a match, and tries the alternatives one by one
    at all others. So each literal is looked for at its rarest byte, its pivot, and there are as few different
    pivots as do.
    """
    # The last byte is no pivot: what follows one is compared fast, what stands before it is not.
    choices = {literal: set(literal[:-1] or literal) for literal in sorted(literals)}
    for byte in sorted(set().union(*choices.values()), key=_frequency, reverse=True):
        if all(len(choice) > 1 for choice in choices.values() if byte in choice):
            for choice in choices.values():
                choice.discard(byte)
    places: dict[int, list[tuple[bytes, bytes]]] = {}
    for literal, choice in choices.items():
        pivot = min(choice, key=_frequency)
        at = literal.index(pivot) + 1
        places.setdefault(pivot, []).append((literal[:at], literal[at:]))
    often_first = sorted(places, key=_frequency, reverse=True)
    return re.compile(
        b"|".join(re.escape(bytes([pivot])) + b"(?=%s)" % _follow(places[pivot]) for pivot in often_first)
    )


def _follow(places: Sequence[tuple[bytes, bytes]]) -> bytes:
    """What has to stand here for one of the literals, each given as what was read of it and what follows."""
    if len(places) == 1:
        ((read, rest),) = places
        return re.escape(rest) + b"(?<=%s)" % re.escape(read + rest)
    further: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for read, rest in places:
        if rest:
            further.setdefault(rest[:1], []).append((read + rest[:1], rest[1:]))
    ways = [re.escape(byte) + _follow(group) for byte, group in further.items()]
    ways += [b"(?<=%s)" % re.escape(read) for read, rest in places if not rest]
    return b"(?:%s)" % b"|".join(ways)


def _frequency(byte: int) -> int:
    return FREQUENT.find(byte)
