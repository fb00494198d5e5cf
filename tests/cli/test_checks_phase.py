"""Phase `checks`: real pytest in a real git checkout, through the whole chain on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobspec.runs.paths import RunPaths
from tests.kits.project_kit import HELLO, Done, Project

GOOD = "import os\n\ndef test_mapping():\n    assert os.environ['FLAVOUR'] == 'plain'\n"
BAD = "\ndef test_shape():\n    assert (2, 3) == (3, 2)\n"
PASSING = HELLO.replace(
    'echo "hello from the driver"', 'echo "hello from the driver" > "$JOBSPEC_RUN_DIR/ran"'
)


def checkout(project: Project, **files: str) -> Path:
    """A tiny git repository called `bridge` with the given test files."""
    root = project.root / "bridge"
    (root / "tests").mkdir(parents=True)
    for name, text in files.items():
        (root / "tests" / f"{name}.py").write_text(text)
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "tests")):
        subprocess.run(["git", *words], cwd=root, check=True)
    return root


def run(project: Project, **check: Any) -> tuple[Done, RunPaths]:
    extra = {
        "repos": [{"name": "bridge", "path": str(project.root / "bridge")}],
        "coverage": {"level": "run", "checks": [{"repo": "bridge", **check}]},
        "container": {"python": sys.executable, "env": {"FLAVOUR": "plain"}},
    }
    text = PASSING + "".join(f"{key}: {json.dumps(value)}\n" for key, value in extra.items())
    project.write("checked.yaml", text)
    return project.cli("run", "checked.yaml"), project.last()


def report(found: RunPaths) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((found.root / "report.json").read_text())
    return data


def results(found: RunPaths) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((found.attempt(1) / "results.json").read_text())
    return data


def test_passing_tests_run_before_the_driver_in_its_environment(project: Project) -> None:
    checkout(project, test_good=GOOD)
    done, found = run(project, tests=["tests/test_good.py"])
    assert done.code == 0, done.text
    assert done.out.index("checks") < done.out.index("driver")
    commands = results(found)["commands"]
    assert [(c["name"], c["phase"], c["exit_code"]) for c in commands] == [
        ("checks-bridge", "checks", 0),
        ("command", "driver", 0),
    ]
    assert commands[0]["log"].endswith("/checks-bridge.log")
    told = report(found)["deliverables"]["Checks of bridge"]
    assert told["status"] == "Pass"
    assert told["evidence"][0]["text"].startswith("1 passed in")
    assert "checks" in (found.root / "report.html").read_text()


def test_tests_instead_of_the_guide_s_are_told_as_that(project: Project) -> None:
    checkout(project, test_good=GOOD, test_bad=BAD)
    extra = {
        "repos": [{"name": "bridge", "path": str(project.root / "bridge")}],
        "coverage": {
            "level": "run",
            "checks_only": [
                {"repo": "bridge", "tests": ["tests/test_good.py"]},
                {"repo": "bridge", "command": ["true"]},
            ],
        },
        "container": {"python": sys.executable, "env": {"FLAVOUR": "plain"}},
    }
    text = PASSING + "".join(f"{key}: {json.dumps(value)}\n" for key, value in extra.items())
    project.write("only.yaml", text)
    assert project.cli("run", "only.yaml").code == 0
    found = project.last()
    assert [(c["name"], c["exit_code"]) for c in results(found)["commands"][:2]] == [
        ("checks-bridge", 0),
        ("checks-bridge+2", 0),
    ]
    told = report(found)
    checked = told["deliverables"]["Checks of bridge"]
    assert checked["status"] == "Pass"
    assert checked["reason"].endswith("; not the guide's tests (`coverage.checks_only`)")
    assert any("`coverage.checks_only`: the guide's own did not run" in text for text in told["limitations"])


def test_failing_test_is_a_fail_and_starts_no_driver(project: Project) -> None:
    checkout(project, test_good=GOOD, test_bad="print('OSError: [Errno 28] No space left on device')" + BAD)
    done, found = run(project)
    assert done.code == 1, done.text
    assert not (found.root / "ran").exists()
    assert (results(found)["exit_code"], results(found)["first_phase_failed"]) == (1, "checks")
    verdict = report(found)
    cause = verdict["first_cause"]
    assert (verdict["result"], cause["class"], cause["verdict"]) == ("Fail", "checks", "Fail")
    assert cause["text"].startswith("FAILED tests/test_bad.py::test_shape")
    log = (found.root / cause["file"]).read_text().splitlines()
    assert log[cause["line"] - 1] == cause["text"]
    statuses = {name: item["status"] for name, item in verdict["deliverables"].items()}
    assert (statuses["Checks of bridge"], statuses["Run"]) == ("Fail", "Skipped")


@pytest.mark.parametrize(
    ("check", "word"),
    [
        ({"tests": ["tests/no_such_test.py"]}, "ran no test: pytest exited with 4"),
        ({"tests": ["tests/test_none.py"]}, "ran no test: pytest exited with 5"),
        ({"command": ["no-such-program"]}, "cannot start"),
    ],
)
def test_tests_that_did_not_run_block(project: Project, check: dict[str, Any], word: str) -> None:
    checkout(project, test_none="")
    done, found = run(project, **check)
    assert done.code == 3, done.text
    assert not (found.root / "ran").exists()
    verdict = report(found)
    assert (verdict["result"], verdict["deliverables"]["Checks of bridge"]["status"]) == (
        "Blocked",
        "Blocked",
    )
    assert word in verdict["first_cause"]["text"]


def test_script_to_run_by_hand_has_the_tests_first(project: Project) -> None:
    checkout(project, test_bad=BAD)
    _, found = run(project)
    (found.root / "ran").unlink(missing_ok=True)
    script = (found.root / "driver.sh").read_text()
    assert script.index("# checks-bridge") < script.index("# command")
    assert (
        subprocess.run(["bash", found.root / "driver.sh"], check=False, capture_output=True).returncode == 1
    )
    assert not (found.root / "ran").exists()
