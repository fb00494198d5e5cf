"""Rules for pipelines, checked before any GPU is allocated."""

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

# NeMo-RL's switches that asynchronous GRPO through RLix needs, and why.
ASYNC: Mapping[str, tuple[object, str]] = {
    "grpo.async_grpo.enabled": (True, "only asynchronous GRPO generates while another part trains"),
    "loss_fn.use_importance_sampling_correction": (True, "NeMo-RL asserts it for asynchronous GRPO"),
    "policy.generation.backend": ("vllm", "RLix can put only vLLM's engines to sleep"),
    "policy.generation.vllm_cfg.async_engine": (True, "NeMo-RL asserts it for asynchronous GRPO"),
    "policy.generation.colocated.enabled": (False, "trainer and engines are separate groups of workers"),
    "policy.megatron_cfg.enabled": (True, "RLix takes weights from Megatron's workers"),
    "policy.dtensor_cfg.enabled": (False, "RLix takes weights from Megatron's workers"),
}
NODES = re.compile(r"\bnodes `\d+`(?: or `\d+`)*")
CPUS_PER_GPU = 4  # of each bundle of RLix's placement group


def check(context: Context) -> Iterator[Finding]:
    """Every finding; a finding about one pipeline names it."""
    if not context.spec.pipelines:
        what = "the spec names no pipelines"
        fix = "add `pipelines: [{name: a, config: examples/configs/grpo_math_1B.yaml, train_gpus: [0]}]`"
        yield error("rlix.pipelines", what, "RLix runs nothing else", fix, path="framework")
        return
    yield from check_checkouts(context)
    recipes, problems = read_recipes(context)
    yield from problems
    pipelines = pipeline_settings(context, recipes)
    yield from check_level(context, pipelines)
    yield from check_metrics(context, pipelines)
    yield from check_site(context, pipelines)
    for pipeline in pipelines:
        yield from check_keys(pipeline)
        yield from check_numbers(pipeline)
        yield from check_wrapper(pipeline)
        yield from check_trainer(pipeline)
        yield from check_model(pipeline)
        yield from check_megatron(pipeline)
    if context.gpus_per_node:
        yield from topology.check(pipelines, context.spec.resources.nodes, context.gpus_per_node)
    else:
        what, why = "the run has no GPUs", "pipelines can only share GPUs"
        fix = "set `resources.gpus_per_node`"
        yield error("rlix.gpu", what, why, fix, path="resources.gpus_per_node")
    yield from memory.check(context, pipelines)


# -- checkouts ---------------------------------------------------------------------------------------


def check_checkouts(context: Context) -> Iterator[Finding]:
    """Errors without both checkouts, or with a NeMo-RL that this RLix was not written for."""
    rlix, nemo = checkout.roots(context)
    for root, folder, what in (
        (rlix, "rlix/pipeline", "RLix"),
        (nemo, checkout.PACKAGE, "RLix's fork of NeMo-RL"),
    ):
        if not root:
            why = f"no repository has `{folder}`, and RLix and NeMo-RL are two checkouts"
            fix = "name both in `repos`"
            yield error("rlix.checkout", f"no repository of the spec is {what}", why, fix, path="repos")
    if rlix and Path(rlix).is_dir() and not Path(rlix, checkout.DRIVER).is_file():
        roll = Path(rlix, checkout.ROLL_DRIVER).is_file()
        why = f"`{checkout.ROLL_DRIVER}` is there: this RLix runs only pipelines of ROLL" if roll else ""
        fix = "use branch `nemo` (pull request 5), f77d913 or later"
        what = f"`{rlix}` has no `{checkout.DRIVER}`"
        yield error("rlix.driver", what, why, fix, path="repos")
    if rlix and nemo and Path(rlix).is_dir() and Path(nemo).is_dir():
        for hook in checkout.missing_hooks(Path(rlix), Path(nemo)):
            yield error(
                "rlix.versions",
                f"the NeMo-RL checkout has no `{hook.name}`, which this RLix calls",
                f"jobspec looked in `{hook.where}`; without the hook, {hook.without}",
                "use the fork that this RLix was tested with; the published one (0c98d7d) is older",
                path="repos",
            )


def read_recipes(context: Context) -> tuple[dict[str, Config], list[Finding]]:
    """NeMo-RL's configuration files by pipeline, without those of a checkout that is not cloned yet."""
    root, recipes, problems = checkout.roots(context)[1], dict[str, Config](), list[Finding]()
    known = dict[Path, Config]()  # most pipelines share one file
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


