"""The driver waits for a placement group of two small bundles with STRICT_SPREAD, but the cluster has one node only.
---
ray: true
expect:
  kind: [ray-demand, ray]
  says: ["(?i)strict_spread|placement.?group"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)actor[^.;]* (is dead|died|was killed)"]
"""

import _kit
import ray
from ray.util.placement_group import PlacementGroup, placement_group


@ray.remote(num_cpus=0.1)
def warm_up(index: int) -> int:
    return index


def reserve_engines(count: int) -> PlacementGroup:
    """One engine a node, as each wants the node's whole network."""
    group = placement_group([{"CPU": 0.1}] * count, strategy="STRICT_SPREAD", name="engines")
    _kit.here()
    ray.get(group.ready())
    return group


ray.init()
_kit.steps()
print(ray.get([warm_up.remote(index) for index in range(2)]), flush=True)
reserve_engines(2)
