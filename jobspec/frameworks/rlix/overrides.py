"""Rules for the overrides of a pipeline, its own and the shared ones: names, values and RLix's settings."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.rlix.settings import (
    ADMIT,
    BUCKET_KEY,
    COLOCATED,
    OFFLOAD,
    OWNED,
    PLAIN_WORD,
    REWARD,
    SLEEP_LEVEL,
    VERIFY,
    WRAPPER,
    PipelineSettings,
    setting,
)
from jobspec.frameworks.shared import nemo_recipe
from jobspec.frameworks.shared.dotted_keys import flat
from jobspec.frameworks.shared.nemo_recipe import ENGINE, SIZES, get
from jobspec.frameworks.shared.owned_keys import owned_key
from jobspec.frameworks.shared.whole_numbers import is_count
from jobspec.words import did_you_mean

KEY = re.compile(r"\+{0,2}[A-Za-z_][\w-]*(\.[\w-]+)*\Z", re.ASCII)
RUN_VARIABLE = re.compile(r"\$\{oc\.env:JOBSPEC_[A-Z0-9_]+\}")
SHORT_ADMISSION_S = 60
BATCHES = (
    "policy.train_global_batch_size",
    "policy.train_micro_batch_size",
    "grpo.num_prompts_per_step",
    "grpo.num_generations_per_prompt",
)
CONTROL = frozenset({"Cc", "Zl", "Zp"})  # Unicode's control characters and its separators of lines


def check_keys(pipeline: PipelineSettings) -> Iterator[Finding]:
    origins = given_overrides(pipeline)
    for key, (value, path) in origins.items():
        bare = key.lstrip("+")
        if not KEY.match(key):
            what, why = (
                f"`{key}` is not the name of a setting",
                "Hydra gets each override as one word, `key=value`",
            )
            fix = "write it like `grpo.seed`, or `+policy.new_key` for a new key"
            yield error("rlix.key", what, why, fix, path=path)
        if bare in OWNED:
            yield owned_key("rlix.owned", key, OWNED[bare], path)
        for text in texts(value):
            if "${" in RUN_VARIABLE.sub("", text):
                what, why = (
                    f"`{key}` refers to another setting",
                    "RLix resolves the reference before NeMo-RL sees it",
                )
                fix = "write the value itself, or `$${oc.env:JOBSPEC_DATA_NAME}` for a path of the run"
                yield error("rlix.reference", what, why, fix, path=path)
            elif any(unicodedata.category(char) in CONTROL for char in text):
                what = f"the value of `{key}` has a line break or another control character"
                yield error("rlix.value", what, fix="write it on one line", path=path)
        for name in _names_inside(value):
            if not PLAIN_WORD.match(name):
                what, why = (
                    f"the value of `{key}` has a key `{name}`",
                    "Hydra accepts only plain words as keys",
                )
                fix = "use letters, digits, `_`, `-`, `.` and `/`, and begin with a letter"
                yield error("rlix.value", what, why, fix, path=path)
    if pipeline.recipe is not None:
        for key in nemo_recipe.absent_keys(pipeline.recipe, (f"{key}=" for key in pipeline.chosen)):
            yield _unknown_key(pipeline, key, origins)


def _unknown_key(pipeline: PipelineSettings, key: str, origins: Mapping[str, tuple[Any, str]]) -> Finding:
    """The error about a plain override of a key that the file does not have."""
    why = "Hydra refuses a plain override of an absent key"
    if key not in origins:
        what = f"`{pipeline.spec.config}` has no key `{key}`, which is set for pipeline `{pipeline.name}`"
        fix = "use a configuration of NeMo-RL's GRPO"
        return error("rlix.config", what, why, fix, path=f"{pipeline.path}.config")
    known = [*nemo_recipe.keys(pipeline.recipe or {}), *WRAPPER]
    fix = did_you_mean(key, known) or f"correct the key, or add it with `+{key}`"
    what = f"neither `{pipeline.spec.config}` nor RLix's wrapper has a key `{key}`"
    return error("rlix.key", what, why, fix, path=origins[key][1])


def given_overrides(pipeline: PipelineSettings) -> dict[str, tuple[Any, str]]:
    """Each override's value and its place in the spec; a pipeline's own win."""
    places = (
        ("train.overrides", pipeline.context.spec.train.overrides),
        (f"{pipeline.path}.train.overrides", pipeline.spec.train.overrides),
    )
    return {
        setting(key): (value, f"{path}.{key}")
        for path, overrides in places
        for key, value in flat(overrides).items()
    }


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from (*texts(key), *texts(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)


def _names_inside(value: Any) -> Iterator[str]:
    """Keys of the mappings within a value."""
    if isinstance(value, Mapping):
        yield from map(str, value)
    items = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list | tuple):
        for item in items:
            yield from _names_inside(item)


def check_numbers(pipeline: PipelineSettings) -> Iterator[Finding]:
    """An error for each size that is no whole number: the other rules would take it for 1."""
    origins = given_overrides(pipeline)
    for key in (*SIZES.values(), *ENGINE.values(), *BATCHES, BUCKET_KEY):
        value = get(pipeline.config, key)
        if value is None or is_count(value):
            continue
        path = next((origins[name][1] for name in (key, f"+{key}", f"++{key}") if name in origins), "")
        what = f"`{key}` of pipeline `{pipeline.name}` is {json.dumps(value, default=str)}"
        fix = "use a whole number from 1 on"
        yield error("rlix.number", what, fix=fix, path=path or f"{pipeline.path}.config")


def check_wrapper(pipeline: PipelineSettings) -> Iterator[Finding]:
    """Errors about RLix's own settings, for values that its coordinator refuses."""
    path = {key: place for key, (_, place) in given_overrides(pipeline).items()}
    value = pipeline.wrapper
    for key in OFFLOAD:
        if value[key] is not True:
            why = "NCCL's buffers of a sleeping group would hold memory that the other group needs"
            what = f"`{key}` of pipeline `{pipeline.name}` is {json.dumps(value[key])}"
            yield error("rlix.offload-nccl", what, f"RLix refuses it: {why}", "remove it", path=path[key])
    if value[SLEEP_LEVEL] not in (1, 2) or isinstance(value[SLEEP_LEVEL], bool):
        what = f"`sleep_level` of pipeline `{pipeline.name}` is {json.dumps(value[SLEEP_LEVEL])}"
        fix = "use 2, which frees the weights too, or 1 to look for faults in waking"
        yield error("rlix.sleep-level", what, "RLix knows 1 and 2", fix, path=path[SLEEP_LEVEL])
    if value[REWARD] not in ([], "", "[]", None):
        what, why = "RLix has no GPUs for a reward model", "its coordinator refuses `reward.device_mapping`"
        yield error("rlix.reward", what, why, "remove it: rewards are computed on CPUs", path=path[REWARD])
    if not isinstance(value[VERIFY], bool):
        what = f"`{VERIFY}` is {json.dumps(value[VERIFY])}"
        yield error("rlix.verify", what, fix="use true or false", path=path[VERIFY])
    groups, delay = value[COLOCATED], value[ADMIT]
    if not is_count(groups):
        what = f"`{COLOCATED}` is {json.dumps(groups)}"
        yield error("rlix.number", what, fix="use a whole number from 1 on", path=path[COLOCATED])
    if isinstance(delay, bool) or not isinstance(delay, int | float) or delay < 0:
        what = f"`{ADMIT}` is {json.dumps(delay)}"
        yield error("rlix.number", what, fix="use a number of seconds from 0 on", path=path[ADMIT])
    if ADMIT in path:
        yield from _check_admission(pipeline, value[ADMIT], path[ADMIT])


def _check_admission(pipeline: PipelineSettings, value: Any, path: str) -> Iterator[Finding]:
    """Findings about the driver's wait for one pipeline's first step before the next; at least 30 s."""
    if path.startswith("pipelines"):
        what = f"`{ADMIT}` belongs to the driver, not to one pipeline"
        yield error("rlix.number", what, fix="set it in `train.overrides`", path=path)
        return
    several = len(pipeline.context.spec.pipelines) > 1 and pipeline.index == 0
    if several and isinstance(value, int | float) and 0 <= value < SHORT_ADMISSION_S:
        what = f"the driver admits the next pipeline after {max(value, 30)} s, whatever the first one does"
        why = "few models reach their first step by then, and both pipelines start up at the same time"
        yield warning("rlix.admit-delay", what, why, "use 600 or more", path=path)
