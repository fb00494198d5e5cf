"""What can be known about a verl spec before it runs: inputs, level and variants, resources.

`setting_rules.py` has the rules of variables and sizes; `jobspec.megatron` has those of all Megatron runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.shared.bridge_checkout import check_core, check_proof
from jobspec.frameworks.shared.known_variants import unknown_variants
from jobspec.frameworks.shared.repo_tests import asked_tests
from jobspec.frameworks.shared.step_rules import too_few_steps
from jobspec.frameworks.verl import settings
from jobspec.frameworks.verl.checkout import (
    GUIDE_TESTS,
    PREPARE_GSM8K,
    WRAPPER,
    empty_submodules,
    guide_tests,
    read_wrapper,
)
from jobspec.frameworks.verl.commands import bridge_repo
from jobspec.frameworks.verl.image_engine import check_image
from jobspec.frameworks.verl.levels import LEVELS
from jobspec.frameworks.verl.printed_config import value_text
from jobspec.frameworks.verl.setting_rules import (
    check_keys,
    check_overrides,
    check_rows,
    check_script,
    check_sizes,
    check_variables,
)
from jobspec.frameworks.verl.weak_settings import IMAGES
from jobspec.words import one_of

# TransferQueue's controller, and a core that is free for a moment: Ray starts an actor only where one is.
QUEUE_CPUS = 2
CPUS_PER_GPU = 3  # verl's placement groups ask Ray for them, and wait for ever. Source: max_colocate_count


def check(context: Context) -> Iterator[Finding]:
    """Everything that the spec, the site and the checkout say."""
    yield from check_inputs(context)
    yield from check_checkouts(context)
    yield from check_overrides(context)
    yield from check_image(context)
    yield from check_resources(context)
    yield from check_variants(context)
    yield from check_level(context)
    wrapper = read_wrapper(context.repo_paths)
    if wrapper is None:
        yield _no_wrapper(context)
        if context.gpus_per_node:
            yield from check_sizes(context, None)
        return
    yield from check_variables(context, wrapper)
    yield from check_script(context, wrapper)
    yield from check_keys(context)
    if context.gpus_per_node:
        yield from check_sizes(context, wrapper)
        yield from check_rows(context, wrapper)


def _no_wrapper(context: Context) -> Finding:
    if "verl" not in context.repo_paths:
        fix = "add `- {name: verl, path: ..}`, a git checkout: the package on PyPI has no scripts"
        return error(
            "verl.checkout", "framework `verl` needs a repository called `verl`", fix=fix, path="framework"
        )
    return error(
        "verl.checkout",
        f"`{context.repo_paths['verl']}` has no readable `{WRAPPER}`",
        "jobspec reads from the text what the script can do, and runs no other script",
        "use a git checkout of verl 0.7.0 or newer; the package on PyPI has no scripts",
        path="repos",
    )


# -- inputs ------------------------------------------------------------------------------------------


def check_inputs(context: Context) -> Iterator[Finding]:
    spec = context.spec
    if spec.model is None:
        fix = "add `model: {id: ..}` or `model: {path: ..}`"
        yield error("verl.model", "framework `verl` needs a model", fix=fix, path="model")
    yield from check_proof(context, "verl.bridge")
    yield from check_core(context, "verl.megatron-lm")
    yield from _check_data(context)
    yield from _check_reward(context)


def _check_reward(context: Context) -> Iterator[Finding]:
    reward, function = context.spec.train.reward, settings.reward_function(context)
    if isinstance(function, Finding):
        yield function
    elif function is None and reward not in (None, "rule") and settings.reward_model(context) is None:
        fix = "use `rule`, `path/in/repo.py:function`, or `model:` with a folder or a Hugging Face repository"
        yield error("verl.reward", f"there is no reward `{reward}`", fix=fix, path="train.reward")
    elif function is not None and re.search(r"[^\w./@%+-]", function.file):
        what = f"the path `{function.file}` does not survive the script and Hydra"
        yield error("verl.reward", what, fix="use letters, digits and _./@%+- only", path="train.reward")


def _check_data(context: Context) -> Iterator[Finding]:
    names = [item.name for item in context.spec.data]
    if names and set(names) != {"train", "val"} and len(names) != 1:
        fix = "name them `train` and `val`, or give one folder with both parquet files"
        yield error("verl.data", f"data sets {one_of(names)} do not say which is which", fix=fix, path="data")
    if not names:
        fix = "give a folder with `train.parquet` and `test.parquet`, or `prepare: gsm8k` with the hub's data"
        yield error("verl.data", "framework `verl` needs training data", fix=fix, path="data")
    for index, item in enumerate(context.spec.data):
        if item.prepare not in (None, "gsm8k") or (item.prepare and len(names) != 1):
            fix = "use `gsm8k` on a single data set, or leave it out for parquet files"
            what = f"there is no preparation `{item.prepare}` for {len(names)} data sets"
            yield error("verl.data", what, fix=fix, path=f"data[{index}].prepare")


def check_checkouts(context: Context) -> Iterator[Finding]:
    """What the checkouts must hold before anything is submitted; an absent checkout gives no finding."""
    for index, repo in enumerate(context.spec.repos):
        for name in empty_submodules(context.repo_paths.get(repo.name, ""), repo.pythonpath):
            what = f"`{name}` of repository `{repo.name}` is empty"
            why = "the submodule was not fetched: Python would import the image's package instead"
            fix = "run `git submodule update --init` in the checkout"
            yield error("verl.submodule", what, why, fix, path=f"repos[{index}].pythonpath")
    root = Path(context.repo_paths.get("verl", ""))
    prepares = "verl" in context.repo_paths and any(item.prepare == "gsm8k" for item in context.spec.data)
    if prepares and root.is_dir() and not (root / PREPARE_GSM8K).is_file():
        what = f"the verl checkout has no `{PREPARE_GSM8K}`"
        yield error("verl.data", what, fix="give parquet files", path="data")
    yield from _check_guide_tests(context)


def _check_guide_tests(context: Context) -> Iterator[Finding]:
    """Only the guide's tests that the Bridge checkout has can run; without any there is nothing to run."""
    bridge = bridge_repo(context)
    path = context.repo_paths.get(bridge.name, "") if bridge else ""
    if bridge is None or not Path(path).is_dir():
        return
    for asked in asked_tests(context.spec.coverage):
        if asked.check.repo != bridge.name or not asked.with_guide:
            continue
        tests = guide_tests(path)
        missing = [name for name in GUIDE_TESTS if name not in tests]
        place = asked.path
        if not tests and not (asked.check.tests or asked.check.command):
            what = f"repository `{bridge.name}` has none of the guide's tests"
            fix = "name tests of the repository in `tests`"
            yield error("verl.checks", what, ", ".join(GUIDE_TESTS), fix, path=place)
        elif missing:
            left = one_of([*tests, *asked.check.tests]) or "your command"
            what = f"repository `{bridge.name}` has no {one_of(missing)}: only {left} will run"
            yield warning("verl.checks", what, "a missing file would end pytest before any test", path=place)


