"""A tokenizer service collects four texts or 50 ms; a full batch cancels the timer but leaves its handle, so the next texts start no timer, and the last two of six wait for a flush that never comes.
---
expect:
  kind: [event-loop, future, waits, idle]
  says: ["encode|grade_all|gather"]
  never: ["(?i)(^|[^a-z])lock([^a-z]|$)", "(?i)sleeps", "(?i)network", "(?i)computes", "(?i)subprocess"]
"""

import asyncio

import _kit


class TokenizerService:
    def __init__(self, size: int, delay: float) -> None:
        self.size, self.delay = size, delay
        self.waiting: list[tuple[str, asyncio.Future[list[int]]]] = []
        self.timer: asyncio.TimerHandle | None = None

    async def encode(self, text: str) -> list[int]:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self.waiting.append((text, done))
        if len(self.waiting) == self.size:
            if self.timer is not None:
                self.timer.cancel()
            self.flush()
        elif self.timer is None:
            self.timer = loop.call_later(self.delay, self.timed_out)
        return await done

    def timed_out(self) -> None:
        self.timer = None
        self.flush()

    def flush(self) -> None:
        batch, self.waiting = self.waiting, []
        for text, done in batch:
            done.set_result(list(text.encode()))


async def grade_all(service: TokenizerService, answers: list[str]) -> int:
    ids = await asyncio.gather(*(service.encode(answer) for answer in answers))
    return sum(map(len, ids))


async def main() -> None:
    service = TokenizerService(size=4, delay=0.05)
    for step in range(1, 4):
        print(f"step {step} tokens {await grade_all(service, ['a short one'] * 2)}", flush=True)
    _kit.here()
    print(f"step 4 tokens {await grade_all(service, ['a short one'] * 6)}", flush=True)


_kit.steps()
asyncio.run(main())
