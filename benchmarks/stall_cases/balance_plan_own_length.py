"""Each rank plans the exchange of long answers from the gathered lengths; rank 2 uses its own length after a repeated tail is cut off, so in its plan it is the receiver, and it waits for an answer that rank 0 has sent to rank 1.
---
ranks: 4
expect:
  kind: [collective-differs, rank-differs, collective-absent, collective-order, network, waits]
  ranks: [2]
  says: ["exchange|recv", "all_reduce"]
  never: ["rank [0-3]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|computes)", "[Aa]ll ranks[^;.]* same"]
"""

import _kit
import torch

dist = _kit.gloo()


def gathered_lengths(answer: torch.Tensor) -> list[int]:
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(_kit.WORLD)]
    dist.all_gather(lengths, torch.tensor([len(answer)]))
    return [int(length) for length in lengths]


def plan(lengths: list[int]) -> tuple[int, int]:
    """The rank with most tokens gives its second answer to the one with least."""
    order = sorted(range(_kit.WORLD), key=lambda rank: lengths[rank])
    return order[-1], order[0]


def exchange(giver: int, taker: int) -> torch.Tensor | None:
    if _kit.RANK == giver:
        dist.send(torch.ones(8), dst=taker)
    if _kit.RANK == taker:
        row = torch.empty(8)
        dist.recv(row, src=giver)
        return row
    return None


def without_repetition(answer: torch.Tensor) -> torch.Tensor:
    """Cuts a tail off that says one token again and again."""
    end = len(answer)
    while end > 1 and answer[end - 1] == answer[end - 2]:
        end -= 1
    return answer[:end]


def balanced_step(answer: torch.Tensor) -> None:
    lengths = gathered_lengths(answer)
    answer = without_repetition(answer)
    lengths[_kit.RANK] = len(answer)
    if _kit.RANK == 2:
        _kit.here()
    exchange(*plan(lengths))
    dist.all_reduce(torch.ones(4))


answer = torch.arange({0: 1000, 1: 200, 2: 600, 3: 500}[_kit.RANK])
if _kit.RANK == 2:
    answer[100:] = 7
balanced_step(answer)
