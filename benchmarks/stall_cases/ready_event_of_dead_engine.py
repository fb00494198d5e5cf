"""Rank 2's engine process ends with an error before it sets its ready event; rank 2 waits for the event without a look at the process, the others are in the barrier.
---
ranks: 3
expect:
  kind: [worker-gone, lock, waits, other]
  ranks: [2]
  says: ["wait_until_loaded|start_engine|Event|wait", barrier]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|computes)", "[Aa]ll ranks[^;.]* same"]
"""

import json
import multiprocessing
import os
from multiprocessing.synchronize import Event
from pathlib import Path

import _kit

dist = _kit.gloo()
CONTEXT = multiprocessing.get_context("fork")


def load_engine(config: Path, ready: Event, stop: Event) -> None:
    layers = json.loads(config.read_text())["num_hidden_layers"]
    print(f"engine with {layers} layers", flush=True)
    ready.set()
    stop.wait()


class Engine:
    def __init__(self, config: Path) -> None:
        self.ready, self.stop = CONTEXT.Event(), CONTEXT.Event()
        self.process = CONTEXT.Process(target=load_engine, args=(config, self.ready, self.stop), daemon=True)
        self.process.start()

    def wait_until_loaded(self) -> None:
        if _kit.RANK == 2:
            _kit.here()
        self.ready.wait()


folder = Path(os.environ["JOBSPEC_ATTEMPT_DIR"])
config = folder / f"config-{_kit.RANK}.json"
config.write_text(json.dumps({"n_layer" if _kit.RANK == 2 else "num_hidden_layers": 32}))
engine = Engine(config)
engine.wait_until_loaded()
dist.barrier()
