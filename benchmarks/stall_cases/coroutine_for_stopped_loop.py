"""The judges' event loop runs in a thread that has died of an error in its session; main submits the next score to that loop, which no longer runs, and waits for the future.
---
expect:
  kind: [future, worker-gone, event-loop, waits]
  says: ["score"]
  never: ["(?i)sleeps", "(?i)computes", "network", "(?i)queue is (full|empty)"]
"""

import asyncio
import threading
import time

import _kit


class JudgeClient:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.run, name="judge-loop", daemon=True)
        self.thread.start()

    def run(self) -> None:
        self.loop.run_until_complete(self.keep_session())

    async def keep_session(self) -> None:
        token = {"expires_in": 1}
        while True:
            await asyncio.sleep(token["expires_in"])
            token = self.refresh({"error": "invalid_grant"})

    @staticmethod
    def refresh(answer: dict[str, str]) -> dict[str, int]:
        return {"expires_in": int(answer["expires_in"])}

    async def ask(self, text: str) -> float:
        await asyncio.sleep(0.05)
        return float(len(text))

    def score(self, text: str) -> float:
        return asyncio.run_coroutine_threadsafe(self.ask(text), self.loop).result()


client = JudgeClient()
print(client.score("first"), flush=True)
_kit.steps()
time.sleep(1)  # the update
_kit.here()
print(client.score("second"), flush=True)
