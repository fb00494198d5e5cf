"""From a spec to findings and tables, through a framework that only has a shape."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.checks.megatron import Training, check_training
from jobspec.cli import main
from jobspec.megatron.architecture import find_architecture
from jobspec.megatron.shape import OptimizerShape, RolloutShape, TrainShape
from jobspec.planning.resolve import Resolved, resolve
from jobspec.reference.megatron import PAGE, with_tables
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.load import parse_spec
from jobspec.spec.yaml.dump import dump_spec
from jobspec.units import GIB
from tests.kits.shapes_kit import TINY, ShapedFramework

ROOT = Path(__file__).parents[2]
ULTRA = "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16"
SITE: dict[str, Any] = {
    "version": 1,
    "name": "lab",
    "slurm": {"partition": "batch"},
    "paths": {"runs": "/shared/runs", "hf_home": "/shared/hf", "node_local": "/raid"},
    "node": {"gpus": 8, "gpu_memory": "141G", "memory": "2000G"},
}
SHAPE = {"tp": 8, "pp": 4, "ep": 16}


@pytest.fixture(autouse=True)
def shaped(monkeypatch: pytest.MonkeyPatch) -> None:
    real = frameworks.get
    monkeypatch.setattr(frameworks, "get", lambda name: ShapedFramework() if name == "shaped" else real(name))


def spec_of(folder: Path, **keys: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "x",
        "framework": "shaped",
        "resources": {"nodes": 8, "time": "01:00:00"},
        "model": {"id": ULTRA, "revision": "0" * 40},
        "train": {"parallel": SHAPE, "overrides": {"seq_length": 40960, "mtp_layers": 0}},
        **keys,
    }


def resolved(folder: Path, allow: tuple[str, ...] = (), **keys: Any) -> Resolved:
    loaded = parse_spec(dump_spec(spec_of(folder, **keys)), str(folder / "spec.yaml"), env={})
    cluster = parse_cluster(dump_spec(SITE), Path("lab.yaml"), "--cluster-file", {"HOME": "/home/ann"})
    return resolve(loaded, cluster, allow=allow, env={"USER": "ann", "HOME": "/home/ann"})


def found(folder: Path, **keys: Any) -> list[tuple[str, str]]:
    return [(f.rule, f.severity) for f in resolved(folder, **keys).findings if f.rule.startswith(("m",))]


def train(parallel: dict[str, int], **overrides: Any) -> dict[str, Any]:
    return {"parallel": parallel, "overrides": {"seq_length": 40960, "mtp_layers": 0, **overrides}}


def test_an_impossible_split_is_an_error_with_shapes_that_work(tmp_path: Path) -> None:
    asked = train({"tp": 8, "pp": 8, "ep": 8}, offload=1, fp32_grads=False)
    findings = resolved(tmp_path, train=asked).findings
    (broken,) = [f for f in findings if f.rule == "megatron.layers"]
    assert broken.is_error
    assert broken.line > 0
    (better,) = [f for f in findings if f.rule == "megatron.shapes"]
    assert not better.is_error
    assert "tp 8" in better.what


def test_memory_is_judged_only_where_the_shape_is_possible(tmp_path: Path) -> None:
    assert ("memory.gpu", "error") in found(tmp_path)  # nothing is offloaded: 12 B of each expert on its GPU
    rules = [rule for rule, _ in found(tmp_path, train=train({"tp": 8, "pp": 8, "ep": 8}))]
    assert "memory.gpu" not in rules


def check(shape: TrainShape, gpu: int, node: int = 0) -> dict[str, tuple[str, str]]:
    arch = find_architecture("Llama-3.1-70B")
    found = check_training(Training(shape, arch, gpu * GIB, node * GIB))
    return {finding.rule: (finding.severity, finding.what) for finding in found}


def test_weights_of_engine_and_trainer_must_fit_together() -> None:
    engine = RolloutShape(tp=2, precision="bf16")
    shape = TrainShape(4, 8, tp=2, etp=1, optimizer=OptimizerShape(offload=1.0), rollout=engine)
    severity, what = check(shape, 130)["memory.engine"]
    assert severity == "error"
    assert "and the trainer's" in what
    apart = replace(shape, rollout=replace(engine, colocated=False, nodes=1))
    assert "memory.engine" not in check(apart, 130)


def test_offloading_needs_a_host_that_can_hold_it() -> None:
    shape = TrainShape(1, 8, tp=8, etp=1, optimizer=OptimizerShape(offload=1.0))
    assert check(shape, 80, 900)["memory.host"][0] == "error"  # 16 B of 70 B parameters
    assert check(shape, 80, 1100)["memory.host"][0] == "warning"
    assert "memory.host" not in check(shape, 80, 2000)
    assert "memory.host" not in check(shape, 80)


@pytest.mark.parametrize("allowed", ["memory", "memory.gpu"])
def test_a_memory_error_can_be_allowed(tmp_path: Path, allowed: str) -> None:
    (gpu,) = [f for f in resolved(tmp_path, allow=(allowed,)).findings if f.rule == "memory.gpu"]
    assert not gpu.is_error
    assert "--allow" in gpu.why


def test_a_model_without_sizes_is_a_warning(tmp_path: Path) -> None:
    assert found(tmp_path, model={"id": "own/model", "revision": "0" * 40}) == [
        ("megatron.model-unknown", "warning")
    ]


def test_the_config_of_a_folder_wins_over_the_table_and_the_specs_over_both(tmp_path: Path) -> None:
    folder = tmp_path / "Qwen3-8B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**TINY, "num_hidden_layers": 22}))
    layers = ["megatron.layers"]
    asked = train({"pp": 4})
    of_folder = {"path": str(folder)}
    assert [rule for rule, _ in found(tmp_path, model=of_folder, train=asked) if rule in layers] == layers
    inline = {**of_folder, "config": {**TINY, "num_hidden_layers": 24}}
    assert [rule for rule, _ in found(tmp_path, model=inline, train=asked) if rule in layers] == []


@pytest.mark.parametrize("text", ["{", "[]", '{"hidden_size": "wide"}', '{"hidden_size": 8}'])
def test_a_broken_config_is_a_warning_with_its_reason(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    (finding,) = [
        f
        for f in resolved(tmp_path, model={"path": str(tmp_path)}).findings
        if f.rule == "megatron.model-unknown"
    ]
    assert "config.json" in finding.why


def test_the_cached_snapshot_is_read(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub/models--own--model/snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({**TINY, "num_hidden_layers": 22}))
    model = {"id": "own/model", "revision": "a" * 40}
    rules = found(tmp_path, model=model, hf_cache={"home": str(tmp_path)}, train=train({"pp": 4}))
    assert ("megatron.layers", "error") in rules


def write(folder: Path, **keys: Any) -> list[str]:
    (folder / "spec.yaml").write_text(dump_spec(spec_of(folder, **keys)))
    (folder / "lab.yaml").write_text(dump_spec(SITE))
    return [str(folder / "spec.yaml"), "--cluster-file", str(folder / "lab.yaml")]


def test_explain_prints_the_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, *more = write(tmp_path)
    assert main(["explain", spec, "memory", *more, "--allow", "memory"]) == 0
    shown = capsys.readouterr().out
    for text in ("weights", "9.58 B parameters", "STAGE", "total", "does not fit", "note: recomputation"):
        assert text in shown, shown
    assert main(["explain", spec, "memory", *more, "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert data["outcome"] == "does not fit"
    assert len(data["stages"]) == 4
    assert sum(data["stages"][0]["parts"].values()) == data["stages"][0]["bytes"]


def test_explain_memory_needs_a_megatron_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, *more = write(tmp_path, framework="command", train={"command": ["true"]}, container={"image": "x"})
    assert main(["explain", spec, "memory", *more]) == 2
    assert "says nothing about Megatron" in capsys.readouterr().err


def test_the_page_is_fresh() -> None:
    page = (ROOT / PAGE).read_text("utf-8")
    assert page == with_tables(page), "run: python -m jobspec.reference.megatron"
