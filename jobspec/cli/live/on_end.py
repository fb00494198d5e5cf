"""`hooks.on_end` of the site profile: somebody is told once, after the report of an ended run is written.

The hooks lie in the run's folder, `on_end.json`, so that the job itself can call them. What they do is in
`on_end.log`, a line each; nothing that they do, or fail to do, touches the verdict. Slurm may kill the job's
last step in the midst of them: whoever sees the end next calls those that have no line.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, TextIO

from jobspec.runs.paths import RunPaths
from jobspec.runtime.base.run_files import parse_json, read_text

FILE, LOG = "on_end.json", "on_end.log"
MAILERS = (("sendmail", "-t"), ("/usr/sbin/sendmail", "-t"))


def tell(run: RunPaths, verdict: Mapping[str, str]) -> None:
    """Call the hooks of an ended run with its report's verdict, unless somebody has; never raises."""
    try:
        hooks = parse_json(read_text(run.root / FILE))
        log = _claimed(run.root / LOG)
    except (OSError, ValueError):
        return
    due = [hook for hook in hooks if _is_due(hook, verdict)] if isinstance(hooks, list) else []
    with suppress(OSError, ValueError), log:  # a full disk; a log that is none
        lines = log.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        log.truncate(len("".join(whole).encode()))
        log.seek(0, os.SEEK_END)
        for hook in due[len(whole) :]:
            try:
                done = _call(hook, run, verdict)
            except Exception as problem:  # noqa: BLE001 - whatever a hook does, the verdict stands
                done = f"failed: {problem or type(problem).__name__}"
            log.write(f"{_name(hook)}: {' '.join(done.split())}\n")
            log.flush()


def _claimed(path: Path) -> TextIO:
    """The log, locked for one process at a time.

    Raises: OSError where another one has it, or a file system without locks does not show whether one has.
    """
    try:
        log, begun = path.open("x+", encoding="utf-8"), False
    except FileExistsError:
        log, begun = path.open("r+", encoding="utf-8"), True
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        if begun or isinstance(problem, BlockingIOError):
            log.close()
            raise
    return log


def _is_due(hook: Mapping[str, Any], verdict: Mapping[str, str]) -> bool:
    return not (hook.get("when") == "not_pass" and verdict["verdict"] == "Pass")


def _name(hook: Mapping[str, Any]) -> str:
    """A hook as the log names it: a webhook's path is often a secret."""
    if hook.get("webhook"):
        url = str(hook["webhook"])
        return f"webhook {url if url.startswith('$') else re.split('[/:?#]+', url)[1]}"
    return f"mail {hook['mail']}" if hook.get("mail") else f"command {hook['command'][0]}"


def _call(hook: Mapping[str, Any], run: RunPaths, verdict: Mapping[str, str]) -> str:
    deadline = int(hook.get("deadline", 10))
    if hook.get("webhook"):
        return _post(str(hook["webhook"]), _message(run, verdict), deadline)
    if hook.get("mail"):
        mailer = next((words for words in MAILERS if shutil.which(words[0])), None)
        if mailer is None:
            return "failed: this machine has no sendmail"
        return _feed(mailer, _mail(str(hook["mail"]), run, verdict), run, verdict, deadline)
    report = run.root / "report.json"
    return _feed(hook["command"], read_text(report) if report.is_file() else "{}", run, verdict, deadline)


def _feed(words: Any, text: str, run: RunPaths, verdict: Mapping[str, str], deadline: int) -> str:
    """Run a command with `text` on its standard input, and end it and its children at the deadline."""
    env = {**os.environ, "JOBSPEC_RUN_DIR": str(run.root), "JOBSPEC_RUN_ID": run.run_id,
           "JOBSPEC_VERDICT": verdict["verdict"]}  # fmt: skip
    process = subprocess.Popen(
        [os.path.expanduser(words[0]), *words[1:]],  # noqa: PTH111
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env,
        cwd=run.root, start_new_session=True, errors="replace",
    )  # fmt: skip
    try:
        said, _ = process.communicate(text, timeout=deadline)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        with process:  # what has left the group may hold the pipe open: nothing more is read
            pass
        return f"ended after {deadline} s"
    lines = said.strip().splitlines()
    return f"exit {process.returncode}" + (f": {lines[-1][:200]}" if lines else "")


def _post(url: str, message: Mapping[str, str], deadline: int) -> str:
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    if url.startswith("$"):
        if url[1:] not in os.environ:
            return f"failed: {url} is not set here"
        url = os.environ[url[1:]]
    if not url.startswith(("https://", "http://")):
        return "failed: the URL is not of http"
    body = json.dumps(message).encode()
    request = Request(url, body, {"Content-Type": "application/json", "User-Agent": "jobspec"})
    said = [f"ended after {deadline} s"]

    def post() -> None:
        try:
            with urlopen(request, timeout=deadline) as answer:
                said[0] = f"HTTP {answer.status}"
        except HTTPError as problem:
            said[0] = f"failed: HTTP {problem.code}"
        except URLError as problem:
            said[0] = f"failed: {problem.reason}"
        except Exception as problem:  # noqa: BLE001 - its words may hold the URL, which is a secret
            said[0] = f"failed: {type(problem).__name__}"

    # The timeout is of each wait; a name server, or an answer byte by byte, takes longer.
    thread = Thread(target=post, daemon=True)
    thread.start()
    thread.join(deadline)
    return said[0]


def _message(run: RunPaths, verdict: Mapping[str, str]) -> dict[str, str]:
    word = verdict["verdict"] or "no verdict"
    text = f"{run.name} {run.run_id}: {word}" + (f", {verdict['reason']}" if verdict["reason"] else "")
    return {"text": text, "name": run.name, "run_id": run.run_id, "run_dir": str(run.root), **verdict}


def _mail(to: str, run: RunPaths, verdict: Mapping[str, str]) -> str:
    subject = " ".join(_message(run, verdict)["text"].split())[:200]
    report = Path(run.root / "report.txt")
    return f"To: {to}\nSubject: {subject}\n\n{read_text(report) if report.is_file() else subject}\n"
