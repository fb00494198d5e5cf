"""Two engines shall have a bundle each, but the index is divided by the GPUs of an engine of another configuration: both ask for bundle 0, the second one is pending for ever, and bundle 1 stays free.
---
ray: true
expect:
  kind: [ray-demand, ray]
  says: ["Engine"]
  never: ["(?i)(died|is dead)", "(?i)computes", "(?i)Engine[^.;]* sleeps", "(?i)each other", "SIGSTOP"]
"""

import _kit
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

ENGINES, BUNDLES_PER_ENGINE = 2, 2


@ray.remote(num_cpus=0.5)
class Engine:
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def load(self) -> int:
        return self.rank


def place_engines() -> list:
    group = placement_group([{"CPU": 0.5}] * ENGINES, strategy="PACK")
    ray.get(group.ready())
    return [
        Engine.options(
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=rank // BUNDLES_PER_ENGINE
            )
        ).remote(rank)
        for rank in range(ENGINES)
    ]


def load_all(engines: list) -> None:
    print("first engine", ray.get(engines[0].load.remote()), flush=True)
    _kit.here()
    ray.get([engine.load.remote() for engine in engines])


ray.init()
_kit.steps()
load_all(place_engines())
