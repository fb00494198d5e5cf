"""What can be known about a SkyRL run before sixty-four GPUs wait for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from jobspec.disk import is_file, is_folder
from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.shared.dotted_keys import flat
from jobspec.frameworks.shared.known_variants import unknown_variants
from jobspec.frameworks.shared.owned_keys import owned_key
from jobspec.frameworks.shared.step_rules import too_few_steps
from jobspec.frameworks.shared.trackers import WANDB, WANDB_KEY, check_trackers, tracker_names
from jobspec.frameworks.skyrl import dummy_trainers, settings
from jobspec.frameworks.skyrl.accepted_settings import CONFIG, Options, read_options
from jobspec.frameworks.skyrl.backend_rules import check_backend
from jobspec.frameworks.skyrl.dummy_trainers import find_checkout
from jobspec.frameworks.skyrl.environment_rules import check_environment
from jobspec.frameworks.skyrl.remote_engines import check_remote
from jobspec.frameworks.skyrl.reward_probe import check_reward
from jobspec.frameworks.skyrl.settings import (
    ENGINE,
    MEGATRON,
    OPTIMIZER,
    OWNED,
    setting,
    strategy,
)
from jobspec.frameworks.skyrl.typed_settings import check_values
from jobspec.frameworks.skyrl.weight_sync import check_sync, check_versions
from jobspec.megatron.weights import model_weights
from jobspec.units import parse_bytes
from jobspec.words import did_you_mean, one_of

ENTRYPOINT = "skyrl/train/entrypoints/main_base.py"
TEMPLATE = "chat_template.jinja"
TEMPLATE_KEY = "tokenizer_config.json:chat_template"
TEMPLATE_APART = ("nemotron-3", "glm-4.7", "glm-5")
# Bytes of a parameter in a checkpoint: bfloat16 weight 2, fp32 master weight 4, two Adam moments 4 each.
CHECKPOINT_BYTES, OFFLOAD_BYTES = 14, 12
# Keys of earlier releases that later ones silently drop or translate. Source: SkyRL, `from_cli_overrides`.
LEGACY = (f"{ENGINE}.async_engine",)
NOTABLE_HOST_BYTES = 256e9  # any node that trains large models has this much
TERA = 1e12


def check(context: Context) -> Iterator[Finding]:
    wrong = list(check_values(context))
    if wrong:  # the other rules compute with them
        yield from (*wrong, *check_owned(context), *check_inputs(context))
        return
    checkout = find_checkout(context)
    if checkout is None:
        what = "no repository of the spec is a SkyRL checkout"
        why = f"`{ENTRYPOINT}` is what runs"
        yield error("skyrl.checkout", what, why, "name a SkyRL checkout in `repos`", path="repos")
    elif checkout.is_dir():
        yield from check_checkout(context, checkout)
    # Else `submit` clones the checkout and runs these rules again; `repo.not-fetched` reports it.
    yield from check_owned(context)
    yield from check_inputs(context)
    yield from check_batches(context)
    yield from check_backend(context)
    yield from check_engines(context)
    yield from check_remote(context)
    yield from check_paths(context)
    yield from check_sizes(context)
    yield from check_environment(context)
    yield from check_steps(context)


def check_checkout(context: Context, checkout: Path) -> Iterator[Finding]:
    options = read_options(checkout)
    if options is None:
        what, why = f"`{CONFIG}` of `{checkout}` cannot be read", "the file lists SkyRL's settings"
        yield error("skyrl.checkout", what, why, "use a complete checkout", path="repos")
    else:
        yield from check_keys(context, options)
        yield from check_entrypoint(context)
    yield from check_sync(context, checkout)
    yield from check_versions(context, checkout)
    yield from check_reward(context, checkout)


# -- keys --------------------------------------------------------------------------------------------


def check_entrypoint(context: Context) -> Iterator[Finding]:
    module, extra = dummy_trainers.module_of(context), dummy_trainers.extra_keys(context)
    if extra is None:
        what, why = f"the checkout has no entrypoint `{module}`", "`train.command` starts it"
        fix = "use a checkout that has it; `main_ultra_sweep` is in pull request 1816 alone"
        yield error("skyrl.entrypoint", what, why, fix, path="train.command")
    if dummy_trainers.is_dummy(context) and context.level.name != "smoke":
        what = f"`{module}` trains on fabricated answers"
        yield error("skyrl.entrypoint", what, fix="use level `smoke`", path="coverage.level")


def check_keys(context: Context, options: Options) -> Iterator[Finding]:
    extra = dummy_trainers.extra_keys(context) or frozenset()
    for key in flat(context.spec.train.overrides):
        path = f"train.overrides.{key}"
        if key.startswith("+"):
            what, why = f"`{key}` has a plus sign", "SkyRL cannot add settings and refuses the key"
            yield error("skyrl.key", what, why, f"write `{key.lstrip('+')}`", path=path)
        elif key in LEGACY:
            what, why = (
                f"`{key}` belongs to an earlier SkyRL",
                "this SkyRL ignores `true` and refuses `false`",
            )
            yield warning("skyrl.legacy-key", what, why, "remove it", path=path)
        elif key not in extra and not options.accepts(key):
            fix = did_you_mean(key, options.keys) or f"see `{CONFIG}` in the checkout"
            yield error(
                "skyrl.key", f"SkyRL has no setting `{key}`", "SkyRL refuses to start", fix, path=path
            )


def check_owned(context: Context) -> Iterator[Finding]:
    colocated = setting(context, "trainer.placement.colocate_all")
    for key in flat(context.spec.train.overrides):
        if key == settings.LOGGER:
            yield from check_logger(context)
        if not colocated and key.startswith("trainer.placement.policy_num_"):
            continue  # a separate trainer has only some of the nodes
        if key in OWNED:
            yield owned_key("skyrl.owned", key, OWNED[key])


def check_logger(context: Context) -> Iterator[Finding]:
    """Trackers of `trainer.logger`, by whether this checkout writes to several."""
    asked = flat(context.spec.train.overrides)[settings.LOGGER]
    names, path = tracker_names(asked), f"train.overrides.{settings.LOGGER}"
    others = [name for name in names if name != settings.TENSORBOARD]
    checkout = find_checkout(context)
    known = checkout is not None and checkout.is_dir()
    alone = known and bool(others) and not dummy_trainers.tracks_several(context)
    found = check_trackers("skyrl.logger", settings.LOGGER, asked, settings.TRACKERS)
    yield from (finding for finding in found if finding.is_error or not alone)
    if others and not known:
        what = f"the checkout is not here yet: the run will write to `{settings.logger(context)}` alone"
        why, fix = "only its source says whether it writes to several trackers", "clone it first, then plan"
        yield warning("skyrl.logger", what, why, fix, path=path)
    if not alone:
        return
    why = "from pull request 1713 on SkyRL writes to one tracker alone"
    if names != (WANDB,):
        what = f"this SkyRL cannot write to {one_of(others)} beside TensorBoard, which jobspec reads"
        yield error("skyrl.logger", what, why, f"remove the key, or write `{WANDB}` alone", path=path)
        return
    what = "wandb takes the place of TensorBoard: metrics are read from wandb's file after the run"
    fix = "remove the key to have `abort_when` and the canary of the weights back"
    yield warning("skyrl.logger", what, why, fix, path=path)
    if WANDB_KEY not in context.spec.secrets:
        what, why = f"`secrets` has no `{WANDB_KEY}`", "SkyRL asserts it for wandb, also offline"
        yield error("skyrl.logger", what, why, f"add `{WANDB_KEY}` to `secrets`", path="secrets")


# -- inputs ------------------------------------------------------------------------------------------


def check_inputs(context: Context) -> Iterator[Finding]:
    spec = context.spec
    if spec.model is None:
        yield error("skyrl.model", "there is no model", fix="set `model.id` or `model.path`", path="model")
    yield from unknown_variants(context, "skyrl.variant")
    yield from _check_template(context)
    if len(spec.data) not in (1, 2):
        what = f"SkyRL needs 1 or 2 data sets of training data, the spec has {len(spec.data)}"
        fix = "give a folder with train.parquet and validation.parquet, or data sets `train` and `val`"
        yield error("skyrl.data", what, fix=fix, path="data")
    elif len(spec.data) == 2 and {item.name for item in spec.data} != {"train", "val"}:
        what = "the two data sets are not called `train` and `val`"
        yield error("skyrl.data", what, fix="rename them", path="data")
    if context.gpus_per_node < 1:
        what, fix = "SkyRL trains on GPUs only", "set `resources.gpus_per_node`"
        yield error("skyrl.gpus", what, fix=fix, path="resources.gpus_per_node")


def _check_template(context: Context) -> Iterator[Finding]:
    """A finding when neither `model.require` nor the model's folder shows a template."""
    model = context.spec.model
    if model is None or {TEMPLATE, TEMPLATE_KEY} & set(model.require):
        return
    stage, folder = context.model.stage, context.model.folder
    has = None
    if stage is not None and folder is not None:
        has = _has_template(folder, whole=stage.layout == "plain")
    if has or context.model.absent:
        return  # `stage.missing` reports an absent model, and how to stage it
    apart = any(family in (model.id or "").lower() for family in TEMPLATE_APART)
    known = has is False or apart
    fix = f"add `{TEMPLATE}` to `model.require`"
    yield (error if known else warning)(
        "skyrl.chat-template",
        "the model has no chat template"
        if has is False
        else "nothing says that the model has a chat template",
        "without one every reward stays 0, and nothing else shows it",
        fix if apart else f"{fix}, or `{TEMPLATE_KEY}` where the tokenizer's file has it: staging proves it",
        path="model.require",
    )


