"""Who this agent is, and the folders and variables that follow from it. Pure but for reading them in."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Tuple

from jobspec.finding import fail
from jobspec.plan import Plan, StagePlan, data_variable, group_variable
from jobspec.runtime.base import hostlist

OWN_VARIABLE = re.compile(r"\$\{(JOBSPEC_[A-Z_]+_DIR)\}")
# What srun says about its one task per node. A program would take it for its own place among ranks: MPI_Init
# below the agent joins the step's PMIx and waits for tasks that never call, and Megatron-Bridge reads ranks
# from SLURM_NTASKS. MCA settings of an image (OMPI_MCA_, PMIX_MCA_) and SLURM_JOB_ are left.
STEP_VARIABLE = re.compile(
    r"PMI_\w+|PMIX_(?!MCA_)\w+|OMPI_COMM_\w+"
    r"|SLURM_(?:PROCID|LOCALID|GTIDS|NTASKS|NPROCS|TASK_PID|STEPID|STEP_\w+|PMI\w*|MPI_TYPE)"
)
RAY_SOCKET_BYTES = 107  # sun_path of AF_UNIX, unix(7), without its final zero
# Ray adds /session_2026-11-28_00-53-58_498243_1234567/sockets/plasma_store.10 to its temp dir.
RAY_SOCKET_SUFFIX_BYTES = 68


@dataclass(frozen=True)
class Identity:
    """One agent among the agents of one attempt."""

    run_dir: Path
    attempt: int
    index: int
    hosts: Tuple[str, ...]  # by node index
    token: str
    job_id: str = ""
    launch_ip: str = ""
    restarts: int = 0  # of the job, by Slurm

    @property
    def name(self) -> str:
        return self.hosts[self.index]

    @property
    def is_head(self) -> bool:
        return self.index == 0

    @property
    def key(self) -> str:
        """Names this attempt on a node that it may share with others."""
        return f"{self.job_id}|{self.run_dir}|{self.attempt}"


def from_environment(run_dir: Path, env: Mapping[str, str]) -> Identity:
    """Read what the batch script and srun set; without Slurm this is node 0 of 1.

    Raises: JobspecError when the variables are missing or contradict each other.
    """
    attempt = _number(env, "JOBSPEC_ATTEMPT", 1)
    if env.get("JOBSPEC_LOCAL"):  # also when somebody tries it from within an allocation
        env = {key: value for key, value in env.items() if not key.startswith(("SLURM_", "JOBSPEC_NODELIST"))}
    index = _number(env, "SLURM_NODEID", 0)
    components = env.get("JOBSPEC_NODELIST", "")  # of a heterogeneous job, where Slurm's own list is sorted
    listed = components or env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or ""
    try:
        hosts = hostlist.expand(listed) or (_own_name(),)
    except hostlist.HostlistError as error:
        raise fail("runtime.nodelist", str(error), "the node list comes from Slurm") from error
    count = len(hosts) if components else _number(env, "SLURM_NNODES", 1)
    if len(hosts) != count or not 0 <= index < count:
        raise fail(
            "runtime.nodelist",
            f"node {index} of {count}, but the node list `{listed}` has {len(hosts)} names",
            "every agent must know its place among the nodes",
            "start the agent with one task per node: `srun --ntasks-per-node=1`",
        )
    token = env.get("JOBSPEC_TOKEN", "")
    if not token:
        raise fail(
            "runtime.token",
            "`JOBSPEC_TOKEN` is not set",
            "without this run's token anybody on the network could take part in the run",
            "start the run by its `job.sbatch`, which makes one",
        )
    job_id, launch_ip = env.get("SLURM_JOB_ID", ""), env.get("SLURM_LAUNCH_NODE_IPADDR", "")
    restarts = _number(env, "SLURM_RESTART_COUNT", 0)
    return Identity(run_dir, attempt, index, hosts, token, job_id, launch_ip, restarts)


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "") or str(default)
    if not text.isdecimal():
        raise fail("runtime.environment", f"`{name}` is `{text}`, not a number")
    return int(text)


def _own_name() -> str:
    return socket.gethostname().split(".")[0] or "localhost"


@dataclass(frozen=True)
class NodePaths:
    """Every path that the runtime writes on one node. Nobody else builds one."""

    run_dir: Path
    attempt: Path  # shared
    logs: Path  # shared, this node's own
    scratch: Path  # node-local, this run's own, removed at the end
    agents: Path  # node-local pid files
    ray: Path  # node-local, short
    pid_file: Path
    checkpoint: str

    @property
    def stage_links(self) -> Path:
        return self.scratch / "stage"

    def stage_link(self, item: StagePlan) -> Path:
        """Where `item` is found on every node. A data file keeps its suffix: it tells readers the format."""
        suffix = Path(item.source).suffix if item.kind == "dataset" and item.layout == "plain" else ""
        return self.stage_links / (item.name if item.name.endswith(suffix) else f"{item.name}{suffix}")

    @property
    def helpers(self) -> Path:
        return self.scratch / "helpers"

    @property
    def metrics(self) -> Path:
        return self.attempt / "metrics"

    @property
    def artifacts(self) -> Path:
        return self.run_dir / "artifacts"


def node_paths(plan: Plan, who: Identity) -> NodePaths:
    """The paths of this agent. Names carry a digest of the attempt: runs may share a node.

    The paths are the same on every node: a driver hands its own, such as the model's, to workers elsewhere.
    Only agents that share a machine, as loopback host names show, need folders of their own.
    """
    suffix = f".{who.index}" if who.name.startswith("127.") else ""
    digest = hashlib.sha256(who.key.encode()).hexdigest()[:8]
    local = Path(plan.node_local)
    attempt = who.run_dir / "attempts" / str(who.attempt)
    ray = local / f"r-{digest}"
    if len(os.fsencode(str(ray))) + RAY_SOCKET_SUFFIX_BYTES > RAY_SOCKET_BYTES:
        ray = Path(f"/tmp/r{os.getuid()}-{digest}")
    agents = local / f"agents-{os.getuid()}"
    return NodePaths(
        run_dir=who.run_dir,
        attempt=attempt,
        logs=attempt / "logs" / who.name,
        scratch=local / f"run-{digest}{suffix}",
        agents=agents,
        ray=ray,
        pid_file=agents / f"{digest}.{who.index}.json",
        checkpoint=plan.checkpoint_dir or str(who.run_dir / "checkpoints"),
    )


def ray_token(token: str) -> str:
    """Ray's token of this run: derived, so that a program that sees it cannot speak to the agents."""
    return hmac.new(token.encode(), b"jobspec/1|ray", hashlib.sha256).hexdigest()


