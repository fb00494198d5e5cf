"""Make a tiny causal language model and its prompts, in Hugging Face hub cache layout.

    python examples/make_tiny_model.py                    # models--jobspec--tiny-qwen2, random weights
    python examples/make_tiny_model.py --warm-up addition # models--jobspec--tiny-adder, half a minute

The files are what a download would have left behind: blobs named by their digest (sha256 for what the
hub keeps in LFS, git's blob hash for the rest), `refs/main`, and a snapshot of links. So a run can
stage and verify them as it would a terabyte, offline. The same seed gives the same bytes; a second
call checks what is there and returns at once.

Needs numpy; the warm-up needs torch and transformers as well.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import struct
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Weights = dict[str, np.ndarray]

SPECIAL_TOKENS = ("<pad>", "<eos>", "<unk>", "<user>", "<assistant>")
# Printable ASCII without the space: byte-level tokenizer classes, which transformers picks for this
# model type whatever the file says, map exactly these characters to themselves.
CHARACTERS = "0123456789+-=?.abcdefghijklmnopqrstuvwxyzABCDE"
LFS_SUFFIXES = (".safetensors", ".jsonl")
CHAT_TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen2 model; `std` is the spread of the random weights.

    `special` and `characters` are tokens beside the usual ones; `vocabulary` is the number of embeddings
    where the model is to have more than tokens.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    std: float
    special: tuple[str, ...] = ()
    characters: str = ""
    vocabulary: int = 0

    @property
    def embeddings(self) -> int:
        return max(self.vocabulary, len(vocabulary(self)))


TINY = Shape(hidden=64, layers=2, heads=4, kv_heads=2, mlp=128, std=0.02)  # 77,568 parameters
ADDER = Shape(hidden=128, layers=3, heads=4, kv_heads=4, mlp=384, std=0.06)  # 0.65 million


# -- files of a model repository ---------------------------------------------------------------------


def special_tokens(shape: Shape) -> tuple[str, ...]:
    return (*SPECIAL_TOKENS, *shape.special)


def vocabulary(shape: Shape = TINY) -> dict[str, int]:
    tokens = (*special_tokens(shape), *CHARACTERS, *shape.characters)
    return {token: index for index, token in enumerate(tokens)}


def tokenizer_files(shape: Shape = TINY) -> dict[str, bytes]:
    """One token per character: a BPE without merges, as a `tokenizers` file."""
    added = [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for index, token in enumerate(special_tokens(shape))
    ]
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": False, "vocab": vocabulary(shape), "merges": []},
    }  # fmt: skip
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<pad>",
        "eos_token": "<eos>",
        "unk_token": "<unk>",
        "padding_side": "left",
        "model_max_length": 256,
        "clean_up_tokenization_spaces": False,
    }
    return {
        "tokenizer.json": json_bytes(tokenizer),
        "tokenizer_config.json": json_bytes(settings),
        "chat_template.jinja": CHAT_TEMPLATE.encode(),
    }


def config_files(shape: Shape) -> dict[str, bytes]:
    ids = vocabulary(shape)
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": shape.embeddings,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.mlp,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
        "initializer_range": shape.std,
        "pad_token_id": ids["<pad>"],
        "eos_token_id": ids["<eos>"],
        "bos_token_id": None,
        "dtype": "float32",
    }
    generation = {"pad_token_id": ids["<pad>"], "eos_token_id": ids["<eos>"], "do_sample": True}
    return {"config.json": json_bytes(config), "generation_config.json": json_bytes(generation)}


def random_weights(shape: Shape, seed: int) -> Weights:
    """Normal weights, zero biases, norms of one, as transformers draws them; from numpy's generator."""
    import numpy as np

    draw = np.random.Generator(np.random.PCG64(seed))
    head = shape.hidden // shape.heads

    def normal(*size: int) -> np.ndarray:
        return (draw.standard_normal(size) * shape.std).astype(np.float32)

    weights: Weights = {"model.embed_tokens.weight": normal(shape.embeddings, shape.hidden)}
    for layer in range(shape.layers):
        name = f"model.layers.{layer}."
        for part, rows in (("q", shape.hidden), ("k", shape.kv_heads * head), ("v", shape.kv_heads * head)):
            weights[f"{name}self_attn.{part}_proj.weight"] = normal(rows, shape.hidden)
            weights[f"{name}self_attn.{part}_proj.bias"] = np.zeros(rows, np.float32)
        weights[f"{name}self_attn.o_proj.weight"] = normal(shape.hidden, shape.hidden)
        weights[f"{name}mlp.gate_proj.weight"] = normal(shape.mlp, shape.hidden)
        weights[f"{name}mlp.up_proj.weight"] = normal(shape.mlp, shape.hidden)
        weights[f"{name}mlp.down_proj.weight"] = normal(shape.hidden, shape.mlp)
        weights[f"{name}input_layernorm.weight"] = np.ones(shape.hidden, np.float32)
        weights[f"{name}post_attention_layernorm.weight"] = np.ones(shape.hidden, np.float32)
    weights["model.norm.weight"] = np.ones(shape.hidden, np.float32)
    return weights


