"""A driver waits for a placement group that no node can hold.
---
ray: true
expect: {kind: [ray-demand], says: [placement group, INFEASIBLE]}
"""

import _kit
import ray
from ray.util.placement_group import placement_group

ray.init()
_kit.steps()
group = placement_group([{"CPU": 60}])
_kit.here()
ray.get(group.ready())
