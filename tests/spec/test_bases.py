"""Thin specs: files laid over their bases, variants over files, and the place of every value."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.spec.load import LoadedSpec, load_spec
from jobspec.sweeps.points import expand

COMMON = """\
version: 1
framework: verl
resources: {nodes: 2, time: "1:00:00"}
repos: [{name: a, path: ./verl}, {name: b, path: /b}]
model: {path: weights, require: [x.json]}
container: {env: {A: "1", B: "2"}, mounts: [{source: data, target: /data}]}
train:
  steps: 10
  overrides: {trainer: {batch: 1, lr: 2}, actor.kl: 3, gone: 1}
"""
THIN = """\
version: 1
base: [sub/common.yaml, more.yaml]
name: thin
container: {env: {B: "3"}}
train:
  overrides: {trainer.batch: 9, actor: {kl: 8}, gone: null}
variants:
  long:
    train: {steps: 1000}
    model: {require: null}
  swept: {sweep: {grid: {train.steps: [1, 2]}}}
  shorter-name.2: {name: other}
"""
OTHER, PART = "is of version 2, and this spec of version 1", "is no mapping of keys to values"
NAMES = "is no mapping of names to changes"
NAME = "a name: letters, digits, `.`, `_` and `-`, a letter or digit first, at most 63"
MORE = "resources: {time: null}\nsecrets: [HF_TOKEN]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name, text in {"sub/common.yaml": COMMON, "more.yaml": MORE, "thin.yaml": THIN}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def load(folder: Path, name: str = "thin.yaml", *sets: str) -> LoadedSpec:
    return load_spec(folder / name, sets, {})


def refused(folder: Path, name: str) -> tuple[str, str, str, str, int]:
    with pytest.raises(JobspecError) as caught:
        load(folder, name)
    first = caught.value.findings[0]
    return first.rule, first.what, first.fix, Path(first.file).name, first.line


def test_mappings_merge_and_the_rest_is_replaced(folder: Path) -> None:
    data = load(folder).data
    assert data["container"]["env"] == {"A": "1", "B": "3"}
    assert data["resources"] == {"nodes": 2}  # null: the default again
    assert data["secrets"] == ["HF_TOKEN"]
    assert data["train"]["steps"] == 10
    assert "base" not in data and "variants" not in data


def test_keys_of_overrides_meet_in_both_forms(folder: Path) -> None:
    assert load(folder).data["train"]["overrides"] == {
        "trainer": {"batch": 9, "lr": 2},
        "actor.kl": 8,
        "gone": None,  # null is a value there, as for `--set`
    }


def test_a_variant_lies_over_the_file_and_set_over_both(folder: Path) -> None:
    long = load(folder, "thin.yaml:long")
    assert (long.spec.train.steps, long.data["model"]) == (1000, {"path": str(folder / "sub/weights")})
    assert load(folder, "thin.yaml:long", "train.steps=3").spec.train.steps == 3
    assert load(folder, "thin.yaml:shorter-name.2").spec.name == "other"


def test_a_sweep_lies_over_a_variant(folder: Path) -> None:
    points = expand(load(folder, "thin.yaml:swept"))
    assert [point.loaded.spec.train.steps for point in points] == [1, 2]
    assert {point.loaded.data["container"]["env"]["B"] for point in points} == {"3"}


def test_every_value_keeps_its_file_and_line(folder: Path) -> None:
    origins = load(folder, "thin.yaml:long").origins
    where = {
        "train.steps": "thin.yaml:9",
        "container.env.A": "sub/common.yaml:6",
        "container.env.B": "thin.yaml:4",
        "secrets[0]": "more.yaml:2",
        "train.overrides.trainer.batch": "thin.yaml:6",
        "train.overrides.trainer.lr": "sub/common.yaml:9",
        "train.overrides.'actor.kl'": "thin.yaml:6",
    }
    assert {key: origins[key].where for key in where} == {k: f"{folder}/{v}" for k, v in where.items()}
    assert origins["resources.time"].kind == origins["model.require"].kind == "default"


def test_a_wrong_value_of_a_base_is_told_where_it_stands(folder: Path) -> None:
    (folder / "more.yaml").write_text("\nresources: {nodes: two}\nsecrest: [A]\n")
    with pytest.raises(JobspecError) as caught:
        load(folder)
    told = [(f.rule, Path(f.file).name, f.line) for f in caught.value.findings]
    assert told == [("spec.type", "more.yaml", 2), ("spec.unknown-key", "more.yaml", 3)]


def test_relative_paths_of_a_base_are_from_its_folder(folder: Path) -> None:
    (folder / "sub/run.py").touch()
    (folder / "sub/common.yaml").write_text(
        COMMON.replace("verl\nres", "command\nres")
        + '  command: [python3, run.py, other.py, --x]\ndata: [{name: d, source: org/set}]\n'
        'sweep: {grid: {model.path: [one, /two, "${env:X}"]}}\ncheckpoint: {dir: "ckpt/${spec:name}"}\n'
    )  # fmt: skip
    data = load_spec(folder / "thin.yaml", (), {"X": "/x"}).data
    sub = folder / "sub"
    assert [repo["path"] for repo in data["repos"]] == [str(sub / "verl"), "/b"]
    assert data["container"]["mounts"][0]["source"] == str(sub / "data")
    assert data["train"]["command"] == ["python3", str(sub / "run.py"), "other.py", "--x"]
    assert data["data"][0]["source"] == "org/set"
    assert data["sweep"]["grid"]["model.path"] == [str(sub / "one"), "/two", "/x"]
    assert data["checkpoint"]["dir"] == str(sub / "ckpt/thin")


def test_paths_of_the_spec_itself_stay_relative(folder: Path) -> None:
    (folder / "thin.yaml").write_text("base: beside.yaml\nname: x\n")
    (folder / "beside.yaml").write_text(COMMON.replace("source: data", "source: /data"))
    assert load(folder).data["repos"][0]["path"] == "./verl"


def test_bases_have_bases_and_variants_of_their_own(folder: Path) -> None:
    (folder / "top.yaml").write_text("base: thin.yaml:long\nname: top\n")
    loaded = load(folder, "top.yaml")
    assert (loaded.spec.name, loaded.spec.train.steps, loaded.spec.resources.nodes) == ("top", 1000, 2)
    assert load(folder, "top.yaml:swept").spec.sweep is not None


def test_the_run_folder_gets_the_whole_spec(folder: Path) -> None:
    text = load(folder, "thin.yaml:long").text
    first, rest = text.split("\n", 1)
    names = (folder / "sub/common.yaml", folder / "more.yaml", f"{folder / 'thin.yaml'}:long")
    assert first == f"# Laid together from {', '.join(map(str, names))}."
    (folder / "flat.yaml").write_text(rest)
    assert load(folder, "flat.yaml").data == load(folder, "thin.yaml:long").data
    assert load(folder, "flat.yaml").text == rest  # a spec without a base stays as it was written


@pytest.mark.parametrize(
    ("text", "name", "want"),
    [
        ("base: gone.yaml\n", "t.yaml", ("spec.base", "base `gone.yaml`: there is no such file", 1)),
        ("base: t.yaml\n", "t.yaml", ("spec.base", "`t.yaml` is its own base: t.yaml -> t.yaml", 1)),
        ("name: x\nbase: [{}]\n", "t.yaml", ("spec.base", "a base is the name of a spec file", 2)),
        ("base: '${env:X}'\n", "t.yaml", ("spec.base", "a base is the name of a spec file", 1)),
        ('base: "a\\0b"\n', "t.yaml", ("spec.base", "a base is the name of a spec file", 1)),
        ("lock: {}\nbase: more.yaml\n", "t.yaml", ("spec.base", "a lock has no `base`", 2)),
        ("base: v2.yaml\n", "t.yaml", ("spec.base", f"base `v2.yaml` {OTHER}", 1)),
        ("base: locked.yaml\n", "t.yaml", ("spec.base", "base `locked.yaml` is the lock of a run", 1)),
        ("base: 'thin.yaml:lnog'\n", "t.yaml", ("spec.variant", "the spec has no variant `lnog`", 8)),
        ("variants: {a: {base: x}}\n", "t.yaml:a", ("spec.variant", "a variant cannot give `base`", 1)),
        ("variants: {a: 3}\n", "t.yaml:a", ("spec.variant", f"variant `a` {PART}", 1)),
        ("variants: [a]\n", "t.yaml", ("spec.variant", f"`variants` {NAMES}", 1)),
        ("variants: {'a/b': {}}\n", "t.yaml", ("spec.variant", f"variant `a/b` has not {NAME}", 1)),
        ("name: x\n", "t.yaml:a", ("spec.variant", "the spec has no variant `a`", 1)),
        ("name: x\n", "t.yaml:", ("spec.variant", "no variant is named behind the `:`", 1)),
    ],
)  # fmt: skip
def test_what_cannot_be_laid_together(folder: Path, text: str, name: str, want: tuple[str, str, int]) -> None:
    (folder / "v2.yaml").write_text("version: 2\nname: x\n")
    (folder / "locked.yaml").write_text("version: 1\nname: x\nframework: trl\nlock: {}\n")
    (folder / "t.yaml").write_text(text)
    rule, what, _, _, line = refused(folder, name)
    assert (rule, what, line) == want


@pytest.mark.parametrize("key", ["base=more.yaml", "variants.long={name: x}"])
def test_set_comes_too_late_for_a_base(folder: Path, key: str) -> None:
    """The lock of such a run could not be read."""
    with pytest.raises(JobspecError) as caught:
        load(folder, "thin.yaml", key)
    (found,) = caught.value.findings
    name = key.partition("=")[0].partition(".")[0]
    assert (found.rule, found.what, found.file) == ("spec.base", f"`{name}` cannot be set", f"--set {key}")


def test_a_sweep_changes_no_base(folder: Path) -> None:
    (folder / "t.yaml").write_text("base: thin.yaml\nsweep: {grid: {base: [a, b]}}\n")
    assert refused(folder, "t.yaml")[:2] == ("spec.sweep", "a sweep cannot change `base`")


def test_a_similar_name_is_offered(folder: Path) -> None:
    (folder / "t.yaml").write_text("base: moer.yaml\n")
    assert refused(folder, "t.yaml")[2] == "did you mean `more.yaml`?"
    assert refused(folder, "thin.yaml:lnog")[2] == "did you mean `long`?"


def test_a_ring_and_a_long_chain_end(folder: Path) -> None:
    for at in range(12):
        (folder / f"c{at}.yaml").write_text(f"base: c{at + 1}.yaml\n")
    assert refused(folder, "c0.yaml")[1] == "bases of bases go deeper than 8 files"
    (folder / "c2.yaml").write_text("base: c0.yaml\n")
    rule, what, fix, file, line = refused(folder, "c0.yaml")
    assert what == "`c0.yaml` is its own base: c0.yaml -> c1.yaml -> c2.yaml -> c0.yaml"
    assert (rule, fix, file, line) == ("spec.base", "take one of them out", "c2.yaml", 1)


def test_bases_that_multiply_end(folder: Path) -> None:
    for at in range(7):
        (folder / f"d{at}.yaml").write_text(f"base: {[f'd{at + 1}.yaml'] * 3}\n")
    (folder / "d7.yaml").write_text("name: x\n")
    assert refused(folder, "d0.yaml")[1] == "the bases are more than 64 files"


def test_a_file_with_a_colon_in_its_name_is_that_file(folder: Path) -> None:
    (folder / "odd:long").write_text("version: 1\nname: odd\nframework: trl\n")
    assert load(folder, "odd:long").spec.name == "odd"