def _has_template(folder: Path, whole: bool) -> bool | None:
    """Whether a model's folder has a template, in a file or in the tokenizer's; None when that is unknown.

    A cache may hold a part of a model; a `whole` folder that lacks the tokenizer's file has no template.
    """
    if is_file(folder / TEMPLATE):
        return True
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False if whole and is_folder(folder) else None
    return isinstance(config, dict) and bool(config.get("chat_template"))


# -- sizes that SkyRL itself checks late or not ------------------------------------------------------


def check_batches(context: Context) -> Iterator[Finding]:
    train = int(setting(context, "trainer.train_batch_size"))
    mini = int(setting(context, "trainer.policy_mini_batch_size"))
    samples = int(setting(context, "generator.n_samples_per_prompt"))
    ranks = settings.data_parallel(context)
    where = "train.overrides.trainer.policy_mini_batch_size"
    if mini < 1 or train < mini or train % mini:
        what = f"a batch of {train} prompts does not divide into mini batches of {mini}"
        fix = f"use a divisor of {train}" if 1 <= mini <= train else f"use 1 to {train}"
        yield error("skyrl.batch", what, "each mini batch is one optimizer step", fix, path=where)
    elif ranks and (mini * samples) % ranks:
        yield error(
            "skyrl.batch",
            f"a mini batch of {mini} x {samples} samples does not divide over {ranks} data-parallel ranks",
            "SkyRL silently rounds down and loses the other samples",
            f"use a multiple of {_step(samples, ranks)} prompts",
            path=where,
        )


