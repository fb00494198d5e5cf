"""A tokenizer actor of four threads fetches its vocabulary at the first text, with a lock held, from a mirror that accepts and never answers; the other three texts wait for the lock, and the driver for all four.
---
ray: true
expect:
  kind: [network, lock, ray]
  says: ["fetch_vocabulary|vocabulary|encode"]
  never: ["(?i)sleeps", "computes", "(?i)is dead|has died|was killed", "(?i)asks for (a )?resource"]
"""

import socket
import threading
import urllib.request

import _kit
import ray


@ray.remote(num_cpus=0, max_concurrency=4)
class Tokenizer:
    def __init__(self, mirror: str) -> None:
        self.mirror, self.words, self.loading = mirror, None, threading.Lock()

    def fetch_vocabulary(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.mirror}/vocab.txt") as answer:
            return {word: index for index, word in enumerate(answer.read().decode().split())}

    def vocabulary(self) -> dict[str, int]:
        with self.loading:
            if self.words is None:
                self.words = self.fetch_vocabulary()
            return self.words

    def encode(self, text: str) -> list[int]:
        words = self.vocabulary()
        return [words.get(word, 0) for word in text.split()]


listener = socket.create_server(("127.0.0.1", 0))
kept = []
threading.Thread(target=lambda: kept.append(listener.accept()), name="mirror", daemon=True).start()
ray.init()
_kit.steps()
tokenizer = Tokenizer.remote(f"http://127.0.0.1:{listener.getsockname()[1]}")
texts = [tokenizer.encode.remote(text) for text in ("two and two", "is four", "why", "as three is odd")]
ray.wait(texts, timeout=2)
_kit.here()
print(ray.get(texts), flush=True)
