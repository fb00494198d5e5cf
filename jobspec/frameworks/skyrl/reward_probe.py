"""Whether the checkout's GSM8K reward understands a model that thinks before it answers.

The strict rule asks for `#### N` and takes the first one, also out of the thinking; such models often answer
in a style of their own, so right answers earn 0. Source: SkyRL at a9564572, and pull request 1816, which
drops the thinking and falls back to the last number (`skyrl_gym/envs/gsm8k/env.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from jobspec.finding import Finding, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.skyrl import dummy_trainers
from jobspec.frameworks.skyrl.settings import setting

ENVIRONMENT, END = "environment.env_class", "</think>"
FILES = tuple(f"skyrl-gym/skyrl_gym/envs/gsm8k/{name}.py" for name in ("env", "utils"))
# Families that think unless they are told not to, and members of them that never do.
THINKS = ("nemotron-3", "qwen3", "qwq", "glm-4.5", "glm-4.6", "glm-4.7", "glm-5", "deepseek-r1", "thinking")
NEVER = ("instruct", "-base", "coder")


def check_reward(context: Context, checkout: Path) -> Iterator[Finding]:
    model = context.spec.model
    name = (model.id or model.path or "").lower() if model else ""
    thinks = any(word in name for word in THINKS) and not any(word in name for word in NEVER)
    if not thinks or setting(context, ENVIRONMENT) != "gsm8k" or dummy_trainers.is_dummy(context):
        return
    sources = [tree for file in FILES if (tree := _parsed(checkout / file)) is not None]
    if sources and not any(_names_the_end(tree) for tree in sources):
        yield warning(
            "skyrl.reward",
            "the model thinks before it answers, and the checkout's reward of `gsm8k` does not know thinking",
            f"it never looks for `{END}`, and gives 0 to a right answer that is not written `#### N`",
            "use a checkout with SkyRL pull request 1816, or an environment of your own",
            path=f"train.overrides.{ENVIRONMENT}",
        )


def _parsed(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return None


def _names_the_end(tree: ast.Module) -> bool:
    """Whether code, not a comment, has the end of thinking as a text."""
    return any(isinstance(node, ast.Constant) and node.value == END for node in ast.walk(tree))
