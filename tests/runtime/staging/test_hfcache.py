from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.runtime.staging import hfcache
from jobspec.runtime.staging.hashing import GIT_SHA1, new_hash
from jobspec.runtime.staging.listing_checks import check_listing, safetensors_bytes
from tests.runtime.staging.stage_kit import COMMIT, blob_of, git_sha1, hf_repo, safetensors, sharded

OTHER = "0123ffff" + "0" * 32


@pytest.mark.parametrize("revision", ["", "main", "v1/beta", COMMIT, COMMIT[:8]])
def test_revision_is_ref_commit_or_prefix(tmp_path: Path, revision: str) -> None:
    repo = hf_repo(tmp_path, {"config.json": b"{}"}, refs=("main", "v1/beta"))
    hf_repo(tmp_path, {"config.json": b"{}"}, commit=OTHER, refs=("dev",))
    assert hfcache.resolve_revision(str(repo), revision) == COMMIT


def test_only_snapshot_needs_no_ref(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, {"config.json": b"{}"}, refs=())
    assert hfcache.resolve_revision(str(repo)) == COMMIT


def test_ambiguous_prefix_names_both(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, {"config.json": b"{}"})
    hf_repo(tmp_path, {"config.json": b"{}"}, commit=OTHER, refs=())
    with pytest.raises(JobspecError, match="names 2 snapshots") as caught:
        hfcache.resolve_revision(str(repo), "0123")
    assert COMMIT in caught.value.findings[0].why and OTHER in caught.value.findings[0].why


def test_unknown_revision_says_what_is_there(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, {"config.json": b"{}"})
    with pytest.raises(JobspecError, match="revision `v2` is not in") as caught:
        hfcache.resolve_revision(str(repo), "v2")
    assert f"main -> {COMMIT[:12]}" in caught.value.findings[0].why


def test_ref_to_missing_snapshot_is_named(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, {"config.json": b"{}"})
    (repo / "refs" / "main").write_text("f" * 40)
    with pytest.raises(JobspecError, match="revision `main`") as caught:
        hfcache.resolve_revision(str(repo))
    assert "whose snapshot is missing" in caught.value.findings[0].why


def test_empty_folder_is_no_cache(tmp_path: Path) -> None:
    with pytest.raises(JobspecError) as caught:
        hfcache.resolve_revision(str(tmp_path))
    assert caught.value.findings[0].why == "the cache has nothing"


def test_listing_knows_each_hash(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, {"model.safetensors": safetensors(64), "sub/ü x.txt": b"hi"})
    found = {entry.name: (entry.algorithm, entry.digest) for entry in hfcache.list_hf(str(repo)).files}
    assert found["sub/ü x.txt"] == ("git-sha1", git_sha1(b"hi"))
    assert found["model.safetensors"] == ("sha256", blob_of(repo, "model.safetensors").name)


def test_git_hash_is_gits_own(tmp_path: Path) -> None:
    data = b"some\ntext\n"
    (tmp_path / "file").write_bytes(data)
    git = subprocess.run(
        ["git", "hash-object", str(tmp_path / "file")], capture_output=True, text=True, check=True
    )
    state = new_hash(GIT_SHA1, len(data))
    state.update(data)
    assert state.hexdigest() == git.stdout.strip()


def test_blob_that_is_a_link_keeps_its_promise(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, {"model.safetensors": safetensors(64)})
    blob = blob_of(repo, "model.safetensors")
    blob.rename(tmp_path / "pool-17")
    blob.symlink_to(tmp_path / "pool-17")
    (entry,) = hfcache.list_hf(str(repo)).files
    assert (entry.path, entry.digest) == (str(tmp_path / "pool-17"), blob.name)


def test_snapshot_without_links_has_no_promise(tmp_path: Path) -> None:
    folder = tmp_path / "models--a--b" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (entry,) = hfcache.list_hf(str(tmp_path / "models--a--b")).files
    assert (entry.algorithm, entry.digest) == ("", "")


@pytest.mark.parametrize(
    ("allow", "ignore", "names"),
    [
        ((), (), ["a.bin", "config.json", "onnx/a.onnx", "onnx/deep/b.bin"]),
        (("*.json",), (), ["config.json"]),
        ((), ("*.bin",), ["config.json", "onnx/a.onnx"]),
        ((), ("onnx/",), ["a.bin", "config.json"]),
        (("onnx/*",), ("*.onnx",), ["onnx/deep/b.bin"]),
        (("*.JSON",), (), []),
    ],
)
def test_patterns_select_whole_names(
    tmp_path: Path, allow: tuple[str, ...], ignore: tuple[str, ...], names: list[str]
) -> None:
    files = dict.fromkeys(("a.bin", "config.json", "onnx/a.onnx", "onnx/deep/b.bin"), b"x")
    repo = hf_repo(tmp_path, files)
    assert [entry.name for entry in hfcache.list_hf(str(repo), "", allow, ignore).files] == names


