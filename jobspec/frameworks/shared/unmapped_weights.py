"""Warnings of Megatron-Bridge about weights that found no mapping, or were left out of an import or export.

The program goes on after such a line, and trains or exports a model that lacks these weights.
Source: Megatron-Bridge at 067f987d, `models/conversion/model_bridge.py`; and the same told in other words.
"""

from __future__ import annotations

import re

HF_IMPORT = "HF import"
UNMAPPED_HINTS = ("apping", "hf_keys", "hf_state_dict", "nmapped", "kipp")
_WEIGHTS = r"(?:weights?|param(?:eter)?s?|tensors?|hf keys?)"
UNMAPPED = re.compile(
    r"\bno (?:\w+ )?mappings? (?:(?:was|were) )?(?:found )?for "
    r"(?:megatron|the |hf|param|weight|\S+\.(?:weight|bias))"
    r"|\bcan(?:'t|not) find .{1,500} in hf_(?:keys|state_dict)"
    rf"|(?<!0 )(?<!no )\bunmapped {_WEIGHTS}\b(?!:? ?(?:0|\[\]|none)\b|: \[\])"
    rf"|\bskip(?:ped|ping) (?:(?:\w+ ){{0,3}}{_WEIGHTS}|\S+\.(?:weight|bias))\b.{{0,300}}"
    r"(?:mapping|mapped|shape|not found|missing|mismatch)",
    re.IGNORECASE,
)
