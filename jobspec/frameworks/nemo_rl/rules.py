"""Rules for a NeMo-RL spec, checked before it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.nemo_rl import checkout, recipe_rules
from jobspec.frameworks.nemo_rl.arguments import gives_sizes
from jobspec.frameworks.nemo_rl.checkout_rules import compose, probe
from jobspec.frameworks.nemo_rl.checks import check_tests
from jobspec.frameworks.nemo_rl.commands import TP_GUARD, WORKER
from jobspec.frameworks.nemo_rl.extras import check_extras
from jobspec.frameworks.nemo_rl.levels import LEVELS, variants_of
from jobspec.frameworks.nemo_rl.printed_config import weak_table
from jobspec.frameworks.nemo_rl.properties import settled
from jobspec.frameworks.nemo_rl.recipe_variant import recipe_variant, with_proofs
from jobspec.frameworks.nemo_rl.recipes import Recipe, closest
from jobspec.frameworks.nemo_rl.variant import Variant
from jobspec.frameworks.shared.bridge_checkout import check_core, check_proof
from jobspec.frameworks.shared.known_variants import unknown_variants
from jobspec.frameworks.shared.nemo_recipe import SIZES, value_text
from jobspec.frameworks.shared.owned_keys import owned_key
from jobspec.frameworks.shared.step_rules import too_few_steps
from jobspec.frameworks.shared.unused_keys import unused_keys
from jobspec.frameworks.shared.weak_evidence import model_limits, refused

WORD = re.compile(r"[\w./:@%+-]*", re.ASCII)
KEY = re.compile(r"\+{0,2}[A-Za-z_]\w*(\.\w+)+", re.ASCII)
# Keys that jobspec or the script sets and needs for its evidence, and the spec's key for each.
OWNED = {
    "checkpointing.checkpoint_dir": "",
    "logger.log_dir": "",
    "grpo.max_num_steps": "train.steps",
    "cluster.gpus_per_node": "resources.gpus_per_node",
    "cluster.num_nodes": "resources.nodes",
}
STALE = {
    "policy.megatron_cfg.converter_type": "nothing reads it: the provider comes from the model's own config",
    "policy.generation.delta_compression": "it was replaced by `policy.generation.refit_cfg.sparse`",
}
UNUSED = (
    "train.workers",
    "train.reward",
    "train.seed",
    "train.command",
    "train.algorithm",
    "checkpoint.every",
    "checkpoint.keep",
    "train.rollout.engines",
)
# Scripts that look like evidence for the Bridge, and why they are not offered.
REFUSED = {
    "nixl": "`grpo_nixl_non_colocated.sh` trains on DTensor: it proves no export by the Bridge",
    "vlm-dtensor": "`vlm_grpo.sh` trains on DTensor; variant `vlm` has the Megatron recipe",
    "generation-multiturn": "the maintainers disabled it: its log-probabilities differ by a factor of 2",
    "generation-gym": "it needs NeMo-Gym's environments, which jobspec does not make",
    "fsdp2": "it trains on DTensor: it proves nothing about Megatron",
}


def variants(context: Context) -> tuple[Variant, ...]:
    """What runs: the recipe or the requested variants, each as its composed configuration has it."""
    root = checkout.find_checkout(context.repo_paths)
    if context.spec.train.recipe is None:
        asked = variants_of(context.level.number, context.spec.coverage.variants)
        return tuple(_settled(context, root, item) for item in asked) if root else asked
    recipe = recipe_rules.find(context, root) if root else None
    if not isinstance(recipe, Recipe) or recipe.trainer is None:
        return ()  # an error says why
    return (_settled(context, root, recipe_variant(context, recipe), recipe=True),)


def _settled(context: Context, root: str, variant: Variant, recipe: bool = False) -> Variant:
    composed = compose(context, root, variant)
    if isinstance(composed, Finding):
        return variant
    return settled(with_proofs(variant, composed[1]) if recipe else variant, composed[1])


def check(context: Context) -> Iterator[Finding]:
    chosen = variants(context)
    yield from unknown_variants(context, "nemo_rl.variant", LEVELS, REFUSED)
    yield from _check_mode(context, chosen)
    yield from _check_size(context, chosen)
    yield from _check_overrides(context)
    yield from refused(context, "nemo_rl.weak-evidence", weak_table(chosen))
    yield from check_proof(context, "nemo_rl.bridge", found=bool(checkout.find_bridge(context.repo_paths)))
    yield from check_core(context, "nemo_rl.megatron-lm")
    yield from _check_media(context, chosen)
    yield from _check_train(context, chosen)
    yield from _check_parallel(context, chosen)
    why = "the maintained script or recipe decides it"
    yield from unused_keys(context, "nemo_rl.unused-key", UNUSED, why)
    yield from _check_environment(context)
    root = checkout.find_checkout(context.repo_paths)
    if not root:
        what = "the spec has no NeMo-RL checkout, or more than one"
        why = "the levels run the maintained scripts and recipes of one checkout"
        yield error("nemo_rl.checkout", what, why, "name one NeMo-RL checkout in `repos`", path="repos")
        return
    if context.spec.train.recipe is not None:
        yield from _check_recipe(context, root, chosen)
    yield from check_tests(context, chosen)
    yield from check_extras(context, root, chosen)
    yield from _check_cache(context, chosen)
    findings = (finding for variant in chosen for finding in probe(context, root, variant))
    named = context.spec.train.recipe is not None
    yield from dict.fromkeys(_of_recipe(finding) if named else finding for finding in findings)


def _of_recipe(finding: Finding) -> Finding:
    return replace(finding, path=recipe_rules.PATH) if finding.path == "coverage.variants" else finding


def _check_recipe(context: Context, root: str, chosen: tuple[Variant, ...]) -> Iterator[Finding]:
    recipe = recipe_rules.find(context, root)
    if isinstance(recipe, Finding):
        yield recipe
        return
    yield from recipe_rules.check(context, recipe)
    for variant in chosen:
        composed = compose(context, root, variant)
        if not isinstance(composed, Finding):
            yield from recipe_rules.check_level(variant, composed[1])


def _check_cache(context: Context, chosen: tuple[Variant, ...]) -> Iterator[Finding]:
    """Warnings for a script's own model that is not in the cache of an offline run."""
    spec = context.spec
    home = spec.hf_cache.home or context.cluster.paths.hf_home or ""
    if spec.model is not None or not spec.hf_cache.offline or not Path(home, "hub").is_dir() or not home:
        return
    for name in dict.fromkeys(item.model for item in chosen):
        if "/" in name and not Path(home, "hub", f"models--{name.replace('/', '--')}").is_dir():
            what = f"`{name}` is not in the Hugging Face cache `{home}`, and the run is offline"
            fix = "put it and the data set there, or set `hf_cache.offline: false`"
            yield warning("nemo_rl.cache", what, fix=fix, path="hf_cache")


