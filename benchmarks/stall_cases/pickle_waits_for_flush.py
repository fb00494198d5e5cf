"""Rank 0 pickles its replay for broadcast_object_list; __getstate__ waits for a flush whose thread has died.
---
ranks: 3
expect: {kind: [lock], ranks: [0], frame: __getstate__, says: [broadcast]}
"""

import threading

import _kit

dist = _kit.gloo()


class Replay:
    def __init__(self) -> None:
        self.samples, self.flushed = list(range(100_000)), threading.Event()

    def flush(self) -> None:
        assert isinstance(self.samples[-1], str), "the last sample has no text"
        self.flushed.set()

    def __getstate__(self) -> dict:
        self.flushed.wait()
        return {"samples": self.samples}


def share(replay: Replay | None) -> list:
    objects = [replay]
    dist.broadcast_object_list(objects, src=0)
    return objects


replay = None
if _kit.RANK == 0:
    replay = Replay()
    flusher = threading.Thread(target=replay.flush)
    flusher.start()
    flusher.join()
    _kit.here()
share(replay)
