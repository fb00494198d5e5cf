"""Whether the image's name says that it lacks the rollout engine which the run will start."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.words import one_of

OFFICIAL = "verlai/verl:"  # whose tags name the engine that an image was built for
# Engines as the tags write them: `vllm018.dev1`, `sgl056.latest`, `app-verl0.6-…-sglang0.5.2-…`.
WORDS = {
    "vllm": re.compile(r"(?<![a-z])vllm(?![a-z])"),
    "sglang": re.compile(r"(?<![a-z])sgl(?:ang)?(?![a-z])"),
    "trtllm": re.compile(r"(?<![a-z])(?:trt(?:-?llm)?|tensorrt-?llm)(?![a-z])"),
}
HYDRA = "actor_rollout_ref.rollout.name"


def check_image(context: Context) -> Iterator[Finding]:
    image, (key, engine) = (context.spec.container.image or "").lower(), _engine(context)
    named = [name for name, word in WORDS.items() if word.search(image)]
    if engine not in WORDS or not named or engine in named:
        return
    yield (error if OFFICIAL in image else warning)(
        "verl.image-engine",
        f"the image's name says {one_of(named)}, and the rollouts need `{engine}`",
        "an image of verl has one engine, and a run without its engine ends when the rollouts start",
        f"use an image for `{engine}`, or set `train.overrides.{key}` to the image's engine",
        path="container.image",
    )


def _engine(context: Context) -> tuple[str, str]:
    """The override that decides the engine of the rollouts, and the engine.

    A Hydra key comes after the script's variable, and wins.
    """
    given = {key.lstrip("+"): (key, value) for key, value in context.spec.train.overrides.items()}
    key, engine = given.get(HYDRA) or given.get("ENGINE") or ("ENGINE", "vllm")
    return key, str(engine)