def _check_mode(context: Context, chosen: tuple[Variant, ...]) -> Iterator[Finding]:
    mode, nodes = context.spec.launch.mode, context.spec.resources.nodes
    if mode == "srun" and nodes > 1:
        what = f"mode `srun` leaves Ray to the script, which starts it on one node, not on {nodes}"
        yield error("nemo_rl.mode", what, fix="use `launch: {mode: ray}`", path="launch.mode")
    for variant in chosen:
        if variant.owns_ray and mode != "srun":
            what = (
                f"variant `{variant.name}` stops every Ray process of the node, also those of mode `{mode}`"
            )
            fix = "use `launch: {mode: srun}` with a whole node"
            yield error("nemo_rl.mode", what, fix=fix, path="launch.mode")
        if variant.owns_ray and not context.spec.resources.exclusive:
            what = f"variant `{variant.name}` stops every Ray process that its user has on the node"
            fix = "set `resources.exclusive: true`"
            yield warning("nemo_rl.exclusive", what, fix=fix, path="resources.exclusive")


def _check_size(context: Context, chosen: tuple[Variant, ...]) -> Iterator[Finding]:
    nodes, gpus = context.spec.resources.nodes, context.gpus_per_node
    for item in chosen:
        if item.nodes not in (0, nodes):
            what = f"variant `{item.name}` runs on {item.nodes} node(s), and the spec asks for {nodes}"
            fix = f"use `resources.nodes: {item.nodes}`, or make one run for each number of nodes"
            yield error("nemo_rl.nodes", what, fix=fix, path="resources.nodes")
    with_actors = [item.name for item in chosen if item.network_actors]
    if len(with_actors) > 1 and context.spec.launch.mode != "srun":
        what = f"variants {', '.join(f'`{name}`' for name in with_actors)} share one Ray cluster"
        why = "named actors and ports of the first data plane may outlive it and disturb the next one"
        yield warning(
            "nemo_rl.data-plane-shared", what, why, "make one run for each", path="coverage.variants"
        )
    need = max((item.gpus for item in chosen), default=1)
    if gpus < need:
        what = f"the variants need {need} GPUs on each node, and the run has {gpus}"
        yield error("nemo_rl.gpus", what, fix=f"ask for {need}", path="resources.gpus_per_node")


def _check_overrides(context: Context) -> Iterator[Finding]:
    for key, value in context.spec.train.overrides.items():
        path, bare = f"train.overrides.{key}", key.lstrip("+")
        stale = next((why for old, why in STALE.items() if bare == old or bare.startswith(f"{old}.")), "")
        if stale:
            what = f"`{bare}` has no effect in NeMo-RL"
            yield error("nemo_rl.stale-key", what, stale, "remove it", path=path)
        elif bare in OWNED:
            yield owned_key("nemo_rl.owned", bare, OWNED[bare], path)
        elif not KEY.fullmatch(key):
            what = f"`{key}` is not a dotted key of a recipe"
            fix = "correct the key, with `+` or `++` before a new one"
            yield error("nemo_rl.override", what, fix=fix, path=path)
        elif isinstance(value, (list, dict)) or not WORD.fullmatch(value_text(value)):
            what = f"the value of `{bare}` is more than one plain word"
            why = "the scripts pass arguments on unquoted, and Hydra reads signs such as `,` and `=`"
            fix = "give a number, a flag or a word of letters, digits and `._/:@%+-`"
            yield error("nemo_rl.override", what, why, fix, path=path)


