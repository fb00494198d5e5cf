"""Secret values never reach a file that jobspec writes: they are replaced as bytes pass by.

As they stand, in URLs and JSON, in hex, in base64 (also behind a user's name, as in basic authentication),
and with colour codes inside. Other encodings, parts of a value and base64 across lines are not found.
"""

from __future__ import annotations

import base64
import json
import re
from functools import partial
from typing import Iterable, Iterator, List, Mapping, Tuple
from urllib.parse import quote, quote_plus

MIN_SECRET_CHARS = 6  # shorter values ("1", "true") would blacken half of a log; documented
COLOURED_BYTES = 4096  # of a secret with colour codes inside, those counted
COLOUR = re.compile(rb"\x1b\[[0-9;:]*[mK]")
COLOUR_BEGUN = re.compile(rb"\x1b(?:\[[0-9;:]*)?\Z")
TOKEN_NAMES = ("JOBSPEC_TOKEN", "RAY_AUTH_TOKEN")


class Redactor:
    """Replaces known values by `[redacted NAME]`, in one piece or in a stream."""

    def __init__(self, values: Iterable[Tuple[str, str]]) -> None:
        """`values` are (name, value). Every line of a value of several lines (a PEM key) counts."""
        names = {}
        for name, value in values:
            for line in value.splitlines():
                for text in _spellings(line.strip()):
                    if len(text) >= MIN_SECRET_CHARS:
                        names[text.encode("utf-8", "surrogateescape")] = f"[redacted {name}]".encode()
        # Longest first: a value that contains another one must go as a whole.
        self._pairs: List[Tuple[bytes, bytes]] = sorted(names.items(), key=lambda pair: -len(pair[0]))

    def learn(self, name: str, value: str) -> None:
        """Replace one more value, which came later."""
        more = [*self._pairs, *Redactor([(name, value)])._pairs]
        self._pairs = sorted(more, key=lambda pair: -len(pair[0]))

    @classmethod
    def from_environment(cls, names: Iterable[str], env: Mapping[str, str]) -> Redactor:
        return cls([(name, env[name]) for name in (*names, *TOKEN_NAMES) if env.get(name)])

    def clean(self, data: bytes) -> bytes:
        for secret, replacement in self._pairs:
            if secret in data:
                data = data.replace(secret, replacement)
        return self._clean_coloured(data) if b"\x1b" in data else data

    def _clean_coloured(self, data: bytes) -> bytes:
        plain = COLOUR.sub(b"", data)
        for secret, replacement in self._pairs:
            if secret in plain:
                letters = (re.escape(secret[at : at + 1]) for at in range(len(secret)))
                coloured = re.compile((rb"(?:%b)*" % COLOUR.pattern).join(letters))
                data = coloured.sub(partial(_keep_colours, replacement), data)
        return data

    def text(self, text: str) -> str:
        return self.clean(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def stream(self) -> RedactingStream:
        return RedactingStream(self)

    def held(self, data: bytes) -> int:
        """How many bytes at the end of `data` may be the start of a secret that goes on."""
        plain = self._begun(data)  # also what looks like a colour code that goes on may be a secret's digits
        if b"\x1b" not in data:
            return plain
        # The places of all bytes but those of colour codes; one that is cut off may be inside a secret too.
        tail = data[-COLOURED_BYTES:]
        end = COLOUR_BEGUN.search(tail)
        codes = [match.span() for match in COLOUR.finditer(tail)]
        kept = _without(codes, end.start() if end else len(tail))
        size = self._begun(bytes(tail[at] for at in kept))
        return max(plain, len(tail) - kept[-size] if size else 0)

    def _begun(self, data: bytes) -> int:
        longest = 0
        for secret, _ in self._pairs:
            tail = data[1 - len(secret) :]  # a whole secret is replaced, so one that goes on is shorter
            at = tail.find(secret[:1])
            while 0 <= at < len(tail) - longest:
                if secret.startswith(tail[at:]):
                    longest = len(tail) - at
                    break
                at = tail.find(secret[:1], at + 1)
        return longest


def _keep_colours(replacement: bytes, found: "re.Match[bytes]") -> bytes:
    return replacement + b"".join(COLOUR.findall(found.group()))


def _without(spans: Iterable[Tuple[int, int]], end: int) -> List[int]:
    kept: List[int] = []
    at = 0
    for first, last in spans:
        kept.extend(range(at, first))
        at = last
    return [*kept, *range(at, end)]


def _spellings(value: str) -> Iterator[str]:
    """The value as it stands, in a URL, in JSON, in hex and in base64."""
    yield value
    yield from (quote(value, safe="", errors="replace"), quote_plus(value, errors="replace"))
    yield from (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    data = value.encode("utf-8", "surrogateescape")
    if len(data) >= MIN_SECRET_CHARS:
        yield from (data.hex(), data.hex().upper())
        yield from _base64(data)


def _base64(data: bytes) -> Iterator[str]:
    """What base64 makes of the value alone, whatever stands before and behind it: three alignments."""
    for before, mixed in ((0, 0), (1, 2), (2, 3)):
        whole = (before + len(data)) * 8 // 6
        text = base64.b64encode(bytes(before) + data).decode()[mixed:whole]
        yield from (text, text.replace("+", "-").replace("/", "_"))


class RedactingStream:
    """Redacts chunks as they come, holding back only what may be the start of a secret."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        clean = self._redactor.clean(self._rest + data)
        held = self._redactor.held(clean)
        self._rest = clean[len(clean) - held :] if held else b""
        return clean[: len(clean) - held] if held else clean

    def flush(self) -> bytes:
        rest, self._rest = self._rest, b""
        return rest
