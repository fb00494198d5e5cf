"""The variables of verl's script, Hydra overrides, and sizes: what a checkout takes, and what fits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.shared.owned_keys import owned_key
from jobspec.frameworks.shared.trackers import check_trackers
from jobspec.frameworks.shared.whole_numbers import divisors, is_count, nearest_numbers
from jobspec.frameworks.verl import settings
from jobspec.frameworks.verl.batch_sizes import Batch, batch, check_batch
from jobspec.frameworks.verl.checkout import IMAGE_MEGATRON, Wrapper, read_config, unknown_part
from jobspec.frameworks.verl.levels import DEFAULT_LORA_RANK
from jobspec.frameworks.verl.parquet import row_count
from jobspec.frameworks.verl.printed_config import value_text
from jobspec.words import did_you_mean, one_of

ENGINES = ("vllm", "sglang")
REPLAY = ("disabled", "R2", "R3")
# The script compares with exactly `True`: `true` and `1` silently mean no.
SWITCHES = (
    "USE_DUMMY_MODEL",
    "VAL_BEFORE_TRAIN",
    "USE_DYNAMIC_BSZ",
    "LORA_MERGE",
    "ALL_OFFLOAD",
    "USE_FUSED_KERNELS",
    "USE_REMOVE_PADDING",
    "USE_DIST_CKPT",
    "OPTIM_MEMORY_EFFICIENT",
    "PROFILE_ENABLE",
)
NUMBERS = (
    "LORA_RANK",
    "CRITIC_LORA_RANK",
    "LORA_ALPHA",
    "MAX_PROMPT_LENGTH",
    "MAX_RESPONSE_LENGTH",
    "PPO_MAX_TOKEN_LEN",
    "FWD_MAX_TOKEN_LEN",
    "SKIP_SAVE_HF_MODEL",
)
ROLE_SIZE = re.compile(r"^(ACTOR|REF|CRITIC)_(TP|PP|VPP|CP|EP|ETP)$")
# Variables and keys that jobspec sets, and the spec's key for them.
OWNED = {
    "NUM_GPUS": "resources.gpus_per_node",
    "MODEL_ID": "model",
    "MODEL_PATH": "model",
    "RM_MODEL_PATH": "train.reward",
    "DUMMY_MODEL_PATH": "",
    "TRAIN_FILES": "data",
    "VAL_FILES": "data",
    "TOTAL_TRAIN_STEPS": "train.steps",
    "SAVE_FREQ": "checkpoint.every",
    "RESUME_MODE": "checkpoint.resume",
    "ADV_ESTIMATOR": "train.algorithm",
    "USE_MBRIDGE": "",
    "VANILLA_MBRIDGE": "",
    "VALUE_VANILLA_MBRIDGE": "",
    "USE_MEGATRON_FSDP": "coverage.level",
    "COMMON_TP": "train.parallel.tp",
    "COMMON_PP": "train.parallel.pp",
    "COMMON_VPP": "train.parallel.vpp",
    "COMMON_CP": "train.parallel.cp",
    "COMMON_EP": "train.parallel.ep",
    "COMMON_ETP": "train.parallel.etp",
    "TRAIN_TP": "train.parallel.tp",
    "INFER_TP": "train.rollout.tp",
    "ROLLOUT_TP": "train.rollout.tp",
    settings.LOGGER: "",  # with a plus; without one it adds trackers
    "trainer.nnodes": "resources.nodes",
    "trainer.n_gpus_per_node": "resources.gpus_per_node",
    "trainer.total_training_steps": "train.steps",
    "trainer.total_epochs": "train.steps",
    "trainer.save_freq": "checkpoint.every",
    "trainer.resume_mode": "checkpoint.resume",
    "trainer.default_local_dir": "checkpoint.dir",
    "data.train_files": "data",
    "data.val_files": "data",
    "data.seed": "train.seed",
    **{
        f"{place}custom_reward_function.{key}": "train.reward"
        for place in ("reward.", "")
        for key in ("path", "name")
    },
}
# The same by other names: keys of the Bridge switches and of sizes.
OWNED_TOO = re.compile(r"\.(?:use_mbridge|vanilla_mbridge|use_megatron_fsdp|\w*parallel_size)$")


def check_overrides(context: Context) -> Iterator[Finding]:
    """Names that jobspec owns, and values that the script would break: it expands `$@` without quotes."""
    for key, value in context.spec.train.overrides.items():
        path, bare = f"train.overrides.{key}", key.lstrip("+~")
        if key == settings.LOGGER:
            yield from check_trackers("verl.tracker", key, value, settings.TRACKERS)
        elif bare in OWNED or OWNED_TOO.search(bare):
            yield owned_key("verl.owned", key, OWNED.get(bare, ""))
        elif isinstance(value, dict):
            fix = "write its keys with dots, one by one"
            yield error("verl.override", f"`{key}` is a map", fix=fix, path=path)
        elif re.search(r"[\s*?]", f"{key}{value_text(value)}"):
            why = (
                "the script expands its arguments without quotes: spaces split them, `*` and `?` match files"
            )
            fix = "use a value without spaces, `*` and `?`"
            yield error("verl.override", f"`{key}` does not survive the script", why, fix, path=path)
    yield from _check_values(context)


def _check_values(context: Context) -> Iterator[Finding]:
    """Values that the script or verl misreads, and values that end it."""
    overrides = context.spec.train.overrides
    engine, replay = (
        str(overrides.get("ENGINE", "vllm")),
        str(overrides.get("ROUTING_REPLAY_MODE", "disabled")),
    )
    if engine not in ENGINES:
        yield error("verl.engine", f"there is no rollout engine `{engine}` in the script",
                    fix=f"use {one_of(ENGINES)}", path="train.overrides.ENGINE")  # fmt: skip
    if replay not in REPLAY:
        yield error("verl.replay", f"there is no router replay mode `{replay}`",
                    fix=f"use {one_of(REPLAY)}", path="train.overrides.ROUTING_REPLAY_MODE")  # fmt: skip
    for name in SWITCHES:
        if str(overrides.get(name, True)) not in ("True", "False"):
            what = f"`{name}` is `{overrides[name]}`, and the script knows `True` and `False` only"
            yield error("verl.value", what, fix="write `true` or `false`", path=f"train.overrides.{name}")
    for name in NUMBERS:
        if not str(overrides.get(name, 0)).isdecimal():
            what = f"`{name}` is `{overrides[name]}`, a whole number from 0 on is needed"
            yield error("verl.value", what, path=f"train.overrides.{name}")
    yield from _check_dummy(context)


def _check_dummy(context: Context) -> Iterator[Finding]:
    """The script dies on the unset variable, and only after the cluster is up."""
    if not settings.is_dummy(context):
        return
    config = context.spec.train.overrides.get("DUMMY_MODEL_CONFIG_PATH")
    path = "train.overrides.DUMMY_MODEL_CONFIG_PATH"
    if not config:
        what = "a dummy model needs `DUMMY_MODEL_CONFIG_PATH`"
        fix = "name a JSON file in the checkout that overrides the model's configuration"
        yield error("verl.dummy", what, "the script stops on the unset variable", fix, path=path)
        return
    root = Path(context.repo_paths.get("verl", ""))
    relative = not str(config).startswith("/")
    if relative and "verl" in context.repo_paths and root.is_dir() and not (root / str(config)).is_file():
        what = f"the verl checkout has no `{config}`"
        fix = "name a file below the checkout, or an absolute path that the nodes can read"
        yield error("verl.dummy", what, fix=fix, path=path)


def check_script(context: Context, wrapper: Wrapper) -> Iterator[Finding]:
    """Keys that the script sets and the checkout's configuration lacks."""
    config = read_config(context.repo_paths)
    lacking = [key for key in wrapper.keys if config is not None and unknown_part(config, key) is not None]
    if lacking:
        what = (
            f"this verl checkout's script sets {one_of(lacking[:3])}, and its configuration has no such key"
        )
        why = "Hydra ends the run on it; script and package are of two releases"
        yield error("verl.script", what, why, "check out one release as a whole", path="repos")


