"""What can be known about pipelines before their GPUs wait for them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.rlix import checkout, memory, topology
from jobspec.frameworks.rlix.overrides import check_keys, check_numbers, check_wrapper, given_overrides, texts
from jobspec.frameworks.rlix.settings import MODEL, PipelineSettings, pipeline_settings
from jobspec.frameworks.shared import nemo_recipe
from jobspec.frameworks.shared.known_variants import unknown_variants
from jobspec.frameworks.shared.nemo_recipe import SIZES, Config, get
from jobspec.frameworks.shared.nemo_trainer_shape import trainer_shape
from jobspec.megatron.rules import check_shape
from jobspec.megatron.shape import TrainShape
from jobspec.metrics.learning_signal import MIN_POINTS
from jobspec.metrics.requirements import parse_condition, parse_requirement

# NeMo-RL's switches that asynchronous GRPO through RLix depends on, and what else would happen.
ASYNC: Mapping[str, tuple[object, str]] = {
    "grpo.async_grpo.enabled": (True, "only asynchronous GRPO generates while another part trains"),
    "loss_fn.use_importance_sampling_correction": (True, "NeMo-RL asserts it for asynchronous GRPO"),
    "policy.generation.backend": ("vllm", "RLix puts vLLM's engines to sleep, and no others"),
    "policy.generation.vllm_cfg.async_engine": (True, "NeMo-RL asserts it for asynchronous GRPO"),
    "policy.generation.colocated.enabled": (False, "trainer and engines have groups of workers of their own"),
    "policy.megatron_cfg.enabled": (True, "RLix takes weights from Megatron's workers"),
    "policy.dtensor_cfg.enabled": (False, "RLix takes weights from Megatron's workers"),
}
NODES = re.compile(r"\bnodes `\d+`(?: or `\d+`)*")
CPUS_PER_GPU = 4  # of each bundle of RLix's placement group


def check(context: Context) -> Iterator[Finding]:
    """Every finding; those about one pipeline name it."""
    if not context.spec.pipelines:
        what = "the spec names no pipelines"
        fix = "add `pipelines: [{name: a, config: examples/configs/grpo_math_1B.yaml, train_gpus: [0]}]`"
        yield error("rlix.pipelines", what, "RLix runs nothing else", fix, path="framework")
        return
    yield from check_checkouts(context)
    recipes, problems = read_recipes(context)
    yield from problems
    found = pipeline_settings(context, recipes)
    yield from check_level(context, found)
    yield from check_metrics(context, found)
    yield from check_site(context, found)
    for pipeline in found:
        yield from check_keys(pipeline)
        yield from check_numbers(pipeline)
        yield from check_wrapper(pipeline)
        yield from check_trainer(pipeline)
        yield from check_model(pipeline)
        yield from check_megatron(pipeline)
    if context.gpus_per_node:
        yield from topology.check(found, context.spec.resources.nodes, context.gpus_per_node)
    else:
        what, why = "the run has no GPUs", "pipelines share GPUs, and nothing else"
        fix = "set `resources.gpus_per_node`"
        yield error("rlix.gpu", what, why, fix, path="resources.gpus_per_node")
    yield from memory.check(context, found)


# -- checkouts ---------------------------------------------------------------------------------------


def check_checkouts(context: Context) -> Iterator[Finding]:
    """Two checkouts, and the fork of NeMo-RL that this RLix was written with."""
    rlix, nemo = checkout.roots(context)
    for root, folder, what in (
        (rlix, "rlix/pipeline", "RLix"),
        (nemo, checkout.PACKAGE, "its fork of NeMo-RL"),
    ):
        if not root:
            why = f"none has `{folder}`; RLix and NeMo-RL are two checkouts"
            fix = "name both in `repos`"
            yield error("rlix.checkout", f"no repository of the spec is {what}", why, fix, path="repos")
    if rlix and Path(rlix).is_dir() and not Path(rlix, checkout.DRIVER).is_file():
        roll = Path(rlix, checkout.ROLL_DRIVER).is_file()
        why = f"`{checkout.ROLL_DRIVER}` is there: this RLix runs pipelines of ROLL alone" if roll else ""
        fix = "use branch `nemo` (pull request 5), f77d913 or later"
        what = f"`{rlix}` has no `{checkout.DRIVER}`"
        yield error("rlix.driver", what, why, fix, path="repos")
    if rlix and nemo and Path(rlix).is_dir() and Path(nemo).is_dir():
        for hook in checkout.missing_hooks(Path(rlix), Path(nemo)):
            yield error(
                "rlix.versions",
                f"the NeMo-RL checkout has no `{hook.name}`, which this RLix calls",
                f"looked in `{hook.where}`; without it {hook.without}",
                "use the fork that this RLix was tested with; the published one (0c98d7d) is older",
                path="repos",
            )


def read_recipes(context: Context) -> tuple[dict[str, Config], list[Finding]]:
    """NeMo-RL's configuration files by pipeline; one in a checkout that is not cloned yet is left out."""
    root, recipes, problems = checkout.roots(context)[1], dict[str, Config](), list[Finding]()
    known = dict[Path, Config]()  # pipelines mostly have one file in common
    for index, pipeline in enumerate(context.spec.pipelines):
        path = Path(root, pipeline.config)
        if not path.is_absolute() or (Path(root) in path.parents and not Path(root).is_dir()):
            continue
        try:
            known[path] = known[path] if path in known else nemo_recipe.load(path)
            recipes[pipeline.name] = known[path]
        except (OSError, ValueError, yaml.YAMLError) as why:
            what = f"the configuration of pipeline `{pipeline.name}` cannot be read: `{path}`"
            fix = "name a file of the NeMo-RL checkout, or an absolute path"
            problems.append(error("rlix.config", what, str(why), fix, path=f"pipelines[{index}].config"))
    return recipes, problems


