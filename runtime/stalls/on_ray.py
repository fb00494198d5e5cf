"""What Ray's GCS and the titles of its workers say of a stall.

Pure functions; the rules of `explain` that concern Ray.
"""

from __future__ import annotations

import re
from typing import List, Optional, Sequence

from jobspec.runtime.stalls import kinds, waits
from jobspec.runtime.stalls.cohorts import SHOWN, Cohort, View, cohorts, does, ended, where
from jobspec.runtime.stalls.cohorts import begun as just_begun
from jobspec.runtime.stalls.explanation import Explanation
from jobspec.runtime.stalls.phrases import DOES
from jobspec.runtime.stalls.stacks import Process

_BEGUN = re.compile(r"^ray::(?:[^.\s]*:)?([^.:\s]+)\.__init__")
_ACTOR = re.compile(r"an actor `([^`]+)` ")
_METHOD = re.compile(r"^ray::[^.\s(]+\.(\w+)")
_HELD_BACK = (
    "see whether that is a generator whose reader takes no more (`_generator_backpressure_num_objects`): such"
    " a one may hold its actor, which then answers no other call (`max_concurrency`)"
)


def demand(view: View, people: Sequence[Process], groups: Sequence[Cohort]) -> Optional[Explanation]:
    """Resources that Ray does not have, or an actor that is dead, while a process waits for Ray."""
    waiting = [group for group in groups if group.wait.kind in (kinds.RAY, kinds.PLACEMENT)]
    if not waiting:
        return None
    place = waiting[0].wait.place
    met = f"{waiting[0].names} {does(waiting[0])}"
    pending = _without_begun(list(view.ray.get("pending", ())), people)
    if full := list(view.ray.get("full", ())):
        fix = "remove a group that is done with (`remove_placement_group`), end actors, or ask for less"
        why = str(view.ray.get("have", ""))
        what = f"Ray has no room now for {full[0]}, and {met}"
        return Explanation("ray-demand", what, why, fix, named=waiting[0].members, frame=place)
    if pending:
        what = f"Ray has not started {pending[0]}, and {met}"
        asked = any("{" in row for row in pending)
        why = str(view.ray.get("have", "")) if asked else _asked(pending[0], view)
        fix = "ask for less (CPUs, GPUs, memory, labels, strategy), end who holds it, or add nodes with it"
        if "of a placement group" in why:
            fix = "see its bundle (`placement_group_bundle_index`), and who holds that; or ask for less"
        return Explanation("ray-demand", what, why, fix, named=waiting[0].members, frame=place)
    dead = list(view.ray.get("dead", ()))
    again = list(view.ray.get("restarting", ()))
    busy = [one for one in people if one.command.startswith("ray::") and waits.of(one).place is not None]
    if again and all(_BEGUN.match(one.command) for one in busy):
        fix = "look at its log (`logs/<node>/ray`) for why its constructor ends, or does not end"
        return Explanation(
            "ray", f"{again[0]}, and {met}", "", fix, inferred=True, named=waiting[0].members, frame=place
        )
    if dead and not busy:
        what = f"the actor {dead[0]} is dead, no other is seen to run anything, and {met}"
        fix = "look for its end in its log (`logs/<node>/ray`)"
        return Explanation(
            "ray-actor-dead", what, "", fix, inferred=True, named=waiting[0].members, frame=place
        )
    return _queued(view, waiting, busy)


def _asked(actor: str, view: View) -> str:
    """What Ray's demands say of an actor that is not started: the task of its constructor; else nothing."""
    found = _ACTOR.match(actor)
    made = f"{found[1]}.__init__`" if found else actor
    return next((f"no node has room for {row}" for row in view.ray.get("queued", ()) if made in row), "")


def _without_begun(pending: List[str], people: Sequence[Process]) -> List[str]:
    """The rows without those of actors whose constructor runs: these have their resources."""
    for process in people:
        found = _BEGUN.match(process.command)
        begun = next((row for row in pending if found and row.startswith(f"an actor `{found[1]}` ")), None)
        if begun is not None:
            pending.remove(begun)
    return pending


def _queued(view: View, waiting: Sequence[Cohort], busy: Sequence[Process]) -> Optional[Explanation]:
    """Tasks for which no node has room, while nobody works who could leave any. Only where every node gave
    its dump."""
    queued = list(view.ray.get("queued", ())) if view.complete else []
    if not queued or any(waits.of(one).kind not in (kinds.RAY, kinds.PLACEMENT) for one in busy):
        return None
    asks = next((group for group in waiting if group.members[0].command.startswith("ray::")), waiting[0])
    met = f"{asks.names} {does(asks)}{where(asks)}"
    what = f"no node has room for {queued[0]}, no process of Ray is seen at work, and {met}"
    fix = "leave room beside the actors (their `num_cpus`, `num_gpus`), or let the task ask for less"
    return Explanation("ray-demand", what, "", fix, False, True, asks.members, asks.wait.place)


def all_wait(people: Sequence[Process], view: View) -> Optional[Explanation]:
    """Processes that all wait for results of Ray, while no process of the run computes one."""
    waiting = [one for one in people if waits.of(one).kind in (kinds.RAY, kinds.PLACEMENT)]
    if not waiting:
        return None
    actors = [one for one in waiting if one.command.startswith("ray::")]
    said = "; ".join(f"{group.names} {does(group)}{where(group)}" for group in cohorts(actors or waiting)[:4])
    begun = [one for one in people if waits.of(one).place is None and _METHOD.match(one.command)]
    # Who has just begun or ended may work on it, or have done so.
    new = any(one not in waiting for one in [*just_begun(view), *ended(view)])
    nobody = "" if new else "no process of the run is seen to work on it"
    rest = _begun(begun) or nobody
    what = f"{said}, and {rest}" if rest else said
    place = waits.of((actors or waiting)[0]).place
    if len(actors) < 2:
        fix = _HELD_BACK if begun else DOES[kinds.RAY][1]
        return Explanation("ray", what, "", fix, inferred=True, named=tuple(waiting), frame=place)
    fix = "see whether they wait for each other: while all threads of an actor wait it answers nobody"
    made = all(_BEGUN.match(one.command) for one in actors)
    fix = (
        "see whether they wait for each other: no actor answers before its constructor has ended"
        if made
        else (f"{fix} (`max_concurrency`)")
    )
    return Explanation("ray-cycle", what, "", fix, inferred=True, named=tuple(actors), frame=place)


def _begun(processes: Sequence[Process]) -> str:
    """Workers whose title names a method, of which their stacks show nothing: so a generator is held back."""
    said = [
        f"{one.name} has begun `{found[1]}`, and is at no line of the program"
        for one in processes[:SHOWN]
        if (found := _METHOD.match(one.command))
    ]
    return "; ".join(said)
