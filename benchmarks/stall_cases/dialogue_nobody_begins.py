"""Rank 2's scenario says that the assistant opens the dialogue: the user simulator waits for its first turn, and the environment's reset() reads the user's first line; the others are in the all_reduce.
---
ranks: 3
expect:
  kind: [pipe, input, subprocess, waits, rank-differs, collective-absent]
  ranks: [2]
  says: ["reset", "all_reduce"]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)computes", "(?i)(simulator|child|program)[^;.]* (is gone|has ended|has died)"]
"""

import json
import subprocess
import sys

import _kit
import torch

SIMULATOR = """
import json, sys
scenario = json.loads(sys.argv[1])
if scenario["opens"] == "user":
    print(scenario["goal"], flush=True)
for turn in sys.stdin:
    print("and then?", flush=True)
"""


class DialogueEnv:
    def __init__(self, scenario: dict[str, str]) -> None:
        command = [sys.executable, "-c", SIMULATOR, json.dumps(scenario)]
        self.user = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def reset(self) -> str:
        return self.user.stdout.readline()

    def step(self, answer: str) -> str:
        self.user.stdin.write(answer + "\n")
        self.user.stdin.flush()
        return self.user.stdout.readline()


dist = _kit.gloo()
opens = "assistant" if _kit.RANK == 2 else "user"
env = DialogueEnv({"opens": opens, "goal": "book a table for two"})
if _kit.RANK == 2:
    _kit.here()
env.reset()
env.step("for which evening?")
dist.all_reduce(torch.ones(4))