def _step(samples: int, ranks: int) -> int:
    """Smallest number of prompts whose samples divide evenly over `ranks`."""
    return next(count for count in range(1, ranks + 1) if (count * samples) % ranks == 0)


def check_engines(context: Context) -> Iterator[Finding]:
    limit = setting(context, f"{ENGINE}.engine_init_kwargs.max_model_len")
    prompt = int(setting(context, "trainer.max_prompt_length"))
    answer = int(setting(context, "generator.sampling_params.max_generate_length"))
    if limit is not None and prompt + answer > int(limit) and not dummy_trainers.may_be_dummy(context):
        yield error(
            "skyrl.max-model-len",
            f"prompts of {prompt} and answers of {answer} tokens do not fit into `max_model_len` {limit}",
            "SkyRL does not compare them, and answers are cut short",
            f"use {prompt + answer} or more",
            path=f"train.overrides.{ENGINE}.engine_init_kwargs.max_model_len",
        )
    routed = setting(context, f"{ENGINE}.enable_return_routed_experts")
    if routed and setting(context, f"{ENGINE}.distributed_executor_backend") != "mp":
        what, fix = "router replay needs the executor `mp`", "set `distributed_executor_backend` to `mp`"
        path = f"train.overrides.{ENGINE}.distributed_executor_backend"
        yield error("skyrl.router-replay", what, fix=fix, path=path)


# -- paths, sizes on disk and in memory --------------------------------------------------------------


def check_paths(context: Context) -> Iterator[Finding]:
    for key, value in flat(context.spec.train.overrides).items():
        leaf = key.rpartition(".")[2]
        if isinstance(value, str) and leaf.endswith(("_path", "_dir")) and not _absolute(value):
            yield error(
                "skyrl.relative-path",
                f"`{key}` is `{value}`, a relative path",
                "SkyRL's entrypoint is a Ray task on any node, in a copy of the working folder",
                "give an absolute path on shared storage",
                path=f"train.overrides.{key}",
            )
    folder = context.spec.checkpoint.dir
    if folder and _in_a_home(folder):
        size = _checkpoint_bytes(context)
        about = f": about {size / TERA:.1f} TB each" if size else ""
        yield warning(
            "skyrl.checkpoint-home",
            f"checkpoints go to a home directory (`{folder}`){about}",
            "home directories are small, and a full one ends the run at its first save",
            "use shared storage with room, such as `${cluster:scratch}/ckpt/NAME`",
            path="checkpoint.dir",
        )


