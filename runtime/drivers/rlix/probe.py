"""Reports which pipelines' `run()` have ended by Ray's records, until somebody kills it.

The probe is a child of `driver`, which waits for pipelines without a Ray of its own. Every `POLL_S` the probe
asks `ray.timeline()`, whose events hold the name of each finished call and what it raised. It prints one JSON
object a line: `{"ended": [{"start", "error", "traceback"}]}`, the oldest first. Where Ray cannot be asked it
prints `{"note": text}` and ends. A `run()` that goes on has no event. Source: Ray 2.60, `ray.timeline`, which
reads the events of tasks; they are on by default.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any, Dict, Iterator, List, Mapping, Sequence

POLL_S = 5.0  # each question waits a second for the newest events
RUN = "task::NemoRLFullFinetunePipeline.run"
BODY = "task:execute"
MAX_TEXT, MAX_ERROR = 20_000, 500

Event = Mapping[str, Any]


def ended(events: Sequence[Event]) -> List[Dict[str, Any]]:
    """The ended runs among the events. Pure."""
    runs = sorted(
        (event for event in events if event.get("cat") == RUN), key=lambda event: float(event["ts"])
    )
    return [_run(event, events) for event in runs]


def _run(event: Event, events: Sequence[Event]) -> Dict[str, Any]:
    # The longest is the run's own; the others are of calls beside it, such as a resize that RLix asked for.
    body = max(_inside(event, events), key=lambda inner: float(inner["dur"]), default=None)
    raised = body["args"] if body is not None and body["args"].get("type") else {}
    return {"start": float(event["ts"]) / 1e6, "error": _error(raised), "traceback": _traceback(raised)}


def _inside(event: Event, events: Sequence[Event]) -> Iterator[Event]:
    """Bodies of calls that began and ended within the run, in its worker."""
    start, end = float(event["ts"]), float(event["ts"]) + float(event["dur"])
    for other in events:
        is_body = other.get("cat") == BODY and other.get("tid") == event.get("tid")
        if is_body and start <= float(other["ts"]) and float(other["ts"]) + float(other["dur"]) <= end:
            yield other


def _error(raised: Mapping[str, Any]) -> str:
    """`RuntimeError: text` of `<class 'RuntimeError'>`, in one line; the traceback has all of it."""
    if not raised:
        return ""
    kind = str(raised["type"]).strip("<>").rpartition(" ")[2].strip("'").rpartition(".")[2]
    text = " ".join(str(raised.get("value", "")).split())
    return f"{kind}: {text}"[:MAX_ERROR] if text else kind


def _traceback(raised: Mapping[str, Any]) -> str:
    return str(raised.get("traceback", ""))[-MAX_TEXT:]


def main() -> int:
    try:
        ray = importlib.import_module("ray")
        ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
        while True:
            sys.stdout.write(json.dumps({"ended": ended(ray.timeline())}) + "\n")
            sys.stdout.flush()
            time.sleep(POLL_S)
    except Exception as problem:  # noqa: BLE001 - the run goes on without an answer
        print(json.dumps({"note": f"{type(problem).__name__}: {problem}"}), flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
