"""What a NeMo-RL checkout has: reads scripts and recipes, runs nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BRIDGE = "3rdparty/Megatron-Bridge-workspace/Megatron-Bridge"
FORWARDS = re.compile(r"\$@|\$\{@\}|\$\*")
CONFIG = re.compile(r"(?:--config[ =]|CONFIG\w*=)[\"']?\$\{?PROJECT_ROOT\}?/([\w./-]+\.yaml)")
ENTRY_POINT = re.compile(r"examples/(run_\w+\.py)")
ARGUMENT = re.compile(r"(?:^|\s)(\+{0,2}[a-z_]+(?:\.\w+)+)=(\"[^\"]*\"|'[^']*'|\S+)")
DEFAULT_CONFIG = re.compile(r"[\"'](\w+\.yaml)[\"']")
TRANSFER_QUEUE = re.compile(r"TransferQueue\s*@\s*git\+(https://[^@\"'\s]+)")
INSTALLS = "_patch_tq_actor_runtime_env()"
ADAPTER = "nemo_rl/data_plane/adapters/transfer_queue.py"


@dataclass(frozen=True)
class Script:
    """A maintained script, taken apart: `arguments` are its literal `key=value`, in order."""

    config: str
    arguments: tuple[str, ...]
    forwards: bool


def find_checkout(paths: Mapping[str, str]) -> str:
    """The only repository with the package `nemo_rl`; empty with none or several."""
    roots = [path for path in paths.values() if Path(path, "nemo_rl").is_dir()]
    return roots[0] if len(roots) == 1 else ""


def find_bridge(paths: Mapping[str, str]) -> str:
    """The repository with Megatron-Bridge's package; empty without one."""
    return next((path for path in paths.values() if Path(path, "src/megatron/bridge").is_dir()), "")


def read_text(root: str, name: str) -> str | None:
    """The text of a file of the checkout; None when it is missing or unreadable."""
    try:
        return Path(root, name).read_text("utf-8", errors="replace")
    except OSError:
        return None


def read_script(root: str, name: str) -> Script | None:
    """What a script says about its run; None when there is no such file.

    A script that names no config uses its entry point's default.
    """
    text = read_text(root, name)
    if text is None:
        return None
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    named = CONFIG.search(code)
    config = named[1] if named else _default_config(root, code)
    literal = (f"{key}={value.strip(chr(34) + chr(39))}" for key, value in ARGUMENT.findall(code))
    arguments = tuple(item for item in literal if "$" not in item)
    return Script(config, arguments, FORWARDS.search(code) is not None)


def entry_point(root: str, script: str) -> str:
    """The entry point that a script starts, below the checkout; itself for a Python file, empty for none."""
    found = None if script.endswith(".py") else ENTRY_POINT.search(read_text(root, script) or "")
    return f"examples/{found[1]}" if found else script if script.endswith(".py") else ""


def _default_config(root: str, code: str) -> str:
    entry = ENTRY_POINT.search(code)
    text = read_text(root, f"examples/{entry[1]}") if entry else None
    named = DEFAULT_CONFIG.search(text or "")
    return f"examples/configs/{named[1]}" if named else ""


def transfer_queue_source(root: str) -> str:
    """The git URL from which the data plane's actors install at their first start; empty without one."""
    if INSTALLS not in (read_text(root, ADAPTER) or ""):
        return ""
    source = TRANSFER_QUEUE.search(read_text(root, "pyproject.toml") or "")
    return source[1] if source else ""
