"""Rank 0 has raised an error, but a thread of it that sends a profile keeps it alive; the others wait.
---
ranks: 3
expect:
  kind: [sleep, join]
  ranks: [0]
  frame: send_profile
  says: ["send_profile", all_reduce]
  never: ["rank [12]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)"]
"""

import threading
import time

import _kit
import torch

dist = _kit.gloo()


def send_profile() -> None:
    time.sleep(3600)


def train() -> None:
    if _kit.RANK == 0:
        _kit.here()
        raise ValueError("the loss is no number")
    dist.all_reduce(torch.ones(4))


if _kit.RANK == 0:
    threading.Thread(target=send_profile, name="profile").start()
train()
