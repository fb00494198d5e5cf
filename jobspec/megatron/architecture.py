"""`Architecture`: what a model's config.json says, in the sizes that Megatron-Core's rules and memory need.

Read from a config.json in the names of Hugging Face's configurations, or from the shipped table of published
models (`architectures.json`, the same names, each entry with its source).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

# One layer of a pipeline is a word of these letters (Megatron-Core's hybrid patterns use them too, one each).
ATTENTION, MAMBA, DELTA, MLP, MOE = "*", "M", "G", "-", "E"
_HYBRID_NAMES = {"attention": ATTENTION, "mamba": MAMBA, "moe": MOE, "mlp": MLP}
# Where multimodal configurations keep the language model's part.
_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention: ranks and head dimensions. `q_rank` 0: the query is not compressed."""

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int


@dataclass(frozen=True)
class Recurrent:
    """Mamba-2 (`heads` of `head_dim` with `groups` of state `state`) or a gated delta net.

    Of a delta net `heads` and `head_dim` are those of the values, `groups` and `state` those of the keys.
    """

    heads: int
    head_dim: int
    groups: int
    state: int
    conv: int = 4


@dataclass(frozen=True)
class Architecture:
    """Sizes of a decoder. `layers` has one word for each pipeline layer: `*E` is attention and experts.

    `ffn` is a dense MLP's width, `shared_ffn` that of all shared experts together, `latent` the width that
    tokens are projected to before the routed experts (0: `hidden`).
    """

    name: str
    source: str
    hidden: int
    heads: int
    kv_groups: int
    head_dim: int
    ffn: int
    vocab: int
    layers: tuple[str, ...]
    gated: bool = True
    tied: bool = False
    experts: int = 0
    topk: int = 0
    moe_ffn: int = 0
    shared_ffn: int = 0
    latent: int = 0
    mla: LatentAttention | None = None
    mamba: Recurrent | None = None
    delta: Recurrent | None = None
    output_gate: bool = False
    mtp: tuple[str, ...] = ()
    other_parts: bool = False  # an encoder of images or sound, which is not counted

    @property
    def hybrid(self) -> bool:
        """Whether layers are single blocks (Nemotron-H), which Megatron splits by its hybrid rules."""
        return any(len(layer) == 1 for layer in self.layers)

    def count(self, block: str) -> int:
        return sum(layer.count(block) for layer in self.layers)


def parse_config(config: Mapping[str, Any], name: str = "", source: str = "config.json") -> Architecture:
    """The architecture of a config.json.

    Raises: KeyError, ValueError or TypeError when a size is missing or no size.
    """
    text, nested = _text_part(config)
    hidden, heads = int(text["hidden_size"]), int(text["num_attention_heads"])
    experts = _first(text, "n_routed_experts", "num_experts", "num_local_experts")
    moe_ffn = _first(text, "moe_intermediate_size") or (int(text["intermediate_size"]) if experts else 0)
    layers = _layers(text, experts)
    linear = text.get("linear_num_value_heads")
    parsed = Architecture(
        name=name,
        source=source,
        hidden=hidden,
        heads=heads,
        kv_groups=_first(text, "num_key_value_heads") or heads,
        head_dim=_first(text, "head_dim", "attention_head_dim") or hidden // heads,
        ffn=_first(text, "intermediate_size") or moe_ffn,
        vocab=int(text["vocab_size"]),
        layers=layers,
        gated=not str(text.get("mlp_hidden_act", "")).startswith("relu"),
        tied=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        experts=experts,
        topk=_first(text, "num_experts_per_tok", "num_experts_per_token", "experts_per_token"),
        moe_ffn=moe_ffn,
        shared_ffn=_shared_width(text, moe_ffn),
        latent=_first(text, "moe_latent_size"),
        mla=_latent_attention(text),
        mamba=_mamba(text) if MAMBA in "".join(layers) else None,
        delta=_delta(text) if linear else None,
        output_gate=bool(text.get("attn_output_gate", bool(linear))),
        mtp=_mtp(text, layers),
        other_parts=nested
        and any(key in config for key in ("vision_config", "audio_config", "sound_config")),
    )
    if min(parsed.hidden, parsed.heads, parsed.vocab, len(parsed.layers)) < 1:
        raise ValueError("a size is zero")
    return parsed


