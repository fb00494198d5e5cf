"""The typed model of a job spec: the single source of the JSON Schema and of the key reference.

Structs are frozen. A field's description becomes the text that an editor shows and the row in
`docs/spec.md`. Nothing here reads files or knows a framework's or a cluster's names.

Above 400 lines on purpose: it is data in the order of the published schema, read from top to bottom.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from jobspec.spec.containers import Container
from jobspec.spec.fields import (
    Base,
    Cpus,
    Duration,
    EnvName,
    Gpus,
    Name,
    NaturalInt,
    Nodes,
    Patience,
    PositiveInt,
    Size,
    Span,
    Word,
    doc,
)
from jobspec.spec.groups import Group
from jobspec.spec.paths import Path
from jobspec.spec.services import Service
from jobspec.spec.slurm import RunOptions


class Check(Base, frozen=True):
    """Tests of one repo that run before training, as phase `checks`."""

    repo: Annotated[Name, doc("Name of the repo whose tests run.", "bridge")]
    tests: Annotated[
        tuple[str, ...],
        doc(
            "Test files or folders below the repo; in `checks` they join the guide's.",
            ["tests/unit_tests/models/test_param_mapping.py"],
        ),
    ] = ()
    command: Annotated[
        tuple[str, ...],
        doc(
            "Argument vector that the tests are appended to. Default: the framework's way to run pytest.",
            ["uv", "run", "python", "-m", "pytest", "-q"],
        ),
    ] = ()


class NotApplicable(Base, frozen=True):
    """A variant that the framework itself blocks: recorded with its evidence, not run."""

    variant: Annotated[str, doc("Variant of any level, as the framework names it.", "lora")]
    why: Annotated[str, doc("What blocks it, in one sentence.", "the adapter is not built for this model")]
    evidence: Annotated[
        str,
        doc(
            "What shows it: a file, a file and its line, or a URL.",
            "logs/lora.log:120",
            "https://github.com/NVIDIA-NeMo/RL/issues/1",
        ),
    ]


class Coverage(Base, frozen=True):
    """What the run has to prove."""

    level: Annotated[
        str | int,
        doc(
            "Coverage level by name or by the framework's own number; `--level` wins.", "smoke", "learning", 0
        ),
    ] = "smoke"
    levels: Annotated[
        tuple[str | int, ...],
        doc(
            "Several levels, trained one after another in one allocation with one summary; "
            "excludes `level` and `sweep`.",
            [0, 1],
        ),
    ] = ()
    split: Annotated[
        Literal["allocation", "jobs"],
        doc("For `levels` on Slurm: `allocation` is one job for all, `jobs` an array with a job for each."),
    ] = "allocation"
    variants: Annotated[
        tuple[str, ...],
        doc(
            "Variants of the level, as the framework names them; beside `levels` each entry is a training of "
            "its own, and `full+dummy` is one of two variants.",
            ["colocated"],
        ),
    ] = ()
    not_applicable: Annotated[
        tuple[NotApplicable, ...],
        doc(
            "Variants that cannot run here through no fault of what is tested; the report tells them apart.",
            [{"variant": "lora", "why": "no adapter for this model", "evidence": "logs/lora.log:120"}],
        ),
    ] = ()
    checks: Annotated[
        tuple[Check, ...],
        doc(
            "Tests of the checkouts that must pass before training starts: the guide's for each repo named, "
            "and those of each entry.",
            [{"repo": "bridge"}],
        ),
    ] = ()
    checks_only: Annotated[
        tuple[Check, ...],
        doc(
            "Tests that run instead of the guide's for their repos; the report says so.",
            [{"repo": "bridge", "tests": ["tests/unit_tests/models/test_mine.py"]}],
        ),
    ] = ()


class Resources(Base, frozen=True):
    """What the scheduler is asked for. Missing values come from the site profile."""

    nodes: Annotated[Nodes, doc("Number of nodes.", 8)] = 1
    gpus_per_node: Annotated[
        Gpus | None,
        doc("GPUs on each node; 0 for CPU only. Default: the profile's `node.gpus`, on `local` 0.", 8),
    ] = None
    gpu_type: Annotated[
        Word | None, doc("Kind of GPU, as the profile's `slurm.gpu_types` names it.", "h200")
    ] = None
    cpus_per_node: Annotated[
        Cpus | None, doc("CPU cores on each node. Default: the profile's `node.cpus`.", 96)
    ] = None
    memory: Annotated[
        Size | None,
        doc("Memory of each node: a whole number with K, M, G or T (powers of 1024; none means M).", "960G"),
    ] = None
    time: Annotated[
        Duration | None,
        doc(
            "Time limit in Slurm's notation: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS.",
            "24:00:00",
            "2-00:00:00",
        ),
    ] = None
    exclusive: Annotated[
        bool | None,
        doc(
            "Whole nodes, shared with nobody. Default: yes for more than one node, and for GPUs that Slurm "
            "does not count.",
            True,
        ),
    ] = None


class Requeue(Base, frozen=True):
    """What happens when the time limit, a preemption or a node failure ends an attempt."""

    max_attempts: Annotated[PositiveInt, doc("Attempts in all, the first included; 1 never requeues.", 3)] = 1
    grace: Annotated[
        NaturalInt, doc("Seconds before the time limit at which the run is told to save and stop.", 300)
    ] = 300


class Launch(Base, frozen=True):
    """How the run is started inside its allocation."""

    mode: Annotated[
        Literal["ray", "upstream", "srun"],
        doc(
            "`ray`: jobspec starts Ray; `upstream`: the framework's own script does; `srun`: no Ray. "
            "Default of framework `command`: `srun` where the command was not seen to use Ray "
            "and its scripts can be read, else `ray`."
        ),
    ] = "ray"
    hold: Annotated[
        bool, doc("Keep the cluster up after the command ends, for `jobspec exec` and `run --here`.")
    ] = False
    hold_idle: Annotated[
        Span | None,
        doc("End a held run after that long without a step but its own: `90s`, `30m`, `2h`.", "30m"),
    ] = None
    kept_ray: Annotated[
        bool,
        doc("With `run --here RUN`: use the Ray of the held run where it is proved clean, else a fresh one."),
    ] = False
    requeue: Annotated[Requeue, doc("Requeueing after a time limit, preemption or node failure.")] = Requeue()
    tasks_per_node: Annotated[Cpus, doc("Processes of the command on each node in mode `srun`.", 8)] = 1
    join_timeout: Annotated[
        PositiveInt, doc("Seconds to wait until every planned node has joined; then the missing are named.")
    ] = 300


class Prove(Base, frozen=True):
    """An import that must come from this repo on every node, or the run stops before training."""

    module: Annotated[str, doc("Dotted module name.", "megatron.bridge")] = field(name="import")


class Repo(Base, frozen=True):
    """A source checkout: a local `path`, or a `url` with a `ref`."""

    name: Annotated[Name, doc("Short name; other keys refer to it.", "bridge")]
    path: Annotated[
        str | None, doc("Checkout on shared storage. Excludes `url`.", "~/src/Megatron-Bridge")
    ] = None
    url: Annotated[
        str | None,
        doc(
            "Git URL (https, ssh, git or file) without credentials. Excludes `path`, needs `ref`.",
            "https://github.com/verl-project/verl",
        ),
    ] = None
    ref: Annotated[
        str | None,
        doc("Commit, tag or branch. With `path`: the commit that the checkout must be at.", "1a2b3c4"),
    ] = None
    pythonpath: Annotated[
        tuple[str, ...],
        doc(
            "Folders below the repo that go onto PYTHONPATH, in this order.", ["src", "3rdparty/Megatron-LM"]
        ),
    ] = (".",)
    prove: Annotated[
        Prove | None, doc("Import that must come from this repo.", {"import": "megatron.bridge"})
    ] = None
    freeze: Annotated[
        bool,
        doc(
            "Submission copies commit, uncommitted changes and submodules to `<runs>/.frozen`, and the run "
            "uses the copy; files that git ignores are not in it."
        ),
    ] = False
    sync: Annotated[
        bool,
        doc(
            "With `access.login` of the site: the run uses this machine's checkout, though the cluster has "
            "one at `path`. Submission copies it there."
        ),
    ] = False
    changed: Annotated[
        Literal["block", "record"],
        doc(
            "When the checkout is not as it was at submission as an attempt starts: `block` the run, or "
            "`record` what runs, with its patch."
        ),
    ] = "block"


Stage = Literal["shared", "node_local", "hub"]
STAGE = doc(
    "`node_local`: copy from shared storage to each node's own disk before training; `shared`: read from "
    "shared storage; `hub`: the nodes download it to their own disks, and nothing lies on shared storage."
)


class Model(Base, frozen=True):
    """The model that is trained: a Hugging Face `id` or a `path`."""

    id: Annotated[str | None, doc("Hugging Face repository. Excludes `path`.", "Qwen/Qwen3-0.6B")] = None
    path: Annotated[
        str | None,
        doc("Folder with the weights on shared storage. Excludes `id`.", "${cluster:scratch}/models/tiny"),
    ] = None
    revision: Annotated[
        str | None,
        doc(
            "Commit of the repository; pinned in the lock when absent.",
            "c1899de289a04d12100db370d81485cdf75e47ca",
        ),
    ] = None
    stage: Annotated[Stage, STAGE] = "node_local"
    require: Annotated[
        tuple[str, ...],
        doc(
            "Files (globs) that must exist in the snapshot; `FILE:KEY`: a value that a JSON file must have.",
            ["chat_template.jinja", "tokenizer_config.json:eos_token"],
        ),
    ] = ()
    allow: Annotated[
        tuple[str, ...], doc("Only files that match one of these globs are staged.", ["*.json"])
    ] = ()
    ignore: Annotated[
        tuple[str, ...], doc("Files that match one of these globs are not staged.", ["*.gguf"])
    ] = ()
    load: Annotated[
        bool | None,
        doc(
            "Load config and tokenizer of the staged model once, offline, by transformers in the image, "
            "before training. Default: for `nemo_rl`, `skyrl` and `verl`."
        ),
    ] = None
    config: Annotated[
        dict[str, Any],
        doc(
            "Sizes for the checks of Megatron runs, named as in a config.json; they win over the model's.",
            {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "vocab_size": 1024},
        ),
    ] = {}


class Data(Base, frozen=True):
    """A data set."""

    name: Annotated[Name, doc("Short name; the driver finds the path in JOBSPEC_DATA_<NAME>.", "gsm8k")]
    source: Annotated[
        str,
        doc(
            "Hugging Face data set id, or a path on shared storage.",
            "openai/gsm8k",
            "${cluster:scratch}/data/x.jsonl",
        ),
    ]
    revision: Annotated[str | None, doc("Commit of the repository; pinned in the lock when absent.")] = None
    prepare: Annotated[str | None, doc("The framework's own preparation step, by name.", "gsm8k")] = None
    stage: Annotated[Stage, STAGE] = "node_local"


class HfCache(Base, frozen=True):
    """The Hugging Face cache."""

    home: Annotated[
        str | None,
        doc("HF_HOME on shared storage. Default: the profile's `paths.hf_home`.", "${cluster:hf_home}"),
    ] = None
    offline: Annotated[
        bool, doc("Forbid downloads during the run (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE).")
    ] = True


class McoreHelpers(Base, frozen=True):
    """Megatron-Core's compiled dataset helpers, built on each node before training."""

    repo: Annotated[
        str | None, doc("Name of the repo that holds Megatron-Core. Excludes `package`.", "bridge")
    ] = None
    subdir: Annotated[
        str, doc("Folder in the repo that contains `megatron/core`.", "3rdparty/Megatron-LM")
    ] = "."
    package: Annotated[
        str | None, doc("Import name of an installed Megatron-Core. Excludes `repo`.", "megatron.core")
    ] = None


