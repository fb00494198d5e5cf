"""Which levels and variants a change of Megatron-Bridge asks for: the rules of `required_when.yaml`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

from jobspec.finding import fail
from jobspec.words import did_you_mean, one_of

# The Bridge's recipes, its own data and its diffusion models take no part in an RL run.
SOURCE = re.compile(r"src/(?!megatron/bridge/(?:recipes|perf_recipes|data|diffusion)/)")


@dataclass(frozen=True)
class Rule:
    """A row of the guide's column "Required when". `minutes` is a time limit."""

    level: int
    gpus: int
    minutes: int
    why: str
    variant: str = ""  # empty: the level's default
    files: str = ""
    lines: str = ""
    nodes: int = 1

    def asked_by(self, file: str, changed: Sequence[str]) -> bool:
        """Whether the change of one file falls under the rule. A change of tests or documents does not."""
        if not SOURCE.match(file) or (self.files and not re.search(self.files, file)):
            return False
        return not self.lines or any(re.search(self.lines, line) for line in changed)


@dataclass(frozen=True)
class Need:
    """One training that the change asks for, and the files that ask for it."""

    rule: Rule
    asked_by: tuple[str, ...]


@cache
def rules_of(framework: str) -> tuple[Rule, ...]:
    """The rules of a framework's guide. Raises: JobspecError for a framework whose guide has none."""
    text = files("jobspec.frameworks").joinpath("required_when.yaml").read_text("utf-8")
    by_framework = yaml.safe_load(text)
    if framework not in by_framework:
        fix = did_you_mean(framework, by_framework) or f"use {one_of(list(by_framework))}"
        what = f"no guide says which changes of Megatron-Bridge ask for runs of `{framework}`"
        raise fail("framework.unknown", what, fix=fix)
    return tuple(Rule(**row) for row in by_framework[framework])


def required(rules: Sequence[Rule], changes: Mapping[str, Sequence[str]]) -> tuple[Need, ...]:
    """The trainings that changed files, with their added and removed lines, ask for; in the rules' order."""
    found = (
        Need(rule, tuple(file for file, lines in changes.items() if rule.asked_by(file, lines)))
        for rule in rules
    )
    return tuple(need for need in found if need.asked_by)
