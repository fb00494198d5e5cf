"""Make a tiny Qwen2 that answers sums as SkyRL's gsm8k reward reads them, right now and then, and such sums.

    python examples/make_tiny_skyrl.py     # models--jobspec--tiny-qwen2-sums, .cache/tiny-skyrl/*.jsonl

The strict reward of `gsm8k` gives 0 to all that is not `#### NUMBER`: random weights would never earn any. So
the model is warmed up on the CPU for a minute, until it writes the form and three sums of ten are right. It
is stored in bfloat16, the type in which SkyRL trains on Megatron. Needs numpy, torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from make_tiny_model import (
    Shape,
    config_files,
    json_bytes,
    random_weights,
    tokenizer_files,
    vocabulary,
    write_cache,
)
from make_tiny_verl import WIDE

# 2.4 million parameters; \u0120 is the blank of byte-level tokenizers.
SUMS = replace(WIDE, std=0.04, characters="\u0120\u010a#")
NAME = "jobspec/tiny-qwen2-sums"
CACHE = Path(__file__).parent / ".cache"
IGNORED = -100  # a label that does not count
BATCH = 128


def row(source: random.Random) -> dict[str, Any]:
    """One sum with the columns that SkyRL reads."""
    first, second = source.randint(0, 9), source.randint(0, 9)
    return {
        "data_source": "jobspec/tiny-sums",
        "prompt": [{"role": "user", "content": question(first, second)}],
        "env_class": "gsm8k",
        "reward_spec": {"method": "rule", "ground_truth": str(first + second)},
    }


def question(first: int, second: int) -> str:
    return f"{first}+{second}=?"


def conversation(ids: dict[str, int], first: int, second: int) -> tuple[list[int], list[int]]:
    """Tokens of the question, as the chat template lays it out, and of the right answer."""
    asked = [
        ids["<user>"],
        *(ids[char] for char in question(first, second)),
        ids["<eos>"],
        ids["<assistant>"],
    ]
    answer = [*(ids[char] for char in f"####\u0120{first + second}"), ids["<eos>"]]
    return asked, answer


def warm_up(shape: Shape, right: float, most: int, seed: int) -> bytes:
    """Weights, as a safetensors file, of a model of which `right` of all 100 sums are right, when sampled."""
    import torch
    from safetensors.torch import save
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    torch.set_num_threads(1)  # the bytes depend on it
    weights, ids, source = random_weights(shape, seed), vocabulary(shape), random.Random(seed)
    model = Qwen2ForCausalLM(Qwen2Config(**json.loads(config_files(shape)["config.json"]))).float()
    model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()}, strict=False)
    model.tie_weights()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(1, most + 1):
        drawn = [conversation(ids, source.randint(0, 9), source.randint(0, 9)) for _ in range(BATCH)]
        longest = max(len(asked) + len(answer) for asked, answer in drawn)
        padded = [(asked, answer, longest - len(asked) - len(answer)) for asked, answer in drawn]
        tokens = torch.tensor([asked + answer + [ids["<pad>"]] * rest for asked, answer, rest in padded])
        labels = torch.tensor([[IGNORED] * len(a) + b + [IGNORED] * rest for a, b, rest in padded])
        loss = model(input_ids=tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            share = share_right(model, ids)
            print(f"  warm-up step {step:4d}  loss {loss.item():.3f}  right {share:.2f}", file=sys.stderr)
            if share >= right:
                break
    state = {name: value.to(torch.bfloat16) for name, value in model.state_dict().items() if name in weights}
    return save({name: value.contiguous() for name, value in state.items()}, metadata={"format": "pt"})


def share_right(model: Any, ids: dict[str, int]) -> float:
    """The share of right answers to all 100 sums, each sampled once."""
    import torch

    pairs = [conversation(ids, first, second) for first in range(10) for second in range(10)]
    tokens = torch.tensor([asked for asked, _ in pairs])
    begin = tokens.shape[1]
    with torch.no_grad():
        for _ in range(max(len(answer) for _, answer in pairs)):
            chances = model(tokens).logits[:, -1].softmax(-1)
            tokens = torch.cat([tokens, torch.multinomial(chances, 1)], 1)
    given = tokens[:, begin:].tolist()
    return sum(said[: len(answer)] == answer for said, (_, answer) in zip(given, pairs, strict=True)) / 100


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the model and the data")
    parser.add_argument("--right", type=float, default=0.3, help="share of right answers to begin with (0.3)")
    parser.add_argument("--steps", type=int, default=300, help="steps of the warm-up at most (300)")
    parser.add_argument("--rows", type=int, default=512, help="sums to train on (512)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    files = config_files(SUMS) | tokenizer_files(SUMS)
    files["config.json"] = json_bytes({**json.loads(files["config.json"]), "dtype": "bfloat16"})
    files["model.safetensors"] = warm_up(SUMS, args.right, args.steps, args.seed)
    print(write_cache(args.cache / "hf", "models", NAME, files))
    data = args.cache / "tiny-skyrl"
    data.mkdir(parents=True, exist_ok=True)
    for split, count in {"train": args.rows, "validation": 16}.items():
        source = random.Random(f"{split} {args.seed}")
        (data / f"{split}.jsonl").write_text("".join(f"{json.dumps(row(source))}\n" for _ in range(count)))
    print(data)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
