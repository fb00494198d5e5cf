"""Rules for what a variant needs of a checkout. jobspec never runs something else in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path

import yaml

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.nemo_rl.arguments import DIVISOR, PACKING, overrides
from jobspec.frameworks.nemo_rl.checkout import (
    BRIDGE,
    entry_point,
    read_script,
    read_text,
    transfer_queue_source,
)
from jobspec.frameworks.nemo_rl.commands import CHECK_METRICS, CHECK_ROUTES, DUMP_EVENTS, ENTRY
from jobspec.frameworks.nemo_rl.properties import ASYNC, BACKENDS
from jobspec.frameworks.nemo_rl.variant import Variant
from jobspec.frameworks.shared import nemo_recipe as config
from jobspec.frameworks.shared.nemo_recipe import SIZES, Config, get, number
from jobspec.frameworks.shared.nemo_trainer_shape import SEQUENCE_PARALLEL

DATA_PLANE = (
    "enabled",
    "impl",
    "backend",
    "storage_capacity",
    "num_storage_units",
    "claim_meta_poll_interval_s",
    "global_segment_size",
    "local_buffer_size",
)
NO_DATA_PLANE = {  # keys below `grpo`
    "invalid_tool_call_advantage": "NeMo-RL raises NotImplementedError with it",
    "malformed_thinking_advantage": "NeMo-RL raises NotImplementedError with it",
    "deduplicate_multimodal_data": "the data plane carries each sample with its own images",
    "calculate_advantages_on_gpu": "the data plane ignores it: the run would test something else",
}
DYNAMIC = "policy.dynamic_batching.enabled"
BACKENDS_ON = ("policy.megatron_cfg.enabled", "policy.dtensor_cfg.enabled")
TP_GUARDED = ("train_micro_batch_size", "logprob_batch_size")


def probe(context: Context, root: str, variant: Variant) -> Iterator[Finding]:
    """Findings about scripts, keys and values, from the checkout's own files."""
    yield from _check_files(root, variant)
    script = read_script(root, variant.script)
    if script is None:
        return
    if not variant.is_entry and not script.forwards:
        what = f"`{variant.script}` does not pass its arguments on, so overrides would be ignored"
        fix = "use a revision whose script ends with `$@`"
        yield error("nemo_rl.script", what, fix=fix, path="coverage.variants")
    composed = compose(context, root, variant)
    if isinstance(composed, Finding):
        yield composed
        return
    recipe, changed, arguments = composed
    yield from _check_keys(variant, recipe, arguments, context)
    if not _runs_both(script.arguments) or not _own_keys(context).isdisjoint(BACKENDS_ON):
        yield from _check_trainer(variant, changed)
    yield from _check_sizes(variant, changed)
    yield from _check_batching(changed)
    yield from _check_data_plane(root, variant, changed)
    yield from _check_replay(variant, changed)


def compose(
    context: Context, root: str, variant: Variant
) -> tuple[Config, Config, tuple[str, ...]] | Finding:
    """The recipe, the recipe with every argument, and the arguments; a finding for an unreadable recipe."""
    script = read_script(root, variant.script)
    name = script.config if script and script.config and not variant.is_entry else variant.config
    own = script.arguments if script and not variant.is_entry else ENTRY
    arguments = (*own, *overrides(context, variant))
    try:
        recipe = config.load(Path(root, name))
        return recipe, config.apply(recipe, arguments), arguments
    except (OSError, ValueError, yaml.YAMLError) as why:
        what = f"`{name}`, which variant `{variant.name}` runs, cannot be read in the checkout"
        return error("nemo_rl.config", what, str(why), "use a revision that has it", path="coverage.variants")


