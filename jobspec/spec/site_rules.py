"""Rules over a whole site profile; each yields findings."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from jobspec.finding import Finding, error, warning
from jobspec.spec.interpolate import SECRET_NAME
from jobspec.spec.paths import format_path
from jobspec.spec.sbatch import bad_options
from jobspec.spec.site import ClusterProfile
from jobspec.words import did_you_mean

# Linux gives ports from here on to outgoing connections, which may take a port of Ray.
# Source: kernel ip-sysctl documentation, `ip_local_port_range`, default `32768 60999`.
EPHEMERAL_FROM = 32768


# The one variable of jobspec's own that a site sets: how much each user may keep staged on a node.
STAGE_BOUND = "JOBSPEC_STAGE_MAX_GIB"


def check_profile(profile: ClusterProfile) -> list[Finding]:
    """Findings about a profile that its schema cannot see; `path` names the key."""
    return [
        finding for rule in (_access, _network, _paths, _slurm, _env, _on_end) for finding in rule(profile)
    ]


def _access(profile: ClusterProfile) -> Iterator[Finding]:
    master, path = profile.access.master, "access.master"
    if master is None:
        return
    if profile.access.login == "here":
        what, why = "`master` has no effect", "with `login: here` nothing is reached by SSH"
        yield warning("cluster.unused", what, why, "remove it, or name the SSH host in `login`", path=path)
    elif master != "auto" and not master.startswith(("/", "~/")):
        fix = did_you_mean(master, ["auto"]) or "write `auto`, or a path that starts with `/` or `~/`"
        what = f"`{master}` is neither `auto` nor the path of a master's socket"
        yield error("cluster.access", what, fix=fix, path=path)


def _on_end(profile: ClusterProfile) -> Iterator[Finding]:
    for index, hook in enumerate(profile.hooks.on_end):
        path = f"hooks.on_end[{index}]"
        given = [name for name in ("command", "mail", "webhook") if getattr(hook, name)]
        if len(given) != 1:
            what = f"it gives {' and '.join(f'`{name}`' for name in given) or 'none of its keys'}"
            yield error("cluster.hook", what, fix="give one of `command`, `mail` and `webhook`", path=path)
        url = hook.webhook or ""
        if url and not re.match(r"\$[A-Za-z_]\w*\Z|https?://[^/@\s?#]+(/|\Z)", url):
            what, fix = (
                "the webhook is neither an http URL nor `$NAME`",
                "write it like `https://example.org/runs`",
            )
            yield error("cluster.hook", what, fix=fix, path=f"{path}.webhook")
        elif "?" in url:
            why, fix = "a query often holds a secret", "put the URL into a variable, and write `$NAME`"
            yield error("cluster.secret", "the webhook has a query", why, fix, path=f"{path}.webhook")


def _network(profile: ClusterProfile) -> Iterator[Finding]:
    network = profile.network
    if network.interface is not None and network.subnet is not None:
        fix = "keep `subnet` where interface names differ between nodes, else `interface`"
        yield error(
            "cluster.network", "both `interface` and `subnet` are given", fix=fix, path="network.subnet"
        )
    if network.subnet is not None:
        try:
            ipaddress.IPv4Network(network.subnet)
        except ValueError as problem:
            what = f"`{network.subnet}` is not an IPv4 network: {problem}"
            yield error("cluster.network", what, fix="write it like `10.12.0.0/16`", path="network.subnet")
    ports = network.ray_ports
    if ports.worker_min > ports.worker_max:
        what = f"`worker_min` {ports.worker_min} is above `worker_max` {ports.worker_max}"
        yield error("cluster.ports", what, fix="swap them", path="network.ray_ports.worker_min")
    elif ports.worker_max - ports.worker_min < 99:
        why = "each Ray worker process listens on one port"
        what = f"the range has {ports.worker_max - ports.worker_min + 1} ports"
        yield warning("cluster.ports", what, why, "give at least 100", path="network.ray_ports.worker_max")
    if ports.worker_min <= ports.head <= ports.worker_max:
        what = f"the head's port {ports.head} lies in the workers' range"
        yield error("cluster.ports", what, fix="move one of the two", path="network.ray_ports.head")
    for key, port in (("head", ports.head), ("worker_max", ports.worker_max)):
        if port >= EPHEMERAL_FROM:
            why = f"Linux gives ports from {EPHEMERAL_FROM} on to outgoing connections: it may be taken"
            fix = f"choose ports below {EPHEMERAL_FROM}"
            yield warning(
                "cluster.ports",
                f"port {port} is in the ephemeral range",
                why,
                fix,
                path=f"network.ray_ports.{key}",
            )


def _paths(profile: ClusterProfile) -> Iterator[Finding]:
    paths = profile.paths
    for key in ("runs", "hf_home", "scratch", "node_local"):
        text = getattr(paths, key)
        if text is None:
            continue
        if profile.scheduler == "slurm" and not text.startswith(("/", "~")):
            why = "a job starts in another directory than the login shell"
            yield error(
                "cluster.path",
                f"`{text}` is not an absolute path",
                why,
                "start it with `/`",
                path=f"paths.{key}",
            )
        if "\n" in text or ":" in text:
            why = "mounts and search paths use it as separator"
            yield error(
                "cluster.path",
                f"`{text!r}` holds a colon or a newline",
                why,
                "rename the folder",
                path=f"paths.{key}",
            )
    if paths.node_local == "/" or paths.node_local == paths.runs:
        what, fix = f"`node_local` is `{paths.node_local}`", "give a folder of its own on each node's disk"
        yield error("cluster.path", what, fix=fix, path="paths.node_local")


def _slurm(profile: ClusterProfile) -> Iterator[Finding]:
    for bad in bad_options(profile.slurm.extra_sbatch, profile.slurm.gpus != "none", of_site=True):
        path = f"slurm.extra_sbatch[{bad.index}]"
        yield error("cluster.sbatch", bad.what, bad.why, bad.fix, path=path)
    for name, kind in profile.slurm.gpu_types.items():
        at = format_path(("slurm", "gpu_types", name))
        if not (kind.gres or kind.partition or kind.constraint):
            what, fix = f"nothing tells Slurm of `{name}`", f"add `gres: {name}`, a partition or a constraint"
            yield error("cluster.gpu-type", what, fix=fix, path=at)
        elif re.search("[:,]", kind.gres or ""):
            what, fix = f"`{kind.gres}` is no type of GPU in GRES", "write the middle of `gpu:h200:8`: `h200`"
            yield error("cluster.gpu-type", what, fix=fix, path=f"{at}.gres")
        elif kind.gres and profile.slurm.gpus == "none":
            what, why = "`gres` has no effect", "with `gpus: none` the job asks for no GPUs"
            yield warning("cluster.unused", what, why, "use a partition or a constraint", path=f"{at}.gres")
    if profile.scheduler == "local" and profile.slurm != type(profile.slurm)():
        yield warning(
            "cluster.unused", "`slurm` has no effect with `scheduler: local`", fix="remove it", path="slurm"
        )
    if profile.scheduler == "local" and profile.container.runtime in ("pyxis", "oci"):
        what = f"container runtime `{profile.container.runtime}` is a part of Slurm"
        fix = "use podman, apptainer, charliecloud, bubblewrap or none"
        yield error("cluster.runtime", what, "the scheduler is `local`", fix, path="container.runtime")


def _env(profile: ClusterProfile) -> Iterator[Finding]:
    for name, value in profile.env.items():
        if name.startswith("JOBSPEC_") and name != STAGE_BOUND:
            what = f"jobspec reads no variable `{name}` from a site profile"
            fix = did_you_mean(name, [STAGE_BOUND]) or f"remove it; `{STAGE_BOUND}` is the only one"
            yield error("cluster.variable", what, fix=fix, path=format_path(("env", name)))
        elif name == STAGE_BOUND and not re.fullmatch(r"\d{1,9}(\.\d+)?", value.strip()):
            what = f"`{STAGE_BOUND}` is `{value}`, not a number of GiB"
            yield error(
                "cluster.variable", what, fix='write it like `"500"`', path=format_path(("env", name))
            )
        if SECRET_NAME.search(name):
            what = f"`{name}` is a secret, and its value stands in the profile"
            why = "a secret reaches the job by name only"
            yield error(
                "cluster.secret",
                what,
                why,
                "remove it; specs name it in `secrets`",
                path=format_path(("env", name)),
            )
