"""The tracker's close(), called in a coroutine, joins the flush thread; that one sends its last rows by run_coroutine_threadsafe() on the same event loop, which stands in the join, and waits for the result.
---
expect:
  kind: [join, future, event-loop, lock]
  says: ["close", "flush|run_coroutine_threadsafe|result"]
  never: ["(?i)sleeps", "computes", "waits at a socket", "(?i)does not answer"]
"""

import asyncio
import queue
import threading

import _kit


class Tracker:
    def __init__(self) -> None:
        self.loop, self.rows, self.sent = asyncio.get_running_loop(), queue.SimpleQueue(), 0
        self.thread = threading.Thread(target=self.flush_rows, name="tracker-flush")
        self.thread.start()

    def log(self, **row: float) -> None:
        self.rows.put(row)

    async def post(self, rows: list[dict[str, float]]) -> None:
        await asyncio.sleep(0.01)  # the session's request
        self.sent += len(rows)

    def flush_rows(self) -> None:
        held, more = [], True
        while more:
            row = self.rows.get()
            more = row is not None
            held += [row] if more else []
            if len(held) == 8 or (held and not more):
                asyncio.run_coroutine_threadsafe(self.post(held), self.loop).result()
                held = []

    def close(self) -> None:
        self.rows.put(None)
        _kit.here()
        self.thread.join()


async def evaluate() -> None:
    tracker = Tracker()
    for index in range(20):
        await asyncio.sleep(0.02)
        tracker.log(index=index, score=index % 2)
    tracker.close()
    print("sent", tracker.sent, flush=True)


_kit.steps()
asyncio.run(evaluate())
