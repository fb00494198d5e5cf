"""A real model, staged, loads without the network: by path, by id, by revision."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.staging.stage_kit import COMMIT, hf_repo, run

LOAD = """
import json, socket, sys
def refuse(*a, **k):
    raise AssertionError(f"network used: {a}")
socket.socket.connect = refuse
from transformers import AutoModelForCausalLM, AutoTokenizer
for name, revision in json.loads(sys.argv[1]):
    model = AutoModelForCausalLM.from_pretrained(name, revision=revision)
    tokenizer = AutoTokenizer.from_pretrained(name, revision=revision)
    text = tokenizer.apply_chat_template([{"role": "user", "content": "ab"}], tokenize=False)
    out = model.generate(**tokenizer("a b", return_tensors="pt"), max_new_tokens=3, do_sample=False)
    total = sum(p.double().sum().item() for p in model.parameters())
    print("ANSWER" + json.dumps([model.config.hidden_size, text, out.shape[1], total]))
"""


@pytest.fixture(scope="module")
def model_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A tiny Qwen2 with its own tokenizer and chat template, saved in two shards."""
    transformers = pytest.importorskip("transformers")
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("saved")
    config = transformers.Qwen2Config(
        vocab_size=16,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder, max_shard_size="40KB")
    words = Tokenizer(WordLevel({"[UNK]": 0, "a": 1, "b": 2, "[EOS]": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", eos_token="[EOS]"
    )
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "model.safetensors.index.json" in files
    return files


def load(env: dict[str, str], *names: tuple[str, str]) -> list[list[object]]:
    """What a child without network says of each (name, revision)."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, json.dumps(names)],
        env={**clean, **env, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("ANSWER")]


@pytest.mark.slow
@pytest.mark.parametrize("node_local", [True, False])
def test_loads_by_path_id_and_revision(
    tmp_path: Path, model_files: dict[str, bytes], node_local: bool
) -> None:
    repo = hf_repo(tmp_path / "shared", model_files, refs=("main", "v1"))
    result = run(repo, tmp_path / "node", node_local=node_local, require=("config.json", "*.safetensors"))
    assert result.findings == ()
    names = [
        (result.ready["model"], "main"),
        ("acme/tiny", "main"),
        ("acme/tiny", "v1"),
        ("acme/tiny", COMMIT),
    ]
    answers = load(result.env, *names)
    assert answers[0][:3] == [32, "<user>ab", 5]
    assert answers == [answers[0]] * 4


def test_hub_client_finds_nothing_wrong(tmp_path: Path, model_files: dict[str, bytes]) -> None:
    from huggingface_hub import scan_cache_dir, try_to_load_from_cache

    result = run(hf_repo(tmp_path / "shared", model_files), tmp_path / "node")
    hub = result.env["HF_HUB_CACHE"]
    report = scan_cache_dir(hub)
    assert list(report.warnings) == []
    (repo,) = report.repos
    assert (repo.repo_id, repo.nb_files) == ("acme/tiny", len(set(model_files.values())))
    found = try_to_load_from_cache("acme/tiny", "config.json", cache_dir=hub)
    assert isinstance(found, str) and Path(found).read_bytes() == model_files["config.json"]


def test_staged_cache_can_be_a_source_itself(tmp_path: Path, model_files: dict[str, bytes]) -> None:
    first = run(hf_repo(tmp_path / "shared", model_files), tmp_path / "one")
    staged = Path(first.env["HF_HUB_CACHE"]) / "models--acme--tiny"
    second = run(staged, tmp_path / "two", revision=COMMIT[:7])
    assert second.findings == () and second.bytes == first.bytes
