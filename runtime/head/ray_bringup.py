"""The head's part of Ray's bring-up: start it on all nodes, see that all have joined, prove imports in it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

from jobspec.finding import Finding, error, warning
from jobspec.plan import ImportProof
from jobspec.runtime.base.log_tail import tail
from jobspec.runtime.checkouts import imports
from jobspec.runtime.head.attempt import Attempt
from jobspec.runtime.head.nodes import DeadlineError
from jobspec.runtime.raycluster.process import Probe, RayPorts, RayStart, authentication, pick_head_port

if TYPE_CHECKING:
    from jobspec.runtime.head.record import PhaseTimes

ADOPT_S = 120.0  # the script has counted its nodes before: this only bounds a Ray that does not answer
RAYS_OWN_LIMIT_S = 30.0  # after which Ray by itself gives up the start of a node
PROOF_S = 600.0  # an import of Megatron from a loaded shared disk takes minutes


class RayBringUp:
    """Ray of one attempt. `run` returns when every node has joined, `prove` ends the phase."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._probe: Optional[Probe] = None
        self._times: Optional[PhaseTimes] = None
        self._joined: Dict[str, float] = {}  # after how many seconds
        self._told: Mapping[str, Any] = {}  # with the end of the phase

    def run(self) -> None:
        """Raises: RunStoppedError."""
        self._times = self._attempt.enter("ray")
        self._start_own()

    def _start_own(self) -> None:
        attempt, plan = self._attempt, self._attempt.plan
        if plan.ray is None:
            raise ValueError("the plan has no Ray")
        end = time.monotonic() + plan.ray.join_timeout_s
        address = self._address(plan.ray.port)
        calls = []
        for index in attempt.nodes.alive():
            arguments = {
                "start": self._start(index, address).to_json(),
                "deadline_s": plan.ray.join_timeout_s,
            }
            calls.append(attempt.nodes.call(index, "ray", arguments))
        probe = self._start_probe(address)
        attempt.replies("ray", calls, plan.ray.join_timeout_s)
        try:
            attempt.nodes.wait(lambda: probe.ready or bool(probe.error), end - time.monotonic(), list)
        except DeadlineError:
            attempt.fail("ray", *self._missing(probe))
        if probe.error:
            attempt.fail("ray", _probe_failed(probe.error))
        for name, seconds in self._joined.items():
            if seconds > RAYS_OWN_LIMIT_S:
                attempt.record.find("ray", _slow(name, seconds))

    def _address(self, planned_port: int) -> str:
        ports = self._attempt.record.nodes[0]["ports"]
        port, findings = pick_head_port(planned_port, int(ports[-2]), self._attempt.plan.scheduler == "local")
        for finding in findings:
            self._attempt.record.find("ray", replace(finding, node=self._attempt.who.name))
        return f"{self._attempt.ips[0]}:{port}"

    def _start(self, index: int, address: str) -> RayStart:
        row = self._attempt.record.nodes[index]
        ports = RayPorts(*(int(port) for port in row["ports"][: len(RayPorts.__dataclass_fields__)]))
        temp_dir = str(self._attempt.node.paths.ray)
        return RayStart(str(row["name"]), str(row["ip"]), address, index == 0, ports, temp_dir, index)

    def _planned_gpus(self) -> Dict[str, int]:
        """GPUs of each node's Ray by the node's name."""
        return {name: self._attempt.plan.ray_gpus_of(i) for i, name in enumerate(self._attempt.who.hosts)}

    def _start_probe(self, address: str) -> Probe:
        attempt = self._attempt
        log = attempt.node.paths.logs / "ray-probe.log"
        probe = Probe(address, self._planned_gpus(), attempt.node.env, log)
        self._probe = probe

        start = time.time()

        def wake() -> None:
            for name in sorted(set(probe.alive) - set(self._joined)):
                self._joined[name] = seconds = time.time() - start
                attempt.record.log.emit("ray", "end", node=name, outcome="ok", seconds=seconds)
            with attempt.nodes.changed:
                attempt.nodes.changed.notify_all()

        threading.Thread(target=probe.read, args=(wake,), daemon=True, name="ray-probe").start()
        return probe

    def _missing(self, probe: Probe) -> List[Finding]:
        """One finding for every node that has not joined, or has fewer GPUs than planned."""
        attempt, ray = self._attempt, self._attempt.plan.ray
        timeout = ray.join_timeout_s if ray is not None else 0.0
        findings = []
        for name in probe.missing():
            last = tail(attempt.node.paths.attempt / "logs" / name / "ray.log") or "its ray.log is empty"
            findings.append(
                error(
                    "ray.absent",
                    f"node `{name}` has not joined Ray within {timeout:.0f} s",
                    attempt.node.redactor.text(last),
                    "see its ray.log; check that the nodes reach each other on `network.ray_ports`",
                    node=name,
                )
            )
        gpus = self._planned_gpus()
        for name, resources in probe.alive.items():
            planned, visible = gpus.get(name, 0), int(resources.get("GPU", 0))
            if visible < planned:
                what = f"Ray sees {visible} GPUs on node `{name}`, {planned} are planned"
                findings.append(
                    error("ray.gpus", what, node=name, fix="check the job's GPU request on this node")
                )
        return findings or [_probe_failed("no answer from Ray's GCS")]

    def prove(self, proofs: Sequence[ImportProof]) -> None:
        """Import the proved modules in a Ray task on every node; ends the phase. Raises: RunStoppedError."""
        attempt, probe = self._attempt, self._probe
        if probe is None or self._times is None:
            raise ValueError("`run` comes first")
        probe.ask_imports([proof.module for proof in proofs])
        if proofs:
            try:
                attempt.nodes.wait(lambda: bool(probe.imports or probe.error), PROOF_S, list)
            except DeadlineError:
                attempt.fail("ray", _probe_failed(f"the import proof has not ended within {PROOF_S:.0f} s"))
            if probe.error:
                attempt.fail("ray", _probe_failed(probe.error))
            self._judge(proofs, probe.imports)
        attempt.record.end(self._times, "ok", {"nodes": sorted(probe.alive), **self._told})

    def _judge(self, proofs: Sequence[ImportProof], reports: Sequence[Mapping[str, Any]]) -> None:
        errors: List[Finding] = []
        for report in reports:
            for finding in imports.judge(proofs, {**report, "host": report["node"]}):
                self._attempt.record.find("ray", finding)
                if finding.is_error:
                    errors.append(finding)
        if errors:
            self._attempt.fail("ray", *errors)

    def stop(self) -> None:
        if self._probe is not None:
            self._probe.stop()


