"""The Ray of a held run, as the agent of a guest on this node has it (`kept_ray` is the other side)."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

from jobspec.finding import JobspecError, error
from jobspec.plan import Plan
from jobspec.runtime.base import own_folder, procs
from jobspec.runtime.base.identity import Identity, NodePaths
from jobspec.runtime.node.kept_ray import SOCKET, of_same_user, say
from jobspec.runtime.raycluster import fitness, process

ANSWER_S = 20.0
GPU_S = 10.0
Reply = Dict[str, Any]


def of_process(env: Mapping[str, str]) -> Dict[str, Any]:
    """What Ray depends on beside the plan: the interpreter, Ray, and the namespaces of the container."""
    namespaces = {f"{kind} namespace": Path(f"/proc/self/ns/{kind}").stat().st_ino for kind in ("pid", "net")}
    python = f"{sys.executable} {platform.python_version()}"
    return {
        "user": os.geteuid(),
        "Python": python,
        "Ray": process.full_version(env),
        "visible GPUs": env.get("CUDA_VISIBLE_DEVICES", "all"),
        **namespaces,
    }


def own_variables(plan: Plan, env: Mapping[str, str], base: Mapping[str, str]) -> Dict[str, str]:
    """What the plan and jobspec set of `env`; `base` is the agent's own environment."""
    planned = {*plan.env, *plan.secrets}
    return {
        name: value
        for name, value in env.items()
        if name in planned or name.startswith(fitness.OF_RUN) or base.get(name) != value
    }


def own_folders(who: Identity, paths: NodePaths) -> List[str]:
    return [str(paths.scratch), str(paths.ray), str(who.run_dir)]


def on_gpus(env: Mapping[str, str]) -> Optional[List[str]]:
    """Processes on this node's GPUs; None where nvidia-smi is not there.

    Raises: OSError, subprocess.TimeoutExpired where it does not answer.
    """
    program = shutil.which("nvidia-smi", path=env.get("PATH"))
    if program is None:
        return None
    visible = env.get("CUDA_VISIBLE_DEVICES", "")
    which = ["-i", visible] if visible else []
    argv = [program, *which, "--query-compute-apps=pid,process_name", "--format=csv,noheader"]
    code, out, err = procs.output(argv, GPU_S, env)
    if code:
        raise OSError(code, (out + err).decode(errors="replace").strip()[-200:])
    return [line.strip() for line in out.decode(errors="replace").splitlines() if line.strip()]