def check_keys(context: Context) -> Iterator[Finding]:
    """Hydra keys that the checkout's configuration lacks: Hydra stops on them, or worse, adds them."""
    hydra = settings.split_overrides(context.spec.train.overrides).hydra
    variants = [item for item in settings.chosen_variants(context) if item.overrides]
    config = read_config(context.repo_paths) if hydra or variants else None
    if config is None:
        return
    for key in hydra:
        missing = None if key.startswith(("+", "~")) else unknown_part(config, key)
        if missing is not None:
            part, there = missing
            what = f"verl's configuration has no `{key}`: `{part}` is not known there"
            fix = did_you_mean(part, there) or f"write `++{key}` to add it"
            yield error("verl.key", what, fix=fix, path=f"train.overrides.{key}")
    for variant in variants:
        for text in variant.overrides:
            key = text.partition("=")[0].lstrip("+")
            if unknown_part(config, key) is not None:
                what = (
                    f"this verl checkout's configuration has no `{key}`, which variant `{variant.name}` needs"
                )
                why = "verl would add the key without any effect, or a worker would refuse it"
                fix = f"use a newer checkout of verl ({variant.needs})"
                yield error("verl.key", what, why, fix, path="coverage.variants")


def check_variables(context: Context, wrapper: Wrapper) -> Iterator[Finding]:
    """Variables that the checkout's script does not read: they would have no effect."""
    variables = settings.split_overrides(context.spec.train.overrides).variables
    names = [*settings.variables(context, wrapper), "MODEL_PATH", "TRAIN_FILES", "VAL_FILES",
              "TOTAL_TRAIN_STEPS", "RESUME_MODE"]  # fmt: skip
    names += ["RM_MODEL_PATH"] if settings.reward_model(context) else []
    for name in names:
        if not wrapper.reads(name):
            path = f"train.overrides.{name}" if name in variables else OWNED.get(name) or "repos"
            yield error(
                "verl.knob",
                f"the script of this verl checkout does not read `{name}`",
                "the script would run without it and prove something else",
                "use a newer checkout, or another level; do not set the variable by hand",
                path=path,
            )
    if settings.reward_model(context) is None and not wrapper.reward_switch:
        what = "the script of this verl checkout names no key that turns the reward model off"
        yield error("verl.knob", what, fix="use `train.reward: model:NAME`", path="train.reward")
    here = context.cluster.scheduler == "local" and context.container.runtime == "none"
    if wrapper.prefers_image_megatron and not (here and not Path(IMAGE_MEGATRON).is_dir()):
        yield warning(
            "verl.image-megatron",
            f"the script puts `{IMAGE_MEGATRON}` before every checkout on the driver's PYTHONPATH",
            "an image that has this folder hides the Megatron-Core that belongs to the Bridge checkout",
            f"use an image without this folder, or mount the wanted Megatron-LM at `{IMAGE_MEGATRON}`",
            path="container.image",
        )


