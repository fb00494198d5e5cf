"""The typed model of a site profile (`clusters/*.yaml`); its JSON Schema is generated from it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from jobspec.spec.model import Base, EnvName, Name, PositiveInt

Runtime = Literal["pyxis", "oci", "apptainer", "charliecloud", "podman", "bubblewrap", "none"]


class Access(Base):
    login: str = "here"  # here, or an SSH host name
    user: str | None = None
    jump: str | None = None


class Slurm(Base):
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    gpus: Literal["gres", "gpus-per-node", "none"] = "gres"
    extra_sbatch: tuple[str, ...] = ()
    mpi: str | None = None


class SiteContainer(Base):
    runtime: Runtime = "none"
    image_cache: str | None = None
    mount_home: bool = False
    remap_root: bool | None = None


class Paths(Base):
    runs: str = "./runs"  # shared by login node and compute nodes
    hf_home: str | None = None  # shared
    scratch: str | None = None  # shared
    node_local: str = "/tmp/jobspec-${user}"  # each node's own disk


class RayPorts(Base):
    head: PositiveInt = 6379
    worker_min: PositiveInt = 20000
    worker_max: PositiveInt = 20999


class Network(Base):
    interface: str | None = None
    subnet: str | None = None
    ray_ports: RayPorts = RayPorts()


class Node(Base):
    cpus: PositiveInt | None = None
    memory: str | None = None
    gpus: Annotated[int, Meta(ge=0)] = 0
    gpu_memory: str | None = None


class Limits(Base):
    max_nodes: PositiveInt | None = None
    max_time: str | None = None
    max_array: PositiveInt | None = None


class Hooks(Base):
    setup: tuple[str, ...] = ()  # bash lines at the start of the batch script, on the first node


class ClusterProfile(Base):
    version: Literal[1]
    name: Name
    description: str = ""
    scheduler: Literal["slurm", "local"] = "slurm"
    access: Access = Access()
    slurm: Slurm = Slurm()
    container: SiteContainer = SiteContainer()
    paths: Paths = Paths()
    network: Network = Network()
    node: Node = Node()
    limits: Limits = Limits()
    env: dict[EnvName, str] = {}
    hooks: Hooks = Hooks()