class Borrowed:
    """The way to a kept Ray: looked at, then used or not, and given back."""

    def __init__(self, plan: Plan, who: Identity, paths: NodePaths) -> None:
        self._plan, self._who, self._paths = plan, who, paths
        self._link: Optional[socket.socket] = None
        self._lines: Any = None
        self._offer: Reply = {}
        self._handed: Dict[str, str] = {}
        self.token = ""
        self.since = 0.0  # when this run began to use it
        self._over = threading.Event()

    @property
    def temp_dir(self) -> Optional[Path]:
        """Ray's folder, once this run uses it."""
        return Path(self._offer["temp_dir"]) if self.since else None

    def look(self, env: Mapping[str, str], base: Mapping[str, str]) -> Reply:
        """Which Ray is kept here, and every reason why this run cannot have it."""
        self._find()
        if not self._offer:
            return {"reasons": ["no held run of this allocation has one on this node"]}
        offer = self._offer
        if "gone" in offer:
            return {"run": offer["run"], "reasons": [offer["gone"]]}
        self.token = str(offer["token"])
        own = {**fitness.terms(self._plan, self._who, of_process(env)), "services beside Ray": []}
        variables, self._handed = fitness.environment(
            offer["env"],
            own_variables(self._plan, env, base),
            offer["folders"],
            own_folders(self._who, self._paths),
        )
        unseen = [f"its container does not show `{path}`" for path in offer["unseen"]]
        row = {key: offer[key] for key in ("run", "address")}
        reasons = [*fitness.differences(offer["terms"], own), *variables, *unseen]
        if not self.token:
            reasons.append("it has no token authentication (Ray 2.52 and newer)")
        return {**row, **self._session(), **self._left(offer, env, reasons)}

    def environment(self, env: Mapping[str, str]) -> Dict[str, str]:
        """`env` for what uses the kept Ray.

        Its processes have the environment of the held run. Each job carries what differs, and a driver that
        gives its jobs variables itself has the last word. Source: ray 2.60, _private/worker.py, `init`.
        """
        return {
            **env,
            "RAY_AUTH_TOKEN": self.token,
            "RAY_TMPDIR": str(self._offer["temp_dir"]),
            "RAY_ADDRESS": str(self._offer["address"]),
            "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": {"env_vars": self._handed}}),
            "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
            "JOBSPEC_KEPT_RAY": str(self._offer["pid"]),
        }

    def use(self, emit: Callable[[Mapping[str, Any]], None]) -> bool:
        """Take it: from now on the held run ends it unless it is given back. `emit` tells of its end."""
        with contextlib.suppress(OSError, ValueError):
            name = f"{self._who.run_dir.parent.name}/{self._who.run_dir.name}"
            if self._ask({"use": name}).get("used"):
                self.since = time.time()
        if self.since:
            threading.Thread(target=self._watch, args=(emit,), daemon=True, name="ray-watch").start()
        return bool(self.since)

    def left(self, env: Mapping[str, str], wait_s: float) -> Reply:
        """What is left of this run in it on this node."""
        try:
            answer = self._ask({"wait_s": wait_s})
            if "gone" in answer:
                return {"reasons": [answer["gone"]]}
            return {**self._session(), **self._left(answer, env, [])}
        except (OSError, ValueError, KeyError) as problem:
            return {"reasons": [f"the held run does not answer on {self._who.name}: {problem}"]}

    def give_back(self) -> None:
        """It is proved clean: it stays."""
        with contextlib.suppress(OSError, ValueError):
            self._ask({"clean": 1})

    def close(self) -> None:
        self._over.set()
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)
            self._link.close()
            self._link = None

    def _watch(self, emit: Callable[[Mapping[str, Any]], None]) -> None:
        """Tell the head when the held run has gone, and Ray with it."""
        while not self._over.wait(0.5):
            if self._running() or self._over.is_set():
                continue
            what = f"the kept Ray of run `{self._offer['run']}` has ended"
            finding = error("ray.ended", what, "that run or its Ray has ended", "see the report of that run")
            emit({"phase": "kept_ray", "finding": finding.to_json()})
            return

    def _running(self) -> bool:
        """The other side says nothing that was not asked for: its end is all that can be read."""
        link = self._link
        with contextlib.suppress(OSError):  # nothing to read within the time of an answer
            return link is not None and link.recv(1, socket.MSG_PEEK) != b""
        return True

    def _left(self, answer: Reply, env: Mapping[str, str], reasons: List[str]) -> Reply:
        gpus: Optional[List[str]] = None
        try:
            gpus = on_gpus(env)
        except (OSError, subprocess.TimeoutExpired) as problem:
            reasons = [*reasons, f"nvidia-smi does not tell of {self._who.name}: {problem}"]
        left = [f"{pid} {line}" for pid, line in answer["left"].items()]
        return {
            "reasons": [*reasons, *fitness.node_left(self._who.name, left, gpus or ())],
            "gpus": gpus is not None,
        }

    def _session(self) -> Reply:
        """Of the folder that this container sees: drivers find Ray's sockets in it."""
        return {"session": Path(os.path.realpath(Path(self._offer["temp_dir"], "session_latest"))).name}

    def _find(self) -> None:
        """The kept Ray of this job on this node."""
        node_local = Path(self._plan.node_local)
        for path in sorted(node_local.glob(f"run-*/{SOCKET}")):
            with contextlib.suppress(OSError, ValueError, KeyError, JobspecError):
                own_folder.check_parent(node_local)
                own_folder.check(path.parent)
                self._connect(path)
                see = [str(self._paths.attempt), str(self._paths.scratch)]
                offer = self._ask({"see": see})
                if offer["job"] == self._who.job_id and offer["node"] == self._who.name:
                    self._offer = offer
                    return
            self.close()

    def _connect(self, path: Path) -> None:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._link = link
        link.settimeout(ANSWER_S)
        link.connect(str(path))
        if not of_same_user(link):
            raise OSError(f"`{path}` is another user's")
        self._lines = link.makefile("rw")

    def _ask(self, message: Mapping[str, Any]) -> Reply:
        """Raises: OSError, ValueError when the held run has gone."""
        if self._link is None:
            raise OSError("it is not connected")
        say(self._lines, message)
        answer: Reply = json.loads(self._lines.readline())
        return answer
