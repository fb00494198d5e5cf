"""Programs of Debian packages that tests run, and what becomes of a test without them.

`.ci/debian-packages` installs all of them. A test is skipped where one is missing; in CI it runs, and fails.
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

IN_CI = os.environ.get("CI") == "true"


def skip_or_fail(reason: str, variable: str = "") -> NoReturn:
    """A skip that CI, and whoever sets the variable to 1, must not have."""
    if IN_CI or os.environ.get(variable) == "1":
        pytest.fail(f"this test must run here: {reason}", pytrace=False)
    pytest.skip(reason)


def needs(program: str, package: str = "") -> pytest.MarkDecorator:
    """A mark for tests that run a program."""
    reason = f"needs `{program}` (Debian: {package or program})"
    return pytest.mark.skipif(not IN_CI and shutil.which(program) is None, reason=reason)
