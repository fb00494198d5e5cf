"""The Plan: the one contract between the login node and the allocation.

Frozen plain data without clock, random number or host look-up: the same spec and site profile give the same
bytes. Standard library only and Python 3.9: the module travels inside `runtime.pyz`. Shell text comes from a
Plan alone, and nothing changes a Plan that has been printed. Facts of one run (its id, its directory, its
attempt, its token) are not part of it. More than 400 lines: it is one contract, and travels as one file.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import abc
from dataclasses import dataclass, field
from typing import (
    Any,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

PLAN_VERSION = 1
NOT_PINNED = "tag, not pinned"
HUB_TOKEN = "HF_TOKEN"

Scalar = Union[str, int, float, bool, None]


@dataclass(frozen=True)
class Mount:
    """A host directory made visible at `target` in the container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class CachedImage:
    """An image of a registry that was imported once to a folder that the nodes share."""

    reference: str  # HOST/NAME:TAG, or HOST/NAME@sha256:...
    digest: str  # of the reference in the registry, when it was imported
    file: str
    sha256: str  # of the file
    bytes: int


@dataclass(frozen=True)
class ContainerPlan:
    """How the step's container starts. `runtime` is `none` for the bare node."""

    runtime: str = "none"  # pyxis | oci | apptainer | charliecloud | podman | bubblewrap | none
    image: str = ""
    python: str = "python3"
    mounts: Tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    mount_home: bool = False
    remap_root: Optional[bool] = None
    source_tag: str = ""  # of an image file: the tag that it was made from
    digest: str = ""  # of the image, where it can be known at submission
    by_tag: bool = False  # `digest` is what the tag named then; the nodes fetch what it names later
    cached: Optional[CachedImage] = None  # `image` is this file, in place of the spec's reference

    @property
    def pin(self) -> str:
        """Which image `image` is: its digest, or why nobody can tell; empty without an image."""
        if self.digest or not self.image:
            return self.digest
        return "its digest is not known" if self.image.startswith("/") else NOT_PINNED


@dataclass(frozen=True)
class RepoPlan:
    """A source checkout. `pythonpath` holds absolute folders in import order.

    `branch` and `changes`, a mark of the content of each uncommitted file, are as they were at submission;
    `changes` is None where they are not known. `on_change` is empty in a plan of an older jobspec.
    """

    name: str
    path: str
    url: str = ""
    commit: str = ""
    dirty: bool = False
    pythonpath: Tuple[str, ...] = ()
    branch: str = ""
    changes: Optional[Mapping[str, str]] = None
    on_change: str = ""  # block | record: when the run's code is not what was submitted


@dataclass(frozen=True)
class ImportProof:
    """Module `module` must be imported from a file below `root`."""

    module: str
    root: str
    repo: str = ""


@dataclass(frozen=True)
class StagePlan:
    """One model, data set or folder that must be readable by every node before training.

    `source` lies on shared storage: a Hugging Face hub cache folder (`models--org--name`) or a plain
    folder or file. `layout` says which. `node_local` copies it below the plan's `node_local` path.
    `env` names the variable that carries the ready path into the driver. With `from_hub` nodes download it
    themselves, and `source` is only where it would lie.
    """

    name: str
    kind: str  # model | dataset
    source: str
    layout: str = "hf"  # hf | plain
    repo_id: str = ""
    revision: str = ""
    node_local: bool = True
    require: Tuple[str, ...] = ()
    allow: Tuple[str, ...] = ()
    ignore: Tuple[str, ...] = ()
    env: str = ""
    load: bool = False  # of a model: load config and tokenizer once, offline, before it is trusted
    from_hub: bool = False

    @property
    def moves(self) -> bool:
        """Whether `revision` is a name in a hub, which may mean other files later."""
        return self.layout == "hf" and not re.fullmatch(r"[0-9a-f]{40}", self.revision)


def data_variable(name: str) -> str:
    """The variable that carries the path of the data set `name` into the driver."""
    return "JOBSPEC_DATA_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


@dataclass(frozen=True)
class HelpersPlan:
    """Megatron-Core's dataset helpers: from a checkout (`source`) or an installed package (`package`)."""

    source: str = ""  # folder that contains megatron/core/datasets
    package: str = ""  # import name, e.g. megatron.core


