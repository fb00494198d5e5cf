"""The head's part with the Ray that a held run of the allocation has kept: proved fit, used, proved clean."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

from jobspec.finding import error, warning
from jobspec.runtime.head.attempt import Attempt
from jobspec.runtime.head.nodes import DeadlineError
from jobspec.runtime.head.ray_bringup import RayBringUp
from jobspec.runtime.raycluster import fitness, remains

LOOK_S = 60.0  # for all nodes; each waits 20 s at most for the held run's agent and 10 s for nvidia-smi
READY_S = 60.0  # its nodes are known to be alive: this only bounds a Ray that does not answer
WAIT_S = 5.0  # for what a driver has left to end with it
ASKS = "the run asks for a kept Ray (`launch.kept_ray`)"


class KeptRay(RayBringUp):
    """Ray of a held run where that is proved fit, else one of the run's own. Never one that is not proved."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(attempt)
        self._rows: List[Mapping[str, Any]] = []

    def run(self) -> None:
        """Raises: RunStoppedError."""
        attempt = self._attempt
        self._times = attempt.enter("ray")
        rows, reasons = self._ask_nodes("kept_ray", {})
        facts: Mapping[str, Any] = {}
        if all("session" in row for row in rows):
            facts, told = self._ask_gcs(rows, attempt.node.kept_ray_environment(), 0.0)
            reasons = [*told, *reasons]
        calls = attempt.nodes.call_all("use_kept_ray", {"use": not reasons})
        attempt.nodes.settle(calls, LOOK_S)
        if reasons:
            run = next((str(row["run"]) for row in rows if row.get("run")), "")
            attempt.record.find("ray", _own_instead(run, reasons))
            self._start_own()
            return
        if not all((call.reply or {}).get("used") for call in calls):
            attempt.fail("ray", error("ray.not-kept", "the kept Ray was not given to all nodes", ASKS))
        self._rows, gpus = rows, all(row["gpus"] for row in rows)
        self._told = {"kept": {"run": rows[0]["run"], "cluster": facts["cluster"], "gpus_seen": gpus}}
        self._await_probe(str(rows[0]["address"]))

    def _await_probe(self, address: str) -> None:
        attempt, probe = self._attempt, self._start_probe(address)
        try:
            attempt.nodes.wait(lambda: probe.ready or bool(probe.error), READY_S, list)
        except DeadlineError:
            attempt.fail("ray", *self._missing(probe))
        if probe.error:
            attempt.fail("ray", error("ray.not-ready", f"the kept Ray does not answer: {probe.error}", ASKS))

    def stop(self) -> None:
        """Give the kept Ray back, if this run has ended well and left nothing: else the held run ends it."""
        super().stop()
        attempt = self._attempt
        if not self._rows or attempt.cause is not None or attempt.signals:
            return
        run = self._rows[0]["run"]
        _, told = self._ask_gcs(self._rows, attempt.node.env, WAIT_S)
        _, reasons = self._ask_nodes("give_ray_back", {"clean": False, "wait_s": WAIT_S})
        if told or reasons:
            attempt.record.find("collect", _spoiled(run, [*told, *reasons]))
            return
        attempt.nodes.settle(attempt.nodes.call_all("give_ray_back", {"clean": True}), LOOK_S)
        attempt.record.log.emit("collect", "progress", data={"what": "ray kept", "run": run})

    def _ask_nodes(
        self, operation: str, arguments: Mapping[str, Any]
    ) -> Tuple[List[Mapping[str, Any]], List[str]]:
        """What each node says, and why the kept Ray is not fit by that."""
        attempt = self._attempt
        calls = attempt.nodes.call_all(operation, arguments)
        attempt.nodes.settle(calls, LOOK_S)
        rows: List[Mapping[str, Any]] = [call.reply or {} for call in calls]
        told: Dict[str, None] = {}  # nodes of one image have the same reasons
        for index, row in enumerate(rows):
            silent = [f"node {attempt.who.hosts[index]} does not tell"]
            told.update(dict.fromkeys(row.get("reasons", silent)))
        if not told and len({row.get("address") for row in rows}) > 1:
            return rows, ["the nodes have different ones"]
        return rows, list(told)

    def _ask_gcs(
        self, rows: Sequence[Mapping[str, Any]], env: Mapping[str, str], wait_s: float
    ) -> Tuple[Mapping[str, Any], List[str]]:
        """What the GCS says, and why the kept Ray is not fit by that."""
        hosts, sessions = self._attempt.who.hosts, [str(row["session"]) for row in rows]
        facts = remains.ask(str(rows[0]["address"]), hosts, sessions, env, wait_s)
        if "error" in facts:
            return facts, [f"its GCS does not tell: {facts['error']}"]
        return facts, fitness.left(facts, hosts, sessions)


def _own_instead(run: str, reasons: Sequence[str]) -> Any:
    what = f"Ray of run `{run}` was not used: a fresh one was started" if run else "no kept Ray was used"
    fix = "see `launch.kept_ray` in the documentation; a held run keeps its Ray: `launch: {hold: true}`"
    return warning("ray.not-kept", what, "; ".join(reasons), fix)


def _spoiled(run: str, reasons: Sequence[str]) -> Any:
    what = f"this run did not leave the kept Ray of run `{run}` clean, so that was ended"
    return warning("ray.not-kept", what, "; ".join(reasons), "the next run starts one of its own")