def safetensors_bytes(weights: Mapping[str, np.ndarray]) -> bytes:
    """The safetensors format: header length (u64, little endian), JSON header, raw little-endian data.

    Source: safetensors README, "Format". Written here so that the quick start needs no torch yet.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in sorted(weights):
        size = weights[name].nbytes
        header[name] = {
            "dtype": "F32",
            "shape": list(weights[name].shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(weights[name].astype("<f4").tobytes() for name in sorted(weights))
    return struct.pack("<Q", len(text)) + text + data


def json_bytes(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


# -- prompts -----------------------------------------------------------------------------------------


def addition_problem(draw: random.Random) -> tuple[str, str]:
    """A sum and its answer, both of fixed width: where a digit stands then says what it counts."""
    a, b = draw.randrange(100), draw.randrange(100)
    return f"{a:02d}+{b:02d}=", f"{a + b:03d}"


def addition_prompts(seed: int, count: int, *, backwards: bool) -> bytes:
    """`count` two-digit sums as chat prompts with their answers, one JSON object a line.

    Backwards answers start with the units, so that each digit needs only what is already written.
    """
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        question, answer = addition_problem(draw)
        content = {"role": "user", "content": question}
        rows.append({"prompt": [content], "answer": answer[::-1] if backwards else answer})
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


# -- hub cache layout --------------------------------------------------------------------------------


def blob_name(name: str, content: bytes) -> str:
    """sha256 for files that the hub keeps in LFS, git's blob hash for the others."""
    if name.endswith(LFS_SUFFIXES):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def write_cache(home: Path, kind: str, repo_id: str, files: Mapping[str, bytes]) -> Path:
    """Write a repository below `home` (what HF_HOME names); returns its snapshot folder.

    `kind` is `models` or `datasets`. The revision is a digest of names and contents, so a changed
    file makes a new snapshot. `refs/main` is written last: with it, everything else is there.
    """
    blobs = {name: blob_name(name, content) for name, content in files.items()}
    revision = hashlib.sha1(json.dumps(blobs, sort_keys=True).encode()).hexdigest()
    root = home / "hub" / f"{kind}--{repo_id.replace('/', '--')}"
    snapshot = root / "snapshots" / revision
    for folder in (root / "blobs", root / "refs", snapshot):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_file(root / "blobs" / blobs[name], content)
        link = snapshot / name
        if not link.is_symlink():
            link.symlink_to(Path("../../blobs") / blobs[name])
    write_file(root / "refs" / "main", revision.encode())
    return snapshot


def write_file(path: Path, content: bytes) -> None:
    """Atomic, and readable for others: a run may belong to another user than the cache."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    Path(temporary).chmod(0o644)
    Path(temporary).replace(path)


def find_snapshot(home: Path, kind: str, repo_id: str) -> Path | None:
    """The snapshot that `refs/main` names if every file of it still has the digest it is named by."""
    root = home / "hub" / f"{kind}--{repo_id.replace('/', '--')}"
    try:
        snapshot = root / "snapshots" / (root / "refs" / "main").read_text()
        links = {link.name: link for link in snapshot.iterdir()}
        whole = all(
            blob_name(name, link.read_bytes()) == link.readlink().name for name, link in links.items()
        )
    except OSError:
        return None
    return snapshot if links and whole else None


# -- supervised warm-up ------------------------------------------------------------------------------


def warm_up(files: Mapping[str, bytes], steps: int, seed: int) -> bytes:
    """Train the model on sums for `steps` steps and return its weights as a safetensors file.

    Without it every completion is wrong, every advantage is zero, and there is nothing to reinforce;
    with too much of it there is nothing left to learn. One thread: the bytes depend on it.
    """
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    draw = random.Random(seed)
    for step in range(steps):
        tokens, labels = addition_batch(draw, 128)
        loss = model(input_ids=tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0 or step == steps - 1:
            print(f"  warm-up step {step:4d}  loss {loss.item():.3f}", file=sys.stderr)
    state = {
        name: value.detach().numpy() for name, value in model.named_parameters() if name != "lm_head.weight"
    }
    return safetensors_bytes(state)


def addition_batch(draw: random.Random, size: int) -> tuple[Any, Any]:
    """Token ids and labels of `size` solved sums; only the answers count in the loss (-100 elsewhere)."""
    import torch

    ids = vocabulary()
    rows, labels = [], []
    for _ in range(size):
        question, solution = addition_problem(draw)
        prompt = [ids["<user>"], *(ids[char] for char in question), ids["<eos>"], ids["<assistant>"]]
        answer = [*(ids[char] for char in reversed(solution)), ids["<eos>"]]
        rows.append(prompt + answer)
        labels.append([-100] * len(prompt) + answer)
    return torch.tensor(rows), torch.tensor(labels)


# -- command line ------------------------------------------------------------------------------------


def make(home: Path, *, adder: bool = False, warm_up_steps: int = 155, seed: int = 0) -> tuple[Path, Path]:
    """The snapshots of model and prompts; made when they are not there or not whole."""
    name, prompts = ("tiny-adder", "addition-prompts") if adder else ("tiny-qwen2", "tiny-prompts")
    shape = ADDER if adder else TINY
    model = find_snapshot(home, "models", f"jobspec/{name}")
    if model is None:
        files = config_files(shape) | tokenizer_files()
        files["model.safetensors"] = safetensors_bytes(random_weights(shape, seed))
        if adder:
            files["model.safetensors"] = warm_up(files, warm_up_steps, seed)
        model = write_cache(home, "models", f"jobspec/{name}", files)
    data = find_snapshot(home, "datasets", f"jobspec/{prompts}")
    if data is None:
        rows = addition_prompts(seed + 1, 4096, backwards=adder)
        data = write_cache(home, "datasets", f"jobspec/{prompts}", {"train.jsonl": rows})
    return model, data


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    default = Path(__file__).resolve().parent / ".cache" / "hf"
    parser.add_argument(
        "--home", type=Path, default=default, help="folder to use as HF_HOME (default: %(default)s)"
    )
    parser.add_argument("--warm-up", choices=["addition"], help="train the larger model on sums first")
    parser.add_argument("--warm-up-steps", type=int, default=155, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    adder = args.warm_up == "addition"
    for path in make(args.home, adder=adder, warm_up_steps=args.warm_up_steps, seed=args.seed):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