# -- sizes -------------------------------------------------------------------------------------------


def check_sizes(context: Context, wrapper: Wrapper | None) -> Iterator[Finding]:
    """Grids of roles with sizes of their own, engines, and batches; the actor's grid is every Megatron's."""
    bad = list(_check_role_values(context))
    yield from bad
    if bad:
        return
    world = context.spec.resources.nodes * context.gpus_per_node
    for role in roles(context):
        if role != "actor" and not _has_own_sizes(context, role):
            continue
        if role != "actor":
            yield from _check_grid(context, role, world)
        size = settings.role_sizes(context, role)
        group = size["tp"] * size["pp"] * size["cp"]
        if world % group == 0:
            yield from check_batch(context, wrapper, role, world // group)
    tp = settings.rollout_tp(context)
    if world % tp:
        fix = f"use {nearest_numbers(divisors(world), tp)}"
        what = f"{world} GPUs cannot be divided into rollout engines of {tp}"
        yield error("verl.rollout", what, fix=fix, path="train.rollout.tp")


def check_rows(context: Context, wrapper: Wrapper) -> Iterator[Finding]:
    """Files with fewer rows than one step takes: verl drops the last part of an epoch, and no step runs."""
    sizes = batch(context, wrapper)
    for index, item in enumerate(context.spec.data):
        source = Path(item.source)
        path = source / "train.parquet" if item.name not in ("train", "val") else source
        if sizes is None or item.prepare or item.name == "val" or not source.is_absolute():
            continue
        if os.path.isfile(path):  # noqa: PTH113 - never raises
            yield from _check_file(path, sizes, f"data[{index}].source")


def _check_file(path: Path, sizes: Batch, place: str) -> Iterator[Finding]:
    try:
        rows = row_count(path)
    except ImportError:
        what = f"the rows of `{path.name}` were not counted; one step takes {sizes.train}"
        why = "pyarrow is not installed, and with too few rows verl stops in its first epoch"
        fix = "install it: `pip install 'jobspec-rl[data]'`"
        yield warning("verl.rows-not-counted", what, why, fix, path=place)
        return
    if rows is not None and rows < sizes.train:
        key = sizes.keys.get("train", "MICRO_BSZ")
        what = f"`{path.name}` has {rows} rows, one step takes {sizes.train}"
        why = "verl would stop in its first epoch, or end without a step"
        fix = f"give {sizes.train} rows or more, or a smaller `{key}`"
        yield error("verl.rows", what, why, fix, path=place)


def roles(context: Context) -> tuple[str, ...]:
    """Roles that verl builds: an adapter's reference lives in the actor, and only GAE has a critic."""
    rank = context.spec.train.overrides.get("LORA_RANK", DEFAULT_LORA_RANK)
    full = str(rank) == "0" or any(item.name == "full" for item in settings.chosen_variants(context))
    critic = ("critic",) if settings.estimator(context) == "gae" else ()
    return ("actor", *(("ref",) if full else ()), *critic)


def _has_own_sizes(context: Context, role: str) -> bool:
    matches = (ROLE_SIZE.match(key) for key in context.spec.train.overrides)
    return any(match is not None and match[1] == role.upper() for match in matches)


def _check_role_values(context: Context) -> Iterator[Finding]:
    for key, value in context.spec.train.overrides.items():
        match = ROLE_SIZE.match(key)
        if match is None or (match[2] == "VPP" and value is None):
            continue
        if not is_count(value):
            what = f"`{key}` is `{value_text(value)}`, a whole number from 1 on is needed"
            yield error("verl.value", what, path=f"train.overrides.{key}")


def _check_grid(context: Context, role: str, world: int) -> Iterator[Finding]:
    size = settings.role_sizes(context, role)
    path = f"train.overrides.{role.upper()}_TP"
    dense, experts = size["tp"] * size["pp"] * size["cp"], size["etp"] * size["ep"] * size["pp"]
    for product, text in ((dense, "tp x pp x cp"), (experts, "etp x ep x pp")):
        if world % product:
            what = f"{world} GPUs cannot be divided by {text} = {product} of the {role}"
            fix = f"use sizes with product {nearest_numbers(divisors(world), product)}"
            yield error("verl.role-world", what, fix=fix, path=path)
    if (size["vpp"] or 1) > 1 and size["pp"] == 1:
        what = f"vpp is {size['vpp']}, and the {role} has one pipeline stage"
        yield error("verl.role-world", what, fix="set it to `null`", path=path.replace("_TP", "_VPP"))
