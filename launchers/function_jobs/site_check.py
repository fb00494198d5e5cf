"""Prove a site profile: a small function job on its nodes looks at what the profile claims.

submitit carries the function to the nodes (Slurm) or to a child process (local); the function itself is
standard library only, since the nodes' Python may have nothing else.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.finding import Finding, error, fail, warning
from jobspec.launchers.function_jobs.container_check import Start, judge_container, start_container
from jobspec.launchers.function_jobs.submit import await_end, last_words, new_executor, submit
from jobspec.launchers.reach import reach

if TYPE_CHECKING:
    from jobspec.spec.site import ClusterProfile

POLL_S = 0.5
# Less than this on the node-local disk cannot hold a model of any size.
MIN_FREE_BYTES = 1024**3
# Below Linux's range of ephemeral ports, and out of Ray's and Slurm's way.
FIRST_PORT, PORTS = 21000, 4000
NO_TORCH = "this Python has no torch"


@dataclass(frozen=True)
class ProbeResult:
    """Facts of each node, and what is wrong with the profile."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    findings: tuple[Finding, ...] = ()


def count_gpus() -> int:
    """NVIDIA GPUs of this machine."""
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def probe(canary: str, node_local: str, hf_home: str) -> dict[str, Any]:
    """What one node sees. Touches a folder of its own below `node_local` and removes it again."""
    local = Path(node_local)
    try:
        scratch = local / f"probe-{os.getpid()}"
        scratch.mkdir(parents=True)
        scratch.rmdir()
        writable = ""
    except OSError as problem:
        writable = str(problem)
    place = next(folder for folder in (local, *local.parents) if folder.exists())
    return {
        "host": socket.gethostname(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": count_gpus(),
        "canary": Path(canary).is_file(),
        "node_local_problem": writable,
        "node_local_free": shutil.disk_usage(place).free,
        "hf_home": (not hf_home) or Path(hf_home).is_dir(),
        "container": [
            name for name in ("enroot", "podman", "apptainer", "ch-run", "bwrap") if shutil.which(name)
        ],
    }


def reduce_all(gpus: int, env: Mapping[str, str], job: str) -> dict[str, Any] | None:
    """The result of an all-reduce over the GPUs of every node of this job; None where there is none.

    Each node of the job calls this. A single GPU in all has no peer, and gives None.
    """
    import importlib.util

    from jobspec.launchers.function_jobs import allreduce

    hosts, node = _place()
    if gpus * len(hosts) < 2:
        return None
    if importlib.util.find_spec("torch") is None:
        return asdict(allreduce.Reduced(gpus * len(hosts), problem=NO_TORCH))
    port = FIRST_PORT + zlib.crc32(job.encode()) % PORTS
    reduced = allreduce.run_node(hosts, node, gpus, env, port)
    return None if reduced is None else asdict(reduced)


def _place() -> tuple[list[str], int]:
    """The job's nodes and this one's place among them."""
    import submitit

    here = submitit.JobEnvironment()
    return (["127.0.0.1"], 0) if here.num_nodes == 1 else (list(here.hostnames), int(here.node))


def probe_node(
    canary: str, node_local: str, hf_home: str, env: Mapping[str, str], start: Start | None
) -> dict[str, Any]:
    """What one node sees, whether a container starts, and an all-reduce over the GPUs of all nodes."""
    facts = {**probe(canary, node_local, hf_home), "internet": asdict(reach({**os.environ, **env}))}
    started = start_container(start) if start is not None else None
    return {**facts, "started": started, "all_reduce": reduce_all(int(facts["gpus"]), env, canary)}


def check_cluster(
    profile: ClusterProfile, nodes: int, timeout_s: float, start: Start | None = None
) -> ProbeResult:
    """Run `probe` on nodes of the cluster and compare with the profile; `start` starts a container there.

    Raises: JobspecError when submitit is missing, the cluster is behind SSH, or the job does not end in time.
    """
    if profile.access.login != "here":
        raise fail(
            "check.remote",
            f"the profile's login node is `{profile.access.login}`",
            why="the check sends a Python function to the nodes, which needs the same Python there",
            fix="run `jobspec cluster check` on that login node, with a copy of the profile without `access`",
        )
    runs = Path(os.path.expandvars(profile.paths.runs)).expanduser().absolute()
    folder = runs / ".check" / uuid.uuid4().hex[:12]
    canary = folder / "canary"
    try:
        folder.mkdir(parents=True)
        canary.write_text("seen from the login node\n", encoding="ascii")
    except OSError as problem:
        why = f"{problem.strerror or problem}: {problem.filename}"
        fix = "choose a folder that you may write"
        what = f"`paths.runs` ({profile.paths.runs}) cannot be written from here"
        raise fail("check.runs", what, why, fix, path="paths.runs") from problem
    try:
        hf_home, env = profile.paths.hf_home or "", dict(profile.env)
        arguments = (str(canary), profile.paths.node_local, hf_home, env, start)
        facts = _run(profile, folder, nodes, timeout_s, arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return ProbeResult(facts, tuple(finding for node in facts for finding in judge_node(profile, node)))


def _run(
    profile: ClusterProfile, folder: Path, nodes: int, timeout_s: float, arguments: tuple[Any, ...]
) -> list[dict[str, Any]]:
    logs, missing = folder / "%j", "check.no-submitit"
    executor = new_executor(profile, logs, "jobspec-check", timeout_s, missing=missing, nodes=nodes)
    if profile.scheduler != "slurm":
        # submitit hides the GPUs of this machine from a local job that asks for none.
        executor.update_parameters(gpus_per_node=count_gpus())
    elif gpu_request := _gpu_request(profile):
        executor.update_parameters(slurm_additional_parameters=gpu_request)
    import submitit

    job = submit(executor, "check.refused", probe_node, *arguments)
    try:
        if state := await_end(job, timeout_s, POLL_S):
            raise fail(
                "check.timeout",
                f"the check's job {job.job_id} did not end within {timeout_s:.0f} s",
                why=f"its state is {state}",
                fix="wait for free nodes, and give more time by `--timeout`",
            )
        return list(job.results())
    except (submitit.core.utils.FailedJobError, submitit.core.utils.UncompletedJobError) as problem:
        raise fail(
            "check.failed",
            f"the check's job {job.job_id} failed",
            why=last_words(job.stderr() or "", str(problem)),
            fix="share the runs folder with the nodes, and make this Python available there",
        ) from problem


def _gpu_request(profile: ClusterProfile) -> dict[str, str]:
    gpus = profile.node.gpus
    if gpus and profile.slurm.gpus == "gres":
        return {"gres": f"gpu:{gpus}"}
    if gpus and profile.slurm.gpus == "gpus-per-node":
        return {"gpus-per-node": str(gpus)}
    return {}


def judge_node(profile: ClusterProfile, facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about one node's facts."""
    node = str(facts["host"])
    if not facts["canary"]:
        yield error(
            "check.not-shared",
            f"`paths.runs` ({profile.paths.runs}) is not shared with the node",
            why="the node does not see a file written here",
            fix="choose a folder on shared storage",
            path="paths.runs",
            node=node,
        )
    if facts["node_local_problem"]:
        yield error(
            "check.node-local",
            f"`paths.node_local` ({profile.paths.node_local}) cannot be written",
            why=str(facts["node_local_problem"]),
            fix="choose a folder on the node's own disk",
            path="paths.node_local",
            node=node,
        )
    elif facts["node_local_free"] < MIN_FREE_BYTES:
        yield warning(
            "check.node-local-full",
            f"the node-local disk has only {facts['node_local_free'] // 1024**2} MiB free",
            fix="choose a larger disk, or read models from shared storage (`stage: shared`)",
            path="paths.node_local",
            node=node,
        )
    if not facts["hf_home"]:
        yield error(
            "check.hf-home", f"`paths.hf_home` ({profile.paths.hf_home}) is not there",
            fix="choose a folder on shared storage, or create it", path="paths.hf_home", node=node,
        )  # fmt: skip
    if facts["gpus"] < profile.node.gpus:
        yield error(
            "check.gpus", f"the node has {facts['gpus']} GPUs, the profile says {profile.node.gpus}",
            fix="correct `node.gpus`, or `slurm.gpus` if the job was given none", path="node.gpus", node=node,
        )  # fmt: skip
    if profile.node.cpus and facts["cpus"] < profile.node.cpus:
        yield warning(
            "check.cpus", f"the job may use {facts['cpus']} processors, the profile says {profile.node.cpus}",
            why="a job gets as many as it asks for", path="node.cpus", node=node,
        )  # fmt: skip
    internet = facts.get("internet") or {}
    if profile.network.internet and internet.get("reached") is False:
        yield warning(
            "check.internet", "the node does not reach the internet, the profile says that it does",
            internet["why"], "set `network.internet: false`, or the variables of a proxy in `env`",
            path="network.internet", node=node,
        )  # fmt: skip
    reduced = facts.get("all_reduce")
    if reduced and reduced["problem"] == NO_TORCH:
        yield warning(
            "check.all-reduce", f"the check did not test communication of {reduced['ranks']} GPUs", NO_TORCH,
            "run the check with a Python that has torch", node=node,
        )  # fmt: skip
    elif reduced and reduced["problem"]:
        yield error(
            "check.all-reduce", f"an all-reduce over {reduced['ranks']} GPUs failed", reduced["problem"],
            "set the site's NCCL variables in the profile's `env`, `NCCL_SOCKET_IFNAME` first", node=node,
        )  # fmt: skip
    yield from _check_variables(profile, reduced or {}, node)
    yield from judge_container(profile, facts)


def _check_variables(profile: ClusterProfile, reduced: Mapping[str, Any], node: str) -> Iterator[Finding]:
    """NCCL variables reach the ranks as the profile gives them."""
    variables = reduced.get("variables") or {}
    for name, value in profile.env.items():
        if variables and name.startswith("NCCL_") and variables.get(name) != value:
            yield error(
                "check.nccl-variable", f"`{name}` is `{variables.get(name)}` in the ranks, not `{value}`",
                "the profile's `env` is exported before the ranks start",
                "look for a shell profile or a prolog that sets it", path=f"env.{name}", node=node,
            )  # fmt: skip
