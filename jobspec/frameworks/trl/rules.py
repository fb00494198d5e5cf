"""What can be known about a TRL spec before it runs: batch arithmetic, options, reward, data.

Pure, except that it reads a reward file and the source of an installed TRL. It imports neither.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.shared.known_variants import unknown_variants
from jobspec.frameworks.shared.owned_keys import owned_key
from jobspec.frameworks.shared.reward_file import find_reward_file
from jobspec.frameworks.shared.step_rules import too_few_steps
from jobspec.frameworks.shared.trackers import MLFLOW, TENSORBOARD, WANDB, check_trackers, tracker_names
from jobspec.frameworks.shared.whole_numbers import divisors, is_count, nearest_numbers
from jobspec.runtime.drivers.trl.loop import OWNED_OPTIONS
from jobspec.runtime.drivers.trl.rewards import BUILT_IN
from jobspec.words import did_you_mean, nearest, one_of

# The spec's key for each option that the driver sets itself.
INSTEAD = {
    "max_steps": "train.steps",
    "seed": "train.seed",
    "output_dir": "checkpoint.dir",
    "save_steps": "checkpoint.every",
    "save_strategy": "checkpoint.every",
    "save_total_limit": "checkpoint.keep",
    "resume_from_checkpoint": "checkpoint.resume",
    "use_cpu": "resources.gpus_per_node",
}
# The option that names trackers, and those that keep their files where their variables say.
REPORT_TO, NO_TRACKER = "report_to", "none"
TRACKERS = (TENSORBOARD, WANDB, MLFLOW, "trackio", "swanlab", "clearml", "comet_ml", NO_TRACKER)
BATCH_DEFAULTS = {"per_device_train_batch_size": 16, "num_generations": 8, "gradient_accumulation_steps": 1}


@dataclass(frozen=True)
class Overrides:
    """`train.overrides` split: GRPOConfig fields, and LoraConfig fields (`peft.r` or `peft: {r: ..}`)."""

    options: Mapping[str, Any]
    peft: Mapping[str, Any]


def split_overrides(overrides: Mapping[str, Any]) -> Overrides:
    options: dict[str, Any] = {}
    peft: dict[str, Any] = {}
    for key, value in overrides.items():
        if key == "peft" and isinstance(value, Mapping):
            peft.update(value)
        elif key.startswith("peft."):
            peft[key.removeprefix("peft.")] = value
        else:
            options[key] = value
    return Overrides(options, peft)


def workers(context: Context) -> int:
    """Data-parallel workers over all nodes: `train.workers`, else one per GPU, else one per node."""
    nodes = context.spec.resources.nodes
    return context.spec.train.workers or max(1, nodes * context.gpus_per_node or nodes)


def trackers(context: Context) -> tuple[str, ...]:
    """What TRL reports to beside TensorBoard, which the driver itself writes, as it does `metrics.jsonl`."""
    names = tracker_names(context.spec.train.overrides.get(REPORT_TO))
    return tuple(name for name in names if name not in (TENSORBOARD, NO_TRACKER))


# -- resources and batch -----------------------------------------------------------------------------


def check_workers(context: Context) -> Iterator[Finding]:
    nodes, gpus, count = context.spec.resources.nodes, context.gpus_per_node, workers(context)
    if gpus and count > nodes * gpus:
        yield error(
            "trl.workers",
            f"{count} workers need {count} GPUs, {nodes} nodes with {gpus} each have {nodes * gpus}",
            fix=f"use {nodes * gpus} or fewer",
            path="train.workers",
        )
    elif gpus and count < nodes * gpus:
        yield warning(
            "trl.idle-gpus",
            f"{nodes * gpus - count} of {nodes * gpus} GPUs will be idle",
            why=f"{count} workers use one GPU each",
            fix=f"set `train.workers` to {nodes * gpus}, or ask for fewer GPUs",
            path="train.workers",
        )
    if count < nodes:
        yield warning(
            "trl.idle-nodes",
            f"{nodes - count} of {nodes} nodes will be idle: there are {count} workers",
            fix=f"set `train.workers` to {nodes} or more",
            path="train.workers",
        )


def check_batch(options: Mapping[str, Any], world: int) -> Iterator[Finding]:
    """GRPOConfig's own rules, with the nearest values that satisfy them.

    Source: trl 1.16.0, GRPOConfig.__post_init__.
    """
    path = "train.overrides"
    batch, generations, accumulation = (options.get(key, default) for key, default in BATCH_DEFAULTS.items())
    sizes = {**dict(zip(BATCH_DEFAULTS, (batch, generations, accumulation), strict=True))}
    sizes |= {k: options[k] for k in ("generation_batch_size", "steps_per_generation") if options.get(k)}
    bad = [key for key, value in sizes.items() if not is_count(value)]
    if bad:
        what = f"`{bad[0]}` is {sizes[bad[0]]!r}, a whole number from 1 on is needed"
        yield error("trl.batch", what, path=f"{path}.{bad[0]}")
        return
    if generations < 2:
        yield error(
            "trl.generations",
            f"`num_generations` is {generations}: GRPO compares at least 2 completions of a prompt",
            fix="use 2 or more",
            path=f"{path}.num_generations",
        )
        return
    yield from _check_generation_batch(sizes, world)


def _check_generation_batch(sizes: Mapping[str, int], world: int) -> Iterator[Finding]:
    batch, generations = sizes["per_device_train_batch_size"], sizes["num_generations"]
    total, per_generation = sizes.get("generation_batch_size"), sizes.get("steps_per_generation")
    path = "train.overrides"
    if total is not None and per_generation is not None:
        what = "`generation_batch_size` and `steps_per_generation` cannot both be set"
        yield error("trl.batch", what, fix="keep one of the two", path=f"{path}.steps_per_generation")
        return
    if total is not None and total % (batch * world):
        yield error(
            "trl.batch",
            f"`generation_batch_size` is {total}, not a multiple of the global batch of {batch} x {world}",
            why=f"each of {world} workers takes {batch} completions a step",
            fix=f"use {nearest_numbers(multiples_around(total, batch * world), total)}",
            path=f"{path}.generation_batch_size",
        )
        return
    steps = per_generation or sizes["gradient_accumulation_steps"]
    total = total or batch * world * steps
    if total % generations:
        batches = [b for b in range(1, batch + generations + 1) if (b * world * steps) % generations == 0]
        yield error(
            "trl.generations",
            f"a generation batch of {total} does not hold whole groups of {generations} completions",
            why=f"the batch is {batch} per worker x {world} workers x {steps} steps",
            fix=f"set `num_generations` to {nearest_numbers(divisors(total)[1:], generations)},"
            f" or `per_device_train_batch_size` to {nearest_numbers(batches, batch)}",
            path=f"{path}.num_generations",
        )


def multiples_around(value: int, of: int) -> list[int]:
    """The multiples of `of` right below and above `value`, without zero."""
    below = value // of * of
    return [number for number in (below, below + of) if number]


# -- options -----------------------------------------------------------------------------------------


def check_options(context: Context, overrides: Overrides) -> Iterator[Finding]:
    for name in sorted(set(overrides.options) & set(OWNED_OPTIONS)):
        yield owned_key("trl.owned-option", name, INSTEAD.get(name, ""))
    known = grpo_fields() if overrides.options else frozenset()
    for name in sorted(set(overrides.options) - known - set(OWNED_OPTIONS)) if known else ():
        yield _unknown(context, name, known)
    if REPORT_TO in overrides.options:
        yield from check_trackers("trl.tracker", REPORT_TO, overrides.options[REPORT_TO], TRACKERS)
    for name in trackers(context):
        if name in TRACKERS and importlib.util.find_spec(name) is None:
            what = f"`{REPORT_TO}: {name}` needs the package `{name}`, which is not installed here"
            fix = f"install it where training runs: `pip install {name}`"
            yield _finding(context, "trl.tracker", what, fix, f"train.overrides.{REPORT_TO}")
    if overrides.peft and importlib.util.find_spec("peft") is None:
        yield _finding(
            context,
            "trl.peft",
            "overrides `peft.*` need the package `peft`, which is not installed here",
            "install it where training runs: `pip install peft`",
            "train.overrides",
        )


def _unknown(context: Context, name: str, known: frozenset[str]) -> Finding:
    close = nearest(name, known)
    fix = f"did you mean `{close}`?" if close else "see the fields of `trl.GRPOConfig`"
    what = f"`GRPOConfig` of the installed TRL has no field `{name}`"
    return _finding(context, "trl.unknown-option", what, fix, f"train.overrides.{name}")


def _finding(context: Context, rule: str, what: str, fix: str, path: str) -> Finding:
    """An error where training uses this very Python, else a warning: a container has its own packages."""
    if runs_here(context):
        return error(rule, what, fix=fix, path=path)
    why = "training runs in another Python, which may differ; the driver checks again before it starts"
    return warning(rule, what, why, fix, path=path)


def runs_here(context: Context) -> bool:
    """Whether the driver runs in the interpreter that this code runs in."""
    site, python = context.cluster, context.spec.container.python
    return site.scheduler == "local" and site.container.runtime == "none" and python is None


@cache
def grpo_fields() -> frozenset[str]:
    """Fields of GRPOConfig, read from the installed sources; empty when TRL or transformers is not there.

    Importing TRL would take 5 s; parsing its classes takes 0.1 s.
    """
    trl, transformers = _folder("trl"), _folder("transformers")
    if trl is None or transformers is None:
        return frozenset()
    sources = (
        (trl / "trainer" / "grpo_config.py", "GRPOConfig"),
        (trl / "trainer" / "base_config.py", "_BaseConfig"),
        (transformers / "training_args.py", "TrainingArguments"),
    )
    fields = [_class_fields(path, name) for path, name in sources]
    # Another version may lay its classes out differently: then nothing is known, and nothing is claimed.
    return frozenset().union(*fields) if fields[0] and fields[2] else frozenset()


def _folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _class_fields(path: Path, name: str) -> frozenset[str]:
    """Annotated names in the body of a class; empty when file or class is missing."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    body = next((n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), [])
    targets = (node.target for node in body if isinstance(node, ast.AnnAssign))
    return frozenset(target.id for target in targets if isinstance(target, ast.Name))