def _check_files(root: str, variant: Variant) -> Iterator[Finding]:
    needed = [variant.script, *((CHECK_METRICS, DUMP_EVENTS) if variant.checks else ())]
    needed += [CHECK_ROUTES] if variant.trace else []
    for name in needed:
        if not Path(root, name).is_file():
            what = f"the checkout has no `{name}`, which variant `{variant.name}` runs"
            fix = "use a revision that has it"
            yield error("nemo_rl.script", what, f"jobspec looked in `{root}`", fix, path="coverage.variants")
    for pattern in variant.leftovers:
        if glob(str(Path(root, pattern))):  # noqa: PTH207 - relative and absolute patterns
            yield error(
                "nemo_rl.leftover",
                f"`{Path(root, pattern)}` exists: the run would resume from it",
                "NeMo-RL always resumes from the newest `step_N` of its folder",
                "move the folder away",
                path="coverage.variants",
            )
    if not any(Path(root, BRIDGE).glob("*")):
        what = f"submodule `{BRIDGE}` is empty"
        why = "`uv` resolves path sources in it unless the image's environments are used as they are"
        yield warning("nemo_rl.submodules", what, why, "run `git submodule update --init --recursive`")


def _check_keys(
    variant: Variant, recipe: Config, arguments: Sequence[str], context: Context
) -> Iterator[Finding]:
    own = _own_keys(context)
    for key in config.absent_keys(recipe, arguments):
        mine = key in own
        yield error(
            "nemo_rl.key",
            f"the recipe of variant `{variant.name}` has no key `{key}`",
            "Hydra refuses a plain override of an absent key",
            f"correct the key, or add it with `+{key}`" if mine else "use a revision that has it",
            path=f"train.overrides.{key}" if mine else "coverage.variants",
        )


def _own_keys(context: Context) -> frozenset[str]:
    return frozenset(key.lstrip("+") for key in context.spec.train.overrides)


def _runs_both(arguments: Sequence[str]) -> bool:
    """Whether a script runs on Megatron and on DTensor to compare them; its log then shows which is which."""
    return {f"{BACKENDS_ON[0]}=true", f"{BACKENDS_ON[0]}=false"} <= set(arguments)


def _check_trainer(variant: Variant, changed: Config) -> Iterator[Finding]:
    """An error for a run that does not train on Megatron: DTensor proves nothing about the Bridge."""
    megatron, dtensor = (get(changed, key) for key in BACKENDS_ON)
    if megatron is not True or dtensor is True:
        yield error(
            "nemo_rl.backend",
            f"variant `{variant.name}` would not train on Megatron alone with this checkout and spec",
            f"`{BACKENDS_ON[0]}` is {megatron}, `{BACKENDS_ON[1]}` is {dtensor}",
            "remove the override, or use a revision whose recipe is Megatron's",
            path="coverage.variants",
        )


def _check_sizes(variant: Variant, changed: Config) -> Iterator[Finding]:
    tp, cp = (number(changed, SIZES[name]) or 1 for name in ("tp", "cp"))
    micro, logprob = (number(changed, f"policy.{name}") for name in TP_GUARDED)
    on_policy = get(changed, "loss_fn.force_on_policy_ratio") is True
    if tp >= 4 and None not in (micro, logprob) and micro != logprob and not on_policy:
        yield error(
            "nemo_rl.tp-guard",
            f"with tp {tp}, micro batches are {micro} in training and {logprob} for log-probabilities",
            "NeMo-RL refuses it: from tp 4 on, log-probabilities depend on the batch size; some scripts "
            "of its test suite switch this check off, jobspec never does",
            f"make `policy.{TP_GUARDED[0]}` and `policy.{TP_GUARDED[1]}` equal, or use tp 1 or 2",
            path="train.overrides",
        )
    if cp > 1 and get(changed, PACKING) is False:
        what = f"variant `{variant.name}` has cp {cp} without sequence packing"
        fix = f"set `{PACKING}` to true"
        yield error("nemo_rl.packing", what, "NeMo-RL asserts it", fix, path="train.overrides")
    divisor, packed = number(changed, DIVISOR), get(changed, PACKING) is True
    factor = (2 * cp if cp > 1 else 1) * (tp if get(changed, SEQUENCE_PARALLEL) is True else 1)
    if packed and divisor is not None and divisor % factor:
        yield error(
            "nemo_rl.packing",
            f"`{DIVISOR}` is {divisor}, which is no multiple of {factor}",
            "packed sequences are split over 2 * cp, and over tp with sequence parallelism",
            f"set it to {factor}",
            path="train.overrides",
        )


