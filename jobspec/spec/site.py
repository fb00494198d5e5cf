"""The typed model of a site profile (`clusters/*.yaml`); its JSON Schema is generated from it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from jobspec.spec.fields import Base, Cpus, Duration, EnvName, Gpus, Name, PositiveInt, Size, Word, doc
from jobspec.spec.slurm import SlurmOptions

Runtime = Literal["pyxis", "oci", "apptainer", "charliecloud", "podman", "bubblewrap", "none"]
Port = Annotated[int, Meta(ge=1024, le=65535)]

DEFAULT_NODE_LOCAL = "/tmp/jobspec-${user}"


class Access(Base, frozen=True):
    """From where the cluster is reached."""

    login: Annotated[
        str,
        doc("`here` when jobspec runs on the login node, else the SSH host.", "here", "login.example.org"),
    ] = "here"
    user: Annotated[str | None, doc("User name on the cluster. Default: SSH's own choice.", "alice")] = None
    jump: Annotated[str | None, doc("SSH host to jump through.", "bastion.example.org")] = None
    master: Annotated[
        str | None,
        doc(
            "Your own OpenSSH master connection, where each login wants a second factor: `auto` for the "
            "`ControlPath` of ~/.ssh/config, or its path. jobspec then opens no connection itself.",
            "auto",
            "~/.ssh/master-%C",
        ),
    ] = None


class Node(Base, frozen=True):
    """One compute node. Used as default, and to check a spec before it is submitted."""

    cpus: Annotated[Cpus | None, doc("CPU cores that a job can use.", 96)] = None
    memory: Annotated[
        Size | None, doc("Memory that a job can use: a whole number with K, M, G or T.", "1900G")
    ] = None
    gpus: Annotated[Gpus, doc("GPUs.", 8)] = 0
    gpu_memory: Annotated[Size | None, doc("Memory of one GPU.", "80G", "141G")] = None


class GpuType(Base, frozen=True):
    """How one kind of GPU is asked for: by its GRES type, its partition, a feature, or several of them."""

    gres: Annotated[Word | None, doc("Type in Slurm's GRES: the middle of `gpu:h200:8`.", "h200")] = None
    partition: Annotated[
        Word | None, doc("Partition with these GPUs alone; several by commas.", "gpu-h200")
    ] = None
    constraint: Annotated[Word | None, doc("Feature of the nodes with these GPUs.", "h200")] = None
    node: Annotated[Node | None, doc("A node with these GPUs, where it is not as `node`.")] = None


class Slurm(SlurmOptions, frozen=True):
    """What this site's Slurm wants to be told. A spec's own `slurm` wins."""

    gpus: Annotated[
        Literal["gres", "gpus-per-node", "none"],
        doc("How GPUs are asked for: `--gres=gpu:N`, `--gpus-per-node=N`, or not at all (whole GPU nodes)."),
    ] = "gres"
    gpu_types: Annotated[
        dict[Name, GpuType],
        doc(
            "Kinds of GPUs that `resources.gpu_type` may name.",
            {"h200": {"gres": "h200"}, "a100": {"partition": "gpu-a100"}},
        ),
    ] = field(default_factory=dict)
    requeue: Annotated[
        Literal["plain", "expedite"],
        doc(
            "`expedite`: a run with `launch.requeue` asks for `--requeue=expedite`, which starts it again at "
            "once, before all others. For Slurm 25.11 or newer with `enable_expedited_requeue`."
        ),
    ] = "plain"
    mpi: Annotated[str | None, doc("Value of `srun --mpi`. Default: not passed.", "none", "pmix")] = None


class SiteContainer(Base, frozen=True):
    """How containers run here."""

    runtime: Annotated[
        Runtime,
        doc("`pyxis` (srun --container-image), `oci` (srun --container), a program for srun, or `none`."),
    ] = "none"
    image_cache: Annotated[
        str | None,
        doc("Shared folder for image files; `jobspec stage --images` imports to it.", "/shared/images"),
    ] = None
    registry: Annotated[
        str | None,
        doc("Host of the registry for images whose name has none.", "registry.example.com"),
    ] = None
    ask_registry: Annotated[
        bool,
        doc("Submission asks the registry for the digest of an image's tag. `false`: there is no network."),
    ] = True
    mount_home: Annotated[bool, doc("Make the user's home visible in the container.")] = False
    remap_root: Annotated[
        bool | None,
        doc("Be root in the container (`pyxis`: --container-remap-root). Default: the site's own."),
    ] = None


class Paths(Base, frozen=True):
    """Where files go. `${user}`, `${home}` and `${env:NAME}` are expanded."""

    runs: Annotated[
        str, doc("Run directories. Shared by login node and compute nodes.", "/shared/${user}/runs")
    ] = "./runs"
    hf_home: Annotated[str | None, doc("Hugging Face cache (HF_HOME). Shared.", "/shared/hf")] = None
    scratch: Annotated[str | None, doc("Large files. Shared.", "/scratch/${user}")] = None
    node_local: Annotated[
        str, doc("Each node's own fast disk: staged models, Ray's files. Keep it short.", "/raid/${user}")
    ] = DEFAULT_NODE_LOCAL


class RayPorts(Base, frozen=True):
    """Ports of Ray. Keep them below `net.ipv4.ip_local_port_range` (Linux default: from 32768)."""

    head: Annotated[Port, doc("Port of Ray's head (GCS).", 6379)] = 6379
    worker_min: Annotated[Port, doc("First port of Ray's workers.", 20000)] = 20000
    worker_max: Annotated[Port, doc("Last port of Ray's workers.", 20999)] = 20999


class Network(Base, frozen=True):
    """The network that nodes use among themselves. At most one of `interface` and `subnet`."""

    interface: Annotated[
        str | None, doc("Interface with an IPv4 address on every node.", "eth0", "bond0")
    ] = None
    subnet: Annotated[str | None, doc("Network in which every node has an address.", "10.12.0.0/16")] = None
    ray_ports: Annotated[RayPorts, doc("Ports of Ray.")] = RayPorts()
    internet: Annotated[
        bool,
        doc("Compute nodes reach the internet. `false`: W&B writes files there, to be sent later."),
    ] = True


class PartitionLimits(Base, frozen=True):
    """What one partition allows, in place of `max_nodes` and `max_time`."""

    max_nodes: Annotated[PositiveInt | None, doc("Nodes in one job.", 2)] = None
    max_time: Annotated[Duration | None, doc("Longest time limit. Quote it.", "00:30:00")] = None


class Limits(Base, frozen=True):
    """What the site allows; checked before submission."""

    max_nodes: Annotated[PositiveInt | None, doc("Nodes in one job.", 64)] = None
    max_time: Annotated[
        Duration | None, doc("Longest time limit, in Slurm's notation. Quote it.", "24:00:00")
    ] = None
    partitions: Annotated[
        dict[Name, PartitionLimits],
        doc(
            "Partitions that a spec may name, with limits of their own. Default: any.",
            {"debug": {"max_nodes": 2, "max_time": "00:30:00"}},
        ),
    ] = field(default_factory=dict)
    max_array: Annotated[PositiveInt | None, doc("Points in one job array (MaxArraySize - 1).", 1000)] = None


class OnEnd(Base, frozen=True):
    """Who is told when a run has ended: exactly one of `command`, `mail` and `webhook`."""

    command: Annotated[
        tuple[str, ...],
        doc("A command; report.json is on its standard input.", ["/opt/site/bin/run-ended", "--post"]),
    ] = ()
    mail: Annotated[
        Word | None, doc("An address, by `sendmail -t`; the report is the text.", "me@example.org")
    ] = None
    webhook: Annotated[
        Word | None,
        doc(
            "A URL that gets the verdict as JSON. A secret one: `$NAME` of the variable that has it.",
            "https://example.org/runs",
            "$SLACK_URL",
        ),
    ] = None
    when: Annotated[
        Literal["always", "not_pass"], doc("After every run, or only after one without a Pass.")
    ] = "always"
    deadline: Annotated[Annotated[int, Meta(ge=1, le=60)], doc("Seconds after which it is ended.", 10)] = 10


class Hooks(Base, frozen=True):
    """What the site adds to each run."""

    setup: Annotated[
        tuple[str, ...],
        doc("Bash lines at the start of the batch script, on the first node.", ["module load slurm"]),
    ] = ()
    on_end: Annotated[tuple[OnEnd, ...], doc("Who is told once the report of an ended run is written.")] = ()


class ClusterProfile(Base, frozen=True):
    """A site profile: everything that jobspec has to know about one cluster."""

    version: Annotated[Literal[1], doc("Version of this format.", 1)]
    name: Annotated[Name, doc("Name of the profile; the same as the file's.", "h200-efa")]
    description: Annotated[str, doc("One line for `jobspec cluster list`.")] = ""
    scheduler: Annotated[
        Literal["slurm", "local"], doc("`slurm`, or `local` for this machine without a scheduler.")
    ] = "slurm"
    access: Annotated[Access, doc("From where the cluster is reached.")] = Access()
    slurm: Annotated[Slurm, doc("What this site's Slurm wants to be told.")] = Slurm()
    container: Annotated[SiteContainer, doc("How containers run here.")] = SiteContainer()
    paths: Annotated[Paths, doc("Where files go.")] = Paths()
    network: Annotated[Network, doc("The network that nodes use among themselves.")] = Network()
    node: Annotated[Node, doc("One compute node.")] = Node()
    limits: Annotated[Limits, doc("What the site allows.")] = Limits()
    env: Annotated[
        dict[EnvName, str],
        doc(
            "Environment of every run here; a spec's `container.env` wins. Values are text.",
            {"NCCL_IB_HCA": "mlx5"},
        ),
    ] = field(default_factory=dict)
    hooks: Annotated[Hooks, doc("What the site adds to each run.")] = Hooks()