def test_plain_folder_leaves_out_what_is_no_data(tmp_path: Path) -> None:
    for name in ("a.txt", ".git/HEAD", ".cache/huggingface/x.lock", "b.incomplete"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    listing = hfcache.list_plain(str(tmp_path))
    assert [entry.name for entry in listing.files] == ["a.txt"]
    assert listing.incomplete == ("b.incomplete",)


def test_link_loop_ends(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    with pytest.raises(JobspecError, match="links back"):
        hfcache.list_plain(str(tmp_path))


def test_fifo_is_refused_and_not_opened(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(JobspecError, match="neither a file nor a folder"):
        hfcache.list_plain(str(tmp_path))


def check(repo: Path, **more: object) -> list[tuple[str, str, str]]:
    allow, ignore = more.get("allow", ()), more.get("ignore", ())
    listing = hfcache.list_hf(str(repo), "", allow, ignore)  # type: ignore[arg-type]
    return [(f.rule, f.severity, f.what) for f in check_listing(listing, **more)]  # type: ignore[arg-type]


def test_whole_model_has_no_finding(tmp_path: Path) -> None:
    assert check(hf_repo(tmp_path, sharded(3, 256)), require=("*.safetensors", "config.json")) == []


def test_missing_shard_is_named(tmp_path: Path) -> None:
    files = sharded(3, 256)
    del files["model-00002-of-00003.safetensors"]
    ((rule, severity, what),) = check(hf_repo(tmp_path, files))
    assert (rule, severity) == ("stage.shards", "error")
    assert what == "1 of 3 shards are missing: `model-00002-of-00003.safetensors`"


def test_shards_left_out_on_purpose_are_not_missing(tmp_path: Path) -> None:
    assert check(hf_repo(tmp_path, sharded(3, 256)), ignore=("*.safetensors",)) == []


def test_dangling_link_is_named_with_the_download(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded(2, 256))
    blob = blob_of(repo, "model-00001-of-00002.safetensors")
    blob.rename(f"{blob}.incomplete")
    found = check(repo)
    assert [rule for rule, _, _ in found] == ["stage.dangling", "stage.shards", "stage.incomplete"]
    assert "`model-00001-of-00002.safetensors`" in found[0][2]
    assert blob.name in found[2][2] and found[2][1] == "error"


def test_download_of_another_revision_only_warns(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded(2, 256))
    (repo / "blobs" / ("e" * 64 + ".incomplete")).write_text("")
    assert [(rule, severity) for rule, severity, _ in check(repo)] == [("stage.incomplete", "warning")]


def test_download_before_any_weight_is_an_error(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, {"config.json": b"{}"})
    (repo / "blobs" / ("e" * 64 + ".incomplete")).write_text("")
    assert [(rule, severity) for rule, severity, _ in check(repo)] == [("stage.incomplete", "error")]


def test_required_pattern_without_file(tmp_path: Path) -> None:
    ((rule, _, what),) = check(
        hf_repo(tmp_path, sharded(1, 256)), require=("tokenizer.json", "*.safetensors")
    )
    assert (rule, what) == ("stage.require", "no file matches `tokenizer.json`")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"chat_template": "{{ messages }}"}', ""),
        ('{"chat_template": ""}', "`tokenizer_config.json` has no `chat_template`"),
        ("{}", "`tokenizer_config.json` has no `chat_template`"),
        ("[1]", "`tokenizer_config.json` has no `chat_template`"),
        ("{", "`tokenizer_config.json` is no JSON file, so it has no `chat_template`"),
        ("\xff", "`tokenizer_config.json` is no JSON file, so it has no `chat_template`"),
    ],
)
def test_required_value_of_a_json_file(tmp_path: Path, text: str, what: str) -> None:
    files = {"tokenizer_config.json": text.encode("latin-1"), **sharded(1, 256)}
    found = check(hf_repo(tmp_path, files), require=("tokenizer_config.json:chat_template",))
    assert [(rule, said) for rule, _, said in found] == ([("stage.require", what)] if what else [])


def test_required_value_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    ((rule, _, what),) = check(hf_repo(tmp_path, sharded(1, 256)), require=("tokenizer_config.json:x",))
    assert (rule, what) == ("stage.require", "no file matches `tokenizer_config.json`")


def test_empty_selection_is_an_error(tmp_path: Path) -> None:
    ((rule, _, _),) = check(hf_repo(tmp_path, {"config.json": b"{}"}), allow=("*.gguf",))
    assert rule == "stage.empty"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (safetensors(1000)[:-1], "its header promises"),
        (safetensors(1000) + b"x", "its header promises"),
        (b"", "the file has 0 bytes"),
        (b"\xff" * 100, "promise a header of"),
        (b"\x04\0\0\0\0\0\0\0{}{}", "not the JSON"),
        (b"\x02\0\0\0\0\0\0\0[]", "not the JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "promise a header of"),
    ],
)
def test_broken_safetensors_says_why(tmp_path: Path, data: bytes, why: str) -> None:
    repo = hf_repo(tmp_path, {"model.safetensors": data})
    (finding,) = check_listing(hfcache.list_hf(str(repo)))
    assert finding.rule == "stage.corrupt" and why in finding.why


def test_size_by_header_is_the_librarys(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    path = tmp_path / "x.safetensors"
    save_file(
        {"a": torch.zeros(3, 5), "b": torch.ones(7, dtype=torch.bfloat16)}, path, metadata={"format": "pt"}
    )
    assert safetensors_bytes(str(path), path.stat().st_size) == path.stat().st_size


def test_broken_index_is_named(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, {"model.safetensors.index.json": b"<html>rate limited</html>"})
    ((rule, _, what),) = check(repo)
    assert (rule, what) == ("stage.corrupt", "`model.safetensors.index.json` is not a safetensors index")
