"""A reward that a server gives: see `reward_server.py`. A worker on any node finds it by its URL."""

from __future__ import annotations

import json
import os
import urllib.request
from typing import Any

from tiny_rewards import text_of


def score(completions: list[Any], **columns: Any) -> list[float]:
    """What the service `reward` says of each completion."""
    texts = [text_of(completion) for completion in completions]
    url = os.environ["JOBSPEC_SERVICE_REWARD_URL"] + "/score"
    with urllib.request.urlopen(url, data=json.dumps(texts).encode(), timeout=60) as answer:
        scores: list[float] = json.load(answer)
    return scores
