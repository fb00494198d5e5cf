"""Files, positions, origins, and the way a sweep's points are made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.load import Origin, interpolate_cluster, load_spec, parse_spec, validate_data, with_values

SPEC = """\
version: 1
name: demo
framework: verl
resources:
  nodes: 2
  time: "1:00:00"
train:
  steps: 10
  parallel: {tp: 2}
  overrides:
    trainer.batch: 4
container:
  env: {NCCL_DEBUG: WARN}
  workdir: ${env:HOME}/work
checkpoint: {dir: "${cluster:runs}/ckpt"}
"""


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def nobody(spec_file: Path) -> Iterator[None]:
    """The file is closed, and root, who reads every file, is somebody else for a while."""
    spec_file.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


def rule_of(path: Path) -> str:
    with pytest.raises(JobspecError) as caught:
        load_spec(path)
    (found,) = caught.value.findings
    assert found.file == str(path)
    assert found.fix
    return found.rule


def test_a_good_file(spec_file: Path) -> None:
    loaded = load_spec(spec_file, env={"HOME": "/home/a"})
    assert loaded.spec.resources.time == "1:00:00"
    assert loaded.spec.container.workdir == "/home/a/work"
    assert loaded.data["checkpoint"]["dir"] == "${cluster:runs}/ckpt"
    assert loaded.text == SPEC
    assert loaded.path == spec_file
    assert loaded.findings == ()


def test_missing_file_names_its_neighbours(spec_file: Path) -> None:
    with pytest.raises(JobspecError) as caught:
        load_spec(spec_file.with_name("spek.yaml"))
    assert (caught.value.findings[0].rule, "spec.yaml" in caught.value.findings[0].fix) == ("spec.file", True)


def test_directory(tmp_path: Path) -> None:
    assert rule_of(tmp_path) == "spec.file"


def test_path_with_nul() -> None:
    assert rule_of(Path("a\0b")) == "spec.file"


@pytest.mark.usefixtures("nobody")
def test_unreadable_file(spec_file: Path) -> None:
    assert rule_of(spec_file) == "spec.file"


def test_endless_file() -> None:
    assert rule_of(Path("/dev/zero")) == "spec.file"


def test_byte_order_mark_is_no_part_of_the_text(spec_file: Path) -> None:
    spec_file.write_bytes(b"\xef\xbb\xbf" + SPEC.encode())
    assert load_spec(spec_file, env={"HOME": "/"}).spec.name == "demo"


def test_windows_line_ends(spec_file: Path) -> None:
    spec_file.write_bytes(SPEC.replace("\n", "\r\n").encode())
    loaded = load_spec(spec_file, env={"HOME": "/"})
    assert loaded.positions.at("train.steps") == (8, 10)


@pytest.mark.parametrize(
    ("raw", "line", "column"),
    [
        (b"version: 1\nname: caf\xe9\n", 2, 10),
        (b"\xef\xbb\xbfname: \xff\n", 1, 7),
        ("name: x\n".encode("utf-16"), 1, 1),
        ("a: é\nb: ".encode() + b"\x80", 2, 4),
    ],
)
def test_not_utf8(tmp_path: Path, raw: bytes, line: int, column: int) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(raw)
    with pytest.raises(JobspecError) as caught:
        load_spec(path)
    found = caught.value.findings[0]
    assert (found.rule, found.line, found.column) == ("spec.encoding", line, column)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("train.steps", (8, 10)),
        ("train.parallel.tp", (9, 18)),
        ("train.parallel.pp", (9, 13)),
        ("train.overrides.trainer.batch", (11, 20)),
        ("train.overrides.'trainer.batch'", (11, 20)),
        ("container.env.NCCL_DEBUG", (13, 21)),
        ("model.id", (1, 1)),
        ("not a path [", (1, 1)),
    ],
)
def test_positions(path: str, place: tuple[int, int]) -> None:
    assert parse_spec(SPEC, env={"HOME": "/"}).positions.at(path) == place


def test_origins() -> None:
    sets = ("train.steps=5", "train.seed=1", "train.overrides.a.b=2")
    origins = parse_spec(SPEC, "s.yaml", sets, env={"HOME": "/"}).origins
    assert origins["resources.nodes"] == Origin("spec", "s.yaml:5")
    assert origins["train.steps"] == Origin("set", "--set train.steps=5")
    assert origins["train.seed"] == Origin("set", "--set train.seed=1")
    assert origins["train.overrides.'a.b'"] == Origin("set", "--set train.overrides.a.b=2")
    assert origins["container.workdir"] == Origin("env", "s.yaml:14, from $HOME")
    assert origins["launch.requeue.grace"] == Origin("default")
    assert origins["train.parallel.pp"] == Origin("default")


def test_origin_of_what_the_profile_gave() -> None:
    cluster = parse_cluster(
        "version: 1\nname: site\npaths: {runs: /shared}", Path("site.yaml"), env={"USER": "a"}
    )
    loaded = interpolate_cluster(parse_spec(SPEC, "s.yaml", env={"HOME": "/"}), cluster.profile)
    assert loaded.spec.checkpoint.dir == "/shared/ckpt"
    assert loaded.origins["checkpoint.dir"] == Origin("cluster", "s.yaml:15, from profile `site`")


def test_secret_of_a_setting_is_not_kept() -> None:
    with pytest.raises(JobspecError) as caught:
        parse_spec(SPEC, sets=["container.env.HF_TOKEN=hf_abc"], env={"HOME": "/"})
    assert [f.rule for f in caught.value.findings] == ["spec.secret"]
    assert "hf_abc" not in caught.value.findings[0].text()


def test_allow_turns_an_error_into_a_warning() -> None:
    text = SPEC.replace("NCCL_DEBUG: WARN", "NCCL_DEBUG: WARN, SITE_TOKEN: x")
    loaded = parse_spec(text, env={"HOME": "/"}, allow=["spec.secret"])
    assert [(f.rule, f.severity) for f in loaded.findings] == [("spec.secret", "warning")]


def test_allow_cannot_make_a_wrong_type_right() -> None:
    with pytest.raises(JobspecError):
        parse_spec(SPEC.replace("steps: 10", "steps: ten"), env={"HOME": "/"}, allow=["spec"])


# -- points of a sweep

SWEEP = SPEC + "sweep: {grid: {train.parallel.tp: [1, 2]}}\nuser: {note: '${spec:train.parallel.tp}'}\n"
POINT = SWEEP.replace('dir: "${cluster:runs}/ckpt"', "dir: '/ckpt/tp${spec:train.parallel.tp}'")


def test_a_point_is_the_spec_with_its_values() -> None:
    base = parse_spec(POINT, "s.yaml", env={"HOME": "/"})
    point = with_values(base, {"train.parallel.tp": 4, "train.overrides.trainer.batch": 8}, "point 0")
    assert base.spec.checkpoint.dir == "/ckpt/tp2"
    assert point.spec.checkpoint.dir == "/ckpt/tp4"
    assert point.spec.train.overrides == {"trainer.batch": 8}
    assert point.spec.sweep is None
    assert base.spec.sweep is not None


def test_origins_of_a_point_equal_those_made_from_nothing() -> None:
    base = parse_spec(POINT, "s.yaml", env={"HOME": "/"})
    point = with_values(base, {"train.parallel.tp": 4, "model": {"id": "a"}, "train.seed": 3}, "point 0")
    origins = dict(point.origins)
    assert origins["train.parallel.tp"] == Origin("set", "point 0 train.parallel.tp=4")
    assert origins["model.id"] == Origin("set", "point 0 model={'id': 'a'}")
    assert not [key for key in origins if key.startswith("sweep.")]
    assert set(origins) >= {"train.seed", "train.steps", "resources.nodes", "launch.hold"}


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"train.parallel.tp": 0}, "spec.range"),
        ({"train.parallel.tp": "two"}, "spec.type"),
        ({"train.paralel.tp": 1}, "spec.unknown-key"),
        ({"train.": 1}, "spec.sweep"),
        ({"checkpoint.dir": None, "checkpoint.resume": "must"}, "spec.checkpoint"),
    ],
)
def test_a_bad_point_says_so(values: dict[str, object], rule: str) -> None:
    base = parse_spec(POINT, env={"HOME": "/"})
    with pytest.raises(JobspecError) as caught:
        with_values(base, values, "point 3")
    assert [f.rule for f in caught.value.findings] == [rule]


def test_a_sweep_names_its_bad_keys_once_with_their_place() -> None:
    with pytest.raises(JobspecError) as caught:
        parse_spec(
            SPEC + "sweep:\n  grid: {train.stepz: [1], version: [1], train.seed: []}\n", env={"HOME": "/"}
        )
    assert [(f.rule, f.line, f.path) for f in caught.value.findings] == [
        ("spec.sweep", 17, "sweep.grid.'train.stepz'"),
        ("spec.sweep", 17, "sweep.grid.version"),
        ("spec.sweep", 17, "sweep.grid.'train.seed'"),
    ]


def test_validate_data() -> None:
    data = {"version": 1, "name": "x", "framework": "trl"}
    spec, findings = validate_data(data)
    assert (spec is not None and spec.name, findings) == ("x", ())
    spec, findings = validate_data({**data, "nodes": 3})
    assert (spec, [f.rule for f in findings]) == (None, ["spec.unknown-key"])


def test_a_good_spec_needs_no_heavy_import(spec_file: Path) -> None:
    """jsonschema alone costs more than reading and checking a spec."""
    code = "import sys; from jobspec.spec.load import load_spec; load_spec(sys.argv[1], env={'HOME': '/'})"
    code += "; print(*sorted({'jsonschema', 'jinja2', 'rich', 'numpy', 'ray', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code, spec_file], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
