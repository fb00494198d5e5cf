"""The seed of the sampler depends on the node, and rank 3 is on the second one: in the tensor group of four it draws the end token earlier, leaves the decoding and is at the barrier, while the others reduce the next token's logits.
---
ranks: 4
expect:
  kind: [collective-differs, collective-order, collective-absent, rank-differs]
  ranks: [3]
  says: ["all_reduce|decode|forward", "barrier"]
  never: ["(?i)sleeps", "[Aa]ll ranks[^;.]* same", "(?i)computes", "is gone"]
"""

import _kit
import torch

dist = _kit.gloo()
GPUS_PER_NODE, VOCABULARY, END = 3, 32, 0


def forward(token: int) -> torch.Tensor:
    logits = torch.full((VOCABULARY,), 1.0 / _kit.WORLD)
    dist.all_reduce(logits)
    return logits


def decode(prompt: int, generator: torch.Generator) -> list[int]:
    tokens = [prompt]
    while len(tokens) < 4096:
        probabilities = torch.softmax(forward(tokens[-1]), 0)
        token = int(torch.multinomial(probabilities, 1, generator=generator))
        tokens.append(token)
        if token == END:
            break
    return tokens


def seed_of_node(base: int) -> int:
    return base + _kit.RANK // GPUS_PER_NODE


generator = torch.Generator().manual_seed(seed_of_node(12))
answer = decode(7, generator)
print(f"answer of {len(answer)} tokens", flush=True)
_kit.here()
dist.barrier()