def _text_part(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    nested = False
    while "hidden_size" not in config:
        inner = next((config[key] for key in _NESTED if isinstance(config.get(key), Mapping)), None)
        if inner is None:
            break
        config, nested = {**{k: v for k, v in config.items() if k in ("vision_config",)}, **inner}, True
    return config, nested


def _first(text: Mapping[str, Any], *names: str) -> int:
    return next((int(text[name]) for name in names if text.get(name)), 0)


def _layers(text: Mapping[str, Any], experts: int) -> tuple[str, ...]:
    """One word per layer, from whichever of the known descriptions the configuration has."""
    pattern = text.get("hybrid_override_pattern") or text.get("hybrid_layer_pattern")
    if pattern:
        return tuple(letter for letter in str(pattern).split("/")[0] if letter != "|")
    blocks = text.get("layers_block_type")
    if isinstance(blocks, Sequence) and blocks and blocks[0] in _HYBRID_NAMES:
        return tuple(_HYBRID_NAMES[block] for block in blocks)
    count = int(text["num_hidden_layers"])
    kinds = text.get("layer_types") or []
    every = _first(text, "full_attention_interval")
    dense = _dense_layers(text, count) if experts else range(count)
    words = []
    for index in range(count):
        linear = kinds[index] == "linear_attention" if kinds else bool(every and (index + 1) % every)
        words.append((DELTA if linear else ATTENTION) + (MLP if index in dense else MOE))
    return tuple(words)


def _dense_layers(text: Mapping[str, Any], count: int) -> frozenset[int]:
    """Layers of a mixture-of-experts model that have a plain MLP."""
    step = _first(text, "decoder_sparse_step", "moe_layer_freq_step") or 1
    dense = {*range(_first(text, "first_k_dense_replace")), *(text.get("mlp_only_layers") or ())}
    return frozenset(dense | {index for index in range(count) if (index + 1) % step})


def _shared_width(text: Mapping[str, Any], moe_ffn: int) -> int:
    width = _first(text, "moe_shared_expert_intermediate_size", "shared_expert_intermediate_size")
    return width or _first(text, "n_shared_experts", "num_shared_experts") * moe_ffn


def _latent_attention(text: Mapping[str, Any]) -> LatentAttention | None:
    if not text.get("kv_lora_rank"):
        return None
    return LatentAttention(
        _first(text, "q_lora_rank"),
        int(text["kv_lora_rank"]),
        int(text["qk_nope_head_dim"]),
        int(text["qk_rope_head_dim"]),
        int(text["v_head_dim"]),
    )


def _mamba(text: Mapping[str, Any]) -> Recurrent:
    return Recurrent(
        int(text["mamba_num_heads"]),
        int(text["mamba_head_dim"]),
        int(text["n_groups"]),
        int(text["ssm_state_size"]),
        _first(text, "conv_kernel") or 4,
    )


def _delta(text: Mapping[str, Any]) -> Recurrent:
    return Recurrent(
        int(text["linear_num_value_heads"]),
        int(text["linear_value_head_dim"]),
        int(text["linear_num_key_heads"]),
        int(text["linear_key_head_dim"]),
        _first(text, "linear_conv_kernel_dim") or 4,
    )


def _mtp(text: Mapping[str, Any], layers: tuple[str, ...]) -> tuple[str, ...]:
    count = _first(text, "num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_num_layers")
    pattern = text.get("mtp_hybrid_override_pattern")
    return tuple(str(pattern) if pattern else layers[-1] for _ in range(count))


@cache
def known_architectures() -> Mapping[str, Architecture]:
    """The shipped table: model name in lower case, without its owner -> architecture."""
    text = Path(__file__).with_name("architectures.json").read_text("utf-8")
    table: dict[str, Architecture] = {}
    for entry in json.loads(text)["models"]:
        for name in entry["names"]:
            table[name.lower()] = parse_config(entry["config"], name, entry["source"])
    return table


def find_architecture(model: str) -> Architecture | None:
    """The shipped architecture of a model's id or folder; the longest known name that its own begins with.

    `-Base`, `-Instruct-2507` or a quantised copy of a model has the model's architecture.
    """
    name = model.rstrip("/").rsplit("/", 1)[-1].lower()
    table = known_architectures()
    fits = [known for known in table if name == known or name.startswith(f"{known}-")]
    return table[max(fits, key=len)] if fits else None
