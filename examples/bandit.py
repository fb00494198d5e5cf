"""A policy that learns which of 20 arms pays, by REINFORCE: plain Python, real learning in seconds.

The learning rate is LR; metrics go where jobspec reads them (`bandit.yaml`).
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from pathlib import Path

ARMS, BATCH, STEPS = 20, 64, 300


def main() -> None:
    rng = random.Random(0)
    rate = float(os.environ.get("LR", "0.4"))
    pays = [rng.betavariate(1, 4) for _ in range(ARMS - 1)] + [0.9]
    logits = [0.0] * ARMS
    with Path(os.environ["JOBSPEC_METRICS_DIR"], "metrics.jsonl").open("w") as file:
        for step in range(1, STEPS + 1):
            weights = [math.exp(logit - max(logits)) for logit in logits]
            policy = [weight / sum(weights) for weight in weights]
            pulled = rng.choices(range(ARMS), policy, k=BATCH)
            rewards = [float(rng.random() < pays[arm]) for arm in pulled]
            mean = sum(rewards) / BATCH
            gradient = [0.0] * ARMS
            for arm, reward in zip(pulled, rewards, strict=True):
                for other in range(ARMS):
                    gradient[other] += (reward - mean) * ((other == arm) - policy[other]) / BATCH
            logits = [logit + rate * slope for logit, slope in zip(logits, gradient, strict=True)]
            values = {
                "reward": mean,
                "grad_norm": math.hypot(*gradient),
                "entropy": -sum(p * math.log(p) for p in policy if p > 0),
            }
            file.write(json.dumps({"step": step, "time": time.time(), **values}) + "\n")


if __name__ == "__main__":
    main()
