"""The container around the agent of each node: flags for srun, words before the command.

One small pure function per runtime returns words, never shell text: the templates quote each word.
No value of a secret appears here: a container gets secrets by name from the step's environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jobspec.plan import ContainerPlan, Mount

# Set by the batch script or by srun for every task, and read by the agent.
STEP_NAMES = (
    "JOBSPEC_RUN_DIR", "JOBSPEC_TOKEN", "JOBSPEC_ATTEMPT", "JOBSPEC_SALVAGE",
    "SLURM_JOB_ID", "SLURM_NODEID", "SLURM_NNODES", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST",
    "SLURM_LAUNCH_NODE_IPADDR", "SLURM_RESTART_COUNT",
)  # fmt: skip


@dataclass(frozen=True)
class StepPrefix:
    """`srun` takes `flags`; the command in the step starts with `words`.

    With `env_stdin` the runtime drops the step's environment, and the command reads it from its standard
    input (`ENV_FROM_STDIN`).
    """

    flags: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    env_stdin: bool = False


def step_prefix(
    container: ContainerPlan, name: str, env_names: Sequence[str] = (), gpus: int = 0
) -> StepPrefix:
    """The pieces that make `container` out of a step called `name`; without one it ends with the step.

    `env_names`: variables whose values in the step win over the image's own.
    Raises: KeyError for a runtime that is not in `RUNTIMES`.
    """
    return RUNTIMES[container.runtime](container, name, tuple(dict.fromkeys((*STEP_NAMES, *env_names))), gpus)


def _none(container: ContainerPlan, name: str, env_names: Sequence[str], gpus: int) -> StepPrefix:
    return StepPrefix()


def _pyxis(container: ContainerPlan, name: str, env_names: Sequence[str], gpus: int) -> StepPrefix:
    """Source: NVIDIA/pyxis README; flags tried with pyxis 0.24 and enroot 4.1 on Slurm 22.05."""
    flags = [f"--container-image={container.image}", *([f"--container-name={name}"] if name else [])]
    if container.mounts:
        flags.append("--container-mounts=" + ",".join(_colon(mount) for mount in container.mounts))
    if container.workdir:
        flags.append(f"--container-workdir={container.workdir}")
    flags.append("--container-mount-home" if container.mount_home else "--no-container-mount-home")
    if container.remap_root is not None:
        flags.append("--container-remap-root" if container.remap_root else "--no-container-remap-root")
    # Without this an ENV of the image wins over the step's variable of the same name (pyxis#124, #145).
    flags.append("--container-env=" + ",".join(env_names))
    return StepPrefix(tuple(flags))


def _oci(container: ContainerPlan, name: str, env_names: Sequence[str], gpus: int) -> StepPrefix:
    """Slurm's own `--container`: the bundle's config.json decides about mounts.

    Slurm 22.05 gives the container neither the step's environment nor `--chdir` (tried with crun and runc). A
    secret must not be on argv or disk, so the environment travels over the step's standard input.
    """
    return StepPrefix(
        (f"--container={container.image}",), (container.python, "-c", ENV_FROM_STDIN), env_stdin=True
    )


def _apptainer(container: ContainerPlan, name: str, env_names: Sequence[str], gpus: int) -> StepPrefix:
    """Source: apptainer 1.3 `exec --help`. The step's environment passes as it is."""
    words = ["apptainer", "exec", "--writable-tmpfs"]
    words += ["--nv"] if gpus else []
    words += [] if container.mount_home else ["--no-home"]
    words += ["--fakeroot"] if container.remap_root else []
    words += [word for mount in container.mounts for word in ("--bind", _colon(mount))]
    words += ["--pwd", container.workdir] if container.workdir else []
    return StepPrefix(words=(*words, container.image))


def _charliecloud(container: ContainerPlan, name: str, env_names: Sequence[str], gpus: int) -> StepPrefix:
    """Source: ch-run(1) 0.31: mount targets must exist in the image; it knows no read-only mounts."""
    words = ["ch-run"]
    words += ["--home"] if container.mount_home else []
    words += [f"--bind={mount.source}:{mount.target}" for mount in container.mounts]
    words += [f"--cd={container.workdir}"] if container.workdir else []
    return StepPrefix(words=(*words, container.image, "--"))


