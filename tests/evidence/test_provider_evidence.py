"""The five kinds of evidence of a new provider: there, missing, not asked. Logs are those of real pytest."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.evidence.provider_evidence import provider_evidence
from jobspec.evidence.read import read_evidence
from jobspec.frameworks.shared.repo_tests import PYTEST
from jobspec.plan import CommandPlan
from jobspec.verdict import Deliverable, Status
from tests.kits.verdict_kit import PLAN, RunFolder

GUIDE = ("Bridge-side checks", "Local Bridge import in X", "X policy run")
PROVIDER = "tests/unit_tests/models/gemma/test_gemma4_provider.py"
MAPPING = "tests/unit_tests/models/test_param_mapping.py"
BRIDGE = "tests/unit_tests/models/gemma/test_gemma4_bridge.py"
LAUNCHER = "tests/unit_tests/conversion/launcher/test_hf_megatron_roundtrip_multi_gpu.py"
IMPORT = "tests/functional_tests/test_groups/models/gemma/test_gemma4_conversion.py"
LOGITS = "tests/functional_tests/test_groups/converter/test_generate_from_hf.py"
GOOD = "def test_a(): pass\ndef test_b(): pass\n"
SKIPPED = "import pytest\npytest.skip(allow_module_level=True)\n"


def lines(tmp_path: Path, files: dict[str, str], smoke: Status = Status.PASS) -> dict[str, str]:
    """What is told of each kind after pytest ran `files` in a checkout."""
    for name, text in files.items():
        (tmp_path / "bridge" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bridge" / name).write_text(text)
    argv = (sys.executable, *PYTEST, "-p", "no:cacheprovider", *files)
    done = subprocess.run(argv, cwd=tmp_path / "bridge", capture_output=True, text=True, check=False)
    run = RunFolder(tmp_path / "run", replace(PLAN, checks=(CommandPlan("checks-bridge", argv),)))
    run.phase("checks")
    run.log(done.stdout, name="checks-bridge.log")
    run.write()
    command = {"name": "checks-bridge", "phase": "checks", "log": "logs/n1/checks-bridge.log"}
    run.results("ok", 0, commands=[{**command, "exit_code": done.returncode}])
    found = provider_evidence(read_evidence(run.root), [Deliverable(GUIDE[2], smoke)], GUIDE)
    return dict(line.split(": ", 1) for line in found)


def test_each_kind_is_there_missing_or_not_asked(tmp_path: Path) -> None:
    found = lines(tmp_path, {PROVIDER: GOOD, MAPPING: GOOD, BRIDGE: GOOD, IMPORT: SKIPPED, LAUNCHER: GOOD})
    log = "[attempts/1/logs/n1/checks-bridge.log:"
    assert found["provider and config unit tests"].startswith(f"there (2 passed in {PROVIDER}) {log}")
    assert found["parameter mapping tests"].startswith("there (4 passed in ")
    assert (
        found["import from Hugging Face or roundtrip"] == f"missing (jobspec read no passed test of {IMPORT})"
    )
    assert found["generation or logits comparison"] == "not asked"
    assert found["this external-loop run"] == "there (X policy run: Pass)"


def test_a_failed_test_leaves_nothing_there(tmp_path: Path) -> None:
    found = lines(
        tmp_path, {PROVIDER: GOOD, MAPPING: "def test_a(): assert 0\n", LOGITS: GOOD}, Status.SKIPPED
    )
    assert found["provider and config unit tests"].startswith("missing (tests failed: 1 failed, 4 passed in")
    assert found["generation or logits comparison"].startswith("missing (tests failed: ")
    assert found["parameter mapping tests"] == f"missing (jobspec read no passed test of {MAPPING})"
    assert found["this external-loop run"] == "missing (X policy run: Skipped)"


@pytest.mark.parametrize("guide", [(), ("one",)])
def test_a_framework_without_a_guide_has_no_such_list(tmp_path: Path, guide: tuple[str, ...]) -> None:
    run = RunFolder(tmp_path, PLAN)
    run.write()
    assert list(provider_evidence(read_evidence(run.root), [], guide)) == []