@dataclass(frozen=True)
class RayPlan:
    """Ray's bring-up. Ports lie below the ephemeral range; 0 for `num_gpus` means a CPU cluster."""

    port: int = 6379
    port_min: int = 20000  # worker ports, inclusive
    port_max: int = 20999
    num_cpus: Optional[int] = None  # per node; None: what the node has
    num_gpus: int = 0  # per node
    join_timeout_s: float = 300.0
    dashboard: bool = False


@dataclass(frozen=True)
class UpstreamPlan:
    """The framework's own batch script, run in place of jobspec's step in mode `upstream`.

    `script` lies below `root`, the checkout, and runs from there. `env` has the script's own variables, such
    as `DEDICATED_RAY_HEAD`, beside those that jobspec sets (`jobspec.rendering.upstream_script.OURS`).
    """

    root: str
    script: str = "ray.sub"
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CommandPlan:
    """One command of the framework, run in order after the phases before `driver` are done.

    `on` is `head` (one process on node 0) or `all` (tasks on every node with RANK, LOCAL_RANK,
    WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR and MASTER_PORT set).
    `shell` runs `argv[0]` as a bash script text with `-eo pipefail`.
    """

    name: str
    argv: Tuple[str, ...]
    shell: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    on: str = "head"
    tasks_per_node: int = 1


@dataclass(frozen=True)
class ReadyPlan:
    """How a service shows that it is ready. `text` is the path of `http`, the regular expression of `log`."""

    kind: str = "tcp"  # tcp | http | log
    text: str = ""
    status: int = 200  # of `http`
    timeout_s: float = 300.0


def service_variable(name: str) -> str:
    """The variables of a service begin so; `_HOST`, `_PORT`, `_URL` and `_URLS` follow."""
    return "JOBSPEC_SERVICE_" + name.replace("-", "_").upper()


@dataclass(frozen=True)
class ServicePlan:
    """A program that runs beside the driver from before its start to behind its end.

    `nodes` are indices among the run's nodes, with one process and `gpus` GPUs on each. With `container` it
    lives in that one, which a step of its own starts; else in the run's.
    """

    name: str
    argv: Tuple[str, ...]
    shell: bool = False
    nodes: Tuple[int, ...] = (0,)
    gpus: int = 0
    port: int = 0  # 0: any free one
    ready: ReadyPlan = ReadyPlan()
    required: bool = True
    container: Optional[ContainerPlan] = None

    @property
    def log(self) -> str:
        """The name of its log in the log folder of each of its nodes."""
        return f"service-{self.name}.log"


def taken_gpus(services: Sequence[ServicePlan], node: int) -> int:
    return sum(service.gpus for service in services if node in service.nodes)


def most_gpus(services: Sequence[ServicePlan], among: range) -> int:
    """GPUs that services have on the node of `among` where they have most."""
    nodes = {node for service in services for node in service.nodes if node in among}
    return max((taken_gpus(services, node) for node in nodes), default=0)


@dataclass(frozen=True)
class CollectPlan:
    """What is copied to `artifacts/` from every node, also after a failure."""

    patterns: Tuple[str, ...] = ()
    max_bytes: int = 2 * 1024**3
    timeout_s: float = 120.0


@dataclass(frozen=True)
class MadePlan:
    """Folders that the run's programs make in `below`, a folder of all runs: removed after collection.

    `note`, a file below the attempt's folder, has their names, one a line, each directly in `below`.
    """

    below: str
    note: str


@dataclass(frozen=True)
class SlurmPlan:
    """What sbatch is asked for. Empty means: not passed."""

    account: str = ""
    partition: str = ""
    qos: str = ""
    time: str = ""  # Slurm's own notation, D-HH:MM:SS
    gpus: str = "none"  # gres | gpus-per-node | none
    exclusive: bool = False
    memory: str = ""
    cpus_per_task: Optional[int] = None
    mpi: str = ""
    extra_sbatch: Tuple[str, ...] = ()
    reservation: str = ""
    constraint: str = ""
    nodelist: str = ""
    exclude: str = ""
    avoid_listed: bool = True
    avoided: Tuple[str, ...] = ()  # the nodes of `exclude` that the user's list named
    licenses: str = ""
    nice: int = 0
    begin: str = ""
    dependency: Tuple[str, ...] = ()  # on job ids
    mail_events: Tuple[str, ...] = ()
    mail_user: str = ""
    gpu_type: str = ""  # as Slurm's GRES names it
    array: str = ""
    requeue_max: int = 0  # further attempts after the first
    expedite: bool = False  # Slurm starts them at once, before all other jobs
    grace_s: int = 300  # warning before the time limit


