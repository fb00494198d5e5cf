"""The guide's deliverable "Requested variants": what a level and its variants ask for beyond level 0."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from jobspec.frameworks.shared.answer import Answer, blocked, failed, passed, worst
from jobspec.frameworks.shared.metric_deliverables import learning_deliverable
from jobspec.frameworks.verl.levels import VARIANTS, Variant
from jobspec.frameworks.verl.printed_config import KEY_OF
from jobspec.frameworks.verl.resume import judge_resume
from jobspec.frameworks.verl.run_facts import GRAD, Seen
from jobspec.verdict import Deliverable, EvidenceItem, Status

NAME = "Requested variants"
SIZES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
}
DENSE, EXPERT = ("tp", "pp", "cp", "vpp"), ("ep", "etp")


def judge_variants(seen: Seen) -> Deliverable:
    """`Pass` when the files show everything that the level and the requested variants test."""
    judged = list(_judgements(seen))
    if not judged:
        reason = "the level asks for no variant"
        return Deliverable(NAME, Status.NOT_REQUESTED, reason=reason, required=False)
    items = tuple(item for answer in judged for item in answer.items)
    if (bad := worst(judged)) is not None:
        return Deliverable(NAME, bad.status, bad.items or items, bad.reason)
    return Deliverable(NAME, Status.PASS, items, "; ".join(answer.reason for answer in judged))


def _judgements(seen: Seen) -> Iterator[Answer]:
    expect = seen.evidence.plan.expect
    by_level: Mapping[str, Callable[[Seen], Answer]] = {
        "checkpoint": judge_resume,
        "parallel": _parallel,
        "fsdp": _fsdp,
        "architecture": _architecture,
        "learning": _learning,
    }
    if expect.level in by_level:
        yield by_level[expect.level](seen)
    for variant in VARIANTS:
        if variant.name in expect.variants and (variant.shows or variant.lines):
            yield _variant(seen, variant)


def _variant(seen: Seen, variant: Variant) -> Answer:
    """Whether every setting of the variant has its value in each configuration that a log shows."""
    items: list[EvidenceItem] = []
    for key, pattern in variant.shows.items():
        values = seen.proved(key) or seen.proved(key.removeprefix("reward."))  # its name before 0.7.1
        if not values:
            # A release without router replay, for one, has nothing to turn off.
            if pattern == "disabled":
                continue
            return blocked(_not_shown(seen, key, f"of variant `{variant.name}`"), items)
        other = next((setting for setting in values if not re.fullmatch(pattern, setting.value)), None)
        if other is not None:
            return failed(f"variant `{variant.name}`: `{key}` is {other.value}", [other.item])
        items.append(values[0].item)
    for name in variant.lines:
        line = seen.any_line(name)
        old = seen.any_line("old_dummy") if name == "dummy" else None
        if line is None and old is not None:  # a resume finds the model that the same run made
            return failed("the dummy model was there before: it may belong to another run", [old])
        if line is None:
            return blocked(f"not shown: jobspec found no line of variant `{variant.name}`", items)
        items.append(line)
    return passed(f"`{variant.name}` is shown", items)


def _parallel(seen: Seen) -> Answer:
    """Whether verl's configuration has the planned sizes; without a plan of jobspec, any size above 1."""
    expect = seen.evidence.plan.expect
    if not seen.evidence.foreign:
        options = {key: expect.options.get(key) for key in SIZES}
        return _planned_sizes(seen, {k: v for k, v in options.items() if isinstance(v, int) and v > 1})
    shown = {key: seen.actor_size(name) for key, name in SIZES.items()}
    above = {key: v[-1] for key, v in shown.items() if v and v[-1].value.isdecimal() and int(v[-1].value) > 1}
    keys_of = {"dense": DENSE, "moe": EXPERT}
    requested = [name for name in keys_of if name in expect.variants]
    for name in requested or [""]:
        keys: Sequence[str] = keys_of.get(name, (*DENSE, *EXPERT))
        if not any(key in above for key in keys):
            what = f"variant `{name}`" if name else "level `parallel`"
            if not any(shown[key] for key in keys):
                return blocked(f"not shown: jobspec found no line with the sizes of {what}")
            items = [shown[key][-1].item for key in keys if shown[key]]
            if not seen.has_whole_config:  # the engines' sizes have the same names
                return blocked(f"not shown: {what}: every size that is known to be the trainer's is 1", items)
            return failed(f"{what}: every size that is shown is 1", items)
    return passed(
        _sizes_text({k: s.value for k, s in above.items()}), [setting.item for setting in above.values()]
    )