# -- resources and level -----------------------------------------------------------------------------


def check_resources(context: Context) -> Iterator[Finding]:
    nodes = context.spec.resources.nodes
    if context.spec.launch.mode == "srun" and nodes > 1:
        why = "in mode `srun` verl starts its own Ray, which has a single node"
        what = f"mode `srun` allows one node, `resources.nodes` is {nodes}"
        yield error("verl.srun", what, why, "use `launch.mode: ray`, or one node", path="launch.mode")
    if not context.gpus_per_node:
        yield error(
            "verl.gpus",
            "verl cannot train without GPUs",
            "its rollout engines and its Megatron workers exist for accelerators only",
            "set `resources.gpus_per_node` to 1 or more",
            path="resources.gpus_per_node",
        )
    yield from _check_cpus(context)


def _check_cpus(context: Context) -> Iterator[Finding]:
    """Ray has to have the cores that verl's parts ask for: what is missing is waited for without a word."""
    gpus, nodes = context.gpus_per_node, context.spec.resources.nodes
    cpus = context.spec.resources.cpus_per_node or context.cluster.node.cpus
    queue = settings.queue_units(context)
    others = 1 + (queue + QUEUE_CPUS if queue else 0)  # anywhere in the job, the runner first
    needed = CPUS_PER_GPU * gpus + -(-others // nodes)
    if not gpus or cpus is None or cpus >= needed:
        return
    parts = f"{CPUS_PER_GPU} cores a GPU and one for its runner"
    if queue:
        parts += f", {queue} for TransferQueue's storage, one for its controller and one to start actors with"
    fewer = (cpus - -(-others // nodes)) // CPUS_PER_GPU
    fix = f"ask for {needed} or more" + (f", or for {fewer} GPUs" if fewer > 0 else "")
    if queue:
        fix += f"; or lower `train.overrides.{settings.QUEUE_UNITS}`"
    yield error(
        "verl.cpus",
        f"{gpus} GPUs need {needed} CPU cores on a node, the node has {cpus}",
        f"verl asks Ray for {parts}, and never stops waiting",
        fix,
        path="resources.cpus_per_node",
    )


def check_variants(context: Context) -> Iterator[Finding]:
    """Variants that the level has, and that do not contradict each other or the spec."""
    spec, requested = context.spec, context.spec.coverage.variants
    yield from unknown_variants(context, "verl.variant", LEVELS)
    values: dict[str, str] = {}
    for variant in settings.chosen_variants(context):
        if variant.name not in requested:
            continue
        for name, value in variant.variables.items():
            setting = value_text(spec.train.overrides.get(name, value))
            if setting != value or values.setdefault(name, value) != value:
                other = (
                    f"`train.overrides.{name}` is {setting}"
                    if setting != value
                    else f"another variant sets it to {values[name]}"
                )
                what = f"variant `{variant.name}` sets `{name}` to {value}, and {other}"
                yield error("verl.variant", what, fix="leave one of them out", path="coverage.variants")
    if "reward-model" in requested and settings.reward_model(context) is None:
        what, fix = "variant `reward-model` needs a reward model", "set `train.reward: model:NAME`"
        yield error("verl.variant", what, fix=fix, path="train.reward")
    if "vlm" in requested and not any(key.lstrip("+") == IMAGES for key in spec.train.overrides):
        what, why = "variant `vlm` is asked for, and no key names images", "the run may see text alone"
        fix = f"set `train.overrides.{IMAGES}` to the column of the data that has them"
        yield warning("verl.text-only", what, why, fix, path="coverage.variants")


def check_level(context: Context) -> Iterator[Finding]:
    spec, name, schedule = context.spec, context.level.name, settings.schedule(context)
    actor = settings.role_sizes(context, "actor")
    sizes = {key: size if isinstance(size, int) else 1 for key, size in actor.items()}
    if name == "parallel" and max(sizes.values()) == 1:
        what, fix = (
            "level `parallel` needs a parallel size above 1",
            "ask for variant `dense` or `moe`, or set `tp: 2` and `pp: 2`, or `ep: 2`",
        )
        yield error("verl.level", what, fix=fix, path="train.parallel")
    if name == "fsdp" and max(sizes.values()) > 1:
        key = next(key for key in sizes if sizes[key] > 1)
        what = f"level `fsdp` replaces model parallelism, `{key}` is {sizes[key]}"
        yield error("verl.level", what, fix="use 1", path=f"train.parallel.{key}")
    if name == "architecture" and not spec.train.overrides and not spec.coverage.variants:
        what = "level `architecture` needs a feature to test"
        fix = "ask for a variant, or set a key of verl's configuration in `train.overrides`"
        yield error("verl.level", what, fix=fix, path="train.overrides")
    yield from too_few_steps(name, "verl.steps", schedule.steps, better=50)
    if spec.checkpoint.resume == "must" or (name == "checkpoint" and spec.checkpoint.resume == "never"):
        what = f"`checkpoint.resume` is `{spec.checkpoint.resume}` at level `{name}`"
        why = "verl starts anew when it finds no checkpoint, and only level `checkpoint` proves a resume"
        fix = "remove it; level `checkpoint` saves and resumes by itself"
        yield error("verl.resume", what, why, fix, path="checkpoint.resume")
    if name == "checkpoint" and schedule.half and schedule.half % schedule.save_every:
        what = f"no regular save falls on step {schedule.half}, where the resume starts"
        yield warning("verl.steps", what, "verl saves the last step in any case", path="checkpoint.every")
    if spec.checkpoint.dir and schedule.save_every:
        why = (
            "verl's folder names show neither level nor sizes, and a leftover checkpoint shortens a fresh run"
        )
        fix = "give each test its own folder, or remove `checkpoint.dir`: then each run has its own"
        yield warning(
            "verl.checkpoint-dir", "`checkpoint.dir` outlives the run", why, fix, path="checkpoint.dir"
        )
