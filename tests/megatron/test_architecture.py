"""config.json to sizes, sizes to parameters: totals are those that the models are published with."""

from __future__ import annotations

import re
from typing import Any

import pytest

from jobspec.megatron.architecture import find_architecture, known_architectures, parse_config
from jobspec.megatron.shape import TrainShape
from jobspec.megatron.weights import gpu_weights, model_weights, stages
from tests.kits.shapes_kit import TINY, TINY_MOE, known

NAMED = [name for name in known_architectures() if re.search(r"-\d+(\.\d+)?b", name)]
# The name tells parameters without embeddings, or rounds generously.
LOOSE = ("llama-3.2-1b", "deepseek-r1-distill-qwen-1.5b", "skywork-reward-v2-llama-3.2-1b", "mixtral-8x7b")


@pytest.mark.parametrize("name", [name for name in NAMED if name not in LOOSE])
def test_parameters_are_those_in_the_models_name(name: str) -> None:
    size = re.search(r"-(\d+(?:\.\d+)?)b", name)
    assert size is not None
    assert model_weights(known(name)).total / 1e9 == pytest.approx(float(size[1]), rel=0.1)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("deepseek-ai/DeepSeek-V3", 671.0),  # model card
        ("meta-llama/Llama-3.1-8B-Instruct", 8.03),
        ("Qwen/Qwen3-235B-A22B", 235.1),
        ("zai-org/GLM-4.5-Air", 106.9),
        ("openai/gpt-oss-120b", 116.8),
        ("moonshotai/Moonlight-16B-A3B-Instruct", 15.96),
    ],
)
def test_parameters_of_published_models(name: str, billions: float) -> None:
    assert model_weights(known(name)).total / 1e9 == pytest.approx(billions, rel=0.002)


def test_a_gpu_of_ultra_holds_what_was_measured() -> None:
    """9.44 B at TP8 PP4 EP16. Source: NEMOTRON_ULTRA_THROUGHPUT.md, "Cluster / model facts (measured)"."""
    shape = TrainShape(8, 8, tp=8, pp=4, ep=16, etp=1, mtp_layers=0)
    ultra = known("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16")
    middle = stages(ultra, shape)[1]
    assert sum(gpu_weights(ultra, shape, middle)) == pytest.approx(9.44e9, rel=0.001)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", "Qwen3-30B-A3B"),
        ("/data/models/Qwen3-30B-A3B/", "Qwen3-30B-A3B"),
        ("GLM-4.5-Air-Base", "GLM-4.5-Air"),
        ("Qwen3-8Bx", None),
        ("own/model", None),
    ],
)
def test_the_longest_known_name_wins(name: str, found: str | None) -> None:
    arch = find_architecture(name)
    assert (arch and arch.name) == found


def test_every_entry_says_where_it_is_from() -> None:
    assert all("/" in arch.source for arch in known_architectures().values())


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (TINY, ("*-",) * 24),
        ({**TINY_MOE, "first_k_dense_replace": 2}, ("*-", "*-", *("*E",) * 22)),
        ({**TINY_MOE, "decoder_sparse_step": 2}, ("*-", "*E") * 12),
        ({**TINY_MOE, "num_hidden_layers": 3, "mlp_only_layers": [1]}, ("*E", "*-", "*E")),
        (
            {**TINY, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]},
            ("G-", "*-"),
        ),
        ({"text_config": TINY, "vision_config": {"hidden_size": 8}}, ("*-",) * 24),
        ({"thinker_config": {"text_config": TINY}}, ("*-",) * 24),
    ],
)
def test_layers_of_a_configuration(config: dict[str, Any], layers: tuple[str, ...]) -> None:
    assert parse_config(config).layers == layers


def test_hybrid_layers_by_pattern_and_by_list() -> None:
    mamba = {"mamba_num_heads": 8, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128}
    by_pattern = parse_config({**TINY_MOE, **mamba, "hybrid_override_pattern": "ME*-"})
    by_list = parse_config({**TINY_MOE, **mamba, "layers_block_type": ["mamba", "moe", "attention", "mlp"]})
    assert by_pattern.layers == by_list.layers == ("M", "E", "*", "-")
    assert by_pattern.hybrid
    assert not parse_config(TINY).hybrid


def test_parts_beside_the_language_model_are_noted() -> None:
    assert parse_config({"text_config": TINY, "vision_config": {"hidden_size": 8}}).other_parts
    assert not parse_config(TINY).other_parts


@pytest.mark.parametrize(
    "change",
    [{"hidden_size": "wide"}, {"vocab_size": None}, {"num_hidden_layers": 0}, {"num_attention_heads": 0}],
)
def test_a_configuration_without_sizes_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, ZeroDivisionError)):
        parse_config({**TINY, **change})
