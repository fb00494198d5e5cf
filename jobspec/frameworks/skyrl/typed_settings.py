"""Settings that jobspec computes with: a value of the wrong kind becomes a finding.

SkyRL reports such a value as well, but only once the allocation is there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from jobspec.finding import Finding, error
from jobspec.frameworks.base import Context
from jobspec.frameworks.shared.dotted_keys import flat
from jobspec.frameworks.skyrl.settings import DEFAULTS, ENGINE, OPTIMIZER, TRANSFORMER

WHOLE = {
    **{key: 1 for key, value in DEFAULTS.items() if type(value) is int},
    "trainer.policy.model.lora.rank": 0,
    "trainer.max_tokens_per_microbatch": -1,  # -1: no cap
    "trainer.placement.policy_num_nodes": 1,
    "trainer.placement.policy_num_gpus_per_node": 1,
    f"{ENGINE}.engine_init_kwargs.max_model_len": 1,
    f"{TRANSFORMER}.num_layers_in_first_pipeline_stage": 1,
    f"{TRANSFORMER}.num_layers_in_last_pipeline_stage": 1,
    f"{TRANSFORMER}.recompute_num_layers": 1,
    f"{TRANSFORMER}.mtp_num_layers": 0,
}
SHARES = (f"{ENGINE}.gpu_memory_utilization", f"{OPTIMIZER}.optimizer_offload_fraction")
# `null` is SkyRL's own "not set" for these keys; every other key has a default and needs a value.
NULLABLE = {key for key in (*WHOLE, *SHARES) if key not in DEFAULTS} | {
    "trainer.max_tokens_per_microbatch",
    "trainer.logprobs_chunk_size",
}


def check_values(context: Context) -> Iterator[Finding]:
    for key, value in flat(context.spec.train.overrides).items():
        if value is None and key in NULLABLE:
            continue
        if key in WHOLE and not _is_whole(value, WHOLE[key]):
            yield _wrong(key, value, f"a whole number from {WHOLE[key]} on is needed")
        elif key in SHARES and not _is_share(value):
            yield _wrong(key, value, "a number from 0 to 1 is needed")


def _wrong(key: str, value: Any, needed: str) -> Finding:
    what = f"`{key}` is {json.dumps(value, default=str)}, {needed}"
    return error("skyrl.value", what, fix="correct it, or remove it", path=f"train.overrides.{key}")


def _is_whole(value: Any, least: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return False
    try:
        return int(value) >= least
    except ValueError:
        return False


def _is_share(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        number = float(value)
    except ValueError:
        return False
    return math.isfinite(number) and 0 <= number <= 1