def _podman(container: ContainerPlan, name: str, env_names: Sequence[str], gpus: int) -> StepPrefix:
    """Host network and host name, so that addresses are the node's own; `--env NAME` passes by name."""
    words = [
        "podman",
        "--cgroup-manager=cgroupfs",
        "run",
        "--rm",
        "--net=host",
        "--uts=host",
        "--ipc=host",
    ]
    words += ["--ulimit=host", "--cgroups=disabled", *(["--name", name] if name else [])]
    words += ["--device=nvidia.com/gpu=all"] if gpus else []
    words += [word for mount in container.mounts for word in ("--volume", _colon(mount))]
    words += [word for variable in env_names for word in ("--env", variable)]
    words += ["--workdir", container.workdir] if container.workdir else []
    if container.image.startswith("/"):
        words.append("--rootfs")
    return StepPrefix(words=(*words, container.image))


def _bubblewrap(container: ContainerPlan, name: str, env_names: Sequence[str], gpus: int) -> StepPrefix:
    """A root file system in a folder. bwrap would end on a signal: `BWRAP_SIGNALS` hands it on."""
    words = ["bash", "-c", BWRAP_SIGNALS, "bwrap", "--die-with-parent", "--bind", container.image, "/"]
    words += ["--dev-bind", "/dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    for mount in container.mounts:
        words += ["--ro-bind" if mount.read_only else "--bind", mount.source, mount.target]
    words += ["--chdir", container.workdir] if container.workdir else []
    return StepPrefix(words=tuple(words))


def _colon(mount: Mount) -> str:
    return f"{mount.source}:{mount.target}" + (":ro" if mount.read_only else "")


def join_prefix(
    container: ContainerPlan, prefix: StepPrefix, name: str, agent: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Flags and words that lead into the container of a running step; `agent` is its command without python.

    The command must see the agent's process. pyxis, podman and charliecloud join its namespaces. bubblewrap
    and apptainer share the node's processes, so a second container is enough.
    """
    if container.runtime == "pyxis":
        return (f"--container-name={name}:exec",), ()
    if container.runtime == "podman":
        return (), ("podman", "exec", "--interactive", name)
    if container.runtime == "charliecloud":
        pattern = "^[^ ]+ " + re.sub(r"([][().*+?{}|^$\\])", r"\\\1", agent)
        return (), ("bash", "-c", CH_RUN_JOIN, "ch-run", pattern, container.image, "--")
    return prefix.flags, () if prefix.env_stdin else prefix.words


# $0 is `ch-run`, $1 the agent's command line. A second ch-run would have another user namespace.
CH_RUN_JOIN = """\
pid=$(pgrep -o -f -- "$1") || { echo "no agent of this run on $HOSTNAME" >&2; exit 3; }
exec "$0" "--join-pid=$pid" "${@:2}"
"""

# $0 is `bwrap`. The child of bwrap in /proc is the command; `wait` is repeated since a trap ends it early.
BWRAP_SIGNALS = """\
"$0" "$@" & parent=$!
pass() { kill -s "$1" $(cat "/proc/$parent/task/$parent/children") 2>/dev/null; }
trap 'pass USR1' USR1; trap 'pass USR2' USR2; trap 'pass TERM' TERM
status=0; wait "$parent" || status=$?
while kill -0 "$parent" 2>/dev/null; do status=0; wait "$parent" || status=$?; done
exit "$status"
"""

# Reads NAME=VALUE entries that end in NUL up to the end of standard input, finds this node's index by
# its host name in JOBSPEC_HOSTS (srun's own SLURM_NODEID does not get here either), and becomes the command.
# That is its place among the job's nodes; a step on some of them alone tells its own list.
ENV_FROM_STDIN = """\
import os, socket, sys
entries = sys.stdin.buffer.read().split(b"\\0")
os.environb.update(entry.split(b"=", 1) for entry in entries if b"=" in entry)
hosts = os.environ.pop("JOBSPEC_HOSTS", "").split()
name = socket.gethostname()
names = [host for host in hosts if name == host or name.split(".")[0] == host.split(".")[0]]
if names:
    os.environ["SLURM_NODEID"] = str(hosts.index(names[0]))
    os.environ.pop("SLURM_STEP_NODELIST", None)
elif hosts:
    sys.exit("host name %s is not among the nodes of this job: %s" % (name, " ".join(hosts)))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""

Maker = Callable[[ContainerPlan, str, Sequence[str], int], StepPrefix]
RUNTIMES: Mapping[str, Maker] = {
    "none": _none,
    "pyxis": _pyxis,
    "oci": _oci,
    "apptainer": _apptainer,
    "charliecloud": _charliecloud,
    "podman": _podman,
    "bubblewrap": _bubblewrap,
}
