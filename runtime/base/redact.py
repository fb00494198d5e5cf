"""Secret values never reach a file that jobspec writes: they are replaced as bytes pass by."""

from __future__ import annotations

import json
from typing import Iterable, List, Mapping, Tuple
from urllib.parse import quote, quote_plus

MIN_SECRET_CHARS = 6  # shorter values ("1", "true") would blacken half of a log; documented
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

    @classmethod
    def from_environment(cls, names: Iterable[str], env: Mapping[str, str]) -> Redactor:
        return cls([(name, env[name]) for name in (*names, *TOKEN_NAMES) if env.get(name)])

    def clean(self, data: bytes) -> bytes:
        for secret, replacement in self._pairs:
            if secret in data:
                data = data.replace(secret, replacement)
        return data

    def text(self, text: str) -> str:
        return self.clean(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def stream(self) -> RedactingStream:
        return RedactingStream(self)

    def held(self, data: bytes) -> int:
        """How many bytes at the end of `data` may be the start of a secret that goes on."""
        longest = 0
        for secret, _ in self._pairs:
            for size in range(min(len(secret) - 1, len(data)), longest, -1):
                if data.endswith(secret[:size]):
                    longest = size
                    break
        return longest


def _spellings(value: str) -> Tuple[str, ...]:
    """The value as it stands, in a URL and in JSON."""
    url = (quote(value, safe="", errors="replace"), quote_plus(value, errors="replace"))
    return (value, *url, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])


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
