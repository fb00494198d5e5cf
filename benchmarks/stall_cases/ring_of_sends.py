"""Each of three ranks first sends its shard to the next one, and would receive only then.
---
ranks: 3
expect: {kind: [collective-all, collective-order], ranks: [], says: [send], never: ["rank [0-9]+ is"]}
"""

import _kit
import torch

dist = _kit.gloo()
shard = torch.ones(8_000_000)


def rotate(shard: torch.Tensor) -> torch.Tensor:
    dist.send(shard, dst=(_kit.RANK + 1) % _kit.WORLD)
    got = torch.empty_like(shard)
    dist.recv(got, src=(_kit.RANK - 1) % _kit.WORLD)
    return got


_kit.here()
rotate(shard)
