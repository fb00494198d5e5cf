"""The toy's trainer: a softmax policy over a few arms, by policy gradient (REINFORCE with a baseline)."""

import argparse
import json
import math
import os
import random
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--arms", type=int, required=True)
parser.add_argument("--rate", type=float, required=True)
given = parser.parse_args()

PULLS = 64
dice = random.Random(given.seed)
weights = [0.0] * given.arms
with Path(os.environ["JOBSPEC_METRICS_DIR"], "metrics.jsonl").open("w") as file:
    for step in range(1, given.steps + 1):
        total = sum(math.exp(weight) for weight in weights)
        policy = [math.exp(weight) / total for weight in weights]
        arms = dice.choices(range(given.arms), policy, k=PULLS)
        pulls = [(arm, float(dice.random() < (arm + 1) / (given.arms + 1))) for arm in arms]
        mean = sum(reward for _, reward in pulls) / PULLS
        better = [(arm, (reward - mean) / PULLS) for arm, reward in pulls]
        gradient = [sum(((arm == i) - p) * a for arm, a in better) for i, p in enumerate(policy)]
        figures = {
            "step": step,
            "reward": mean,
            "loss": -sum(a * math.log(policy[arm]) for arm, a in better),
            "grad_norm": math.hypot(*gradient),
            "best_arm": policy[-1],
        }
        file.write(json.dumps(figures) + "\n")
        for i, part in enumerate(gradient):
            weights[i] += given.rate * part