def check_level(context: Context, pipelines: Sequence[PipelineSettings]) -> Iterator[Finding]:
    name = context.level.name
    if name == "multi" and len(pipelines) < 2:
        what = "level `multi` needs pipelines that share GPUs, and the spec names one pipeline"
        yield error("rlix.level", what, fix="name two or more, or use level `smoke`", path="coverage.level")
    elif name == "multi":
        for pipeline in topology.alone(pipelines):
            what = f"level `multi` needs pipelines that share GPUs, and `{pipeline.name}` shares none"
            why = "a pipeline on separate GPUs takes no turns"
            fix = "give it `infer_gpus` of another pipeline, or use level `smoke`"
            yield error("rlix.level", what, why, fix, path=f"{pipeline.path}.infer_gpus")
    yield from unknown_variants(context, "rlix.variant")
    for pipeline in pipelines:
        least = MIN_POINTS if name == "learning" else 2
        if pipeline.steps < least:
            steps = f"{pipeline.steps} train step{'s' if pipeline.steps > 1 else ''}"
            what = f"pipeline `{pipeline.name}` has {steps}"
            why = (
                "fewer cannot tell a trend from noise"
                if name == "learning"
                else "its engines wake between two steps"
            )
            fix = f"use {least} or more"
            own = f"{pipeline.path}." if pipeline.spec.train.steps else ""
            yield error("rlix.steps", what, why, fix, path=f"{own}train.steps")


def check_metrics(context: Context, pipelines: Sequence[PipelineSettings]) -> Iterator[Finding]:
    """Errors about metrics of the whole run without the name of their pipeline in front."""
    metrics, known = context.spec.metrics, tuple(f"{pipeline.name}/" for pipeline in pipelines)
    named = [("require", parse_requirement(text).metric) for text in metrics.require]
    named += [
        ("abort_when", term.metric) for text in metrics.abort_when for term in parse_condition(text).terms
    ]
    named += [("learning", metrics.learning.metric)] if metrics.learning is not None else []
    for key, metric in named:
        if not metric.startswith(known):
            what = f"`metrics.{key}` names `{metric}`, and the whole run has no metric of that name"
            why = f"each pipeline logs the same names: the whole run has `{pipelines[0].name}/train/reward`"
            fix = "move it into the pipelines' own `metrics`"
            yield error("rlix.metrics", what, why, fix, path=f"metrics.{key}")


def check_site(context: Context, pipelines: Sequence[PipelineSettings]) -> Iterator[Finding]:
    nodes, gpus = context.spec.resources.nodes, context.gpus_per_node
    if nodes > 1:
        what = f"the spec asks for {nodes} nodes, and RLix places pipelines of NeMo-RL on one"
        why = "its placement group holds the GPUs of a single node"
        yield error("rlix.nodes", what, why, "use `nodes: 1`", path="resources.nodes")
    cpus = context.spec.resources.cpus_per_node or context.cluster.node.cpus
    need = CPUS_PER_GPU * gpus + len(pipelines)
    if gpus and cpus and cpus < need:
        what = f"RLix reserves {need} CPUs of the node, and Ray will have {cpus}"
        why = f"RLix takes {CPUS_PER_GPU} for each GPU and 1 for each pipeline, and with fewer waits for ever"
        fix = f"set `resources.cpus_per_node` to {need} or more"
        yield error("rlix.cpus", what, why, fix, path="resources.cpus_per_node")
    required = {**context.cluster.env, **context.spec.container.env}.get("RLIX_REQUIRED_GPUS_PER_NODE")
    if required is not None and required != str(gpus):
        what = f"`RLIX_REQUIRED_GPUS_PER_NODE` is {required}, and each node has {gpus} GPUs"
        path = "container.env.RLIX_REQUIRED_GPUS_PER_NODE"
        yield error("rlix.gpus-per-node", what, "RLix asserts it", "remove it", path=path)
    yield from _check_data(context, pipelines)
    if context.cluster.scheduler != "local" and not (
        context.spec.hf_cache.home or context.cluster.paths.hf_home
    ):
        what = "neither the spec nor the site profile names a Hugging Face cache"
        why = "RLix's actors look only in the run's cache, which is then `~/.cache/huggingface` of the node"
        fix = "set `hf_cache.home`, or `paths.hf_home` of the site profile"
        yield warning("rlix.cache", what, why, fix, path="hf_cache.home")
    if context.spec.checkpoint.every is not None:
        yield warning(
            "rlix.checkpoint",
            "no published run of RLix with NeMo-RL has saved a checkpoint",
            "NeMo-RL saves after RLix has taken the trainer's GPUs and process groups away",
            "remove `checkpoint.every`, or check the first save",
            path="checkpoint.every",
        )
    if context.spec.checkpoint.resume == "must":
        what = "`resume: must` has no effect: NeMo-RL resumes from whatever it finds"
        fix = "use `resume: auto`"
        yield warning("rlix.resume", what, "", fix, path="checkpoint.resume")


