"""What a variant is: which maintained script or recipe runs, and what it must leave behind. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Trainer = Literal["sync", "async", "transfer_queue", "single_controller", "sft", "dpo", "distillation", "vlm"]
"""Which of NeMo-RL's training loops must have run; each starts with a line of its own, or with none."""

Reduce = Literal["max", "min", "mean", "median", "at", "has", "ratio_above"]
ACTOR_INSTALL = "the data plane's actors may install `TransferQueue` from GitHub at their first start"
MODEL_KEYS = ("policy.model_name", "policy.tokenizer.name")


@dataclass(frozen=True)
class MetricCheck:
    """One condition of a maintained script on a logged metric; jobspec evaluates it again.

    `at` compares the value of step `argument`, `has` asks that the step was logged, and `ratio_above` is the
    share of values that reach `argument`. `file` limits it to one of the variant's metric files.
    Source: NeMo-RL's `tests/check_metrics.py`.
    """

    reduce: Reduce
    metric: str
    op: Literal["<", ">", "<=", ">=", "=="] = "<"
    limit: float = 0.0
    argument: float = 0.0
    file: str = ""

    @property
    def text(self) -> str:
        """The condition as `tests/check_metrics.py` takes it."""
        data = f'data["{self.metric}"]'
        if self.reduce == "has":
            return f'"{self.argument:g}" in {data}'
        value = f'{data}["{self.argument:g}"]' if self.reduce == "at" else self._reduced(data)
        return f"{value} {self.op} {self.limit:g}"

    @property
    def words(self) -> str:
        """The condition for people."""
        step = f"`{self.metric}` of step {self.argument:g}"
        if self.reduce == "has":
            return f"{step} is logged"
        value = step if self.reduce == "at" else f"`{self._reduced(self.metric)}`"
        return f"{value} {self.op} {self.limit:g}"

    def _reduced(self, data: str) -> str:
        if self.reduce == "ratio_above":
            return f"ratio_above({data}, {self.argument:g})"
        return f"{self.reduce}({data})"


@dataclass(frozen=True)
class Variant:
    """One maintained script or recipe with our arguments.

    - `script` is a path below the checkout. A `.sh` is run as it is; a `.py` is an entry point that runs
      `config` with the common arguments of `commands.ENTRY`, and then the checkout's own metric tools.
    - `config`: the recipe that the script composes, in which override keys are looked up.
    - `steps_key`: what sets the number of steps; empty where the script decides it alone.
    - `nodes` is exact, 0 stands for as many as the spec asks for. `gpus` (per node) is a minimum.
    - `proofs` name lines of `proofs.py` that the log must hold; `checks` are the script's own conditions.
    - `metrics`: files below the script's output folder, by their names there.
    - `own_checkpoint_dir`: the script gives each of its runs a folder; one value for all would mix them.
    - `leftovers`: files below the checkout that would shorten a fresh run.
    - `model_keys`: what a spec's `model` sets; empty where the script only works with its own.
    - `network`: what is fetched while it runs, beside the model and data that the cache may hold.
    - `max_capability`: the maintainers skip it on GPUs of this compute capability and newer.
    - `owns_ray`: it stops every Ray process of the node and starts its own.
    - `trace`: the routes of experts are traced, and the checkout's own tool compares them afterwards.
    - `sizes`: the spec's `train.parallel` and `train.rollout` replace the recipe's.
    """

    name: str
    level: int
    proves: str
    script: str
    steps: int
    overrides: tuple[str, ...] = ()
    nodes: int = 1
    gpus: int = 2
    config: str = ""
    steps_key: str = ""
    trainer: Trainer = "sync"
    proofs: tuple[str, ...] = ()
    checks: tuple[MetricCheck, ...] = ()
    metrics: tuple[str, ...] = ("metrics.json",)
    model: str = "Qwen/Qwen2.5-0.5B"
    model_keys: tuple[str, ...] = MODEL_KEYS
    env: tuple[tuple[str, str], ...] = ()
    network: str = ""
    lora: bool = False
    saves: bool = False
    resumes: bool = False
    learning: bool = False
    own_checkpoint_dir: bool = False
    leftovers: tuple[str, ...] = ()
    max_capability: str = ""
    owns_ray: bool = False
    sizes: bool = False
    trace: bool = False
    limitation: str = ""

    @property
    def is_entry(self) -> bool:
        """Whether `script` is an entry point that jobspec gives a recipe, not a script with its own."""
        return self.script.endswith(".py")

    @property
    def network_actors(self) -> bool:
        """Whether the data plane's actors start, which may install a package by themselves."""
        return self.network == ACTOR_INSTALL

    @property
    def outputs(self) -> str:
        """The folder that a script writes to, and removes at its start, below the checkout."""
        return "" if self.is_entry else self.script.removesuffix(".sh")