# -- the run -----------------------------------------------------------------------------------------


def check_level(context: Context, found: Sequence[PipelineSettings]) -> Iterator[Finding]:
    name = context.level.name
    if name == "multi" and len(found) < 2:
        what = "level `multi` is about pipelines that share GPUs, and the spec names one"
        yield error("rlix.level", what, fix="name two or more, or use level `smoke`", path="coverage.level")
    elif name == "multi":
        for pipeline in topology.alone(found):
            what = f"level `multi` is about pipelines that share GPUs, and `{pipeline.name}` shares none"
            why = "on GPUs of its own nothing is taken by turns"
            fix = "give it `infer_gpus` that another one has too, or use level `smoke`"
            yield error("rlix.level", what, why, fix, path=f"{pipeline.path}.infer_gpus")
    yield from unknown_variants(context, "rlix.variant")
    for pipeline in found:
        least = MIN_POINTS if name == "learning" else 2
        if pipeline.steps < least:
            steps = f"{pipeline.steps} train step{'s' if pipeline.steps > 1 else ''}"
            what = f"pipeline `{pipeline.name}` has {steps}"
            why = "fewer cannot tell a trend from noise" if name == "learning" else "its engines wake between"
            fix = f"use {least} or more"
            own = f"{pipeline.path}." if pipeline.spec.train.steps else ""
            yield error("rlix.steps", what, why, fix, path=f"{own}train.steps")


def check_metrics(context: Context, found: Sequence[PipelineSettings]) -> Iterator[Finding]:
    """Figures of the whole run have their pipeline's name before them."""
    asked, known = context.spec.metrics, tuple(f"{pipeline.name}/" for pipeline in found)
    named = [("require", parse_requirement(text).metric) for text in asked.require]
    named += [
        ("abort_when", term.metric) for text in asked.abort_when for term in parse_condition(text).terms
    ]
    named += [("learning", asked.learning.metric)] if asked.learning is not None else []
    for key, metric in named:
        if not metric.startswith(known):
            what = f"`{metric}` is asked of the whole run, where no metric is called so"
            why = f"each pipeline logs the same names: the whole run has `{found[0].name}/train/reward`"
            fix = "move it into the pipelines' own `metrics`"
            yield error("rlix.metrics", what, why, fix, path=f"metrics.{key}")


def check_site(context: Context, found: Sequence[PipelineSettings]) -> Iterator[Finding]:
    nodes, gpus = context.spec.resources.nodes, context.gpus_per_node
    if nodes > 1:
        what = f"{nodes} nodes asked, and RLix places pipelines of NeMo-RL on one"
        why = "its placement group holds the GPUs of a single node"
        yield error("rlix.nodes", what, why, "use `nodes: 1`", path="resources.nodes")
    cpus = context.spec.resources.cpus_per_node or context.cluster.node.cpus
    need = CPUS_PER_GPU * gpus + len(found)
    if gpus and cpus and cpus < need:
        what = f"RLix reserves {need} CPUs of the node, and Ray will have {cpus}"
        why = f"{CPUS_PER_GPU} for each GPU and 1 for each pipeline; with fewer it waits for ever"
        fix = f"set `resources.cpus_per_node` to {need} or more"
        yield error("rlix.cpus", what, why, fix, path="resources.cpus_per_node")
    required = {**context.cluster.env, **context.spec.container.env}.get("RLIX_REQUIRED_GPUS_PER_NODE")
    if required is not None and required != str(gpus):
        what = f"`RLIX_REQUIRED_GPUS_PER_NODE` is {required}, and each node has {gpus} GPUs"
        path = "container.env.RLIX_REQUIRED_GPUS_PER_NODE"
        yield error("rlix.gpus-per-node", what, "RLix asserts it", "remove it", path=path)
    yield from _check_data(context, found)
    if context.cluster.scheduler != "local" and not (
        context.spec.hf_cache.home or context.cluster.paths.hf_home
    ):
        what = "no Hugging Face cache is named, and RLix's actors look in none but the run's"
        why = "data sets are then looked for in `~/.cache/huggingface` of the node"
        fix = "set `hf_cache.home`, or `paths.hf_home` of the site profile"
        yield warning("rlix.cache", what, why, fix, path="hf_cache.home")
    if context.spec.checkpoint.every is not None:
        yield warning(
            "rlix.checkpoint",
            "no published run of RLix with NeMo-RL has saved a checkpoint",
            "NeMo-RL saves after RLix has taken the trainer's GPUs and process groups away",
            "remove `checkpoint.every`, or look at the first save",
            path="checkpoint.every",
        )
    if context.spec.checkpoint.resume == "must":
        what = "`resume: must` is not looked at: NeMo-RL resumes from what it finds"
        fix = "use `resume: auto`"
        yield warning("rlix.resume", what, "", fix, path="checkpoint.resume")


