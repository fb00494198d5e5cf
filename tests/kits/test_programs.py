"""No test is skipped in CI for want of a Debian package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS = re.compile(r'needs\("([^"]+)"(?:, "([^"]+)")?\)')


def test_ci_installs_every_package_that_a_test_needs() -> None:
    installed = set((ROOT / ".ci/debian-packages").read_text().split())
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    wanted = {package or program for text in texts for program, package in NEEDS.findall(text)}
    assert {"zsh", "groff-base", "bubblewrap"} <= wanted <= installed


@pytest.mark.parametrize(("ci", "outcome"), [("", "2 skipped"), ("true", "2 failed")])
def test_without_the_program_a_test_is_skipped_and_fails_in_ci(tmp_path: Path, ci: str, outcome: str) -> None:
    (tmp_path / "test_it.py").write_text(
        "import subprocess\n"
        "from tests.kits.programs_kit import needs, skip_or_fail\n"
        "@needs('no-such-program')\n"
        "def test_mark() -> None:\n"
        '    subprocess.run(["no-such-program"], check=True)\n'
        "def test_call() -> None:\n"
        '    skip_or_fail("needs it")\n'
    )
    argv = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "test_it.py"]
    env = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert outcome in done.stdout.splitlines()[-1], done.stdout + done.stderr