class Parallel(Base, frozen=True):
    """Degrees of model parallelism of the trainer."""

    tp: Annotated[PositiveInt, doc("Tensor parallel size.", 8)] = 1
    pp: Annotated[PositiveInt, doc("Pipeline parallel size.", 4)] = 1
    ep: Annotated[PositiveInt, doc("Expert parallel size.", 16)] = 1
    etp: Annotated[PositiveInt, doc("Tensor parallel size of the experts.", 1)] = 1
    cp: Annotated[PositiveInt, doc("Context parallel size.", 1)] = 1
    vpp: Annotated[PositiveInt | None, doc("Virtual pipeline stages of each pipeline rank.", 2)] = None


class Rollout(Base, frozen=True):
    """The engines that generate. The framework chooses missing values."""

    engines: Annotated[PositiveInt | None, doc("Number of inference engines.", 2)] = None
    tp: Annotated[PositiveInt | None, doc("Tensor parallel size of an engine.", 8)] = None
    pp: Annotated[PositiveInt | None, doc("Pipeline parallel size of an engine.", 4)] = None
    ep: Annotated[PositiveInt | None, doc("Expert parallel size of an engine.", 8)] = None


class Train(Base, frozen=True):
    """What is trained, and how."""

    algorithm: Annotated[str | None, doc("RL algorithm, as the framework names it.", "grpo")] = None
    recipe: Annotated[
        str | None,
        doc(
            "For `nemo_rl`: a maintained recipe of the checkout by name, in place of `coverage.variants`. "
            "Nodes, GPUs, time, steps and checks are the recipe's where the spec gives none.",
            "grpo-qwen3-30ba3b-8n8g-megatron",
        ),
    ] = None
    steps: Annotated[PositiveInt | None, doc("Training steps.", 100)] = None
    workers: Annotated[
        PositiveInt | None,
        doc("Data-parallel training processes over all nodes, where the framework has them.", 2),
    ] = None
    reward: Annotated[str | None, doc("Reward function, as the framework names it.", "digits")] = None
    seed: Annotated[int | None, doc("Random seed.", 42)] = None
    command: Annotated[
        tuple[str, ...] | None,
        doc(
            "Argument vector of framework `command`, or one bash text with `shell: true`. "
            "A relative script is looked for beside the spec, then in `repos`. "
            "For `skyrl` and `rlix`: what the settings are appended to.",
            ["python3", "train.py"],
        ),
    ] = None
    shell: Annotated[bool, doc("Run `command`'s only item as a bash script with `-eo pipefail`.")] = False
    parallel: Annotated[Parallel, doc("Degrees of model parallelism of the trainer.")] = Parallel()
    rollout: Annotated[Rollout, doc("The engines that generate.")] = Rollout()
    overrides: Annotated[
        dict[str, Any],
        doc(
            "Settings in the framework's own names: scalars, lists or maps, passed on as they are. They win.",
            {"trainer.train_batch_size": 64},
        ),
    ] = {}