def _check_media(context: Context, chosen: tuple[Variant, ...]) -> Iterator[Finding]:
    model = context.spec.model.id or context.spec.model.path or "" if context.spec.model else ""
    media = any(item.name.startswith(("vlm", "audio")) for item in chosen)
    for text in model_limits(model, media):
        why = "the maintained scripts of text models give it no images and no sound"
        fix = "use variant `vlm` of level 5 beside it" if not media else ""
        yield warning("nemo_rl.text-only", text, why, fix, path="model")


def _check_train(context: Context, chosen: tuple[Variant, ...]) -> Iterator[Finding]:
    spec, steps = context.spec, context.spec.train.steps
    for item in chosen:
        if steps and not item.steps_key and steps != item.steps:
            what = f"variant `{item.name}` always runs {item.steps} steps"
            yield error("nemo_rl.steps", what, fix="remove `train.steps`", path="train.steps")
        if spec.model is not None and not item.model_keys:
            what = f"variant `{item.name}` only works with its own model `{item.model}`"
            fix = f"remove `model`{_other_recipe(context)}"
            yield error("nemo_rl.model", what, fix=fix, path="model")
    if steps:
        yield from too_few_steps(context.level.name, "nemo_rl.steps", steps)
    if spec.checkpoint.resume == "must":
        what = "every level starts anew, and `checkpoint.resume` is `must`"
        yield error("nemo_rl.resume", what, fix="use variant `resume` of level 1", path="checkpoint.resume")


def _other_recipe(context: Context) -> str:
    """The closest maintained recipe of the spec's model, as the end of a sentence; empty without one."""
    root, model = checkout.find_checkout(context.repo_paths), context.spec.model
    near = closest(root, model.id or model.path or "") if root and model else ()
    return f", or use `train.recipe: {near[0].name}`, the closest recipe ({near[0].model})" if near else ""


def _check_parallel(context: Context, chosen: tuple[Variant, ...]) -> Iterator[Finding]:
    parallel, rollout = context.spec.train.parallel, context.spec.train.rollout
    fixed = [item.name for item in chosen if not item.sizes]
    if gives_sizes(context) and fixed:
        what = f"`train.parallel` does nothing for variant `{fixed[0]}`, whose script or recipe has the sizes"
        fix = "remove it and use `tp2`, `pp2` and the like, or use variant `sizes` of level `parallel`"
        yield error("nemo_rl.parallel", what, fix=fix, path="train.parallel")
    if fixed and any(getattr(rollout, name) is not None for name in ("tp", "pp", "ep")):
        what = f"`train.rollout` does nothing for variant `{fixed[0]}`"
        yield error("nemo_rl.parallel", what, fix="remove it", path="train.rollout")
    if not gives_sizes(context) and "sizes" in {item.name for item in chosen}:
        what = f"variant `sizes` has no size: {', '.join(f'`{name}`' for name in SIZES)} are all 1"
        yield error("nemo_rl.parallel", what, fix="set one in `train.parallel`", path="train.parallel")
    if parallel.vpp not in (None, 1):
        what = "`train.parallel.vpp` has no key in NeMo-RL's recipes"
        yield error("nemo_rl.parallel", what, fix="remove it", path="train.parallel.vpp")


def _check_environment(context: Context) -> Iterator[Finding]:
    env = {**context.cluster.env, **context.spec.container.env}
    if TP_GUARD in env:
        what = f"`{TP_GUARD}` switches off a check that evidence needs"
        why = "any value switches it off, even `0`, and log-probabilities may then differ silently"
        yield error("nemo_rl.tp-guard", what, why, "remove it", path="container.env")
    if env.get("MC_STORE_MEMCPY", "0") != "0":
        what = "`MC_STORE_MEMCPY` makes Mooncake copy between processes by their pointers"
        why = "NeMo-RL sets it to 0: with another value a client reads memory of another process"
        yield error("nemo_rl.data-plane", what, why, "remove it", path="container.env")
    if "MC_TCP_BIND_ADDRESS" in env:
        what = "`MC_TCP_BIND_ADDRESS` is the same on every node, but each node must announce its own address"
        why = "NeMo-RL sets it in each process from the name of its node, over any other value"
        yield error("nemo_rl.announce", what, why, "remove it", path="container.env")
    proves = any(repo.prove and repo.prove.module == "megatron.bridge" for repo in context.spec.repos)
    needs_megatron = proves or context.spec.mcore_helpers is not None
    if (
        needs_megatron
        and context.cluster.container.runtime != "none"
        and context.spec.container.python is None
    ):
        yield warning(
            "nemo_rl.python",
            "the default `python3` of NeMo-RL's images has no Megatron",
            "`python3` imports the proved package and builds the helpers; the Megatron worker has another",
            f"set `container.python` to `/opt/ray_venvs/{WORKER}/bin/python`",
            path="container.python",
        )
