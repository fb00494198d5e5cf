"""Who ends and who begins between the two samples: that is no process that stands, and may be a retry."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Sequence, Tuple

from jobspec.runtime.stalls import kinds
from jobspec.runtime.stalls.cohorts import View, begun, ended, is_service, names, rests, role
from jobspec.runtime.stalls.explanation import Explanation
from jobspec.runtime.stalls.stacks import Process

_WORKER = "ray/_private/workers/default_worker.py"
_AGAIN = "see whether that is tried again each time it ends: look for the end of one in "
_RAYS = "Ray's logs (`logs/<node>/ray`), and at `max_retries` of its task or `max_restarts` of its actor"


def successors(view: View) -> List[Tuple[Process, Process]]:
    """Who has ended between the samples, each with one of the same kind and parent that has begun."""
    free, found = begun(view), []
    for gone in ended(view):
        heir = next((one for one in free if _alike(gone, one)), None)
        if heir is not None:
            free.remove(heir)
            found.append((gone, heir))
    return found


def add(found: Explanation, view: View) -> Explanation:
    """The explanation with what came and went; Ray's rows tell which task or actor it is that comes again."""
    pairs = [pair for pair in successors(view) if pair[1] not in found.named]
    alone = [one for one in begun(view) if _is_rays(one) and one not in found.named]
    gone, heirs = [one for one, _ in pairs], [one for _, one in pairs] or alone
    rays = bool(heirs) and all(map(_is_rays, heirs))
    rows = [str(row) for key in ("retried", "restarting") for row in view.ray.get(key, ())] if rays else []
    if not pairs and not rows:  # the one before may have ended before the first sample
        return found
    told = f"{names(heirs)} began between the two samples"
    if pairs:
        each = "both" if len(pairs) == 1 else "all"
        kind = f"{each} are workers of Ray" if rays else "with a command like it"
        kind = "of the same rank" if gone[0].rank and not rays else kind
        told = f"{names(gone)} ended between the two samples, and {names(heirs)} began ({kind})"
    said = f"; Ray says: {'; '.join(rows[:3])}" if rows else ""
    fix = f"{_AGAIN}{_RAYS if rays else 'the log'}"
    fix = fix if found.kind in (kinds.RAY, "several", "unknown") else found.fix
    return replace(found, what=f"{found.what}; {told}{said}", fix=fix)


def standing(people: Sequence[Process], view: View) -> List[Process]:
    """Those without who began between the samples; all where nobody else is left."""
    new = begun(view)
    return [one for one in people if one not in new] or list(people)


def _alike(gone: Process, new: Process) -> bool:
    if any(is_service(one) or rests(one) for one in (gone, new)):
        return False
    same = (role(gone), gone.rank) == (role(new), new.rank) or (_is_rays(gone) and _is_rays(new))
    return same and gone.node == new.node and gone.facts.get("parent") == new.facts.get("parent")


def _is_rays(process: Process) -> bool:
    return process.command.startswith("ray::") or _WORKER in process.command
