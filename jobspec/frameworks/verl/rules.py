"""What can be known about a verl spec before it runs: the checkout's own variables, sizes, CPUs, inputs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.verl import settings
from jobspec.frameworks.verl.checkout import IMAGE_MEGATRON, WRAPPER, Wrapper, read_wrapper
from jobspec.metrics.signal import MIN_POINTS
from jobspec.spec.text import one_of

BRIDGE = "megatron.bridge"
CPUS_PER_GPU = 3  # verl's placement groups ask for them, and wait for ever. Source: max_colocate_count
RESPONSES = 4  # of one prompt, fixed in the script
ENGINES = ("vllm", "sglang")
REPLAY = ("disabled", "R2", "R3")
PARALLEL = ("tp", "pp", "cp", "ep", "etp")
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
    "INFER_TP": "train.rollout.tp",
    "trainer.logger": "",
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
}
# The same by other names: keys of the Bridge switches and sizes, and sizes of single roles.
OWNED_TOO = re.compile(
    r"\.(?:use_mbridge|vanilla_mbridge|use_megatron_fsdp|\w*parallel_size)$"
    r"|^(?:ACTOR|REF|CRITIC|TRAIN|ROLLOUT)_(?:TP|PP|VPP|CP|EP|ETP)$"
)


def check(context: Context) -> Iterator[Finding]:
    """Everything that the spec, the site and the checkout say."""
    yield from check_inputs(context)
    yield from check_overrides(context)
    yield from check_resources(context)
    yield from check_level(context)
    wrapper = read_wrapper(context.repo_paths)
    if wrapper is None:
        yield _no_wrapper(context)
        return
    yield from check_variables(context, wrapper)
    if context.gpus_per_node:
        yield from check_sizes(context, wrapper)


def _no_wrapper(context: Context) -> Finding:
    if "verl" not in context.repo_paths:
        fix = "add `- {name: verl, path: ..}`, a git checkout: the package on PyPI has no scripts"
        return error(
            "verl.checkout", "framework `verl` needs a repository called `verl`", fix=fix, path="repos"
        )
    return error(
        "verl.checkout",
        f"`{context.repo_paths['verl']}` has no readable `{WRAPPER}`",
        "what the script can do is read from its text, and jobspec runs nothing else instead",
        "use a git checkout of verl 0.7.0 or newer; the package on PyPI has no scripts",
        path="repos",
    )


# -- inputs ------------------------------------------------------------------------------------------


def check_inputs(context: Context) -> Iterator[Finding]:
    spec = context.spec
    if spec.model is None:
        fix = "add `model: {id: ..}` or `model: {path: ..}`"
        yield error("verl.model", "framework `verl` needs a model", fix=fix, path="model")
    if not any(repo.prove is not None and repo.prove.module == BRIDGE for repo in spec.repos):
        yield error(
            "verl.bridge",
            f"no repository proves the import of `{BRIDGE}`",
            "every level is about a Bridge checkout; an installed package could be what is tested instead",
            f"add `prove: {{import: {BRIDGE}}}` to the checkout of Megatron-Bridge",
            path="repos",
        )
    yield from _check_data(context)
    reward = spec.train.reward
    if reward not in (None, "rule") and settings.reward_model(context) is None:
        fix = "use `rule`, or `model:` with a folder or a Hugging Face repository"
        yield error("verl.reward", f"`train.reward` is `{reward}`", fix=fix, path="train.reward")


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


def check_overrides(context: Context) -> Iterator[Finding]:
    """Names that jobspec owns, and values that the script would break: it expands `$@` without quotes."""
    for key, value in context.spec.train.overrides.items():
        path, bare = f"train.overrides.{key}", key.lstrip("+~")
        if bare in OWNED or OWNED_TOO.search(bare):
            instead = OWNED.get(bare, "")
            fix = f"use `{instead}`" if instead else "remove it"
            yield error(
                "verl.owned", f"`{key}` is set by jobspec and cannot be overridden", fix=fix, path=path
            )
        elif isinstance(value, dict):
            fix = "write its keys with dots, one by one"
            yield error("verl.override", f"`{key}` is a map", fix=fix, path=path)
        elif not key.isupper() and re.search(r"[\s*?]", f"{key}{settings.value_text(value)}"):
            why = (
                "the script expands its arguments without quotes: spaces split them, `*` and `?` match files"
            )
            fix = "use a value without spaces, `*` and `?`"
            yield error("verl.override", f"`{key}` does not survive the script", why, fix, path=path)
    engine = str(context.spec.train.overrides.get("ENGINE", "vllm"))
    if engine not in ENGINES:
        yield error("verl.engine", f"there is no rollout engine `{engine}` in the script",
                    fix=f"use {one_of(ENGINES)}", path="train.overrides.ENGINE")  # fmt: skip
    replay = str(context.spec.train.overrides.get("ROUTING_REPLAY_MODE", "disabled"))
    if replay not in REPLAY:
        yield error("verl.replay", f"there is no router replay mode `{replay}`",
                    fix=f"use {one_of(REPLAY)}", path="train.overrides.ROUTING_REPLAY_MODE")  # fmt: skip
    dummy = str(context.spec.train.overrides.get("USE_DUMMY_MODEL", False)) == "True"
    if dummy and not context.spec.train.overrides.get("DUMMY_MODEL_CONFIG_PATH"):
        yield error(
            "verl.dummy",
            "`USE_DUMMY_MODEL` needs `DUMMY_MODEL_CONFIG_PATH`",
            "the script stops on the unset variable",
            "name a JSON file in the checkout that overrides the model's configuration",
            path="train.overrides.USE_DUMMY_MODEL",
        )


# -- resources and level -----------------------------------------------------------------------------


def check_resources(context: Context) -> Iterator[Finding]:
    gpus, asked = context.gpus_per_node, context.spec.resources.cpus_per_node
    if not gpus:
        yield error(
            "verl.gpus",
            "verl cannot train without GPUs",
            "its rollout engines and its Megatron workers exist for accelerators only",
            "set `resources.gpus_per_node` to 1 or more",
            path="resources.gpus_per_node",
        )
    cpus, needed = asked or context.cluster.node.cpus, CPUS_PER_GPU * gpus + 1
    if gpus and cpus is not None and cpus < needed:
        yield error(
            "verl.cpus",
            f"{gpus} GPUs need {needed} CPU cores on a node, there are {cpus}",
            f"verl asks Ray for {CPUS_PER_GPU} cores a GPU and one for its runner, and never stops waiting",
            f"ask for {needed} or more, or for {max(1, (cpus - 1) // CPUS_PER_GPU)} GPUs",
            path="resources.cpus_per_node",
        )


def check_level(context: Context) -> Iterator[Finding]:
    spec, name, steps = context.spec, context.level.name, settings.schedule(context).steps
    sizes = {key: getattr(spec.train.parallel, key) for key in PARALLEL}
    if name == "parallel" and max(sizes.values()) == 1:
        what, fix = (
            "level `parallel` needs a size above 1",
            "set `tp: 2` and `pp: 2`, or `ep: 2`",
        )
        yield error("verl.level", what, fix=fix, path="train.parallel")
    if name == "fsdp" and max(sizes.values()) > 1:
        key = next(key for key in PARALLEL if sizes[key] > 1)
        what = f"level `fsdp` takes the place of model parallelism; `{key}` is {sizes[key]}"
        yield error("verl.level", what, fix="use 1", path=f"train.parallel.{key}")
    if name == "architecture" and not spec.train.overrides:
        what = "level `architecture` needs the feature that it is about"
        fix = "set it in `train.overrides`; it must appear in verl's resolved configuration"
        yield error("verl.level", what, fix=fix, path="train.overrides")
    if name == "learning" and steps < MIN_POINTS:
        what = f"level `learning` with {steps} train steps cannot tell a trend from noise"
        yield error("verl.steps", what, fix=f"use {MIN_POINTS} or more, better 50", path="train.steps")
    if name == "checkpoint" and steps < 2:
        what = "level `checkpoint` needs a step before the resume and one after it"
        yield error("verl.steps", what, fix="use `train.steps` of 2 or more", path="train.steps")
    if spec.checkpoint.resume == "must" or (name == "checkpoint" and spec.checkpoint.resume == "never"):
        what = f"`checkpoint.resume` is `{spec.checkpoint.resume}` at level `{name}`"
        why = "verl starts anew without a checkpoint, and only level `checkpoint` proves that it did not"
        fix = "remove it; level `checkpoint` saves and resumes by itself"
        yield error("verl.resume", what, why, fix, path="checkpoint.resume")
    work = settings.schedule(context)
    if name == "checkpoint" and work.half and work.half % work.save_every:
        what = f"nothing would be saved on a regular step before the resume after step {work.half}"
        yield warning("verl.steps", what, "verl saves the last step in any case", path="checkpoint.every")
    if spec.checkpoint.dir and work.save_every:
        why = "verl's folder names tell neither levels nor sizes apart, and a leftover shortens a fresh run"
        fix = "give each test a folder of its own, or leave `checkpoint.dir` out: then each run has one"
        yield warning(
            "verl.checkpoint-dir", "`checkpoint.dir` outlives the run", why, fix, path="checkpoint.dir"
        )


# -- the checkout ------------------------------------------------------------------------------------


def check_variables(context: Context, wrapper: Wrapper) -> Iterator[Finding]:
    """A variable that the checkout's script does not read would be without any effect."""
    own = settings.split_overrides(context.spec.train.overrides).variables
    wanted = [*settings.variables(context, wrapper), "MODEL_PATH", "TRAIN_FILES", "VAL_FILES",
              "TOTAL_TRAIN_STEPS", "RESUME_MODE"]  # fmt: skip
    wanted += ["RM_MODEL_PATH"] if settings.reward_model(context) else []
    for name in wanted:
        if not wrapper.reads(name):
            path = f"train.overrides.{name}" if name in own else OWNED.get(name) or "repos"
            yield error(
                "verl.knob",
                f"the script of this verl checkout does not read `{name}`",
                "it would run without it and prove something else",
                "use a newer checkout, or another level; do not set it by hand",
                path=path,
            )
    if settings.reward_model(context) is None and not wrapper.reward_switch:
        what = "the script of this verl checkout names no key that turns the reward model off"
        yield error("verl.knob", what, fix="use `train.reward: model:NAME`", path="train.reward")
    if wrapper.prefers_image_megatron:
        yield warning(
            "verl.image-megatron",
            f"the script puts `{IMAGE_MEGATRON}` before every checkout on the driver's PYTHONPATH",
            "an image that has this folder hides the Megatron-Core that belongs to the Bridge checkout",
            f"use an image without it, or mount the wanted Megatron-LM at `{IMAGE_MEGATRON}`",
            path="container.image",
        )