def _absolute(value: str) -> bool:
    return PurePosixPath(value).is_absolute() or "://" in value or value in ("", "none", "null")


def _in_a_home(folder: str) -> bool:
    parts = PurePosixPath(folder).parts
    home = str(Path.home())
    return folder.startswith(("~", f"{home}/")) or parts[1:2] == ("home",)


def parameters(context: Context) -> int:
    """Parameters of the spec's model; 0 when nothing here knows it."""
    architecture = context.model.architecture
    return model_weights(architecture).total if architecture else 0


def _checkpoint_bytes(context: Context) -> int:
    return parameters(context) * CHECKPOINT_BYTES


def check_sizes(context: Context) -> Iterator[Finding]:
    count, spec = parameters(context), context.spec
    schedule = settings.schedule(context)
    if schedule.save_every and count:
        each = count * CHECKPOINT_BYTES
        kept = spec.checkpoint.keep or max(1, schedule.steps // schedule.save_every)
        if each * kept > TERA:
            yield warning(
                "skyrl.checkpoint-size",
                f"{kept} checkpoint{'s' if kept > 1 else ''} of {each / TERA:.1f} TB, "
                f"{each * kept / TERA:.1f} TB in all",
                f"{CHECKPOINT_BYTES} bytes for each of {count / 1e9:.0f} billion parameters",
                "see that the folder has this room, keep fewer, or save less often",
                path="checkpoint.keep",
            )
    if schedule.save_every and setting(context, f"{OPTIMIZER}.use_precision_aware_optimizer"):
        yield warning(
            "skyrl.precision-aware",
            "saving with `use_precision_aware_optimizer` is known to fail",
            "see Megatron-LM issue 1820; only level `checkpoint` proves a resume",
            "set it to false, or do without checkpoints",
            path=f"train.overrides.{OPTIMIZER}.use_precision_aware_optimizer",
        )
    yield from _host_memory(context, count)


def _host_memory(context: Context, count: int) -> Iterator[Finding]:
    offload = settings.shape(context).optimizer.offload if strategy(context) == "megatron" else 0.0
    if not offload or not count:
        return
    need = count * OFFLOAD_BYTES * offload / max(1, context.spec.resources.nodes)
    have = context.spec.resources.memory or context.cluster.node.memory
    room = parse_bytes(have) if have else 0
    what = f"the optimizer's state takes {need / 1e9:.0f} GB of host memory on each node"
    why = f"{OFFLOAD_BYTES} bytes for each of {count / 1e9:.0f} billion parameters, beside vLLM's weights"
    if room and need > room:
        fix = f"use more nodes, or offload less: a node has {room / 1e9:.0f} GB"
        yield error("skyrl.host-memory", what, why, fix, path=f"train.overrides.{OPTIMIZER}")
    elif not room or need > NOTABLE_HOST_BYTES:
        why += f"; a node has {room / 1e9:.0f} GB" if room else ""
        fix = "see that nothing else on the nodes needs this memory"
        if not room:
            fix = "see that the nodes have this memory, and set `node.memory` of the site profile"
        elif need > 0.7 * room:
            fix = "use more nodes, or offload less: little memory is left"
        yield warning("skyrl.host-memory", what, why, fix, path=f"train.overrides.{OPTIMIZER}")


# -- steps -------------------------------------------------------------------------------------------


def check_steps(context: Context) -> Iterator[Finding]:
    schedule = settings.schedule(context)
    yield from too_few_steps(context.level.name, "skyrl.steps", schedule.steps)
    if context.spec.resources.nodes > 1 and schedule.save_every and not context.spec.checkpoint.dir:
        what = "checkpoints go into the run directory"
        why = "the run directory is shared, but seldom has room for terabytes"
        fix = "set `checkpoint.dir`"
        yield warning("skyrl.checkpoint-dir", what, why, fix, path="checkpoint.dir")
    reshardable = f"{MEGATRON}.dist_ckpt_optim_fully_reshardable" in context.spec.train.overrides
    if strategy(context) == "megatron" and context.spec.checkpoint.resume == "must" and not reshardable:
        what = "a resume works only with the same sizes of parallelism"
        fix = "keep them, or save with `dist_ckpt_optim_fully_reshardable: true`"
        yield warning("skyrl.reshard", what, fix=fix, path="checkpoint.resume")