# -- reward ------------------------------------------------------------------------------------------


def find_reward(context: Context) -> Mapping[str, str] | Finding:
    """The driver's reward description, or what is wrong with `train.reward`."""
    reward = context.spec.train.reward or "digits"
    if ":" not in reward:
        if reward in BUILT_IN:
            return {"builtin": reward}
        fix = (
            did_you_mean(reward, BUILT_IN) or f"use {one_of(sorted(BUILT_IN))}, or `path/in/repo.py:function`"
        )
        return error("trl.reward", f"there is no built-in reward `{reward}`", fix=fix, path="train.reward")
    found = find_reward_file(context, reward, "trl.reward")
    return found if isinstance(found, Finding) else found._asdict()


# -- data, steps, launch -----------------------------------------------------------------------------


def check_inputs(context: Context) -> Iterator[Finding]:
    spec = context.spec
    if spec.model is None:
        yield error("trl.model", "framework `trl` needs a model", fix="add `model: {id: ..}`", path="model")
    if not spec.data:
        fix = "add `data: [{name: prompts, source: ..}]` with .jsonl files that have a key `prompt`"
        yield error("trl.data", "framework `trl` needs a data set of prompts", fix=fix, path="data")
    elif len(spec.data) > 1 and "prompts" not in {item.name for item in spec.data}:
        what = f"none of the {len(spec.data)} data sets is called `prompts`"
        yield error("trl.data", what, fix="rename the data set to train on to `prompts`", path="data")
    if spec.launch.mode != "ray":
        what = f"framework `trl` needs Ray; `launch.mode` is `{spec.launch.mode}`"
        yield error("trl.mode", what, fix="use `launch: {mode: ray}`, the default", path="launch.mode")
    algorithm = (spec.train.algorithm or "grpo").lower()
    if algorithm != "grpo":
        yield error(
            "trl.algorithm",
            f"`train.algorithm` is `{algorithm}`; this framework trains with `grpo`",
            fix="use `grpo`; for its variants set `train.overrides.loss_type`",
            path="train.algorithm",
        )
    yield from unknown_variants(context, "trl.variant")
    yield from _check_parallel(context)


def _check_parallel(context: Context) -> Iterator[Finding]:
    parallel = context.spec.train.parallel
    for key in ("tp", "pp", "ep", "etp", "cp"):
        if getattr(parallel, key) != 1:
            yield error(
                "trl.parallel",
                f"`train.parallel.{key}` is {getattr(parallel, key)}: this framework is data-parallel only",
                fix="use 1, and `train.workers` for more data parallelism",
                path=f"train.parallel.{key}",
            )


def check_steps(context: Context, steps: int) -> Iterator[Finding]:
    yield from too_few_steps(context.level.name, "trl.steps", steps, better=30)
    if context.level.name == "checkpoint" and context.spec.checkpoint.resume == "never":
        what, fix = "level `checkpoint` resumes, `checkpoint.resume` says `never`", "remove it"
        yield error("trl.resume", what, fix=fix, path="checkpoint.resume")
