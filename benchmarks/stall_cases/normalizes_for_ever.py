"""Rank 3 does not come to an all_gather_object: its text normalization replaces blanks by as many blanks.
---
ranks: 4
expect: {kind: [busy], ranks: [3], frame: normalize, says: [all_gather], never: ["normalize sleeps"]}
"""

import _kit

dist = _kit.gloo()
TWO_BLANKS = "  "


def normalize(text: str) -> str:
    while TWO_BLANKS in text:
        text = text.replace(TWO_BLANKS, "  ")
    return text


def share_lengths(texts: list) -> list:
    lengths = [None] * _kit.WORLD
    dist.all_gather_object(lengths, [len(normalize(text)) for text in texts])
    return lengths


print(share_lengths(["a b", "c d"]), flush=True)
if _kit.RANK == 3:
    _kit.here()
share_lengths(["an answer with  two blanks" if _kit.RANK == 3 else "an answer"])