def stage_token(token: str) -> str:
    """The token of the connections that carry files: a proof for one kind is none for the other."""
    return hmac.new(token.encode(), b"jobspec/1|stage", hashlib.sha256).hexdigest()


def stage_variable(item: StagePlan) -> str:
    """The variable that carries a staged path into the driver."""
    if item.env:
        return item.env
    if item.kind == "model":
        return "JOBSPEC_MODEL_PATH"
    return data_variable(item.name)


def without_step(env: Mapping[str, str]) -> Dict[str, str]:
    """`env` less what describes the agents' own step. Pure."""
    return {name: value for name, value in env.items() if not STEP_VARIABLE.fullmatch(name)}


def program_environment(
    plan: Plan, who: Identity, paths: NodePaths, base: Mapping[str, str], hf_home: str = ""
) -> Dict[str, str]:
    """The environment of Ray and of every command on this node. Pure.

    It is complete before anything starts: staging and the helper build fill the places that it
    names. So Ray, which inherits it, can start beside them, and its workers see what the driver sees.
    `hf_home` is the node-local one when something is staged, `base` the agent's own environment.
    """
    env = without_step(base)
    for name in ("JOBSPEC_TOKEN", *(name for name in plan.stage_secrets if name not in plan.secrets)):
        env.pop(name, None)
    env.update({key: str(value) for key, value in plan.env.items()})
    env["PYTHONPATH"] = os.pathsep.join(_python_path(plan, who, paths))
    env.update(
        JOBSPEC_RUN_DIR=str(who.run_dir),
        JOBSPEC_ATTEMPT=str(who.attempt),
        JOBSPEC_ATTEMPT_DIR=str(paths.attempt),
        JOBSPEC_METRICS_DIR=str(paths.metrics),
        JOBSPEC_ARTIFACTS_DIR=str(paths.artifacts),
        JOBSPEC_CHECKPOINT_DIR=paths.checkpoint,
        JOBSPEC_NODES=str(plan.nodes),
        JOBSPEC_GPUS_PER_NODE=str(plan.driver_gpus_of(who.index)),
        JOBSPEC_SCRATCH=str(paths.scratch),
    )
    env.update(group_variables(plan, who))
    for item in plan.stage:
        env[stage_variable(item)] = str(paths.stage_link(item))
    if hf_home or plan.hf_home:
        env["HF_HOME"] = hf_home or plan.hf_home
        env["HF_HUB_CACHE"] = f"{env['HF_HOME']}/hub"
    if plan.offline:
        env.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    for name, value in recorder_variables(paths.scratch).items():
        env.setdefault(name, value)
    if plan.ray is not None:
        env.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=ray_token(who.token), RAY_USAGE_STATS_ENABLED="0")
        env.update(RAY_TMPDIR=str(paths.ray))
        env.pop("RAY_AUTH_TOKEN_PATH", None)  # would name another run's or the user's token
    for key in plan.env:
        env[key] = _own_folders(env[key], env)
    return env


def group_variables(plan: Plan, who: Identity) -> Dict[str, str]:
    """The group of this node, and the host names of every group. Pure."""
    if not plan.groups:
        return {}
    found = {"JOBSPEC_GROUP": plan.part_of(who.index).name}
    for group in plan.groups:
        found[group_variable(group.name)] = ",".join(who.hosts[index] for index in group.indices)
    return found


def recorder_variables(scratch: Path) -> Dict[str, str]:
    """Where torch's flight recorder writes its dumps, and the pipes by which it is asked for them.

    Its size is left as it is: torch 2.11 and later records by default. Source: FlightRecorder.hpp to 2.13.
    """
    file, pipe = f"{scratch}/flight/trace_rank_", f"{scratch}/flight/ask_rank_"
    return {
        "TORCH_FR_DUMP_TEMP_FILE": file,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": file,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": pipe,
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }


def _own_folders(value: str, env: Mapping[str, str]) -> str:
    """`${JOBSPEC_METRICS_DIR}` and the like in an adapter's variable: a folder that only the run knows.

    Other dollar signs stay as they are: a value is data, not shell.
    """
    return OWN_VARIABLE.sub(lambda found: env.get(found.group(1), found.group(0)), value)


def _python_path(plan: Plan, who: Identity, paths: NodePaths) -> List[str]:
    folders = [str(paths.helpers)] if plan.helpers is not None else []
    for repo in plan.repos:
        folders.extend(repo.pythonpath)
    planned = plan.env.get("PYTHONPATH", "")
    folders.extend(part for part in planned.split(os.pathsep) if part)
    return [*folders, str(who.run_dir / "runtime.pyz")]