# -- sizes -------------------------------------------------------------------------------------------


def check_sizes(context: Context, wrapper: Wrapper) -> Iterator[Finding]:
    parallel = context.spec.train.parallel
    world = context.spec.resources.nodes * context.gpus_per_node
    dense, experts = parallel.tp * parallel.pp * parallel.cp, parallel.etp * parallel.ep * parallel.pp
    for size, text in ((dense, "tp x pp x cp"), (experts, "etp x ep x pp")):
        if world % size:
            near = [world // size * size or size, (world // size + 1) * size]
            yield error(
                "verl.world",
                f"{world} GPUs cannot be divided by {text} = {size}",
                f"{context.spec.resources.nodes} nodes with {context.gpus_per_node} GPUs each",
                f"use {_either(near)} GPUs in all, or sizes with product {_either(divisors(world, size))}",
                path="train.parallel",
            )
            return
    if parallel.vpp is not None and parallel.pp == 1:
        what = f"`vpp` is {parallel.vpp} with one pipeline stage"
        fix = "leave `vpp` out, or set `pp` to 2 or more"
        yield error("verl.vpp", what, fix=fix, path="train.parallel.vpp")
    tp = settings.rollout_tp(context)
    if world % tp:
        fix = f"use {_either(divisors(world, tp))}"
        what = f"{world} GPUs cannot be divided into rollout engines of {tp}"
        yield error("verl.rollout", what, fix=fix, path="train.rollout.tp")
    yield from _check_batch(context, wrapper, world // dense)


def _check_batch(context: Context, wrapper: Wrapper, replicas: int) -> Iterator[Finding]:
    """Responses of a mini batch are shared evenly by the data-parallel replicas, from release 0.8.0 on."""
    micro = context.spec.train.overrides.get("MICRO_BSZ", 2)
    path = "train.overrides.MICRO_BSZ"
    if isinstance(micro, bool) or not isinstance(micro, int) or micro < 1:
        yield error("verl.batch", f"`MICRO_BSZ` is {micro!r}, a whole number from 1 on is needed", path=path)
        return
    responses = micro * 4 * RESPONSES
    if not wrapper.batch_grows_with_gpus and responses % replicas:
        fits = [m for m in range(1, micro + replicas + 1) if (m * 4 * RESPONSES) % replicas == 0]
        yield error(
            "verl.batch",
            f"{responses} responses of a mini batch cannot be shared by {replicas} data-parallel replicas",
            f"`MICRO_BSZ` {micro} x 4 prompts x {RESPONSES} responses",
            f"set `MICRO_BSZ` to {_either(sorted(fits, key=lambda m: (abs(m - micro), m))[:2])},"
            f" or use {_either(divisors(responses, replicas))} replicas",
            path=path,
        )


def divisors(of: int, near: int) -> list[int]:
    """The two divisors of `of` that are nearest to `near`."""
    found = [n for n in range(1, of + 1) if of % n == 0]
    return sorted(found, key=lambda n: (abs(n - near), n))[:2]


def _either(numbers: list[int]) -> str:
    return " or ".join(str(number) for number in sorted(set(numbers)))
