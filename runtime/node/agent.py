"""The work of one node. The head asks for operations by name; each takes and returns plain JSON data.

`Node` knows nothing of the other nodes, of phases, or of the order of things: that is `head`'s.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from jobspec.finding import Finding, JobspecError, error
from jobspec.plan import Plan
from jobspec.runtime.base import network, own_folder
from jobspec.runtime.base.channel import candidate_ports
from jobspec.runtime.base.full_disk import refusal
from jobspec.runtime.base.identity import (
    Identity,
    NodePaths,
    node_paths,
    program_environment,
    ray_token,
    stage_token,
    stage_variable,
)
from jobspec.runtime.base.procs import end_all, leftovers, started
from jobspec.runtime.base.redact import Redactor
from jobspec.runtime.base.safe_write import write_text
from jobspec.runtime.node import (
    borrowed_ray,
    code,
    collect,
    command_run,
    gpu_sampler,
    own_ray,
    preflight,
    reporter,
    standing,
)
from jobspec.runtime.node import facts as node_facts
from jobspec.runtime.node.facts import Facts
from jobspec.runtime.node.leftovers import remove as remove_leftovers
from jobspec.runtime.node.services import Services
from jobspec.runtime.node.sweep import claim, sweep_beside
from jobspec.runtime.raycluster import process
from jobspec.runtime.staging import loading, swarm

Reply = Dict[str, Any]
Emit = Callable[[Mapping[str, Any]], None]
# The operations that a run ends with.
ENDING = ("stop_command", "stop_services", "collect", "stage_end", "stop")


class Node:
    """One node's state: its paths, environment, Ray and running command."""

    def __init__(self, plan: Plan, who: Identity, env: Mapping[str, str], emit: Emit) -> None:
        """`emit` carries progress and bad news to the head between replies; any thread may call it."""
        self.plan = plan
        self.who = who
        self.paths: NodePaths = node_paths(plan, who)
        secrets = dict(env)
        if plan.upstream is None:  # else the script's Ray has the token that the environment holds
            secrets["RAY_AUTH_TOKEN"] = ray_token(who.token)
        self.redactor = Redactor.from_environment(plan.passed, secrets)
        self.env: Dict[str, str] = {}
        self._base = dict(env)
        self._gpus = 0
        self._claim: Optional[int] = None  # open as long as the folders are in use
        self._swarm: Optional[swarm.Swarm] = None
        self._emit = emit
        self._ray = own_ray.OwnRay(plan, who, self.paths, self.redactor, emit)
        self._kept_ray = borrowed_ray.Borrowed(plan, who, self.paths)
        self._command: Optional[command_run.CommandRun] = None
        self._command_lock = threading.Lock()
        self._services = Services(plan, who, self.paths.logs, self.redactor, emit)
        self._no_more = False  # whoever stops a command ends the run: none may start after that
        self._stopping = threading.Event()
        counters = standing.Counters()
        self._operations: Dict[str, Callable[[Mapping[str, Any]], Reply]] = {
            "preflight": self.preflight,
            "code": self.compare_code,
            "stage": self.stage,
            "stage_end": self.end_stage,
            "helpers": self.helpers,
            "imports": self.imports,
            "ray": self.start_ray,
            "keep_ray": self.keep_ray,
            "kept_ray": self.look_at_kept_ray,
            "use_kept_ray": self.use_kept_ray,
            "give_ray_back": self.give_ray_back,
            "place_services": self.place_services,
            "service": lambda arguments: self._services.start(arguments, self.env),
            "command": self.run_command,
            "counters": lambda _: counters.read(self.plan, self.env),
            "dump": lambda _: standing.sample(
                self.plan, self.who, self.env, self.redactor, self._services.pids()
            ),
            "stop_command": self.stop_command,
            "stop_services": lambda arguments: self._services.stop(float(arguments["grace_s"])),
            "stop": self.stop,
            "collect": self.collect,
        }

    def handle(self, operation: str, arguments: Mapping[str, Any]) -> Reply:
        """Run one operation; whatever goes wrong comes back as findings."""
        if self._stopping.is_set() and operation not in ENDING:
            return {"findings": []}  # its thread stood still until now: nobody would remove what it makes
        start = time.monotonic()
        try:
            reply = self._operations[operation](arguments)
            if operation != "counters":  # asked for every few seconds
                self.say(f"{operation} done in {time.monotonic() - start:.2f} s")
            return reply
        except JobspecError as problem:
            return {"findings": [finding.to_json() for finding in problem.findings]}
        except OSError as problem:
            where = f" (`{problem.filename}`)" if problem.filename else ""
            why, fix = refusal(problem)
            finding = error(f"{operation}.io", f"{operation} failed on this node: {why}{where}", fix=fix)
            return {"findings": [finding.to_json()]}
        except Exception:  # noqa: BLE001 - the head must hear of a bug here, or it would wait for ever
            self.say(traceback.format_exc())
            last = traceback.format_exc().strip().splitlines()[-1]
            what = f"{operation} failed on this node: {last}"
            finding = error("runtime.bug", what, "this is a bug in jobspec", "see agent.log of this node")
            return {"findings": [finding.to_json()]}

    def say(self, text: str) -> None:
        """A line in this node's agent.log; where that cannot be written, on stderr."""
        line = self.redactor.text(f"{time.strftime('%H:%M:%S')} {text}\n")
        try:
            self.paths.logs.mkdir(parents=True, exist_ok=True)
            with (self.paths.logs / "agent.log").open("a", errors="surrogateescape") as file:
                file.write(line)
        except OSError:
            sys.stderr.write(f"jobspec: {self.who.name}: {line}")

    def preflight(self, arguments: Mapping[str, Any]) -> Reply:
        sweep_beside(Path(self.plan.node_local), self.say)
        facts = node_facts.gather(
            self.plan,
            self.who,
            self.paths,
            nonce=str(arguments["nonce"]),
            # On the head itself there is no other clock.
            clock_skew_s=float(arguments.get("arrived", arguments["time"])) - float(arguments["time"]),
            reached=str(arguments["reached"]),
            env=self._base,
        )
        self._gpus = facts.gpus
        findings = list(preflight.check(self.plan, facts, self.who.index))
        if not any(finding.is_error for finding in findings):
            findings.extend(self._prepare(facts))
        return {
            "ip": facts.ip,
            "gpus": facts.gpus,
            "cpus": facts.cpus,
            "ports": list(facts.ports),
            "service_ports": dict(facts.service_ports),
            "stage_port": self._swarm.port if self._swarm is not None else 0,
            "facts": facts.to_json(),
            "findings": _json(findings),
        }

    def _prepare(self, facts: Facts) -> Sequence[Finding]:
        """Folders, environment and pid file; done once preflight knows that they can be made."""
        from jobspec.runtime.staging.listed import make_home

        self._claim = claim(self.paths.agents, self.paths.scratch)
        for folder in (self.paths.stage_links, self.paths.helpers, self.paths.scratch / "flight"):
            own_folder.make(folder)
        for folder in (
            self.paths.logs,
            self.paths.metrics,
            self.paths.artifacts,
            Path(self.paths.checkpoint),
        ):
            folder.mkdir(parents=True, exist_ok=True)
        hf_home = make_home(self.plan.node_local) if self.plan.stage else ""
        env = program_environment(self.plan, self.who, self.paths, self._base, hf_home)
        env["JOBSPEC_AGENT_PID"] = str(os.getpid())
        env.update(self._services.keep_gpus(env, facts.gpus))
        if self.plan.nodes > 1:
            configured = bool(self.plan.interface or self.plan.subnet)
            env = {**network.socket_interfaces(facts.addresses, facts.ip or "", configured), **env}
        findings: Sequence[Finding] = ()
        if self.plan.ray is not None:
            env, findings = process.authentication(env)
        self.env = env
        self._write_pid_file()
        if self.plan.nodes > 1 and any(item.node_local for item in self.plan.stage):
            token = stage_token(self.who.token)
            self._swarm = swarm.Swarm(self.who.index, token, self._reporter("stage"))
            # Without a free candidate any port will do: the head tells the others.
            self._swarm.listen([*candidate_ports(f"{self.who.key}|stage"), 0])
        return findings

    def _write_pid_file(self) -> None:
        """For `exec`: nothing secret is in it, those are read from the agent's own environment."""
        if self._stopping.is_set():  # `stop` has removed it
            return
        hidden = {*self.plan.passed, "RAY_AUTH_TOKEN", "JOBSPEC_TOKEN"}
        changed = {k: v for k, v in self.env.items() if k not in hidden and self._base.get(k) != v}
        record = {
            "made": [[noted.below, noted.note] for noted in self.plan.made],
            "pid": os.getpid(),
            "started": started(os.getpid()),
            "run_dir": str(self.who.run_dir),
            "attempt": self.who.attempt,
            "env": changed,
        }
        write_text(self.paths.pid_file, json.dumps(record), mode=0o600)

    def compare_code(self, arguments: Mapping[str, Any]) -> Reply:
        return code.compare(self.plan.repos, self.paths.attempt / "patches")

    def stage(self, arguments: Mapping[str, Any]) -> Reply:
        from jobspec.runtime.node.stage import stage

        peers = [swarm.Peer(*peer) for peer in arguments["peers"]]
        result = stage(self.plan, self.env, self._base, self._swarm, peers, self._reporter("stage"))
        for item in self.plan.stage:
            ready = result.ready.get(item.env or item.name)
            if ready is not None:
                own_folder.link(self.paths.stage_link(item), ready)
        variables = {
            stage_variable(item): result.ready.get(item.env or item.name, "") for item in self.plan.stage
        }
        moved = {"bytes": result.bytes, "received": result.received}
        findings = list(result.findings)
        if self.who.index == 0 and result.ok:  # all nodes have the same bytes
            findings += loading.load_all(self.plan.stage, result.ready, sys.executable, self.env, self.say)
        return {**moved, "cached": result.cached, "ready": variables, "findings": _json(findings)}

    def end_stage(self, arguments: Mapping[str, Any]) -> Reply:
        """All nodes have all files: nobody is served any more. Idempotent."""
        if self._swarm is not None:
            self._swarm.close()
        return {}

    def helpers(self, arguments: Mapping[str, Any]) -> Reply:
        from jobspec.runtime.node.helpers import build

        return build(self.plan, self.paths, self.env, self._reporter("helpers"))

    def imports(self, arguments: Mapping[str, Any]) -> Reply:
        from jobspec.plan import ImportProof
        from jobspec.runtime.checkouts import imports

        proofs = [*self.plan.proofs, *(ImportProof(**extra) for extra in arguments["more"])]
        result = imports.prove(proofs, sys.executable, self.env)
        return {"files": dict(result.files), "findings": _json(result.findings)}

    def start_ray(self, arguments: Mapping[str, Any]) -> Reply:
        findings = self._ray.start(arguments, self.env)
        if not findings:  # for commands and `exec`; `ray start` itself must not see it
            self.env = {**self.env, "RAY_ADDRESS": str(arguments["start"]["address"])}
            self._write_pid_file()
        return {"findings": _json(findings)}

    def keep_ray(self, arguments: Mapping[str, Any]) -> Reply:
        self._ray.keep(bool(arguments["offered"]), self._base)
        return {}

    def look_at_kept_ray(self, arguments: Mapping[str, Any]) -> Reply:
        reply = self._kept_ray.look(self.env, self._base)
        self.redactor.learn("RAY_AUTH_TOKEN", self._kept_ray.token)
        return reply

    def kept_ray_environment(self) -> Dict[str, str]:
        """The environment of what uses the kept Ray that was looked at."""
        return self._kept_ray.environment(self.env)

    def use_kept_ray(self, arguments: Mapping[str, Any]) -> Reply:
        """Take it, or leave it for a Ray of the run's own."""
        used = bool(arguments["use"]) and self._kept_ray.use(self._emit)
        if used:
            self.env = self.kept_ray_environment()
            self._write_pid_file()
        else:
            self._kept_ray.close()
        return {"used": used}

    def give_ray_back(self, arguments: Mapping[str, Any]) -> Reply:
        """What the run has left in the kept Ray here; or nothing was left anywhere, and so it stays."""
        if not arguments["clean"]:
            return self._kept_ray.left(self.env, float(arguments["wait_s"]))
        self._kept_ray.give_back()
        return {}

    def place_services(self, arguments: Mapping[str, Any]) -> Reply:
        self.env = {**self.env, **self._services.place(arguments["places"], self.env)}
        self._write_pid_file()
        return {}

    def run_command(self, arguments: Mapping[str, Any]) -> Reply:
        index, tested = int(arguments["index"]), arguments["phase"] == "checks"
        command = (self.plan.checks if tested else self.plan.commands)[index]
        ranks = command_run.Ranks(
            self.who.index, self.plan.nodes, command.tasks_per_node, **arguments["master"]
        )
        env = {**self.env, **arguments["env"]}
        kills = command_run.oom_kills()
        # Tests provoke errors on purpose: in the job's log their lines would be taken for the run's own.
        echo = self.who.is_head and not tested
        run = command_run.CommandRun(command, index, self.paths.logs, self.redactor, echo)
        with self._command_lock:
            if self._no_more:
                return {"ended": [], "findings": []}
            self._command = run
        with gpu_sampler.sampling(self.paths.metrics / f"gpu-{self.who.name}.jsonl", self._gpus, env):
            ended, findings = run.run(env, ranks)
        self._command = None
        all_findings = list(findings)
        if command_run.oom_kills() > kills:
            all_findings.append(
                error(
                    "driver.out-of-memory",
                    f"the kernel ended processes of command `{command.name}`: out of memory",
                    "the job's memory limit was reached on this node",
                    "ask for more memory (`resources.memory`), or make the batch smaller",
                )
            )
        return {"ended": command_run.ended_json(ended), "findings": _json(all_findings)}

    def stop_command(self, arguments: Mapping[str, Any]) -> Reply:
        with self._command_lock:
            self._no_more = True
            command = self._command
        if command is not None:
            command.stop(float(arguments["grace_s"]))
        return {}

    def stop(self, arguments: Mapping[str, Any]) -> Reply:
        """End the command and Ray, and see that nothing else is left. Idempotent."""
        self._stopping.set()
        self._ray.leave()
        self.end_stage({})
        self.stop_command({"grace_s": 1.0})
        self._services.stop(1.0)
        if arguments.get("keep_ray_logs"):
            self._copy_ray_logs()
        self._ray.stop()
        self._kept_ray.close()
        left = leftovers()
        stubborn = end_all(left, 0.5)
        for name in ("ray.log", "ray-probe.log"):  # written by their programs themselves
            collect.redact_in_place(self.paths.logs / name, self.redactor)
        return {"ended": len(left), "left": sorted(stubborn)}

    def _copy_ray_logs(self) -> None:
        own = self.paths.ray if self._ray.there else process.DEFAULT_TEMP_DIR if self.plan.upstream else None
        source = self._kept_ray.temp_dir or own
        if source is not None:
            collect.copy_ray_logs(source, self.paths.logs / "ray", self.redactor, self._kept_ray.since)

    def collect(self, arguments: Mapping[str, Any]) -> Reply:
        folders = collect.Folders(
            attempt=str(self.paths.attempt) if self.who.is_head else "",
            checkpoint=self.paths.checkpoint if self.who.is_head else "",
            scratch=str(self.paths.scratch),
            cwds=tuple(dict.fromkeys(c.cwd for c in self.plan.commands if c.cwd)) if self.who.is_head else (),
        )
        target = self.paths.artifacts if self.who.is_head else self.paths.artifacts / self.who.name
        result = collect.collect(
            self.plan.collect.patterns,
            folders,
            target,
            self.redactor,
            max_bytes=self.plan.collect.max_bytes // max(1, self.plan.nodes),
            deadline_s=float(arguments["deadline_s"]),
        )
        return result.to_json(self.paths.artifacts, self.who.name)

    def close(self) -> None:
        """Stop everything and remove what only this run needs."""
        self.stop({})
        left = remove_leftovers(self.plan.made, self.paths.attempt)  # the programs in it have ended now
        if left:
            self.say(f"could not be removed: {', '.join(left)}")
        self.paths.pid_file.unlink(missing_ok=True)
        shutil.rmtree(self.paths.scratch, ignore_errors=True)
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None

    def _reporter(self, phase: str) -> reporter.Report:
        return reporter.reporter(phase, self.plan.nodes, self._emit)


def _json(findings: Sequence[Finding]) -> List[Dict[str, Any]]:
    return [finding.to_json() for finding in findings]
