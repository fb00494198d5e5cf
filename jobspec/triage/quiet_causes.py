"""What other lines of the logs add to the end of a run: servers, GPUs and rewards that failed it quietly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jobspec.triage.match import Match
from jobspec.triage.ranking import rank
from jobspec.triage.shown_above import MAX_SHOWN

NO_GPU = "gpu.none"
SERVER = "disk.server-silent"
NOT_LEARNED, FAILED_REWARDS = ("provider.zero-gradient", "provider.zero-score"), "provider.reward-task"
SERVERS = frozenset({SERVER, "disk.lustre-server"})


def with_server(match: Match, found: Sequence[Match]) -> Match:
    """The failure of a disk with what its log says of a server of files that does not answer."""
    silent = next((one for one in found if one.signature in SERVERS and one.file == match.file), None)
    if silent is None or silent is match:
        return match
    return replace(
        match, facts=(*match.facts, f"{silent.file}:{silent.line} shows `{silent.text[:MAX_SHOWN]}`")
    )


def without_gpu(end: Match, matches: Sequence[Match]) -> Match | None:
    """The end of a run in which a process had found no GPU and gone on; None where no line says so."""
    found = next((match for match in matches if match.signature == NO_GPU and match.survived), None)
    if found is None:
        return None
    fact = f"{found.file}:{found.line} says that a process found no GPU: work on the CPU takes far longer"
    return replace(end, facts=(*end.facts, fact))


def without_server(end: Match, matches: Sequence[Match]) -> Match | None:
    """The end of a run of which some node's kernel had said that a file server does not answer; None where no
    line says so."""
    found = next((match for match in matches if match.signature == SERVER and not match.survived), None)
    if found is None or found.time is None or end.time is None or found.time > end.time:
        return None
    fact = f"{found.file}:{found.line}, by its time before that, says: {found.text[:100]}"
    return replace(
        end,
        facts=(*end.facts, fact),
        fix="see whether its last step or save is about as old as that line: if so, it most likely waited for"
        f" that server, and more time does not help: {found.fix}; else: {end.fix}",
    )


def with_failed_rewards(end: Match, matches: Sequence[Match]) -> list[Match]:
    """The matches of a run that did not learn; calls of its reward function that failed come first."""
    failed = next((match for match in matches if match.signature == FAILED_REWARDS), None)
    if failed is None:
        return list(matches)
    fact = f"{end.file}:{end.line}: {end.title}"
    told = replace(failed, survived=False, generic=False, facts=(*failed.facts, fact))
    return rank(told if match is failed else match for match in matches)
