"""What the composed configuration makes of a GRPO run: its trainer, the data plane and router replay.

Any variant may run on the data plane or replay routes; its entry in `variants.yaml` need not say so. A plan
keeps the variants that differ from their entry, since the judge of a run has no checkout.
Source: NeMo-RL at 7ea279ab, `examples/run_grpo.py`, `examples/run_vlm_grpo.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from jobspec.frameworks.nemo_rl.levels import BY_NAME
from jobspec.frameworks.nemo_rl.variant import Trainer, Variant
from jobspec.frameworks.shared.nemo_recipe import Config, get
from jobspec.plan import ExpectPlan

BACKENDS = {"simple": "data-plane-simple", "mooncake_cpu": "data-plane-mooncake"}
"""Backends of the data plane, each with the proof that its storage was used."""
ANNOUNCES = BACKENDS["mooncake_cpu"]
ALONE: tuple[Trainer, ...] = ("single_controller", "vlm")  # one line of theirs for every way they train
ON_GRPO: tuple[Trainer, ...] = ("sync", "async", "transfer_queue", *ALONE)
REPLAY, ASYNC = "router-replay", "grpo.async_grpo.enabled"
VALIDATE = {"NRL_ROUTER_REPLAY_VALIDATE": "1"}


def settled(variant: Variant, composed: Config) -> Variant:
    """The variant with the trainer, proofs and tools that its composed configuration asks for."""
    if variant.trainer not in ON_GRPO:
        return variant
    data_plane = get(composed, "data_plane.enabled") is True
    replay = get(composed, "policy.router_replay.enabled") is True
    proofs = [name for name in variant.proofs if name not in BACKENDS.values() or not data_plane]
    proofs += [REPLAY] if replay and REPLAY not in proofs else []
    backend = BACKENDS.get(str(get(composed, "data_plane.backend")))
    # The single controller runs on nothing else, so its entries say where the backend must be shown.
    asked = data_plane and backend and (variant.trainer != "single_controller" or backend in variant.proofs)
    proofs += [backend] if asked and backend else []
    return replace(
        variant,
        trainer=_trainer(variant.trainer, data_plane, get(composed, ASYNC)),
        proofs=variant.proofs if set(proofs) == set(variant.proofs) else tuple(proofs),
        network_actors=data_plane or variant.network_actors,
        trace=variant.trace or (replay and data_plane),
        env={**VALIDATE, **variant.env} if replay else variant.env,
    )


def _trainer(asked: Trainer, data_plane: bool, asynchronous: object) -> Trainer:
    if asked in ALONE or not isinstance(asynchronous, bool | None):
        return asked
    if asynchronous or (asynchronous is None and asked == "async"):
        return "async"
    return "transfer_queue" if data_plane else "sync"


def kept(variants: Sequence[Variant]) -> str:
    """The variants that differ from their entry, as text for the plan; empty without any."""
    changed = [item for item in variants if item != BY_NAME.get(item.name)]
    return msgspec.json.encode(changed).decode() if changed else ""


def planned(expect: ExpectPlan) -> tuple[Variant, ...]:
    """The variants of a plan as they were settled, in its order; those of an older jobspec by their names."""
    return tuple(_planned(expect.variants, str(expect.options.get("variants") or "")))


def _planned(names: Iterable[str], text: str) -> Iterator[Variant]:
    try:
        changed = {item.name: item for item in msgspec.json.decode(text or "[]", type=list[Variant])}
    except msgspec.MsgspecError:  # of a newer jobspec: what it asked for is not known, so nothing is claimed
        return
    for name in names:
        found = changed.get(name) or BY_NAME.get(name)
        if found is not None:
            yield found
