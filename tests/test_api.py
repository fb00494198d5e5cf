"""What a Python program may rely on: the names of `jobspec.__all__`, and the page about them."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jobspec

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def test_every_name_is_exported_documented_and_typed() -> None:
    assert sorted(jobspec.__all__) == sorted(set(jobspec.__all__))
    for name in jobspec.__all__:
        assert inspect.getdoc(getattr(jobspec, name)), name
        assert f"`{name}" in PAGE, name
    stub = ast.parse((ROOT / "jobspec" / "__init__.pyi").read_text(encoding="utf-8"))
    typed = [item.asname for node in stub.body if isinstance(node, ast.ImportFrom) for item in node.names]
    assert sorted(filter(None, typed)) == sorted(jobspec.__all__)


def test_functions_say_what_they_raise() -> None:
    told = [name for name in jobspec.__all__ if inspect.isfunction(getattr(jobspec, name))]
    assert "submit" in told
    silent = [name for name in told if "aises" not in (getattr(jobspec, name).__doc__ or "")]
    assert silent == ["check"]  # its errors are its findings


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sumbit'"):
        jobspec.sumbit  # type: ignore[attr-defined]  # noqa: B018


def test_import_loads_nothing_else() -> None:
    script = (
        "import sys; import jobspec; print([name for name in sys.modules if name.startswith('jobspec.')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the example, as the current one; no variable of the surroundings counts."""
    for name in [name for name in os.environ if name.startswith("JOBSPEC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "command_hello.yaml", tmp_path / "examples")
    return tmp_path


def test_the_notebook_runs_from_its_first_cell_to_its_last(project: Path) -> None:
    for name in ("notebook.py", "bandit.py", "bandit.yaml"):
        shutil.copy(ROOT / "examples" / name, project / "examples")
    argv = [sys.executable, "examples/notebook.py"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "did you mean `steps`?" in done.stdout
    told = re.findall(r"^LR (\S+): (\w+)", done.stdout, re.MULTILINE)
    assert told == [("0.01", "Fail"), ("0.1", "Fail"), ("0.4", "Pass")]
    page = done.stdout.rpartition("open ")[2].strip()
    assert "<html" in Path(page).read_text()


def test_page_leads_from_a_spec_to_its_verdict(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code is not None
    seen: dict[str, Any] = {}
    exec(code.group(1), seen)
    assert (seen["spec"].name, seen["plan"].framework, seen["launch"].launcher) == (
        "hello",
        "command",
        "local",
    )
    assert seen["run"].root.parent == project / "runs" / "hello"
    assert (seen["verdict"].result, seen["verdict"].exit_code, seen["verdict"].number) == ("Pass", 0, 0)
    assert "# Pass: hello, level run" in capsys.readouterr().out


def test_mistakes_are_findings_and_stop_a_plan(project: Path) -> None:
    request = jobspec.Request("examples/command_hello.yaml", sets=["coverage.level=rum"])
    (found,) = [finding for finding in jobspec.check(request) if finding.is_error]
    assert (found.rule, found.file) == ("coverage.level-unknown", "--set coverage.level=rum")
    with pytest.raises(jobspec.JobspecError) as caught:
        jobspec.make_plan(request)
    assert found in caught.value.findings
    with pytest.raises(jobspec.JobspecError, match="no rule"):
        jobspec.load(jobspec.Request("examples/command_hello.yaml", allow=["nosuch"]))


def test_rendered_folder_is_complete_and_was_never_started(project: Path) -> None:
    rendered = jobspec.render_run(jobspec.Request("examples/command_hello.yaml"), "out")
    assert rendered.run == jobspec.RunPaths(project / "out")
    assert {"job.sbatch", "plan.json", "runtime.pyz", "spec.lock.yaml"} <= set(rendered.names)
    with pytest.raises(jobspec.JobspecError, match="never started"):
        jobspec.status(rendered.run)
    with pytest.raises(jobspec.JobspecError, match="exists already"):
        jobspec.render_run(jobspec.Request("examples/command_hello.yaml"), "out")