class Checkpoint(Base, frozen=True):
    """Saving and resuming."""

    dir: Annotated[
        str | None,
        doc(
            "Folder for checkpoints, on shared storage. Default: `checkpoints` in the run directory.",
            "${cluster:runs}/ckpt/x",
        ),
    ] = None
    every: Annotated[PositiveInt | None, doc("Save after every so many steps.", 20)] = None
    keep: Annotated[PositiveInt | None, doc("Keep only so many of the newest checkpoints.", 3)] = None
    resume: Annotated[
        Literal["auto", "never", "must"],
        doc("`auto`: resume if there is a checkpoint; `never`: start anew; `must`: fail without one."),
    ] = "auto"


class Learning(Base, frozen=True):
    """The metric whose trend is the learning signal."""

    metric: Annotated[str, doc("Metric name, as the framework logs it.", "reward/avg_raw_reward")]
    direction: Annotated[Literal["up", "down"], doc("Which way is better.")] = "up"
    min_change: Annotated[
        Annotated[float, Meta(ge=0)], doc("Smallest improvement that counts, in the metric's unit.", 0.05)
    ] = 0.0


class Tolerance(Base, frozen=True):
    """How far one metric may be from the baseline's, as means over the same steps."""

    metric: Annotated[str, doc("Metric name, as the framework logs it.", "train/token_mult_prob_error")]
    within: Annotated[
        Annotated[float, Meta(ge=0)], doc("Largest difference that is allowed, in the metric's unit.", 0.05)
    ]
    direction: Annotated[
        Literal["up", "down"] | None,
        doc("Which way is better. Default: the learnt metric's own; for others no way is better."),
    ] = None
    from_step: Annotated[
        PositiveInt | None, doc("First step. Default: the last fifth of the steps that both have.", 10)
    ] = None
    to_step: Annotated[PositiveInt | None, doc("Last step. Default: the last that both have.", 50)] = None


