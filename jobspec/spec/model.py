"""The typed model of a job spec: the single source of the JSON Schema and of the key reference.

Structs are frozen. A field's `Meta(description=...)` becomes the text that an editor shows.
Nothing here reads files or knows a framework's or a cluster's names.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
EnvName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
PositiveInt = Annotated[int, Meta(ge=1)]
Scalar = str | int | float | bool | None


class Base(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Unknown keys are errors."""


class Coverage(Base):
    level: Annotated[str | int, Meta(description="Level by name or by the framework's own number.")] = "smoke"
    variants: tuple[str, ...] = ()


class Resources(Base):
    nodes: PositiveInt = 1
    gpus_per_node: Annotated[int, Meta(ge=0)] | None = None
    cpus_per_node: PositiveInt | None = None
    memory: Annotated[str, Meta(pattern=r"^[0-9]+[KMGT]?$")] | None = None
    time: Annotated[str, Meta(pattern=r"^([0-9]+-)?[0-9]+(:[0-9]{1,2}){0,2}$")] | None = None
    exclusive: bool | None = None


class Requeue(Base):
    max_attempts: PositiveInt = 1
    grace: Annotated[int, Meta(ge=0)] = 300


class Launch(Base):
    mode: Literal["ray", "upstream", "srun"] = "ray"
    hold: bool = False
    requeue: Requeue = Requeue()
    tasks_per_node: PositiveInt = 1
    join_timeout: Annotated[int, Meta(ge=1)] = 300


class Mount(Base):
    source: str
    target: str
    read_only: bool = False


class Container(Base):
    image: str | None = None
    python: str | None = None
    mounts: tuple[Mount, ...] = ()
    env: dict[EnvName, str] = {}
    workdir: str | None = None


class Prove(Base):
    module: str = field(name="import")


class Repo(Base):
    name: Name
    path: str | None = None
    url: str | None = None
    ref: str | None = None
    pythonpath: tuple[str, ...] = (".",)
    prove: Prove | None = None


class Model(Base):
    id: str | None = None
    path: str | None = None
    revision: str | None = None
    stage: Literal["shared", "node_local"] = "node_local"
    require: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


class Data(Base):
    name: Name
    source: str
    revision: str | None = None
    prepare: str | None = None
    stage: Literal["shared", "node_local"] = "node_local"


class HfCache(Base):
    home: str | None = None
    offline: bool = True


class McoreHelpers(Base):
    repo: str | None = None
    subdir: str = "."
    package: str | None = None


class Parallel(Base):
    tp: PositiveInt = 1
    pp: PositiveInt = 1
    ep: PositiveInt = 1
    etp: PositiveInt = 1
    cp: PositiveInt = 1
    vpp: PositiveInt | None = None


class Rollout(Base):
    engines: PositiveInt | None = None
    tp: PositiveInt | None = None
    pp: PositiveInt | None = None
    ep: PositiveInt | None = None


class Train(Base):
    algorithm: str | None = None
    steps: PositiveInt | None = None
    workers: PositiveInt | None = None
    reward: str | None = None
    seed: int | None = None
    command: tuple[str, ...] | None = None
    shell: bool = False
    parallel: Parallel = Parallel()
    rollout: Rollout = Rollout()
    overrides: dict[str, Any] = {}


class Checkpoint(Base):
    dir: str | None = None
    every: PositiveInt | None = None
    keep: PositiveInt | None = None
    resume: Literal["auto", "never", "must"] = "auto"


class Learning(Base):
    metric: str
    direction: Literal["up", "down"] = "up"
    min_change: Annotated[float, Meta(ge=0)] = 0.0


class Metrics(Base):
    require: tuple[str, ...] = ()
    learning: Learning | None = None


class Artifacts(Base):
    collect: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    max_size: Annotated[str, Meta(pattern=r"^[0-9]+[KMGT]?$")] = "2G"


class Sweep(Base):
    grid: dict[str, tuple[Any, ...]] = {}
    points: tuple[dict[str, Any], ...] = field(default=(), name="list")
    exclude: tuple[dict[str, Any], ...] = ()
    invalid: Literal["skip", "error"] = "error"


class JobSpec(Base):
    version: Literal[1]
    name: Name
    framework: str
    cluster: str | None = None
    coverage: Coverage = Coverage()
    resources: Resources = Resources()
    launch: Launch = Launch()
    container: Container = Container()
    repos: tuple[Repo, ...] = ()
    model: Model | None = None
    data: tuple[Data, ...] = ()
    hf_cache: HfCache = HfCache()
    mcore_helpers: McoreHelpers | None = None
    train: Train = Train()
    checkpoint: Checkpoint = Checkpoint()
    metrics: Metrics = Metrics()
    artifacts: Artifacts = Artifacts()
    secrets: tuple[EnvName, ...] = ()
    sweep: Sweep | None = None
    lock: dict[str, Any] | UnsetType = UNSET
    user: dict[str, Any] = {}
