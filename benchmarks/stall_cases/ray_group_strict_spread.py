"""A placement group spreads two bundles strictly over nodes, of which there is one.
---
ray: true
expect:
  kind: [ray-demand]
  says: ["STRICT_SPREAD", "1 node"]
  never: ["sleeps", "computes", "dead"]
"""

import _kit
import ray
from ray.util.placement_group import placement_group

ray.init()
_kit.steps()
group = placement_group([{"CPU": 0.5}, {"CPU": 0.5}], strategy="STRICT_SPREAD")
_kit.here()
ray.get(group.ready())
