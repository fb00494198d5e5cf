"""Rank 0 packs the tokenizer, and the barrier for it stands inside `if rank == 0`: the others reduce, and only rank 0 is in the barrier.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order, collective-absent, rank-differs]
  ranks: [0]
  says: [barrier, all_reduce]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is gone)", "[Aa]ll ranks[^;.]* same"]
"""

import json
import os
import tempfile

import _kit
import torch

dist = _kit.gloo()


def prepare_tokenizer(folder: str) -> None:
    if _kit.RANK == 0:
        with open(os.path.join(folder, "tokenizer.json"), "w") as file:
            json.dump({"eos": 2, "vocabulary": list(range(1000))}, file)
        _kit.here()
        dist.barrier()  # one level too deep


def mean_reward(rewards: torch.Tensor) -> float:
    dist.all_reduce(rewards)
    return rewards.mean().item()


prepare_tokenizer(tempfile.mkdtemp())
for step in range(4, 100):
    print(f"step {step} reward {mean_reward(torch.rand(16)):.3f}", flush=True)
