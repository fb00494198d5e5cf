"""What can be known about a NeMo-RL spec before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.nemo_rl import checkout
from jobspec.frameworks.nemo_rl.levels import Variant, variants_of
from jobspec.metrics.signal import MIN_POINTS
from jobspec.spec.text import did_you_mean, one_of

TP_GUARD = "NRL_IGNORE_TP_ACCURACY_CHECK"
OWNED = ("checkpointing.checkpoint_dir", "logger.log_dir", "grpo.max_num_steps", "cluster.gpus_per_node")
STALE = {
    "policy.megatron_cfg.converter_type": "nothing reads it: the provider comes from the model's own config",
    "policy.generation.delta_compression": "it was replaced by `policy.generation.refit_cfg.sparse`",
}
UNUSED = ("workers", "reward", "seed", "command", "algorithm")


def variants(context: Context) -> tuple[Variant, ...]:
    return variants_of(context.level.number, context.spec.coverage.variants)


def overrides(context: Context, variant: Variant) -> tuple[str, ...]:
    """Literal `key=value` arguments: the variant's, then steps and the spec's own, which win."""
    steps = context.spec.train.steps
    asked = (f"{variant.steps_key}={steps}",) if steps and variant.steps_key else ()
    own = tuple(f"{key}={_text(value)}" for key, value in context.spec.train.overrides.items())
    return (*variant.overrides, *asked, *own)


def _text(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def check(context: Context) -> Iterator[Finding]:
    yield from _check_variants(context)
    yield from _check_size(context)
    yield from _check_overrides(context)
    yield from _check_train(context)
    yield from _check_environment(context)
    root = checkout.find_checkout(context.repo_paths)
    if not root:
        what = "not exactly one repository of the spec is a NeMo-RL checkout"
        why = "its functional tests are what the levels run"
        yield error("nemo_rl.checkout", what, why, "name its checkout in `repos`", path="repos")
        return
    found = (f for v in variants(context) for f in checkout.probe(root, v, overrides(context, v)))
    yield from dict.fromkeys(found)


def _check_variants(context: Context) -> Iterator[Finding]:
    for name in context.spec.coverage.variants:
        if name not in context.level.variants:
            yield error(
                "nemo_rl.variant",
                f"level `{context.level.name}` has no variant `{name}`",
                fix=did_you_mean(name, context.level.variants) or f"use {one_of(context.level.variants)}",
                path="coverage.variants",
            )


def _check_size(context: Context) -> Iterator[Finding]:
    nodes, gpus = context.spec.resources.nodes, context.gpus_per_node
    if nodes != 1:
        what = f"the scripts of level `{context.level.name}` use one node, {nodes} are asked for"
        yield error("nemo_rl.nodes", what, fix="use `resources.nodes: 1`", path="resources.nodes")
    need = max((item.gpus for item in variants(context)), default=1)
    if gpus < need:
        what = f"{need} GPUs are needed on the node, it has {gpus}"
        yield error("nemo_rl.gpus", what, fix=f"ask for {need}", path="resources.gpus_per_node")


def _check_overrides(context: Context) -> Iterator[Finding]:
    for key, value in context.spec.train.overrides.items():
        path, bare = f"train.overrides.{key}", key.lstrip("+")
        stale = next((why for old, why in STALE.items() if bare == old or bare.startswith(f"{old}.")), "")
        if stale:
            yield error(
                "nemo_rl.stale-key", f"`{bare}` has no effect in NeMo-RL", stale, "remove it", path=path
            )
        elif bare in OWNED:
            what = f"`{bare}` is set by jobspec or the script, whose evidence depends on it"
            yield error("nemo_rl.owned", what, fix="remove it; steps are `train.steps`", path=path)
        elif isinstance(value, (list, dict)) or any(char.isspace() for char in f"{key}{_text(value)}"):
            what = f"`{bare}` must be one word: the scripts pass arguments on unquoted"
            yield error("nemo_rl.override", what, fix="give a number, a flag or one word", path=path)
        elif any(char in f"{key}{_text(value)}" for char in "*?["):
            what = f"`{bare}` holds a pattern character, which the scripts would expand"
            yield error("nemo_rl.override", what, fix="give a number, a flag or one word", path=path)


def _check_train(context: Context) -> Iterator[Finding]:
    spec, chosen = context.spec, variants(context)
    steps = spec.train.steps
    for item in chosen:
        if steps and not item.steps_key and steps != item.steps:
            what = f"variant `{item.name}` always runs {item.steps} steps"
            yield error("nemo_rl.steps", what, fix="remove `train.steps`", path="train.steps")
    if steps and context.level.name == "learning" and steps < MIN_POINTS:
        what = f"{steps} train steps cannot tell a trend from noise"
        yield error("nemo_rl.steps", what, fix=f"use {MIN_POINTS} or more", path="train.steps")
    parallel = spec.train.parallel
    if any(getattr(parallel, key) != 1 for key in ("tp", "pp", "ep", "etp", "cp")):
        what = "`train.parallel` does nothing here: the degree is a variant of level `parallel`"
        yield error("nemo_rl.parallel", what, fix="use `coverage.variants`", path="train.parallel")
    if spec.checkpoint.resume == "must":
        what = "every level starts anew; `checkpoint.resume` says `must`"
        yield error("nemo_rl.resume", what, fix="use variant `resume` of level 1", path="checkpoint.resume")
    for key in UNUSED:
        if getattr(spec.train, key):
            what = f"`train.{key}` does nothing: the maintained script decides it"
            yield warning("nemo_rl.unused-key", what, fix="remove it", path=f"train.{key}")


def _check_environment(context: Context) -> Iterator[Finding]:
    if TP_GUARD in {**context.cluster.env, **context.spec.container.env}:
        what = f"`{TP_GUARD}` switches off a check that evidence needs"
        why = "any value does, `0` included; log-probabilities may then differ silently"
        yield error("nemo_rl.tp-guard", what, why, "remove it", path="container.env")
