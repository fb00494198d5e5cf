"""The trainer submits all prompts before it collects an answer: both queues hold four, so the workers wait to put their answers and the trainer to put its prompts.
---
expect:
  kind: [queue, lock, pipe, network]
  says: ["submit_prompts|generate_loop", "(?i)put|full|queue"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)queue[^.;]* is empty"]
"""

import multiprocessing
import time
from typing import Any

import _kit


def generate_loop(prompts: Any, answers: Any) -> None:
    while True:
        index, prompt = prompts.get()
        time.sleep(0.05)
        answers.put((index, prompt.upper()))


def submit_prompts(prompts: Any, batch: list[str]) -> None:
    for index, prompt in enumerate(batch):
        if index == 10:
            time.sleep(2)  # a slow line of the data set
            _kit.here()
        prompts.put((index, prompt))


def collect_answers(answers: Any, count: int) -> list[str]:
    return [text for _, text in sorted(answers.get() for _ in range(count))]


_kit.steps()
context = multiprocessing.get_context("fork")
prompts, answers = context.Queue(maxsize=4), context.Queue(maxsize=4)
workers = [context.Process(target=generate_loop, args=(prompts, answers), daemon=True) for _ in range(2)]
for worker in workers:
    worker.start()
for batch in (["what is 2 + 2"] * 4, ["what is 3 + 3"] * 64):
    submit_prompts(prompts, batch)
    print(len(collect_answers(answers, len(batch))), flush=True)
