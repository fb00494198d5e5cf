"""Which signatures a line may show, by its shape: the line without its digits. See `jobspec.triage.scan`.

A shape, and each word of it, is searched for the literal hints once, however often it comes again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from jobspec.triage import landmarks
from jobspec.triage.signatures import Signature, load_signatures

MAX_SHAPES = 200_000  # distinct shapes remembered, about 40 MB; then the memory starts anew
DIGITS = b"0123456789"


@dataclass
class ShapeIndex:
    """Shapes seen so far: `hot` ones with the signatures whose hints they hold, `quiet` ones without any."""

    signatures: tuple[Signature, ...] = field(default_factory=load_signatures)
    hot: dict[bytes, tuple[Signature, ...]] = field(default_factory=dict)
    quiet: set[bytes] = field(default_factory=set)
    matches: int = 0

    def __post_init__(self) -> None:
        self.hints: dict[bytes, list[int]] = {}
        for number, signature in enumerate(self.signatures):
            for text in () if signature.trend else signature.hints:
                self.hints.setdefault(text.encode().translate(None, DIGITS), []).append(number)
        self.trends = tuple(signature for signature in self.signatures if signature.trend)
        # Literals that are looked for in blocks, not in lines; only those that some line held so far.
        self.seen: set[bytes] = set()
        marks = [kind.literal for kind in landmarks.ALL]
        for literal in (*marks, *(hint.encode() for trend in self.trends for hint in trend.hints)):
            self.hints.setdefault(literal.translate(None, DIGITS), [])
        self.anchors: dict[bytes, list[bytes]] = {}
        for hint in self.hints:
            self.anchors.setdefault(max(hint.split(), key=len), []).append(hint)
        self.plain_words: set[bytes] = set()
        self.hot_words: dict[bytes, tuple[bytes, ...]] = {}

    def learn(self, shapes: set[bytes]) -> None:
        """Sort shapes that were never seen into `hot` and `quiet`."""
        if len(self.quiet) + len(self.hot) > MAX_SHAPES:
            self.quiet.clear()
            self.hot.clear()
        fresh = list(shapes - self.quiet - self.hot.keys())
        candidates = self._candidates(fresh)
        self.quiet.update(fresh)
        self.quiet.difference_update([fresh[number] for number in candidates])
        for number, found in candidates.items():
            self.hot[fresh[number]] = tuple(self.signatures[index] for index in sorted(found))

    def _candidates(self, shapes: Sequence[bytes]) -> dict[int, set[int]]:
        """For each shape with a hint, its number and the numbers of the hint's signatures."""
        text = b"\n".join(shapes)
        hints = self._hints_in(set(text.split()))
        if not hints:
            return {}
        starts = list(accumulate((len(shape) + 1 for shape in shapes), initial=0))
        found: dict[int, set[int]] = {}
        for hint in hints:
            at = text.find(hint)
            if at >= 0:
                self.seen.add(hint)
            while at >= 0 and self.hints[hint]:
                number = bisect_right(starts, at) - 1
                found.setdefault(number, set()).update(self.hints[hint])
                at = text.find(hint, starts[number + 1])
        return found

    def holds(self, kinds: bytes, literal: bytes) -> bool:
        """Whether one of the shapes, joined to `kinds`, has the literal; `learn` has seen them all."""
        wanted = literal.translate(None, DIGITS)
        return wanted in self.seen and wanted in kinds

    def _hints_in(self, words: set[bytes]) -> set[bytes]:
        """Hints that a text of these words may hold: each word is looked at once, however often it comes."""
        if len(self.plain_words) + len(self.hot_words) > MAX_SHAPES:
            self.plain_words.clear()
            self.hot_words.clear()
        fresh = list(words - self.plain_words - self.hot_words.keys())
        text = b"\n".join(fresh)
        starts = list(accumulate((len(word) + 1 for word in fresh), initial=0))
        hints: dict[int, list[bytes]] = {}
        for anchor, belonging in self.anchors.items():
            at = text.find(anchor)
            while at >= 0:
                number = bisect_right(starts, at) - 1
                hints.setdefault(number, []).extend(belonging)
                at = text.find(anchor, starts[number + 1])
        self.hot_words.update((fresh[number], tuple(found)) for number, found in hints.items())
        self.plain_words.update(word for number, word in enumerate(fresh) if number not in hints)
        return {hint for word in words & self.hot_words.keys() for hint in self.hot_words[word]}
