"""RLix's driver and its cache folder below a folder of the test, where a node has `/tmp/rlix`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NODE = """
import sys
from pathlib import Path
from jobspec.runtime.base import signals
from jobspec.runtime.drivers.rlix import cache, driver
cache.ROOT = Path(sys.argv[1])
words = sys.argv[2:]
sys.exit(driver.main(words, signals.receive()) if words else cache.main())
"""


def driver(node: Path, script: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """RLix's driver program of pipelines `one` and `two` with a script for the driver; notes go to `made`."""
    words = ["--pipelines", "one,two", "--note", str(node / "made"), "--", "bash", "-ec", script]
    return start(node, words, env)


def start(
    node: Path, words: list[str], env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[str]:
    """Without words only the link is made."""
    return subprocess.Popen(
        [sys.executable, "-c", NODE, str(node / "rlix"), *words],
        stdout=subprocess.PIPE,
        stderr=options.pop("stderr", None),
        text=True,
        env={**os.environ, "HF_HOME": str(node / "cache"), **(env or {})},
        **options,
    )