class Stall(Base, frozen=True):
    """What happens when the run stands still."""

    after: Annotated[
        Patience,
        doc("Time without a sign of work: `30s`, `10m`, `2h`; `auto`: by the run's own pace.", "10m"),
    ] = "auto"
    action: Annotated[
        Literal["dump", "end", "requeue"],
        doc(
            "`dump`: take the stacks of all processes and go on; `end`: end the run where nothing moves in"
            " them either; `requeue`: the same, and start again without the node that is the cause."
        ),
    ] = "dump"


class Watch(Base, frozen=True):
    """What is watched while the run goes on, beside `metrics.abort_when`."""

    stall: Annotated[Stall, doc("When the run stands still, and what happens then.")] = Stall()


class Metrics(Base, frozen=True):
    """What the logged figures must show."""

    require: Annotated[
        tuple[str, ...],
        doc(
            "Conditions that must all hold: max, min, mean, first, last, count or finite of a metric.",
            ["max(reward/mean) > 0.8"],
        ),
    ] = ()
    abort_when: Annotated[
        tuple[str, ...],
        doc(
            "Conditions that stop a run early, beside the framework's own: comparisons joined by `and`.",
            ["last(loss) > 50", "count(reward/mean) >= 10 and max(reward/mean) == 0"],
        ),
    ] = ()
    learning: Annotated[Learning | None, doc("The learning signal.")] = None
    baseline: Annotated[
        str | None,
        doc(
            "A known-good run: its folder, its id, or a file of metrics. The run must be no worse.",
            "/shared/runs/qwen3-grpo/20261101-101500-aaaa",
            "good.jsonl",
        ),
    ] = None
    tolerances: Annotated[
        tuple[Tolerance, ...],
        doc(
            "Metrics to compare with `baseline`, beside the learnt one.",
            [{"metric": "reward", "within": 0.05}],
        ),
    ] = ()


