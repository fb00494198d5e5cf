"""How verl makes mini batches: sizes of the script and of Hydra keys, and whether they fit together.

Source: verl, `ppo_mini_batch_size` counts prompts; a worker multiplies it by `rollout.n` and divides it by
the data-parallel size. Before release 0.8.0 it rounds down and refuses 0; since then it refuses a rest too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobspec.finding import Finding, error
from jobspec.frameworks.base import Context
from jobspec.frameworks.shared.whole_numbers import divisors, is_count, nearest_numbers
from jobspec.frameworks.verl.checkout import Wrapper

RESPONSES = 4  # of one prompt, unless a Hydra key says otherwise
ROLES = {"actor": "actor_rollout_ref.actor", "ref": "actor_rollout_ref.actor", "critic": "critic"}
TRAIN, SAMPLES = "data.train_batch_size", "actor_rollout_ref.rollout.n"


@dataclass(frozen=True)
class Batch:
    """Prompts of a step and of a mini batch, responses of a prompt, and responses of a micro batch on a GPU.

    `keys` has the override that gives a size; without one it is the script's own, made from `MICRO_BSZ`.
    """

    micro: int
    mini: int
    train: int
    responses: int
    static: bool
    keys: Mapping[str, str]

    def path(self, *names: str) -> str:
        """The spec's key for the first of these sizes that an override gives."""
        given = next((self.keys[name] for name in names if name in self.keys), "MICRO_BSZ")
        return f"train.overrides.{given}"


def given_sizes(context: Context, role: str = "actor") -> dict[str, tuple[str, Any]]:
    """Sizes of the spec's own overrides, each with its key as it is written there. The last of two wins."""
    block = ROLES[role]
    names = {
        TRAIN: "train",
        SAMPLES: "responses",
        f"{block}.ppo_mini_batch_size": "mini",
        f"{block}.ppo_micro_batch_size_per_gpu": "micro",
    }
    overrides = context.spec.train.overrides
    found = {"micro": ("MICRO_BSZ", overrides["MICRO_BSZ"])} if "MICRO_BSZ" in overrides else {}
    for key, value in overrides.items():
        bare = key.lstrip("+")
        if bare in names:
            found[names[bare]] = (key, int(value) if isinstance(value, str) and value.isdecimal() else value)
    return found


def batch(context: Context, wrapper: Wrapper | None, role: str = "actor") -> Batch | None:
    """None when a size is no number, which the rules name, or where no checkout tells the script's own."""
    found = given_sizes(context, role)
    if not all(is_count(value) for _, value in found.values()) or (wrapper is None and "mini" not in found):
        return None
    base = context.spec.train.overrides.get("MICRO_BSZ", 2)
    grows = wrapper is not None and wrapper.batch_grows_with_gpus
    mini = base * context.gpus_per_node * 8 if grows else base * 4
    sizes = {"micro": base, "mini": mini, "train": mini * 2, "responses": RESPONSES}
    sizes |= {name: value for name, (_, value) in found.items()}
    dynamic = [context.spec.train.overrides.get("USE_DYNAMIC_BSZ", True)]
    hydra = f"{ROLES[role]}.use_dynamic_bsz"
    dynamic += [value for key, value in context.spec.train.overrides.items() if key.lstrip("+") == hydra]
    keys = {name: key for name, (key, _) in found.items() if key != "MICRO_BSZ"}
    return Batch(**sizes, static=str(dynamic[-1]) == "False", keys=keys)


def check_batch(context: Context, wrapper: Wrapper | None, role: str, replicas: int) -> Iterator[Finding]:
    """Mini and micro batches of one role, whose responses are shared by its data-parallel replicas."""
    sizes = batch(context, wrapper, role)
    if sizes is None:
        yield from _no_counts(context, role)
        return
    rounds_down = wrapper is not None and wrapper.batch_grows_with_gpus
    made = sizes.mini * sizes.responses
    if made % replicas and (made < replicas or not rounds_down):
        yield _uneven(sizes, role, replicas)
    elif sizes.static and "mini" in sizes.keys and made // replicas % sizes.micro:
        yield error(
            "verl.batch",
            f"{made // replicas} responses of a mini batch on each replica do not divide into micro batches "
            f"of {sizes.micro}",
            f"{sizes.mini} prompts x {sizes.responses} responses over {replicas} data-parallel replicas",
            f"use micro batches of {nearest_numbers(divisors(made // replicas), sizes.micro)}",
            path=sizes.path("micro", "mini"),
        )
    if wrapper is None and "train" not in sizes.keys:
        return  # the script's own size differs by release
    if sizes.train < sizes.mini:
        yield error(
            "verl.batch",
            f"a step takes {sizes.train} prompts, fewer than the {sizes.mini} of a mini batch",
            "verl needs at least one whole mini batch a step",
            f"set `{TRAIN}` to {sizes.mini} or more, or `ppo_mini_batch_size` to {sizes.train} or less",
            path=sizes.path("mini", "train"),
        )
    group = replicas * sizes.micro
    if sizes.static and sizes.train * sizes.responses % group:
        what = f"{sizes.train * sizes.responses} responses of a step do not divide into groups of {group}"
        why = f"{replicas} data-parallel replicas x micro batches of {sizes.micro}, without dynamic batches"
        yield error(
            "verl.batch", what, why, "leave `USE_DYNAMIC_BSZ` on", path=sizes.path("train", "responses")
        )


def _no_counts(context: Context, role: str) -> Iterator[Finding]:
    for key, value in given_sizes(context, role).values():
        if not is_count(value) and (role == "actor" or key.startswith("critic.")):
            what = f"`{key}` is {value!r}, a whole number from 1 on is needed"
            yield error("verl.batch", what, path=f"train.overrides.{key}")


def _uneven(sizes: Batch, role: str, replicas: int) -> Finding:
    """The mini batch whose responses the replicas cannot share, with the sizes that fit."""
    made = sizes.mini * sizes.responses
    others = nearest_numbers(divisors(made), replicas)
    if "mini" in sizes.keys or "responses" in sizes.keys:
        fits = [m for m in range(1, sizes.mini + replicas + 1) if m * sizes.responses % replicas == 0]
        why = f"`ppo_mini_batch_size` {sizes.mini} x `rollout.n` {sizes.responses}: " + (
            f"divided by {replicas} it is 0" if made < replicas else f"{made % replicas} are left over"
        )
        fix = f"set `ppo_mini_batch_size` to {nearest_numbers(fits, sizes.mini)}"
    else:
        step = 4 * RESPONSES
        fits = [m for m in range(1, sizes.micro + replicas + 1) if m * step % replicas == 0]
        why = f"`MICRO_BSZ` {sizes.micro} x 4 prompts x {RESPONSES} responses"
        fix = f"set `MICRO_BSZ` to {nearest_numbers(fits, sizes.micro)}"
    return error(
        "verl.batch",
        f"{made} responses of a mini batch cannot be shared by {replicas} data-parallel replicas"
        + (f" of the {role}" if role != "actor" else ""),
        why,
        f"{fix}, or have {others} replicas",
        path=sizes.path("mini", "responses"),
    )