def _check_batching(changed: Config) -> Iterator[Finding]:
    """Errors for dynamic batches where NeMo-RL asserts against them, in `models/policy/lm_policy.py`."""
    if get(changed, DYNAMIC) is not True:
        return
    if get(changed, PACKING) is True:
        what = f"`{DYNAMIC}` and `{PACKING}` are both true"
        why = "NeMo-RL asserts that dynamic batching is exclusive of sequence packing"
        fix = f"set one of them to false; cp above 1 needs `{PACKING}`"
        yield error("nemo_rl.dynamic-batching", what, why, fix, path="train.overrides")
    pp = number(changed, SIZES["pp"]) or 1
    if pp > 1:
        what = f"`{DYNAMIC}` is true with pp {pp}"
        why = "NeMo-RL asserts that dynamic batching has a single pipeline stage"
        fix = "use pp 1, or sequence packing in its place"
        yield error("nemo_rl.dynamic-batching", what, why, fix, path="train.overrides")


def _check_data_plane(root: str, variant: Variant, changed: Config) -> Iterator[Finding]:
    if get(changed, "data_plane.enabled") is not True:
        return
    entry = entry_point(root, variant.script)
    if (text := read_text(root, entry)) and "data_plane" not in text:
        what = f"`{entry}`, which variant `{variant.name}` runs, never reads `data_plane`"
        why = "no sample would go through the data plane, and nothing in the log would say so"
        fix = "turn it off, or use a revision or an entry point that reads it"
        yield error("nemo_rl.data-plane", what, why, fix, path="train.overrides")
    missing = [key for key in DATA_PLANE if get(changed, f"data_plane.{key}") is None]
    if missing:
        what = f"the data plane is on without {', '.join(f'`data_plane.{key}`' for key in missing)}"
        why = "NeMo-RL has no defaults: the data plane needs all eight keys"
        yield error("nemo_rl.data-plane", what, why, "set them", path="train.overrides")
    backend = get(changed, "data_plane.backend")
    if backend not in BACKENDS:
        what = f"`data_plane.backend` is `{backend}`"
        yield error("nemo_rl.data-plane", what, fix=f"use {' or '.join(BACKENDS)}", path="train.overrides")
    for key, why in NO_DATA_PLANE.items():
        if get(changed, f"grpo.{key}"):
            what = f"the data plane does not have `grpo.{key}`"
            yield error("nemo_rl.data-plane", what, why, "remove it", path="train.overrides")
    if get(changed, ASYNC) is True and variant.trainer != "single_controller":
        what = "the data plane and `grpo.async_grpo` are both on"
        why = "the asynchronous trainer of `run_grpo.py` does not use the data plane"
        fix = "turn one of them off, or use the single controller, which has both"
        yield error("nemo_rl.data-plane", what, why, fix, path="train.overrides")
    source = transfer_queue_source(root)
    if source:
        yield warning(
            "nemo_rl.data-plane-install",
            f"actors of the data plane install TransferQueue from `{source}` while they start",
            "this checkout gives them a pip environment of their own, even where the image has the package",
            "give the nodes access to it; without access the run is Blocked before training",
            path="coverage.variants",
        )


def _check_replay(variant: Variant, changed: Config) -> Iterator[Finding]:
    if get(changed, "policy.router_replay.enabled") is not True:
        return
    backend = get(changed, "policy.generation.backend")
    if backend != "vllm":
        what = f"router replay needs vLLM, and `policy.generation.backend` is `{backend}`"
        yield error("nemo_rl.r3", what, fix="use `vllm`", path="train.overrides")
    virtual = get(changed, "policy.megatron_cfg.virtual_pipeline_model_parallel_size")
    if virtual not in (None, 1):
        what = f"router replay does not support virtual pipeline stages, and {virtual} are set"
        yield error("nemo_rl.r3", what, fix="remove them", path="train.overrides")
    if (number(changed, SIZES["ep"]) or 1) == 1:
        what = f"variant `{variant.name}` replays routes with expert parallelism of 1"
        why = "router replay is meant for the routes of experts on other GPUs"
        yield warning("nemo_rl.r3", what, why, "set `train.parallel.ep`", path="train.parallel.ep")
