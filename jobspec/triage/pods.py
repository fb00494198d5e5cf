"""Whether a pod went on after an event of Kubernetes that tells of a failure: it tries again by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

POD_LINES = 400  # that `kubectl describe` prints of one pod
_EVENT = re.compile(rb"\bWarning +(?:Failed\w*|BackOff)\b")
_POD = re.compile(rb"\bpod/([\w.-]+)")
_NEXT_POD = re.compile(rb"^Name: +\S")  # of `kubectl describe` of several
_STATUS = re.compile(rb"^Status: +(?:Running|Succeeded)\s*$")
_ENDED_WELL = re.compile(rb"[ ./]([\w-]+) exited with code 0\s*$")  # of the training operator
_STARTED = re.compile(rb"\bNormal +Started\b")
_SCHEDULED = re.compile(rb"\bSuccessfully assigned \S+ to |\bNormal +(?:Scheduled|Started)\b")
# The kubelet mounts volumes and makes the sandbox before it pulls an image.
_PULLS = re.compile(rb"\bNormal +(?:Pulling|Pulled|Created|Started)\b")
# Failures before any container of the pod runs, and the event that shows that they are over.
_BEFORE_START = {b"FailedScheduling": _SCHEDULED, b"FailedMount": _PULLS, b"FailedCreatePodSandBox": _PULLS}


def is_event(line: bytes) -> bool:
    return _EVENT.search(line) is not None


def went_on(lines: Sequence[bytes], offset: int) -> bool:
    """Whether the lines show that what failed by the event of `lines[offset]` came about later."""
    over = next((sign for word, sign in _BEFORE_START.items() if word in lines[offset]), None)
    if over is not None and _has_started(lines, offset):
        return True
    pod = _pod(lines[offset])
    own = takewhile(lambda line: not _NEXT_POD.match(line), lines[offset + 1 :])
    sign = over or _STARTED
    return any(
        (_pod(line) == pod and sign.search(line)) or (pod and _ended_well(line) == pod) for line in own
    )


def _has_started(lines: Sequence[bytes], offset: int) -> bool:
    """Whether `kubectl describe` says above its event that a container of the pod runs or ran."""
    above = takewhile(
        lambda line: not _NEXT_POD.match(line), reversed(lines[max(0, offset - POD_LINES) : offset])
    )
    return any(_STATUS.match(line) for line in above)


def _pod(line: bytes) -> bytes:
    """The pod that an event is of; empty in `kubectl describe`, which tells of one pod alone."""
    found = _POD.search(line)
    return found[1] if found else b""


def _ended_well(line: bytes) -> bytes:
    """The pod of which the event says that its program ended well."""
    found = _ENDED_WELL.search(line)
    return found[1] if found else b""
