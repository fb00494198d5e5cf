"""What a variant is: which maintained script or recipe runs, and what it must leave behind.

`variants.yaml` has the variants. `variants.schema.json` is generated from the types here, and an editor shows
their descriptions. Nothing here reads a file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from jobspec.spec.fields import NaturalInt, PositiveInt, doc

Trainer = Literal["sync", "async", "transfer_queue", "single_controller", "sft", "dpo", "distillation", "vlm"]
ACTOR_INSTALL = "the data plane's actors may install `TransferQueue` from GitHub at their first start"
MODEL_KEYS = ("policy.model_name", "policy.tokenizer.name")

# The forms of a condition that the scripts of the variants give to NeMo-RL's `tests/check_metrics.py`.
_DATA, _NUMBER = r'data\["(?P<metric>[^"]+)"\]', r"-?\d+(?:\.\d+)?"
_LIMIT = rf" (?P<op><=|>=|==|<|>) (?P<limit>{_NUMBER})"
_FORMS = {
    "has": rf'"(?P<argument>\d+)" in {_DATA}',
    "at": rf'{_DATA}\["(?P<argument>\d+)"\]{_LIMIT}',
    "": rf"(?P<reduce>max|min|mean|median)\({_DATA}\){_LIMIT}",
    "of steps": rf"(?P<reduce>mean|median)\({_DATA}, (?P<start>-?\d+)(?:, (?P<end>-?\d+))?\){_LIMIT}",
    "ratio_above": rf"ratio_above\({_DATA}, (?P<argument>{_NUMBER})\){_LIMIT}",
}
KNOWN = (
    '`max(data["METRIC"]) < N`, also with min, mean or median; `data["METRIC"]["STEP"] < N`; '
    '`mean(data["METRIC"], FROM, TO) < N`, also with median; `"STEP" in data["METRIC"]`; '
    '`ratio_above(data["METRIC"], N) < N`; with <, >, <=, >= or =='
)
_PATTERN = "|".join(re.sub(r"\?P<\w+>", "", form) for form in _FORMS.values())
Condition = Annotated[
    str,
    Meta(
        description=f"A condition on a logged metric, as `tests/check_metrics.py` takes it: {KNOWN}.",
        examples=['max(data["train/token_mult_prob_error"]) < 1.05', 'data["train/loss"]["3"] < 5.9'],
        extra_json_schema={"pattern": f"^(?:{_PATTERN})$"},
    ),
]


@dataclass(frozen=True)
class MetricCheck:
    """A condition of a maintained script on a logged metric, taken apart: jobspec evaluates it again.

    `reduce` is `max`, `min`, `mean`, `median` or one of three other words. `at` compares the value of step
    `argument`. `has` asks only that this step was logged. `ratio_above` is the share of values that reach
    `argument`. `file` limits the condition to one of the variant's metric files. A mean or median is
    of the steps from `start` to before `end`; as in NeMo-RL, -1 is the last step and an `end` of 0 behind it.
    """

    text: str
    reduce: str
    metric: str
    op: str = ""
    limit: float = 0.0
    argument: float = 0.0
    file: str = ""
    start: int = 1
    end: int = 0

    def covers(self, step: int, last: int) -> bool:
        """Whether a step of a run that ended at `last` counts."""
        start, end = (at + last + 1 if at < 0 else at for at in (self.start, self.end))
        return start <= step < (end or last + 1)

    @property
    def words(self) -> str:
        """The condition for people."""
        step = f"`{self.metric}` of step {self.argument:g}"
        if self.reduce == "has":
            return f"{step} is logged"
        argument = f", {self.argument:g}" if self.reduce == "ratio_above" else ""
        if (self.start, self.end) != (1, 0):
            argument = f", {self.start}" + (f", {self.end}" if self.end else "")
        value = step if self.reduce == "at" else f"`{self.reduce}({self.metric}{argument})`"
        return f"{value} {self.op} {self.limit:g}"


def parse_condition(text: str, file: str = "") -> MetricCheck:
    """The condition that `text` is.

    Raises: ValueError when it has none of the forms.
    """
    for name, form in _FORMS.items():
        match = re.fullmatch(form, text)
        if match is not None:
            parts = match.groupdict()
            return MetricCheck(
                text,
                parts.get("reduce", name),
                parts["metric"],
                parts.get("op", ""),
                limit=float(parts.get("limit") or 0),
                argument=float(parts.get("argument") or 0),
                file=file,
                start=int(parts.get("start") or 1),
                end=int(parts.get("end") or 0),
            )
    raise ValueError(f"`{text}` is no condition that jobspec can evaluate; use {KNOWN}")


class Variant(Struct, frozen=True, forbid_unknown_fields=True):
    """One maintained script or recipe with our arguments."""

    name: Annotated[str, doc("What a job's `coverage.variants` says.", "colocated")]
    level: Annotated[NaturalInt, doc("Number of its level.", 0)]
    proves: Annotated[str, doc("What a pass means, without a full stop.")]
    script: Annotated[
        str,
        Meta(
            description="Path below the checkout: a `.sh` runs as it is, a `.py` runs `config`.",
            examples=["tests/functional/grpo_megatron.sh", "examples/run_grpo.py"],
            extra_json_schema={"pattern": r"\.(sh|py)$"},
        ),
    ]
    config: Annotated[
        str, doc("The recipe that the script composes, below the checkout; its keys are looked up there.")
    ]
    steps: Annotated[PositiveInt, doc("Train steps of the script or recipe.", 2)]
    steps_key: Annotated[
        str,
        doc("What a job's `train.steps` sets; empty where the script alone decides.", "grpo.max_num_steps"),
    ] = ""
    overrides: Annotated[
        tuple[str, ...],
        doc("Further arguments of the script.", ["grpo.num_prompts_per_step=8"]),
    ] = ()
    nodes: Annotated[NaturalInt, doc("Exact number of nodes; 0 for as many as the job asks for.", 2)] = 1
    gpus: Annotated[PositiveInt, doc("Least number of GPUs on each node.", 8)] = 2
    model: Annotated[str, doc("The model of the script or recipe.", "Qwen/Qwen3-0.6B")] = "Qwen/Qwen2.5-0.5B"
    model_keys: Annotated[
        tuple[str, ...], doc("What a job's `model` sets; `[]` where the script only works with its own.")
    ] = MODEL_KEYS
    trainer: Annotated[
        Trainer,
        doc("Which of NeMo-RL's training loops must have run, by the line that it prints first."),
    ] = "sync"
    env: Annotated[dict[str, str], doc("Environment variables of the run.")] = {}
    network: Annotated[
        str, doc("What the run fetches, beside the model and data that the cache may hold.")
    ] = ""
    network_actors: Annotated[
        bool, doc("The data plane's actors start, which may install TransferQueue by themselves.")
    ] = False
    sizes: Annotated[
        bool, doc("A job's `train.parallel` and `train.rollout` replace the recipe's sizes.")
    ] = False
    lora: Annotated[bool, doc("A LoRA adapter trains: the log must show that it has parameters.")] = False
    saves: Annotated[bool, doc("It must leave a complete checkpoint of its last step.")] = False
    resumes: Annotated[bool, doc("It must load a checkpoint and train on.")] = False
    learning: Annotated[bool, doc("Metrics must show a trend; it may run longer than the script does.")] = (
        False
    )
    own_checkpoint_dir: Annotated[
        bool, doc("The script gives each of its runs a checkpoint folder; one value for all would mix them.")
    ] = False
    leftovers: Annotated[
        tuple[str, ...],
        doc("Files below the checkout that would shorten a fresh run: jobspec refuses it."),
    ] = ()
    max_capability: Annotated[
        str, doc("The maintainers skip it on GPUs of this compute capability and newer.", "10.0")
    ] = ""
    owns_ray: Annotated[bool, doc("It stops every Ray process of the node and starts its own.")] = False
    trace: Annotated[
        bool, doc("The routes of experts are traced, and the checkout's own tool compares them afterwards.")
    ] = False
    proofs: Annotated[
        tuple[str, ...], doc("Lines that the log must hold, or must not, by their names in `proof_lines.py`.")
    ] = ()
    metrics: Annotated[
        tuple[str, ...], doc("Metric files below the script's output folder; `[]` where it logs none.")
    ] = ("metrics.json",)
    checks: Annotated[
        tuple[Condition, ...] | dict[str, tuple[Condition, ...]],
        doc("The script's own conditions: of every metric file, or by file."),
    ] = ()
    limitation: Annotated[str, doc("What a pass does not mean, beyond what the level says.")] = ""

    @property
    def is_entry(self) -> bool:
        """Whether `script` is an entry point to which jobspec gives a recipe, not a script with its own."""
        return self.script.endswith(".py")

    @property
    def outputs(self) -> str:
        """The folder below the checkout that a script clears and writes to; empty for an entry point."""
        return "" if self.is_entry else self.script.removesuffix(".sh")

    @property
    def metric_checks(self) -> tuple[MetricCheck, ...]:
        """`checks`, taken apart."""
        by_file = self.checks if isinstance(self.checks, dict) else {"": self.checks}
        return tuple(parse_condition(text, file) for file, texts in by_file.items() for text in texts)


class LevelText(Struct, frozen=True, forbid_unknown_fields=True):
    """What a level means."""

    number: Annotated[NaturalInt, doc("Its number, as a job's `coverage.level` may say.", 0)]
    name: Annotated[str, doc("Its name, as a job's `coverage.level` may say.", "smoke")]
    proves: Annotated[str, doc("What a pass of any of its variants means.")]
    not_proved: Annotated[tuple[str, ...], doc("What a pass never means.")] = ()


class Catalogue(Struct, frozen=True, forbid_unknown_fields=True):
    """What jobspec runs of a NeMo-RL checkout, and what each run must leave behind."""

    levels: Annotated[tuple[LevelText, ...], doc("The coverage levels, from the cheapest.")]
    variants: Annotated[
        tuple[Variant, ...], doc("Level by level; the first of a level runs when a job names none.")
    ]
    shared: Annotated[dict[str, Any], doc("Lists and texts that entries refer to by YAML's anchors.")] = {}
