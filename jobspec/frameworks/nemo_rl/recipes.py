"""Maintained recipes of a NeMo-RL checkout by their names, each as a variant of the asked level.

A recipe is a file below `examples/configs/recipes`. The script of the same name below `tests/test_suites`
says how large it runs and what it checks. jobspec gives the recipe to the script's entry point itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import yaml

from jobspec.frameworks.nemo_rl.checkout import read_text
from jobspec.frameworks.nemo_rl.properties import ASYNC
from jobspec.frameworks.nemo_rl.suite import Suite, read_suite
from jobspec.frameworks.nemo_rl.variant import MODEL_KEYS, Trainer
from jobspec.frameworks.shared.nemo_recipe import SIZES, Config, get, load, number

RECIPES, SUITES = "examples/configs/recipes", "tests/test_suites"
TRAINERS: Mapping[str, Trainer] = {
    "examples/run_grpo.py": "sync",
    "examples/run_vlm_grpo.py": "vlm",
    "examples/run_grpo_single_controller.py": "single_controller",
    "examples/run_sft.py": "sft",
    "examples/run_dpo.py": "dpo",
    "examples/run_distillation.py": "distillation",
}
"""Entry points whose runs jobspec can judge, each with its trainer."""
BY_PREFIX = {"grpo": "run_grpo", "dapo": "run_grpo", "prorlv2": "run_grpo", "vlm_grpo": "run_vlm_grpo"}
UNREADABLE = (OSError, ValueError, yaml.YAMLError)
FAMILY = re.compile(r"[a-z]+[\d.]*")


@dataclass(frozen=True)
class Recipe:
    """A recipe as its files have it; `suite` is None where the maintainers have no script for it."""

    name: str
    config: str
    composed: Config
    suite: Suite | None

    @property
    def entry(self) -> str:
        """The entry point, by the script or else by the name."""
        kind = self.name.partition("-")[0]
        named = self.suite.entry if self.suite else ""
        return named or f"examples/{BY_PREFIX.get(kind, f'run_{kind}')}.py"

    @property
    def trainer(self) -> Trainer | None:
        """The trainer that its entry point starts; None for one that jobspec cannot judge."""
        trainer = TRAINERS.get(self.entry)
        return "async" if trainer == "sync" and get(self.composed, ASYNC) is True else trainer

    @property
    def algorithm(self) -> str:
        kind = self.entry.rpartition("/run_")[2].removesuffix(".py")
        return "grpo" if "grpo" in kind else kind

    @property
    def nodes(self) -> int:
        return (self.suite.nodes if self.suite else 0) or number(self.composed, "cluster.num_nodes") or 1

    @property
    def gpus(self) -> int:
        own = number(self.composed, "cluster.gpus_per_node")
        return (self.suite.gpus if self.suite else 0) or own or 1

    @property
    def steps(self) -> int:
        own = number(self.composed, f"{self.algorithm}.max_num_steps")
        return (self.suite.steps if self.suite else 0) or own or 1

    @property
    def steps_key(self) -> str:
        return (self.suite.steps_key if self.suite else "") or f"{self.algorithm}.max_num_steps"

    @property
    def minutes(self) -> int:
        """Minutes that the maintainers give all its jobs; 0 where nothing says."""
        return self.suite.minutes if self.suite else 0

    @property
    def model(self) -> str:
        return str(get(self.composed, MODEL_KEYS[0]) or "")

    @property
    def on_megatron(self) -> bool:
        on = get(self.composed, "policy.megatron_cfg.enabled") is True
        return on and get(self.composed, "policy.dtensor_cfg.enabled") is not True

    @property
    def sizes(self) -> Mapping[str, int]:
        return sizes_of(self.composed)


def sizes_of(composed: Config) -> Mapping[str, int]:
    """The parallel sizes above 1, by their short names."""
    found = {name: number(composed, key) or 1 for name, key in SIZES.items()}
    return {name: size for name, size in found.items() if size > 1}


def files(root: str) -> Mapping[str, str]:
    """The recipes of a checkout: name -> file below it, without reading one."""
    found = sorted(Path(root, RECIPES).rglob("*.yaml"))
    return {path.stem: str(path.relative_to(root)) for path in found}


def read_recipe(root: str, name: str, config: str) -> Recipe:
    """Raises: OSError, ValueError or yaml.YAMLError when a file of the recipe cannot be read."""
    folder = Path(config).parent.relative_to(RECIPES)
    suite = read_suite(name, lambda script: read_text(root, f"{SUITES}/{folder}/{script}.sh"))
    return Recipe(name, config, load(Path(root, config)), suite)


def find_recipe(root: str, name: str) -> Recipe | None:
    """The recipe of that name; None where the checkout has none, or none that can be read."""
    config = files(root).get(name)
    try:
        return read_recipe(root, name, config) if config else None
    except UNREADABLE:
        return None


def all_recipes(root: str) -> Iterator[Recipe | str]:
    """Every recipe of a checkout in the order of names; the name alone of one that cannot be read."""
    for name, config in files(root).items():
        try:
            yield read_recipe(root, name, config)
        except UNREADABLE:
            yield name


# -- by a model ---------------------------------------------------------------------------------------


def plain(model: str) -> str:
    """A model's name for comparisons: without its organisation, signs and capitals."""
    return re.sub(r"[^a-z0-9.]+", "", model.rpartition("/")[2].lower())


def is_of(recipe: Recipe, family: str) -> bool:
    """Whether the recipe's model, or its own name, holds the words of `family`."""
    wanted = plain(family)
    return wanted in plain(recipe.model) or wanted in plain(recipe.name)


def closest(root: str, model: str, most: int = 3) -> tuple[Recipe, ...]:
    """Recipes on Megatron for this model or its nearest relatives, the closest and smallest first."""
    wanted, family = plain(model), FAMILY.match(model.rpartition("/")[2].lower())
    ranked = []
    for recipe in all_recipes(root):
        if isinstance(recipe, str) or not recipe.on_megatron or recipe.trainer is None:
            continue
        own = plain(recipe.model)
        if family is not None and own.startswith(family[0]):
            likeness = SequenceMatcher(None, wanted, own).ratio()
            ranked.append((-round(likeness, 2), recipe.nodes * recipe.gpus, recipe.name, recipe))
    return tuple(item[-1] for item in sorted(ranked, key=lambda item: item[:3])[:most])
