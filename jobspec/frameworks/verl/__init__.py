"""Framework `verl`: PPO by verl's Megatron backend through a checkout of Megatron-Bridge.

The checkout's own maintained script does the work; this package plans its variables and judges its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from jobspec.finding import Finding, fail
from jobspec.frameworks.base import Context, FrameworkPlan, Level
from jobspec.frameworks.shared.dotted_keys import flat
from jobspec.frameworks.shared.schedule import expectation, level_expectation
from jobspec.frameworks.shared.trackers import environment
from jobspec.frameworks.shared.weak_evidence import override_values
from jobspec.frameworks.verl import settings
from jobspec.frameworks.verl.checkout import WRAPPER, Wrapper, read_config, read_wrapper
from jobspec.frameworks.verl.commands import checks, commands
from jobspec.frameworks.verl.levels import DEFAULT_LORA_RANK, LEVELS, LORA, PARITY, variants_of
from jobspec.frameworks.verl.printed_config import value_text
from jobspec.frameworks.verl.train_shape import train_shape
from jobspec.frameworks.verl.weak_settings import setting_limits
from jobspec.plan import ExpectPlan

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence
    from jobspec.verdict import Deliverable

METRIC_KEYS = {
    "reward": "critic/rewards/mean",
    "loss": "actor/pg_loss",
    "grad norm": "actor/grad_norm",
    "kl": "actor/kl_loss",
    "step time": "perf/time_per_step",
    "tokens/s": "perf/throughput",
}
# Read by Ray's workers, which inherit the environment that Ray was started with. verl refuses ROCm's
# variables beside CUDA's; empty ones do not count. Ray wants both of them or none.
RAY_ENV = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "HIP_VISIBLE_DEVICES": "",
    "RAY_DEDUP_LOGS": "0",
    "ROCR_VISIBLE_DEVICES": "",
}


class VerlFramework:
    """The script once; at level `checkpoint` twice, the second a resume."""

    name = "verl"
    summary = "PPO and GRPO by verl's Megatron backend, through a checkout of Megatron-Bridge; needs GPUs"
    signs = ("actor_rollout_ref", "verl/trainer", "verl.trainer", "critic/rewards/mean", "critic/score/mean")
    levels = LEVELS
    modes = ("ray", "srun")
    has_groups = "first"
    guide = (
        "Bridge-side checks",
        "Local Bridge import in verl",
        "verl Megatron backend run",
        "Requested variants",
        "Log capture",
    )

    def validate(self, context: Context) -> Iterable[Finding]:
        from jobspec.frameworks.verl.rules import check

        return check(context)

    def override_keys(self, recipe: str, repo_paths: Mapping[str, str]) -> Iterable[str]:
        """The keys of the checkout's configuration."""
        return flat(read_config(repo_paths) or {})

    def plan(self, context: Context) -> FrameworkPlan:
        """Raises: JobspecError when the checkout has no script, which `validate` has said already."""
        wrapper = read_wrapper(context.repo_paths)
        if wrapper is None:
            raise fail("verl.checkout", f"no repository `verl` with a readable `{WRAPPER}`", path="repos")
        return FrameworkPlan(
            commands=commands(context, wrapper),
            checks=checks(context),
            loads_model=True,
            ray_mode="self" if context.spec.launch.mode == "srun" else "external",
            env={**RAY_ENV, **environment(context, settings.trackers(context))},
            expect=_expect(context, wrapper),
            shape=train_shape(context, wrapper),
        )

    def expect(self, level: Level, variants: tuple[str, ...] = (), steps: int = 0) -> ExpectPlan:
        return replace(
            level_expectation(level, variants, steps, METRIC_KEYS),
            limitations=tuple(_variant_limits(level.number, variants)),
        )

    def idle(self, evidence: Evidence) -> frozenset[str]:
        """Of a run of others on FSDP no Bridge is in question."""
        from jobspec.frameworks.verl.run_facts import see  # not needed, and not loaded, before there is a run

        return frozenset({PARITY} if see(evidence).any_line("other_engine") else ())

    def judge(self, evidence: Evidence) -> Iterable[Deliverable]:
        from jobspec.frameworks.verl.judge import judge  # not needed, and not loaded, before there is a run

        return judge(evidence)


# -- expectations ------------------------------------------------------------------------------------


def _expect(context: Context, wrapper: Wrapper) -> ExpectPlan:
    spec, schedule = context.spec, settings.schedule(context)
    rank = settings.variables(context, wrapper)["LORA_RANK"]
    overrides = spec.train.overrides if context.level.name == "architecture" else {}
    features = {
        f"feature:{key.lstrip('+')}": value_text(value)
        for key, value in overrides.items()
        if key not in ("DUMMY_MODEL_CONFIG_PATH", "USE_DUMMY_MODEL")
    }
    return replace(
        expectation(context, schedule, METRIC_KEYS),
        variants=spec.coverage.variants,
        limitations=tuple(_limitations(context)),
        options={
            **settings.role_sizes(context, "actor"),
            "lora_rank": int(rank) if rank.isdecimal() else 0,
            "critic": settings.estimator(context) == "gae",
            "resume_from": schedule.half,
            **features,
        },
    )


def _limitations(context: Context) -> Iterator[str]:
    given = override_values(context)
    full = "full" in {item.name for item in settings.chosen_variants(context)}
    planned = {
        "reward.reward_model.enable": (str(settings.reward_model(context) is not None),),
        "USE_DUMMY_MODEL": (str(settings.is_dummy(context)),),
        LORA: ("0",) if full else given("LORA_RANK") or (str(DEFAULT_LORA_RANK),),
    }
    model = context.spec.model
    name = (model.id or model.path or "") if model else ""
    yield from setting_limits(lambda key: planned.get(key) or given(key), given, name, planned=True)
    yield from _variant_limits(context.level.number, context.spec.coverage.variants)


def _variant_limits(level: int, requested: tuple[str, ...]) -> Iterator[str]:
    for variant in variants_of(level, requested):
        yield from variant.limits
