"""Says where packages come from and what they lack, in the driver and in a Ray worker; runs as `python3 -`.

Ray's workers may get another PYTHONPATH than the driver, an image's Megatron-LM may come before the
checkout's, and a package that one setting needs may be missing: all three would be noticed late or never.
Standard library and Ray; Python 3.9; nothing of jobspec, whose text of this file the plan carries.

The request is JSON: `modules` to say the places of, `needed` to import, `roots` in which modules must lie,
and `needs`. A need has its `problem`, told when it is not met, and one of these: `any_of` modules, one of
which must be there; `imports`, a module that must import; `takes`, a callable as `module:name` that must have
the `parameter` (a module that does not import is not its matter). `worker_env` is for Ray's worker alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import logging
import os
import re
import socket
import sys
from typing import Any

# Modules whose package has another name, and that the Bridge imports by its training part.
PACKAGES = {
    "megatron.energon": "megatron-energon with its dependencies",
    "modelopt": "nvidia-modelopt",
    "transformer_engine": "transformer_engine[pytorch]",
    "mbridge": "mbridge",
    "flash_attn": "flash-attn",
    "megatron.training": "the Megatron-LM sources that are pinned (no wheel has this part)",
}
ANSWER_S = 900  # a worker's environment and imports take minutes on a slow disk
SLOW_START = (
    "PYTHONDONTWRITEBYTECODE is set: each of the run's processes compiles all that it imports, which can "
    "double the time to the first step; set it to an empty text in `container.env`"
)


def say(text: str) -> None:
    sys.stdout.write(f"jobspec: {text}\n")
    sys.stdout.flush()


def find(name: str) -> str:
    """Where `name` would be imported from; empty when it is not there. Parents alone are imported."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return ""
    places = list(getattr(spec, "submodule_search_locations", None) or [])
    return str(getattr(spec, "origin", None) or (places[0] if places else ""))


def look(wanted: dict[str, Any]) -> dict[str, Any]:
    """Places of all modules, and what importing the needed ones raised."""
    errors = {}
    for name in wanted["needed"]:
        try:
            importlib.import_module(name)
        except BaseException as problem:  # noqa: BLE001 - a module may raise anything
            errors[name] = f"{type(problem).__name__}: {problem}"
    places = {name: find(name) for name in wanted["modules"]}
    lacks = [need["problem"] for need in wanted.get("needs", ()) if not met(need)]
    return {"host": socket.gethostname(), "places": places, "errors": errors, "lacks": lacks}


def met(need: dict[str, Any]) -> bool:
    """Whether what `need` asks for is there."""
    if "any_of" in need:
        return any(find(name) for name in need["any_of"])
    module, _, name = need.get("takes", need.get("imports", "")).partition(":")
    try:
        owner = importlib.import_module(module)
    except BaseException:  # noqa: BLE001 - a module may raise anything
        return "imports" not in need
    try:
        return not name or need["parameter"] in inspect.signature(getattr(owner, name)).parameters
    except (AttributeError, TypeError, ValueError):  # gone, or compiled: nothing is known
        return True


def judge(where: str, seen: dict[str, Any], roots: dict[str, str]) -> list[str]:
    """Print what was seen; problems are returned."""
    problems = []
    for name, place in seen["places"].items():
        if place:
            say(f"{where} on {seen['host']}: {name} {place}")
        else:
            say(f"{where} on {seen['host']}: {name} is not installed")
        root = roots.get(name, "")
        real = os.path.realpath(place) if place else ""
        if root and not (real + os.sep).startswith(os.path.realpath(root) + os.sep):
            told = f"is imported from {place}" if place else "is not found"
            problems.append(f"{name} {told} in the {where}, not from {root}: the run is void")
    for name, problem in seen["errors"].items():
        problems.append(f"{name} cannot be imported in the {where}: {problem}{cure(problem)}")
    problems += [f"in the {where} {problem}" for problem in seen["lacks"]]
    return problems


def cure(problem: str) -> str:
    """Which package to install, where the missing module is known."""
    missing = re.search(r"No module named '([\w.]+)'", problem)
    package = next((PACKAGES[name] for name in PACKAGES if missing and missing[1].startswith(name)), "")
    return f"; install {package} in the image" if package else ""


def ask_worker(wanted: dict[str, Any]) -> Any:
    """The same asked of a task of the Ray that the run will use, with the variables that its workers get."""
    import ray

    variables = dict(wanted.get("worker_env", {}))
    if "JOBSPEC_WORKER_PYTHONPATH" in os.environ:
        variables["PYTHONPATH"] = os.environ["JOBSPEC_WORKER_PYTHONPATH"]
    ray.init(runtime_env={"env_vars": variables}, log_to_driver=False, logging_level=logging.WARNING)
    return ray.remote(num_cpus=0)(look).remote(wanted)


def main(argv: list[str]) -> int:
    """0 when everything is where it must be, 3 otherwise. Raises: what Ray raises, if the driver is right."""
    wanted = json.loads(argv[1])
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        say(SLOW_START)
    asked, failed = None, None
    try:  # both look at once: the imports take a quarter of a minute each
        asked = ask_worker(wanted)
    except Exception as why:  # noqa: BLE001 - told once the driver is known to be right
        failed = why
    problems = judge("driver", look(wanted), wanted["roots"])
    if not problems and failed is not None:
        raise failed
    if not problems:
        ray = sys.modules["ray"]
        try:
            problems = judge("worker", ray.get(asked, timeout=ANSWER_S), wanted["roots"])
        except ray.exceptions.GetTimeoutError:
            problems = [f"no Ray worker has answered after {ANSWER_S // 60} minutes"]
    if asked is not None:
        sys.modules["ray"].shutdown()
    for problem in problems:
        say(f"blocked: {problem}")
    return 3 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