def _planned_sizes(seen: Seen, planned: Mapping[str, int]) -> Answer:
    if not planned:
        return blocked("the plan names no parallel size above 1")
    items: list[EvidenceItem] = []
    for key, size in planned.items():
        values = seen.actor_size(SIZES[key])
        if not values:
            return blocked(f"not shown: jobspec found no line with the actor's `{SIZES[key]}`", items)
        other = next((setting for setting in values if setting.value != str(size)), None)
        if other is not None:
            return failed(
                f"`{SIZES[key]}` of the actor is {other.value}, not the planned {size}", [other.item]
            )
        items.append(values[0].item)
    return passed(_sizes_text(planned), items)


def _sizes_text(sizes: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {size}" for key, size in sizes.items())


def _fsdp(seen: Seen) -> Answer:
    values, wrapper = seen.actor_size("use_megatron_fsdp"), seen.wrapped(fsdp=True)
    if not values and wrapper is not None:
        return passed("the workers wrapped the model with Megatron-FSDP", [wrapper])
    if not values:
        return blocked(
            f"{_not_shown(seen, 'use_megatron_fsdp')}; releases before 0.8.0 ignore it and run DDP"
        )
    other = next((setting for setting in values if setting.value != "True"), None)
    if other is not None:
        return failed(f"`use_megatron_fsdp` is {other.value}: the run used DDP", [other.item])
    ddp = seen.wrapped(fsdp=False)
    if ddp is not None and wrapper is None:
        return blocked("`use_megatron_fsdp` is on, and the workers name DDP around the model", [ddp])
    items = [values[0].item, *([wrapper] if wrapper else [])]
    return passed("Megatron-FSDP is on in verl's configuration", items)


def _not_shown(seen: Seen, key: str, of: str = "") -> str:
    """Why a knob is not proved: the release has none, or there is no line with verl's own word for it."""
    if seen.has_whole_config:
        return f"verl's configuration has no `{key}` {of}: this release does not have it".replace(" :", ":")
    return f"not shown: jobspec found no line with `{key}` {of}".rstrip()


def _architecture(seen: Seen) -> Answer:
    """Each setting of the spec must be in the configuration that verl resolved, or in the script's trace."""
    expect = seen.evidence.plan.expect
    features = {
        key.removeprefix("feature:"): str(value)
        for key, value in expect.options.items()
        if key.startswith("feature:")
    }
    if not features:
        if expect.variants:
            return passed(f"requested: {', '.join(expect.variants)}")
        return blocked("no feature is requested: name one with `--variant`")
    items: list[EvidenceItem] = []
    for key, value in features.items():
        name = KEY_OF.get(key, key.lstrip("+"))  # a variable alone proves nothing
        values = seen.proved(name)
        if not values:
            return blocked(_not_shown(seen, name), items)
        other = next((setting for setting in values if setting.value != value), None)
        if other is not None:
            return failed(f"`{key}` is {other.value}, not the requested {value}", [other.item])
        items.append(values[0].item)
    return passed(_sizes_text(features), items)


def _learning(seen: Seen) -> Answer:
    """A trend beyond noise, of a run whose gradients and adapters are alive."""
    learning = learning_deliverable(seen.evidence)
    if learning.status is Status.BLOCKED:
        return blocked(f"not shown: {learning.reason}", learning.evidence)
    if learning.status is not Status.PASS:
        return failed(learning.reason or "no metric is named for the learning signal", learning.evidence)
    if not seen.evidence.metrics.series(GRAD):
        return blocked(f"not shown: `{GRAD}` was not found", learning.evidence)
    return passed(f"learning signal: {learning.reason}", learning.evidence)