class AdoptedRay(RayBringUp):
    """Ray that the framework's own script has started: it is looked at, and neither started nor ended."""

    def run(self) -> None:
        """Raises: RunStoppedError."""
        attempt = self._attempt
        self._times = attempt.enter("ray")
        _, findings = authentication(attempt.node.env)
        errors = attempt.note("ray", 0, {"findings": [finding.to_json() for finding in findings]})
        if errors:
            attempt.fail("ray", *errors)
        probe = self._start_probe("auto")
        try:
            attempt.nodes.wait(lambda: probe.ready or bool(probe.error), ADOPT_S, list)
        except DeadlineError:
            attempt.fail("ray", *(_not_in_ray(name) for name in probe.missing() or attempt.who.hosts[:1]))
        if probe.error:
            attempt.fail("ray", _probe_failed(probe.error))


def _slow(name: str, seconds: float) -> Finding:
    return warning(
        "ray.slow",
        f"Ray on node `{name}` needed {seconds:.0f} s to start",
        f"the node or its disk is busy: by itself Ray gives up after {RAYS_OWN_LIMIT_S:.0f} s",
        "see what else runs on the node",
        node=name,
    )


def _not_in_ray(name: str) -> Finding:
    return error(
        "ray.absent",
        f"node `{name}` is not in the Ray that the framework's script has started",
        "its Ray has ended, or has another host name",
        "see ray-attempt.log and ray-worker-*.log in the log folder of the script",
        node=name,
    )


def _probe_failed(reason: str) -> Finding:
    return error(
        "ray.not-ready",
        f"Ray does not answer: {reason}",
        "its head process runs, but its services do not",
        "see ray.log and ray-probe.log of the head node",
    )