def _check_data(context: Context, found: Sequence[PipelineSettings]) -> Iterator[Finding]:
    """A staged data set reaches a pipeline by an override that names its variable, and by nothing else."""
    named = [text for pipeline in found for value in pipeline.overrides.values() for text in texts(value)]
    for index, data in enumerate(context.spec.data):
        variable = "JOBSPEC_DATA_" + re.sub(r"\W", "_", data.name).upper()
        if not any(f"${{oc.env:{variable}}}" in text for text in named):
            what = f"no pipeline reads the data set `{data.name}`"
            why = "NeMo-RL's configuration names the data, by `data.train` and the like"
            fix = f"set a key such as `+data.train.data_path` to `$${{oc.env:{variable}}}/train.jsonl`"
            yield warning("rlix.data", what, why, fix, path=f"data[{index}]")


# -- one pipeline's settings --------------------------------------------------------------------------


def check_trainer(pipeline: PipelineSettings) -> Iterator[Finding]:
    given = given_overrides(pipeline)
    for key, (wanted, why) in ASYNC.items():
        value = get(pipeline.config, key)
        if value != wanted:
            what = f"`{key}` of pipeline `{pipeline.name}` is {json.dumps(value)}"
            path = given[key][1] if key in given else f"{pipeline.path}.config"
            yield error("rlix.async", what, why, f"set it to {json.dumps(wanted)}", path=path)


def check_model(pipeline: PipelineSettings) -> Iterator[Finding]:
    """RLix's actors read the cache at one fixed place; only the run's link, or an absolute path, leads on."""
    path = next(
        (place for key, (_, place) in given_overrides(pipeline).items() if key == MODEL),
        f"{pipeline.path}.config",
    )
    staged = pipeline.context.spec.model is not None and MODEL not in pipeline.overrides
    if not staged and pipeline.model.startswith((".", "~")):
        what, why = f"pipeline `{pipeline.name}` trains `{pipeline.model}`", "actors run in a folder of Ray's"
        yield error("rlix.model", what, why, "give an absolute path, or a Hugging Face id", path=path)
    elif not pipeline.model and pipeline.recipe is not None:
        what = f"pipeline `{pipeline.name}` names no model"
        yield error("rlix.model", what, fix="set `model`, or `policy.model_name`", path=path)


def check_megatron(pipeline: PipelineSettings) -> Iterator[Finding]:
    """Megatron's own conditions on the sizes, over the GPUs that this pipeline trains on."""
    shape = _shape(pipeline)
    found = tuple(check_shape(shape, memory.architecture(pipeline)))
    for finding in found:
        # More nodes are no way out here, more GPUs of this one are.
        fix = NODES.sub("more `train_gpus`", finding.fix)
        yield replace(finding, what=f"pipeline `{pipeline.name}`: {finding.what}", fix=fix)
    # An estimate of an impossible shape, or of one that is not known, says nothing.
    if pipeline.recipe is not None and not any(finding.is_error for finding in found):
        yield from memory.check_trainer(pipeline, shape)


def _shape(pipeline: PipelineSettings) -> TrainShape:
    own, shared = pipeline.spec.train.parallel, pipeline.context.spec.train.parallel
    at = f"{pipeline.path}.train.parallel" if own is not None else "train.parallel"
    named = own is not None or shared != type(shared)()
    keys = {name: f"{at}.{name}" for name in SIZES} if named else {}
    whole = trainer_shape(pipeline.config, 1, len(pipeline.train))
    if pipeline.recipe is None:
        # Of batches all numbers are known or none: half of them without the file says nothing.
        whole = replace(whole, micro_batch=None, train_batch=None, global_batch=None, packed=None)
        whole = replace(whole, samples_per_prompt=1)
    gpus = f"{pipeline.path}.train_gpus"
    return replace(whole, keys={"nodes": gpus, "gpus_per_node": gpus, **keys})
