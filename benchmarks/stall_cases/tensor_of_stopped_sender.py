"""A rollout process is stopped after it has put a trajectory into the queue: the learner has the pickle, but asks the sender for the descriptor of the tensor's shared memory and waits for that one's answer.
---
act: stop
expect:
  kind: [stopped, network, queue, pipe]
  says: ["collect", "(?i)stopp|SIGSTOP"]
  never: ["(?i)is gone|(it|server|process|rollout|sender) died|was killed", "(?i)computes", "(?i)refused", "(?i)deadlock"]
"""

import time

import _kit
import torch
import torch.multiprocessing as multiprocessing


def rollout(trajectories: multiprocessing.Queue, policies: multiprocessing.Queue) -> None:
    torch.set_num_threads(1)
    while True:
        policy = policies.get()
        trajectories.put(torch.full((1 << 16,), float(policy)))


def collect(trajectories: multiprocessing.Queue) -> torch.Tensor:
    return trajectories.get().clone()


def update(batch: torch.Tensor, seconds: float) -> float:
    time.sleep(seconds)
    return float(batch.mean())


def main() -> None:
    context = multiprocessing.get_context("fork")
    trajectories, policies = context.Queue(), context.Queue()
    worker = context.Process(target=rollout, args=(trajectories, policies), name="rollout", daemon=True)
    worker.start()
    policies.put(0)
    for policy in range(1, 4):
        batch = collect(trajectories)
        policies.put(policy)
        print(f"step {policy}: {update(batch, 1.0)}", flush=True)
    _kit.here(worker.pid)
    update(batch, 6.0)
    collect(trajectories)


main()