class Artifacts(Base, frozen=True):
    """Files to bring home, also after a failure."""

    collect: Annotated[
        tuple[str, ...],
        doc(
            "Globs, relative to the commands' working directories or absolute, from every node.",
            ["dumped_evals/**"],
        ),
    ] = ()
    require: Annotated[
        tuple[str, ...],
        doc("Globs below `artifacts/`, or absolute, that must each match a file.", ["eval.json"]),
    ] = ()
    max_size: Annotated[
        Size,
        doc(
            "Most that is collected: a whole number with K, M, G or T (powers of 1024; none means M).", "500M"
        ),
    ] = "2G"


class PipelineTrain(Base, frozen=True):
    """What one pipeline trains. Missing values come from the spec's own `train`."""

    steps: Annotated[PositiveInt | None, doc("Training steps.", 6)] = None
    seed: Annotated[int | None, doc("Random seed.", 42)] = None
    parallel: Annotated[Parallel | None, doc("Degrees of model parallelism of its trainer, as a whole.")] = (
        None
    )
    rollout: Annotated[Rollout | None, doc("The engines that generate, as a whole.")] = None
    overrides: Annotated[
        dict[str, Any],
        doc(
            "Settings in the framework's own names, beside those of `train.overrides`. They win.",
            {"grpo.num_prompts_per_step": 4},
        ),
    ] = {}


class Pipeline(Base, frozen=True):
    """One of several trainings that share the GPUs of one Ray cluster (`rlix`)."""

    name: Annotated[
        Name, doc("Short name, used for its folders, its metrics and its part of the verdict.", "math")
    ]
    config: Annotated[
        str,
        doc(
            "The trainer's own configuration file: absolute, or below its checkout.",
            "examples/configs/grpo_math_1B.yaml",
        ),
    ]
    train_gpus: Annotated[
        tuple[NaturalInt, ...],
        doc("GPUs of its trainer, counted over all nodes from 0.", [0, 1]),
    ]
    infer_gpus: Annotated[
        tuple[NaturalInt, ...],
        doc("GPUs of its engines, its training GPUs included. Default: all.", [0, 1, 2, 3]),
    ] = ()
    train: Annotated[PipelineTrain, doc("What it trains, where different from `train`.")] = PipelineTrain()
    metrics: Annotated[Metrics, doc("What its own figures must show, named as it logs them.")] = Metrics()


class Sweep(Base, frozen=True):
    """Many points from one spec, submitted as one job array."""

    grid: Annotated[
        dict[str, tuple[Any, ...]],
        doc("Values of each dotted key; every combination is a point.", {"train.parallel.pp": [2, 4]}),
    ] = {}
    points: Annotated[
        tuple[dict[str, Any], ...],
        doc("Points given one by one: dotted keys and values.", [{"train.seed": 1}]),
    ] = field(default=(), name="list")
    exclude: Annotated[
        tuple[dict[str, Any], ...], doc("Points of the grid to leave out: dotted keys and values.")
    ] = ()
    invalid: Annotated[
        Literal["skip", "error"],
        doc("What happens to a point that breaks a check: left out and named, or an error."),
    ] = "error"
    mode: Annotated[
        Literal["array", "one_allocation"],
        doc(
            "On Slurm: `array` makes each point a job of its own; `one_allocation` makes one job that runs "
            "the points in turn, each with its own Ray, and `resources.time` covers them all."
        ),
    ] = "array"


