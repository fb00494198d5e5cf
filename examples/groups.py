"""Reinforcement learning over three groups of nodes: the policy on one, engines and environments on others.

A stand-in for a large run, on CPUs and in seconds: each part asks Ray for its group's resource, see
`groups.yaml`. Metrics go where jobspec reads them.
"""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path

import ray

ARMS, BATCH, STEPS, RATE = 20, 64, 60, 2.0


@ray.remote(num_cpus=0)
class Environment:
    """Pays for some arms more often than for others."""

    def __init__(self) -> None:
        rng = random.Random(0)
        self.pays = [rng.betavariate(1, 4) for _ in range(ARMS - 1)] + [0.9]
        self.rng = random.Random(1)

    def rewards(self, arms: list[int]) -> list[float]:
        return [float(self.rng.random() < self.pays[arm]) for arm in arms]


@ray.remote(num_cpus=0)
class Engine:
    """Generates with the policy that it was sent, and asks an environment for the rewards."""

    def __init__(self, environment: ray.actor.ActorHandle) -> None:
        self.environment = environment

    def group(self) -> str:
        return os.environ["JOBSPEC_GROUP"]

    def rollout(self, policy: list[float], seed: int) -> list[tuple[int, float]]:
        arms = random.Random(seed).choices(range(ARMS), policy, k=BATCH)
        return list(zip(arms, ray.get(self.environment.rewards.remote(arms))))  # noqa: B905 - Python 3.9


def nodes_of(group: str) -> int:
    return len(os.environ[f"JOBSPEC_GROUP_{group.upper()}"].split(","))


def main() -> None:
    ray.init()
    # Each node of a group has 1 of its resource: a half of it for each of two actors.
    environments = [
        Environment.options(resources={"group:envs": 0.5}).remote() for _ in range(2 * nodes_of("envs"))
    ]
    engines = [
        Engine.options(resources={"group:rollout": 1}).remote(environments[index % len(environments)])
        for index in range(nodes_of("rollout"))
    ]
    print("the driver is in", os.environ["JOBSPEC_GROUP"], "the engines are in", end=" ")
    print(sorted(set(ray.get([engine.group.remote() for engine in engines]))), flush=True)
    logits = [0.0] * ARMS
    with Path(os.environ["JOBSPEC_METRICS_DIR"], "metrics.jsonl").open("w") as file:
        for step in range(1, STEPS + 1):
            weights = [math.exp(logit - max(logits)) for logit in logits]
            policy = [weight / sum(weights) for weight in weights]
            calls = [engine.rollout.remote(policy, 1000 * step + i) for i, engine in enumerate(engines)]
            pulls = [pull for pulled in ray.get(calls) for pull in pulled]
            mean = sum(reward for _, reward in pulls) / len(pulls)
            gradient = [0.0] * ARMS
            for arm, reward in pulls:
                for other in range(ARMS):
                    gradient[other] += (reward - mean) * ((other == arm) - policy[other]) / len(pulls)
            logits = [logit + RATE * slope for logit, slope in zip(logits, gradient)]  # noqa: B905
            file.write(json.dumps({"step": step, "reward": mean}) + "\n")


if __name__ == "__main__":
    main()
