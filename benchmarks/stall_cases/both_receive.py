"""Two ranks receive from each other, and nobody sends.
---
ranks: 2
expect: {kind: [collective-all, collective-order], ranks: [], says: [recv]}
"""

import _kit
import torch

dist = _kit.gloo()
_kit.here()
dist.recv(torch.ones(4), src=1 - _kit.RANK)