class JobSpec(Base, frozen=True):
    """A jobspec job: one RL post-training run on one cluster."""

    version: Annotated[Literal[1], doc("Version of this format.", 1)]
    name: Annotated[
        Name, doc("Name of the run: letters, digits, `.`, `_`, `-`; at most 63.", "ultra550b-grpo")
    ]
    framework: Annotated[
        str,
        doc(
            "What runs: `nemo_rl`, `verl`, `skyrl`, `rlix`, `trl` or `command` (`jobspec framework list`).",
            "trl",
        ),
    ]
    cluster: Annotated[
        str | None, doc("Site profile; `--cluster` wins. Default: `local`.", "slurm-pyxis")
    ] = None
    coverage: Annotated[Coverage, doc("What the run has to prove.")] = Coverage()
    resources: Annotated[Resources, doc("What the scheduler is asked for.")] = Resources()
    groups: Annotated[
        tuple[Group, ...],
        doc(
            "Unequal nodes in one run, such as trainer, rollout and CPU environments; `resources.nodes` is "
            "their sum. The first has the head, where the driver runs.",
            [{"name": "trainer", "nodes": 2}, {"name": "envs", "gpus_per_node": 0}],
        ),
    ] = ()
    slurm: Annotated[RunOptions, doc("What Slurm is told about this run.")] = RunOptions()
    launch: Annotated[Launch, doc("How the run is started inside its allocation.")] = Launch()
    container: Annotated[
        Container, doc("The container that the run lives in; a service may have its own.")
    ] = Container()
    repos: Annotated[tuple[Repo, ...], doc("Source checkouts; their order is the order on PYTHONPATH.")] = ()
    model: Annotated[Model | None, doc("The model that is trained.")] = None
    data: Annotated[tuple[Data, ...], doc("Data sets.")] = ()
    hf_cache: Annotated[HfCache, doc("The Hugging Face cache.")] = HfCache()
    mcore_helpers: Annotated[
        McoreHelpers | None, doc("Megatron-Core's dataset helpers to build before training.")
    ] = None
    train: Annotated[Train, doc("What is trained, and how.")] = Train()
    pipelines: Annotated[
        tuple[Pipeline, ...],
        doc("For `rlix`: trainings that share the GPUs; `train` is what they have in common."),
    ] = ()
    services: Annotated[
        tuple[Service, ...],
        doc("Programs beside the driver, such as reward servers; each is ready before the next one starts."),
    ] = ()
    checkpoint: Annotated[Checkpoint, doc("Saving and resuming.")] = Checkpoint()
    metrics: Annotated[Metrics, doc("What the logged figures must show.")] = Metrics()
    watch: Annotated[Watch, doc("What is watched while the run goes on.")] = Watch()
    artifacts: Annotated[Artifacts, doc("Files to bring home.")] = Artifacts()
    secrets: Annotated[
        tuple[EnvName, ...],
        doc(
            "Names of environment variables that reach the job by name only; values are never written.",
            ["HF_TOKEN"],
        ),
    ] = ()
    sweep: Annotated[Sweep | None, doc("Many points from one spec.")] = None
    base: Annotated[
        str | tuple[str, ...] | None,
        doc(
            "Spec files below this one, in order: they give what this file leaves out. Relative to it.",
            "common.yaml",
            ["site.yaml", "models/qwen3.yaml:long"],
        ),
    ] = None
    variants: Annotated[
        dict[Name, dict[str, Any]],
        doc(
            "Named changes of this spec: `jobspec run spec.yaml:long` lays `long` over it.",
            {"long": {"train": {"steps": 1000}}},
        ),
    ] = {}
    lock: Annotated[
        dict[str, Any] | UnsetType,
        doc("Written by jobspec into `spec.lock.yaml`: what was pinned. Leave it to jobspec."),
    ] = UNSET
    user: Annotated[
        dict[str, Any], doc("Free for your own notes; jobspec ignores it.", {"ticket": "RL-17"})
    ] = {}

    @property
    def containers(self) -> tuple[tuple[Path, Container], ...]:
        """The run's own, and those of services, each with its path; as `Plan.containers`."""
        of_services = ((at, one.container) for at, one in enumerate(self.services))
        own = ((("services", at, "container"), one) for at, one in of_services if one is not None)
        return ((("container",), self.container), *own)
