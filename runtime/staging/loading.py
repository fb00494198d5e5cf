"""A staged model is loaded once, offline, before it is trusted: its config and its tokenizer, in the image.

Every file may be whole and the model of another kind than this image's transformers knows, or its tokenizer
damaged where it came from. That is an error here, and not an hour later in a worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import signal
import subprocess
import tempfile
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from jobspec.finding import Finding, error, warning
from jobspec.plan import StagePlan
from jobspec.runtime.base.procs import KILL_S

# A cold `import transformers` from a loaded shared file system takes minutes.
LOAD_TIMEOUT_S = 600.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def load_all(
    stage: Sequence[StagePlan],
    ready: Mapping[str, str],
    python: str,
    env: Mapping[str, str],
    say: Callable[[str], None],
) -> List[Finding]:
    """`load_once` for each item that asks for it and is ready; `say` gets a line about each."""
    findings: List[Finding] = []
    for item in stage:
        folder = ready.get(item.env or item.name, "")
        if item.load and folder:
            found, line = load_once(item, folder, python, env)
            say(line)
            findings += found
    return findings


def load_once(
    item: StagePlan, folder: str, python: str, env: Mapping[str, str], timeout_s: float = LOAD_TIMEOUT_S
) -> Tuple[Tuple[Finding, ...], str]:
    """Findings about the model in `folder`, as `python` loads it with `env`, and how that went in a line."""
    name = item.repo_id or item.name
    try:
        seen, output = _run_child(python, folder, env, timeout_s)
    except OSError as problem:
        seen, output = {"absent": f"`{python}` does not start: {problem}"}, ""
    if "failed" in seen:
        what = f"`{name}` does not load: {seen['failed']} fails in this image"
        why = f"transformers {seen['transformers']}, offline, from `{folder}`: {seen['error']}"
        fix = "stage the model anew, or use an image that knows it; `model.load: false` goes on without"
        return (error("stage.load", what, why, fix, path="model"),), what
    if "AutoTokenizer" in seen:
        kinds = f"{seen['AutoConfig']} and {seen['AutoTokenizer']}"
        return (), f"`{name}` loads as {kinds}, transformers {seen['transformers']}"
    why = str(seen.get("absent") or output or "it printed nothing")
    what = f"whether `{name}` loads was not tried"
    fix = "training loads it by another interpreter, or with an image that has transformers"
    return (warning("stage.not-loaded", what, why, fix, path="model"),), f"{what}: {why}"


def _run_child(
    python: str, folder: str, env: Mapping[str, str], timeout_s: float
) -> Tuple[Dict[str, Any], str]:
    """The child's answer, empty without one, and then what it printed last."""
    source = pkgutil.get_data("jobspec.runtime.staging", "load_probe.py")  # also from inside runtime.pyz
    if source is None:
        raise FileNotFoundError("jobspec/runtime/staging/load_probe.py is not in this runtime")
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as answer:
        fd = answer.fileno()
        child = subprocess.Popen(
            [python, "-c", source.decode("utf-8"), str(fd), folder],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**env, **OFFLINE},
            cwd="/",
            pass_fds=[fd],
            start_new_session=True,
        )
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            # A dead mount may hold it for ever (state D), and nobody else waits for it.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(KILL_S)
            return {}, f"it has not ended after {timeout_s:g} s"
        answer.seek(0)
        out.seek(0)
        try:
            return json.loads(answer.read()), ""
        except ValueError:
            lines = out.read().decode("utf-8", "replace").strip().splitlines()
            return {}, " / ".join([f"it ended with status {child.returncode}", *lines[-3:]])
