"""Which signatures' hints a text holds. See `jobspec.triage.scan`."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cache
from itertools import chain

from jobspec.log_search import Hints
from jobspec.triage import addresses, attempts, landmarks, work
from jobspec.triage.signatures import Signature, load_signatures

MARKS = (*landmarks.ALL, *attempts.ALL, *work.SIGNS, *addresses.ALL)


@dataclass
class HintIndex:
    """The hints of all signatures, landmarks and signs."""

    signatures: tuple[Signature, ...] = field(default_factory=load_signatures)

    def __post_init__(self) -> None:
        self.trends = tuple(signature for signature in self.signatures if signature.trend)
        # For landmarks and trends only their presence in a text matters.
        self.numbers: dict[str, list[int]] = {kind.literal.decode(): [] for kind in MARKS}
        for number, signature in enumerate(self.signatures):
            for hint in signature.hints:
                numbers = self.numbers.setdefault(hint, [])
                if not signature.trend:
                    numbers.append(number)
        self.hints = Hints(self.numbers)

    def hot(self, lines: Mapping[bytes, Set[str]]) -> dict[bytes, tuple[Signature, ...]]:
        """The lines that may show signatures, each with these signatures by precedence."""
        known: dict[frozenset[str], tuple[Signature, ...]] = {}
        found = dict[bytes, tuple[Signature, ...]]()
        for line, held in lines.items():
            hints = frozenset(held)  # those of many lines are the same
            if (shown := known.get(hints)) is None:
                numbers = sorted(set(chain.from_iterable(self.numbers[hint] for hint in hints)))
                shown = known[hints] = tuple(self.signatures[number] for number in numbers)
            if shown:
                found[line] = shown
        return found


@cache
def whole_index() -> HintIndex:
    """That of all signatures, made once."""
    return HintIndex()
