"""The settings that a NeMo-RL run had: the configuration that it printed, and the overrides that reached it.

Source: NeMo-RL at 7ea279ab, `examples/run_*.py`: a list of overrides, then `repr` of the configuration.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from jobspec.frameworks.nemo_rl.log_lines import Lines
from jobspec.frameworks.nemo_rl.variant import Variant
from jobspec.frameworks.shared.weak_evidence import (
    ADAPTER,
    EAGER,
    FROZEN,
    Weakness,
    limits,
    model_limits,
    size_limits,
)

MASKING = ("grpo.seq_logprob_error_threshold", "ppo.seq_logprob_error_threshold")
BACKEND, MODEL = "policy.generation.backend", "policy.model_name"
MEGATRON = "policy.megatron_cfg."
PEFT = f"{MEGATRON}peft.enabled"
NUMBER = r"\d+(?:\.\d*)?(?:e[-+]?\d+)?"
WEAK = (
    Weakness(
        MASKING,
        NUMBER,
        "sequences whose log-probabilities differ too much are masked (`{key}` is {value}): conditions on "
        "log-probabilities do not speak of them",
        refused=True,
    ),
    Weakness(
        ("loss_fn.force_on_policy_ratio",),
        "true",
        "`{key}` makes every ratio 1 and switches off NeMo-RL's check for TP of 4 and more: conditions on "
        "ratios prove nothing",
        refused=True,
    ),
    Weakness(("policy.generation.vllm_cfg.enforce_eager",), "true", EAGER, where=(BACKEND, "vllm", "vllm")),
    Weakness(
        ("policy.generation.mcore_generation_config.num_cuda_graphs",),
        "null|0",
        "Megatron generated without CUDA graphs: a pass with reduced optimization",
        where=(BACKEND, "megatron", "vllm"),
    ),
    Weakness((PEFT,), "true", ADAPTER),
    Weakness(("policy.megatron_cfg.optimizer.lr",), r"0(?:\.0*)?(?:e[-+]?\d+)?", FROZEN),
)
NOT_VLLM = Weakness(
    (BACKEND,),
    "(?!vllm$).+",
    "the rollouts came from {value}, not from vLLM: no refit into vLLM is proved",
    refused=True,
)
OVERRIDES = "policy.hf_config_overrides."


def weak_table(variants: tuple[Variant, ...]) -> tuple[Weakness, ...]:
    """The table for these variants: where one generates by Megatron, another engine is no surprise."""
    return WEAK if any("megatron-generation" in item.proofs for item in variants) else (*WEAK, NOT_VLLM)


Settings = Mapping[str, tuple[str, ...]]


def read_settings(lines: Lines) -> Settings:
    """Values by dotted key: of the whole configuration, and of overrides for keys that it does not show."""
    whole: dict[str, list[str]] = {}
    for line in lines.get("configuration", ()):
        for key, value in _whole(line.groups[0]):
            whole.setdefault(key, []).append(value)
    given: dict[str, list[str]] = {}
    for line in lines.get("overrides", ()):
        for key, value in _overrides(line.groups[0]):
            given.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in {**given, **whole}.items()}


def setting_limits(settings: Settings, variants: tuple[Variant, ...]) -> Iterator[str]:
    """What the printed settings leave unproved."""

    def values(key: str) -> tuple[str, ...]:
        return settings.get(key, ())

    yield from limits(weak_table(variants), values)
    yield from size_limits(values, MEGATRON)
    changed = [key.removeprefix(OVERRIDES) for key in settings if key.startswith(OVERRIDES)]
    if changed:
        names = ", ".join(sorted(changed)[:5])
        yield f"the model's configuration was changed ({names}): its pretrained weights are not what ran"
    media = any(item.name.startswith(("vlm", "audio")) for item in variants)
    for model in dict.fromkeys(settings.get(MODEL, ())):
        yield from model_limits(model, media)


def _overrides(text: str) -> Iterator[tuple[str, str]]:
    """The last value of each override; a list that was cut gives none."""
    try:
        words = ast.literal_eval(f"[{text}]")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return
    last = {}
    for word in words:
        key, equals, value = str(word).partition("=")
        if equals:
            last[key.lstrip("+~")] = value.strip("'\"")
    yield from last.items()


def _whole(text: str) -> Iterator[tuple[str, str]]:
    """The configuration's values; none where an object in it has no `repr` that Python can read."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return
    yield from _flat(tree, "")


def _flat(node: ast.expr, prefix: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            yield from _flat(keyword.value, f"{prefix}.{keyword.arg}".strip("."))
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield from _flat(value, f"{prefix}.{key.value!s}".strip("."))
    elif isinstance(node, ast.Constant):
        yield prefix, "null" if node.value is None else str(node.value)
    else:
        yield prefix, ast.unparse(node)
