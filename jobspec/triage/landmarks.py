"""Landmarks: lines that show how far a run had come. A failure's meaning depends on those before it.

A search for literal texts, block by block, finds them: a few fast searches, and no pattern per line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass

from jobspec.log_search import line_at
from jobspec.log_text import bare

PART_BYTES = 20_000  # read of one state of a progress bar, or of a line without one
MAX_TRIES = 100  # lines of a block that hold a literal and turn out to be something else


@dataclass(frozen=True)
class Landmark:
    """A place in one log. `time` is None where the log has none near it."""

    line: int
    time: float | None = None


@dataclass(frozen=True)
class Kind:
    """Lines that hold the literal and, where there is one, match the pattern.

    With `within` they count only where its second text stands between them and its first, in the same block;
    with `unless` only where that text does not stand before them there.
    """

    literal: bytes
    pattern: re.Pattern[str] | None = None
    within: tuple[bytes, bytes] | None = None
    unless: bytes | None = None


def kind(literal: str, pattern: str = "") -> Kind:
    """Lines that hold `literal` and match `pattern`."""
    return Kind(literal.encode(), re.compile(pattern) if pattern else None)


# In these runs Megatron-Bridge may build the model: an earlier failure is not Megatron-Bridge's.
MANAGED = (
    kind("MegatronPolicyWorker"),
    kind("verl.trainer.main_ppo"),
    kind("(TaskRunner pid="),
    kind("(TaskRunnerV1 pid="),
    kind("nemo_rl"),
)
# The model's construction has begun. Source: verl 0.7 to 0.10 `workers/engine/megatron`, `fsdp_workers.py`,
# NeMo-RL of 2026-08 `models/megatron/setup.py`, `models/automodel/setup.py`, transformers' loader.
CONSTRUCTION = (
    kind("Enabling LORA with rank"),
    kind("TF config:"),
    kind("module: ", r"^(?:actor_)?module: \d"),
    kind("Using default megatron checkpoint dir"),
    kind("time to initialize megatron"),
    kind(" parameters", r"^\w+ contains [\d.]+[MBK]? parameters"),
    kind("wrap_policy: "),
    kind("Initializing empty model for FSDP"),
    kind("Loading checkpoint shards: "),
)
# Trainer workers are complete: next comes the rollout's start or a training step.
BUILT = (
    kind("actor and ref model engine initialized"),
    kind("Model, optimizer, and learning rate scheduler built"),
    kind("init policy/ref/critic models done"),
    kind("SETUP COMPLETE"),
    kind("***** Running training *****"),
    kind("Training Progress: "),  # verl
)
# No loss of a validation, and no prose: an answer of the model may say what a step lost.
OWN_STEP = (
    r"^(?!(?i:\W*(?:\S+ )?(?:val|eval|test))|.*\b[a-z]+ [a-z]+ [a-z]+ [a-z]+\b)(?=.*"
    r"\b(?i:global_step|step|iter|iteration|epoch)[ :=#/]{1,3}[1-9]\d*\b.*"
    r"(?<!val[_/ .])(?<!eval[_/ .])(?<!test[_/ .])(?<!valid[_/ .])"
    r"(?<!validation[_/ .])loss\b\S{0,3}[ :=]+-?[\d.])"
)
# A training step is done. Progress bars do not count: a dying program draws them once more.
STEP = (
    kind("step:", r"^step:[1-9]\d* - .*\b(?:training/global_step|actor/\w+|critic/\w+)\b"),
    kind("Total step time: "),
    kind("loss': ", rf"^\{{.*'loss': |(?:{OWN_STEP})"),
    # SkyRL, whose timer says so of a step that raised, too: the weights are sent after the training alone.
    Kind(b"Finished: 'step'", within=(b"Started: 'step'", b"Finished: 'sync_weights'")),
    kind("'trainer/global_step': ", r"'trainer/global_step': '?[1-9]"),  # SkyRL, with the metrics of a step
    kind("Global step ", r"Global step [1-9]\d*: \{"),  # OpenRLHF
    kind("elapsed time per iteration", r"\biteration +[1-9]"),  # Megatron-LM
    # Trainers of one's own, and slime: a number of the step, and what it earned or lost.
    kind("|Loss: ", r"^\d+\|[1-9]\d*\|Loss: -?\d"),  # torchtune
    kind(" | Time: ", r"\bSUCCESS Step [1-9]\d* \| Time: "),  # prime-rl
    kind("loss=", OWN_STEP),
    kind("loss: ", OWN_STEP),
    kind(" loss ", OWN_STEP),
)
# A gradient norm that is a number. Where such follow, one that is none is no loss of the weights: mixed
# precision skips the updates whose gradients overflow while it looks for its loss scale.
FINITE = (kind("grad_norm", r"grad_norm['\"]?\s*[:=]\s*['\"]?(?:np\.float\d+\()?\d"),)
# A bar of the training has moved. It shows that a step was done, but not when: see above.
BAR = (
    kind("Epoch ", r"^Epoch \d+: +\d+%\|[^|]*\| *[1-9]\d*/\d+ \["),  # Lightning
    kind(
        "Train step of epoch ", r"^Train step of epoch \d+: +\d+%\|[^|]*\| *[1-9]\d*/\d+ \[.*loss="
    ),  # OpenRLHF
)
# Of these the first of a run counts; names are those of `Course`.
FIRST = (("construction", CONSTRUCTION), ("built", BUILT), ("bar", BAR))
# By itself, or behind the head of a logger: then it has to be all that the line says.
TRAINED = (
    r"(?i)^(?!.*(?:\b(?:code|status|rc)\W{1,3}-?[1-9]|\bfail|\berror))"
    r"(?:\W*training (?:has |is |run )?(?:finished|completed?|done|ended)\b"
    r"|.*\b(?:INFO|SUCCESS|NOTICE)\b\W+(?:.{0,60} - )?(?:(?:RL|RLHF|GRPO|PPO|DPO|SFT) )?"
    r"training (?:has |is |run )?(?:finished|completed?|done|ended)(?: successfully)?\W*$)"
)
# A trainer says that all its work is done.
FINISHED = (
    kind("Max number of steps has been reached"),
    # NeMo-RL's asynchronous training says so in its `finally`, after it caught an error, too.
    Kind(b"GRPO training complete!", unless=b"Error in async loop: "),
    kind("Final validation metrics:"),
    kind("'train_runtime': "),
    kind("Training done!", r"\bskyrl(?:_|\.)train\.\w+:train:\d+ - Training done!"),
    kind(" finished", r"\bSUCCESS (?:Orchestrator|(?:RL |SFT )?[Tt]rain(?:er|ing)) finished\b"),  # prime-rl
    kind("Trainer.fit", r"`Trainer\.fit` stopped: `max_(?:epochs|steps)=\d+` reached"),  # Lightning
    kind("[after training is done]"),  # Megatron-LM
    kind("Training Progress: ", r"^Training Progress: 100%\|[^|]*\| *(\d+)/\1(?: |$)"),  # verl
    kind("Number of trials: ", r"^Number of trials: (\d+)/\1 \(\1 TERMINATED\)"),  # Ray Tune, as the next
    kind("Trial status: ", r"^Trial status: \d+ TERMINATED\s*$"),
)
# The program has reached its end: later complaints come from its shutdown. A script may say so of any end.
DONE = (*FINISHED, kind("raining ", TRAINED))
# After the end of one stage: another one begins, with a model of its own.
STAGES = (
    kind("verl.trainer.main", r"-m verl\.trainer\.main_"),
    kind("Loading checkpoint shards: "),
    kind("***** Running training *****"),
    kind("Started a local Ray instance"),
    kind("Initializing a V", r"Initializing an? V\d LLM engine"),
    kind("submitted successfully", r"(?i)^job '\S+' submitted successfully"),  # Ray
    kind("+ python", r"^\+ python"),
    kind("torchrun", r"^\+ (?:\S+ ){0,3}\S*torchrun\b.*\s--?\w"),
    kind("launch", r"^\+ (?:\S+ ){0,3}accelerate launch "),
    kind("deepspeed", r"^\+ (?:\S+ ){0,3}deepspeed .*\S"),
)
# Somebody states a good end: a script its exit code, Ray the job. It counts after a train step alone, since a
# script says so of each of its commands.
STATED_END = (
    kind("rc=", r"\brc=0\b"),
    kind(
        "exit",
        r"(?i)^(?!.*\b(?:stop|clean\w*|preprocess\w*|server|engine)\b).*"
        r"\bexit(?:ed)?(?: with)?(?: exit)?[ _](?:code|status)[ =:]{1,2}0\b|\bexited with 0\b",
    ),
    kind(
        "tatus",
        r"(?i)\b(?:ended|finished|completed|done)\b.{0,30}\bstatus[ =:]{1,2}0\b",
    ),
    kind("succeeded", r"(?i)(?:^|\bSUCC\b.{0,40} )job '?[\w.-]+'? (?:has )?succeeded\W*$"),
    kind(
        "success",
        r"(?i)^(?:\w+: )?(?:the |training )?(?:job|run|training)\b(?: \S+)?(?: has| was| is)?"
        r" (?:completed|finished|ended) successfully\W*$",
    ),
    kind("COMPLETED", r"\bJobState=COMPLETED\b|^ *\d+ .*\bCOMPLETED +0:0\b"),  # Slurm
    kind(" condition met", r"^(?:job\.batch|pytorchjob\.\S+|mpijob\.\S+)/\S+ condition met"),  # kubectl wait
    kind("--- PASS: "),  # go test
)

_WHAT = r"(?:lines|rows|samples|records|examples|completions|prompts|answers|files|documents|items|entries)"
# A program says how much it has written, what it was to make, or that all is done.
WROTE = (
    *(kind(word, r"(?i)^\W*(?:all |everything is )?done\W*$") for word in ("Done", "done", "DONE")),
    kind("rote ", rf"(?i)\bwrote (?:all )?[1-9][\d,]* {_WHAT}\b"),
    kind("aved ", rf"(?i)\bsaved (?:all )?[1-9][\d,]* {_WHAT}\b"),
    kind("ritten", rf"(?i)\b[1-9][\d,]* {_WHAT} (?:were |have been |are )?written\b"),
)
# The line of a step that is the last of all, by its own count; one of an epoch may count that epoch alone.
_LAST_STEP = re.compile(
    r"(?i)^(?!.*(?:\bepoch|warm|micro|accum|inner))"
    r".*\b(?:global_step|step|iter|iteration)[ :=#]{1,12}\[? *(\d+) ?/ *\1\b"
)

ALL = (*MANAGED, *CONSTRUCTION, *BUILT, *STEP, *FINITE, *BAR, *DONE, *STAGES, *STATED_END, *WROTE)


def present(kinds: Iterable[Kind], hints: Set[str]) -> tuple[Kind, ...]:
    """The kinds whose literal is among the hints that a text holds."""
    return tuple(item for item in kinds if item.literal.decode() in hints)


def find_all(block: bytes, kinds: tuple[Kind, ...]) -> list[int]:
    """Where lines of these kinds start, at most MAX_TRIES of each."""
    starts: set[int] = set()
    for item in kinds:
        at, tried = block.find(item.literal), 0
        while at >= 0 and tried < MAX_TRIES:
            start, end = line_at(block, at)
            tried += 1
            if _counts(block, start, end, item):
                starts.add(start)
            at = block.find(item.literal, end)
    return sorted(starts)


def find_first(block: bytes, kinds: tuple[Kind, ...]) -> int:
    """Where in the block the first line of these kinds starts, -1 when there is none."""
    return min((at for item in kinds if (at := _first(block, item)) >= 0), default=-1)


def find_last(block: bytes, kinds: tuple[Kind, ...]) -> int:
    """Where in the block the last line of these kinds starts, -1 when there is none."""
    return max((_last(block, item) for item in kinds), default=-1)


def is_last_step(text: bytes, at: int) -> bool:
    """Whether the line of a step that stands at `at` is that of the last one."""
    start, end = line_at(text, at)
    line = text[start : min(end, start + PART_BYTES)].decode("utf-8", "replace")
    return _LAST_STEP.search(bare(line)) is not None


def stages(text: bytes, hints: Set[str], *, done: bool) -> list[int]:
    """Where other stages begin, each after the end of one and with no step between; `done` tells that one had
    ended before the text."""
    begins, dones, steps = present(STAGES, hints), present((*DONE, *STATED_END), hints), present(STEP, hints)
    found, at = list[int](), 0
    while begins:
        end = 0 if done else find_first(text[at:], dones)
        begin = find_first(text[at + end :], begins) if end >= 0 else -1
        if begin < 0:
            break
        end, begin = at + end, at + end + begin
        step = find_last(text[end:begin], steps)
        if step < 0:
            found.append(begin)
        at, done = (begin if step < 0 else end + step), False
    return found


def _first(block: bytes, item: Kind) -> int:
    at = block.find(item.literal)
    for _ in range(MAX_TRIES):
        if at < 0:
            break
        start, end = line_at(block, at)
        if _counts(block, start, end, item):
            return start
        at = block.find(item.literal, end)
    return -1


def _last(block: bytes, item: Kind) -> int:
    at = block.rfind(item.literal)
    for _ in range(MAX_TRIES):
        if at < 0:
            break
        start, end = line_at(block, at)
        if _counts(block, start, end, item):
            return start
        at = block.rfind(item.literal, 0, start)
    return -1


def _counts(block: bytes, start: int, end: int, item: Kind) -> bool:
    if item.within is not None:
        begin, text = item.within
        if block.find(text, max(block.rfind(begin, 0, start), 0), start) < 0:
            return False
    if item.unless is not None and block.rfind(item.unless, 0, start) >= 0:
        return False
    return shows(block[start:end], item)


def shows(line: bytes, item: Kind) -> bool:
    """Whether a line that holds the kind's literal is of the kind."""
    if item.pattern is None:
        return True
    parts = (part[:PART_BYTES] for part in line.split(b"\r") if item.literal in part)
    return any(item.pattern.search(bare(part.decode("utf-8", "replace"))) for part in parts)