def _check_data(context: Context, pipelines: Sequence[PipelineSettings]) -> Iterator[Finding]:
    """A warning for each staged data set that no override names: nothing else gives it to a pipeline."""
    named = [text for pipeline in pipelines for value in pipeline.overrides.values() for text in texts(value)]
    for index, data in enumerate(context.spec.data):
        variable = "JOBSPEC_DATA_" + re.sub(r"\W", "_", data.name).upper()
        if not any(f"${{oc.env:{variable}}}" in text for text in named):
            what = f"no pipeline reads the data set `{data.name}`"
            why = "NeMo-RL's configuration names its data by keys like `data.train`"
            fix = f"set a key such as `+data.train.data_path` to `$${{oc.env:{variable}}}/train.jsonl`"
            yield warning("rlix.data", what, why, fix, path=f"data[{index}]")


# -- one pipeline's settings --------------------------------------------------------------------------


def check_trainer(pipeline: PipelineSettings) -> Iterator[Finding]:
    origins = given_overrides(pipeline)
    for key, (needed, why) in ASYNC.items():
        value = get(pipeline.config, key)
        if value != needed:
            what = f"`{key}` of pipeline `{pipeline.name}` is {json.dumps(value)}"
            path = origins[key][1] if key in origins else f"{pipeline.path}.config"
            yield error("rlix.async", what, why, f"set it to {json.dumps(needed)}", path=path)


def check_model(pipeline: PipelineSettings) -> Iterator[Finding]:
    """An error without a model that RLix's actors find: by an absolute path, or by id in the linked cache."""
    path = next(
        (place for key, (_, place) in given_overrides(pipeline).items() if key == MODEL),
        f"{pipeline.path}.config",
    )
    staged = pipeline.context.spec.model is not None and MODEL not in pipeline.overrides
    if not staged and pipeline.model.startswith((".", "~")):
        what, why = (
            f"pipeline `{pipeline.name}` trains `{pipeline.model}`",
            "RLix's actors run in a folder of Ray",
        )
        yield error("rlix.model", what, why, "give an absolute path, or a Hugging Face id", path=path)
    elif not pipeline.model and pipeline.recipe is not None:
        what = f"pipeline `{pipeline.name}` names no model"
        yield error("rlix.model", what, fix="set `model`, or `policy.model_name`", path=path)


def check_megatron(pipeline: PipelineSettings) -> Iterator[Finding]:
    """Megatron's own conditions on the sizes, for the GPUs of this pipeline's trainer."""
    shape = _shape(pipeline)
    findings = tuple(check_shape(shape, memory.architecture(pipeline)))
    for finding in findings:
        # RLix has one node, so the fix is more GPUs of it.
        fix = NODES.sub("more `train_gpus`", finding.fix)
        yield replace(finding, what=f"pipeline `{pipeline.name}`: {finding.what}", fix=fix)
    # An estimate of an impossible or unknown shape says nothing.
    if pipeline.recipe is not None and not any(finding.is_error for finding in findings):
        yield from memory.check_trainer(pipeline, shape)


def _shape(pipeline: PipelineSettings) -> TrainShape:
    own, shared = pipeline.spec.train.parallel, pipeline.context.spec.train.parallel
    at = f"{pipeline.path}.train.parallel" if own is not None else "train.parallel"
    named = own is not None or shared != type(shared)()
    keys = {name: f"{at}.{name}" for name in SIZES} if named else {}
    whole = trainer_shape(pipeline.config, 1, len(pipeline.train))
    if pipeline.recipe is None:
        # Without the file some numbers of the batch are unknown, and the known ones alone say nothing.
        whole = replace(whole, micro_batch=None, train_batch=None, global_batch=None, packed=None)
        whole = replace(whole, samples_per_prompt=1)
    gpus = f"{pipeline.path}.train_gpus"
    return replace(whole, keys={"nodes": gpus, "gpus_per_node": gpus, **keys})
