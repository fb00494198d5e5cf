"""The user's list of nodes to avoid, kept by the reports of the user's own runs."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from jobspec.finding import JobspecError, one_line
from jobspec.runs.paths import RunPaths

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence


def keep_off(run: RunPaths, evidence: Evidence) -> None:
    """Put the nodes that the run's files name as broken beyond doubt on the list, once for each attempt.

    Of runs alone that this user has started, in a home that knows of them. Nothing that goes wrong here
    touches the verdict.
    """
    from jobspec.cli.consent import is_own
    from jobspec.judging.named_nodes import named_nodes
    from jobspec.runs.avoided import DAY, add_once

    latest = time.time() + DAY  # whatever the clock of the run's nodes says
    entries = [found.entry(evidence) for found in named_nodes(evidence) if found.automatic]
    named = [replace(entry, until=min(entry.until, latest)) for entry in entries]
    if not named or not is_own(run.lock):
        return
    try:
        add_once(os.environ, named)
    except JobspecError as problem:
        why = problem.findings[0]
        print(one_line(f"{why.what}: {why.why}; {why.fix}"), file=sys.stderr)
    except OSError as problem:
        print(f"the list of nodes to avoid cannot be written: {problem.strerror}", file=sys.stderr)
