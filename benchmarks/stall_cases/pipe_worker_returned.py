"""The reward worker's loop ends at an empty answer; rank 1 still has the other end of the pipe open itself, and waits for the reward.
---
ranks: 2
expect:
  kind: [pipe, network, worker-gone]
  ranks: [1]
  says: [ask_reward, all_reduce]
  never: ["(?i)queue", "sleeps", "computes", "half.?open"]
"""

import multiprocessing

import _kit
import torch


def score_answers(pipe) -> None:
    while answer := pipe.recv():
        pipe.send(len(answer) / 10)


def ask_reward(pipe, answer: str) -> float:
    pipe.send(answer)
    return pipe.recv()


dist = _kit.gloo()
near, far = multiprocessing.Pipe()
multiprocessing.get_context("fork").Process(target=score_answers, args=(far,), daemon=True).start()
reward = ask_reward(near, "a b")
if _kit.RANK == 1:
    _kit.here()
    reward = ask_reward(near, "")
dist.all_reduce(torch.tensor([reward]))