def group_variable(name: str) -> str:
    """The variable with the host names of the group `name`."""
    return "JOBSPEC_GROUP_" + name.replace("-", "_").upper()


@dataclass(frozen=True)
class GroupPlan:
    """Nodes of one kind: `nodes` of the run's, from index `first` on.

    `slurm` is what these are asked for by.
    """

    name: str
    first: int = 0
    nodes: int = 1
    gpus_per_node: int = 0  # those of services included
    gpu_type: str = ""  # as the spec names it
    cpus_per_node: Optional[int] = None  # for Ray; None: what a node has
    slurm: SlurmPlan = SlurmPlan()

    @property
    def indices(self) -> range:
        return range(self.first, self.first + self.nodes)

    @property
    def asks(self) -> Tuple[SlurmPlan, int]:
        """What Slurm is asked for on each of its nodes."""
        return (self.slurm, 0 if self.slurm.gpus == "none" else self.gpus_per_node)

    @property
    def resource(self) -> str:
        """The custom resource of each of its nodes in Ray, of which there is 1."""
        return f"group:{self.name}"


@dataclass(frozen=True)
class LearningPlan:
    metric: str
    direction: str = "up"  # up | down
    min_change: float = 0.0


@dataclass(frozen=True)
class TolerancePlan:
    """How far a metric may be from the baseline's; without steps, over the last fifth that both have."""

    metric: str
    within: float
    direction: str = ""  # up | down | empty: neither is better
    first: Optional[int] = None
    last: Optional[int] = None


@dataclass(frozen=True)
class BaselinePlan:
    """A known-good run: `place` is its folder or a file of metrics, where reports are made."""

    place: str
    tolerances: Tuple[TolerancePlan, ...] = ()


@dataclass(frozen=True)
class NotApplicablePlan:
    """A variant that the framework blocks. `evidence` is a URL, or a file with `line` and its `text`."""

    variant: str
    why: str
    evidence: str
    line: int = 0
    text: str = ""


@dataclass(frozen=True)
class TermPlan:
    """One comparison of a condition: `function(metric) operator bound`."""

    function: str  # max | min | mean | first | last | count
    metric: str
    operator: str
    bound: float


@dataclass(frozen=True)
class AbortPlan:
    """A condition on metrics that ends the run while its driver runs: when all terms hold at once."""

    text: str
    terms: Tuple[TermPlan, ...]
    why: str = ""
    fix: str = ""


@dataclass(frozen=True)
class StallPlan:
    """What happens when the run stands still: `after_s` seconds without work, None by its own pace."""

    after_s: Optional[int] = None
    action: str = "dump"  # dump | end | requeue


@dataclass(frozen=True)
class PartPlan:
    """What must hold for one of several trainings of a run. Metrics have the names of its own logs."""

    name: str
    steps: int = 0
    metrics_require: Tuple[str, ...] = ()
    learning: Optional[LearningPlan] = None


