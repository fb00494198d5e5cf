"""A staged model is loaded by the real transformers, whole and damaged, and by an interpreter without it."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from jobspec.finding import Finding
from jobspec.plan import StagePlan
from jobspec.runtime.staging import loading
from jobspec.runtime.staging.loading import load_once
from tests.kits.project_kit import HELLO, Project
from tests.kits.script_module import load_script

ROOT = Path(__file__).parents[3]
ITEM = StagePlan("model", "model", "/shared/models--acme--tiny", repo_id="acme/tiny", load=True)
TINY = load_script(ROOT / "examples/make_tiny_model.py")
CONFIG = json.loads(TINY.config_files(TINY.TINY)["config.json"])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The files of a tiny model, without weights."""
    pytest.importorskip("transformers")  # not at the top: each process of the tests reads all modules
    folder = tmp_path / "model"
    folder.mkdir()
    for name, data in {**TINY.config_files(TINY.TINY), **TINY.tokenizer_files()}.items():
        (folder / name).write_bytes(data)
    return folder


def loaded(folder: Path, python: str = sys.executable, limit_s: float = 300.0) -> tuple[Finding | None, str]:
    findings, line = load_once(ITEM, str(folder), python, os.environ, limit_s)
    return (findings[0] if findings else None), line


def test_whole_model_loads(model: Path) -> None:
    import transformers

    finding, line = loaded(model)
    assert finding is None
    assert line.startswith("`acme/tiny` loads as Qwen2Config and ")
    assert line.endswith(f"transformers {transformers.__version__}")


@pytest.mark.parametrize(
    ("file", "text", "failed"),
    [
        ("config.json", json.dumps({**CONFIG, "model_type": "qwen99"}), "AutoConfig"),
        ("config.json", '{"model_type": "qwen2"', "AutoConfig"),
        ("tokenizer.json", '{"version": "1.0", "model": {"type": "WordLevel"', "AutoTokenizer"),
    ],
)
def test_model_that_does_not_load_is_an_error_with_the_reason(
    model: Path, file: str, text: str, failed: str
) -> None:
    (model / file).write_text(text)
    finding, _ = loaded(model)
    assert finding is not None and finding.is_error
    assert (finding.rule, finding.what) == (
        "stage.load",
        f"`acme/tiny` does not load: {failed} fails in this image",
    )
    reason = "qwen99" if "qwen99" in text else "Error"
    assert reason in finding.why


def test_model_without_a_tokenizer_is_an_error(model: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).unlink()
    finding, _ = loaded(model)
    assert finding is not None and finding.is_error and "AutoTokenizer" in finding.what
    assert "makes none of" in finding.why


def test_nothing_is_fetched(model: Path) -> None:
    """A name of the hub in place of a folder: offline, it is not found rather than downloaded."""
    finding, _ = loaded(Path("acme/no-such-model"))
    assert finding is not None and finding.rule == "stage.load"


def test_interpreter_without_transformers_is_told_as_not_tried(model: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    finding, line = loaded(model, str(bare))
    assert finding is not None and not finding.is_error
    assert finding.rule == "stage.not-loaded"
    assert "No module named 'transformers'" in finding.why and finding.what in line


def test_interpreter_that_is_not_there_is_told(model: Path) -> None:
    finding, _ = loaded(model, "/no/python")
    assert finding is not None and "`/no/python` does not start" in finding.why


def test_load_that_does_not_end_is_given_up(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, slow = tmp_path / "pid", tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(loading, "KILL_S", 30.0)
    finding, _ = loaded(model, str(slow), 2.0)
    assert finding is not None and finding.why == "it has not ended after 2 s"
    deadline = time.monotonic() + 60
    while pid.exists() and Path(f"/proc/{pid.read_text().strip()}").exists():
        assert time.monotonic() < deadline, "the child was not ended"
        time.sleep(0.05)


@pytest.mark.parametrize(("damage", "result"), [("", "Pass"), ('{"model_type": "qwen99"}', "Blocked")])
def test_run_is_blocked_by_a_model_that_does_not_load(
    model: Path,
    tmp_path: Path,
    damage: str,
    result: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if damage:
        (model / "config.json").write_text(damage)
    project = Project(tmp_path, capsys)
    project.write("hello.yaml", f"{HELLO}model: {{path: {model}, load: true}}\n")
    done = project.cli("run", "hello.yaml", "--cluster", "local", "--json")
    report = json.loads(project.cli("report", "last", "--format", "json").out)
    assert report["result"] == result, done.text
    log = "".join(path.read_text() for path in project.last().root.rglob("agent.log"))
    if damage:
        assert "qwen99" in json.dumps(report["first_cause"])
    else:
        assert "`model` loads as Qwen2Config" in log