@dataclass(frozen=True)
class ExpectPlan:
    """What must hold for the verdict. Read by the report, never by the runtime.

    `number` and `proves` are the level's own; a plan of an older jobspec has neither.
    """

    level: str = "smoke"
    number: Optional[int] = None
    proves: str = ""  # what a pass means
    variants: Tuple[str, ...] = ()
    steps: int = 0
    metrics_require: Tuple[str, ...] = ()
    learning: Optional[LearningPlan] = None
    files: Tuple[str, ...] = ()  # globs below artifacts/ or absolute
    checkpoint: bool = False
    resume: bool = False
    metric_keys: Mapping[str, str] = field(default_factory=dict)  # canonical name -> the framework's key
    limitations: Tuple[str, ...] = ()
    options: Mapping[str, Scalar] = field(default_factory=dict)  # the framework's own
    parts: Tuple[PartPlan, ...] = ()  # of a run with several trainings
    baseline: Optional[BaselinePlan] = None
    not_applicable: Tuple[NotApplicablePlan, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Everything that a run does, resolved. `path`s are absolute and seen from inside the container."""

    name: str
    framework: str
    cluster: str
    scheduler: str  # slurm | local
    mode: str  # ray | srun | upstream
    nodes: int = 1
    gpus_per_node: int = 0  # those of services included; with groups, of the nodes that have most
    groups: Tuple[GroupPlan, ...] = ()  # of unequal nodes, in their order; the first has the head
    container: ContainerPlan = ContainerPlan()
    env: Mapping[str, str] = field(default_factory=dict)  # exported before Ray starts, on every node
    secrets: Tuple[str, ...] = ()  # names only
    stage_secrets: Tuple[str, ...] = ()  # names that staging alone gets, where they are set
    repos: Tuple[RepoPlan, ...] = ()
    proofs: Tuple[ImportProof, ...] = ()
    stage: Tuple[StagePlan, ...] = ()
    helpers: Optional[HelpersPlan] = None
    ray: Optional[RayPlan] = None
    upstream: Optional[UpstreamPlan] = None  # with mode `upstream`; `ray` is None then
    checks: Tuple[CommandPlan, ...] = ()  # tests of the checkouts, phase `checks`, before `driver`
    services: Tuple[ServicePlan, ...] = ()  # in the order of their start, phase `services`, before `driver`
    commands: Tuple[CommandPlan, ...] = ()
    abort_when: Tuple[AbortPlan, ...] = ()  # read by the runtime, during `driver`
    stall: StallPlan = StallPlan()
    collect: CollectPlan = CollectPlan()
    made: Tuple[MadePlan, ...] = ()
    slurm: SlurmPlan = SlurmPlan()
    expect: ExpectPlan = ExpectPlan()
    runs: str = ""  # shared folder of all runs
    node_local: str = "/tmp/jobspec"  # node-local folder for staging and scratch
    hf_home: str = ""
    offline: bool = True
    interface: str = ""  # network interface, or empty
    subnet: str = ""  # CIDR, or empty
    checkpoint_dir: str = ""
    hold: bool = False  # keep the cluster up after the driver
    hold_idle_s: Optional[int] = None  # end it then after that long without a step but its own
    kept_ray: bool = False  # use that of the held run of the allocation, where it is proved fit
    time_limit_s: Optional[int] = None
    shm_min_bytes: int = 0
    version: int = PLAN_VERSION

    @property
    def passed(self) -> Tuple[str, ...]:
        """The names of all variables that travel from the submitting shell to the agents."""
        return tuple(dict.fromkeys((*self.secrets, *self.stage_secrets)))

    @property
    def containers(self) -> Tuple[Tuple[str, ContainerPlan], ...]:
        """The run's own, and those of services, each behind the path of its section in the spec."""
        own = ((f"services[{i}].", s.container) for i, s in enumerate(self.services) if s.container)
        return (("", self.container), *own)

    @property
    def service_containers(self) -> Dict[str, ContainerPlan]:
        """Those of services that have their own, by the services' names."""
        return {service.name: service.container for service in self.services if service.container}

    @property
    def parts(self) -> Tuple[GroupPlan, ...]:
        """The groups; a run of equal nodes is one without a name."""
        cpus = self.ray.num_cpus if self.ray is not None else None
        return self.groups or (GroupPlan("", 0, self.nodes, self.gpus_per_node, "", cpus, self.slurm),)

    @property
    def components(self) -> Tuple[GroupPlan, ...]:
        """What Slurm is asked for: one allocation, or several as components of a heterogeneous job.

        Groups that follow one another and ask for the same share one.
        """
        found: List[GroupPlan] = []
        for part in self.parts:
            if found and found[-1].asks == part.asks:
                found[-1] = dataclasses.replace(found[-1], nodes=found[-1].nodes + part.nodes)
            else:
                found.append(part)
        return tuple(found)

    def only(self, part: GroupPlan) -> Plan:
        """The plan of a run that has the nodes of `part` alone, for what Slurm is asked for."""
        return dataclasses.replace(
            self, nodes=part.nodes, gpus_per_node=part.gpus_per_node, slurm=part.slurm, groups=(), services=()
        )

    def component_of(self, nodes: Tuple[int, ...]) -> Optional[int]:
        """The number of the component that has all these nodes; None where several have them."""
        found = (n for n, part in enumerate(self.components) if {*nodes} <= {*part.indices})
        return next(found, None)

    def part_of(self, node: int) -> GroupPlan:
        return next(part for part in self.parts if node in part.indices)

    def gpus_of(self, node: int) -> int:
        """GPUs of node `node`, those of services included."""
        return self.part_of(node).gpus_per_node if self.groups else self.gpus_per_node

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(part.nodes * part.gpus_per_node for part in self.parts)

    def service_gpus(self, node: int) -> int:
        """GPUs of node `node` that services have."""
        return taken_gpus(self.services, node)

    def driver_gpus_of(self, node: int) -> int:
        """GPUs of a node for Ray and the commands: as many as the fullest node of its group has left."""
        part = self.part_of(node)
        return part.gpus_per_node - most_gpus(self.services, part.indices)

    def ray_gpus_of(self, node: int) -> int:
        """GPUs of a node for a Ray that jobspec starts."""
        if self.ray is None:
            return 0
        return self.driver_gpus_of(node) if self.groups else self.ray.num_gpus

    @property
    def driver_gpus(self) -> int:
        """Those of each node where all are alike, and of the head's group in a run of several."""
        return self.driver_gpus_of(0)


T = TypeVar("T")


def to_json(plan: Plan) -> str:
    """Canonical JSON text: sorted keys, two spaces, a final newline."""
    return json.dumps(dataclasses.asdict(plan), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def from_json(text: str) -> Plan:
    """Inverse of `to_json`. Raises: ValueError on another version or an unknown key."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("the plan is nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError("the plan is no mapping")
    if data.get("version") != PLAN_VERSION:
        raise ValueError(f"plan version {data.get('version')!r} found, version {PLAN_VERSION} wanted")
    return build(Plan, data)


def build(cls: Type[T], data: Mapping[str, Any]) -> T:
    """A frozen dataclass from plain JSON data, nested ones included.

    Raises: ValueError naming keys that it does not have or that are missing, or a value of another type.
    """
    hints = _hints(cls)
    unknown = sorted(set(_of(dict, data)) - set(hints))
    if unknown:
        raise ValueError(f"{cls.__name__} has no field {', '.join(unknown)}")
    try:
        return cls(**{key: _convert(hints[key], value) for key, value in data.items()})
    except TypeError as problem:
        raise ValueError(f"{cls.__name__}: {problem}") from problem


_HINTS: Dict[type, Dict[str, Any]] = {}


def _hints(cls: type) -> Dict[str, Any]:
    if cls not in _HINTS:
        _HINTS[cls] = get_type_hints(cls)
    return _HINTS[cls]


def _convert(hint: Any, value: Any) -> Any:
    """The value as the hinted type. Raises: ValueError for another type: nothing checks it later."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Union:
        if value is None and type(None) in args:
            return None
        kinds = [arg for arg in args if arg is not type(None)]
        return _convert(kinds[0], value) if len(kinds) == 1 else value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value)
    if origin is tuple:
        return tuple(_convert(args[0], item) for item in _of(list, value))
    if origin is abc.Mapping:
        return {key: _convert(args[1], item) for key, item in _of(dict, value).items()}
    if hint in _PLAIN and (
        not isinstance(value, _PLAIN[hint]) or (isinstance(value, bool) and hint is not bool)
    ):
        raise ValueError(f"{value!r} stands where {hint.__name__} is wanted")
    return value


_PLAIN: Dict[Any, Any] = {str: str, int: int, bool: bool, float: (int, float)}


def _of(cls: type, value: Any) -> Any:
    if not isinstance(value, cls):
        raise ValueError(f"{value!r} stands where {cls.__name__} is wanted")
    return value
