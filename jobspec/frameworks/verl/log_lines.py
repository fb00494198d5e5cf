"""What verl's own log lines say, one pass over each log. Reads; judges nothing.

Source: verl releases 0.7.0 to 0.10.0.dev, both trainers. Ray's prefixes and colours are removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from jobspec.frameworks.shared.unmapped_weights import UNMAPPED, UNMAPPED_HINTS
from jobspec.frameworks.shared.weak_evidence import RANK_COUNT
from jobspec.frameworks.verl.printed_config import MAX_BLOCK_LINES, Block, Setting, Settings
from jobspec.log_search import Hints, find_lines
from jobspec.log_text import RAY_PREFIX, clean, strip_ansi, without_ray
from jobspec.verdict import EvidenceItem

HEAD = re.compile(r"an't find lm_head\.weight in hf_keys")
TRAINED = re.compile(
    r"^step:\d+ - .*(?<![\w/])training/global_step:(?:np\.\w+\()?(?P<step>\d+)"
    # Releases and forks before that metric: a gradient tells training from a validation.
    r"|^step:(?P<old>\d+) - (?!.*training/global_step).*(?<![\w/])actor/grad_norm:"
)
ADAPTER = re.compile(r"(?:Adapter parameters: +(?P<count>[\d,]+)|Trainable percentage: +(?P<share>[\d.]+)%)")
RESUMED = re.compile(r"setting global step to (?P<step>\d+)", re.IGNORECASE)
SCRATCH = "Training from scratch"
NO_ADAPTER = "no adapter checkpoint found at"
NO_LOADER_STATE = "No dataloader state found at"
LOADED = re.compile(r"Loaded (?P<what>[\w -]*?)(?: checkpoint| states?)? from (?P<path>\S+)")
SAVED = re.compile(
    r"(?:Saving checkpoint to:?|local_global_step_folder:|Dist checkpointing save completed for"
    r"|Saved bridge checkpoint to) \S*global_step_(?P<step>\d+)"
)
# Lines that Megatron's workers alone print, and the trainer's configuration by name.
MEGATRON = re.compile(
    r"ppo_megatron_trainer|^(?:actor_|critic_)?module: \d|^TF config:|'strategy': 'megatron'"
)
OTHER_ENGINE = re.compile(
    r"--config-name[= ]'?ppo_(?!megatron)\w*trainer|'strategy': '(?P<engine>fsdp2?|veomni|torchtitan)'"
    r"|'_target_': 'verl\.workers\.config\.FSDP(?:Actor|Critic)Config'"
    r"|^FSDP wrap policy: "  # EasyR1, a fork that has no other engine
    r'|^\s*File "\S*/verl/workers/fsdp_workers\.py", line \d+, in update_(?:actor|critic)$'
)
EXPERTS = re.compile(r"num_moe_experts=(?P<count>\d+)|'num_(?:local_|routed_)?experts': (?P<other>\d+)")
COUNT = re.compile(RANK_COUNT)
PROBE = re.compile(r"^jobspec: (?P<where>driver|worker)(?: on \S+)?: (?P<module>[\w.]+) (?P<file>/\S+)$")
WRAPPER = re.compile(r"^(?P<name>DistributedDataParallel|\w*FSDP\w*|FullySharded\w*) contains [\d.]+")
DUMMY = "Random model initialized and saved to"
OLD_DUMMY = re.compile(r"Output path '.*' already exists\. Will do nothing")

MAX_SHOWN = 300
CONFIG_START = "{'actor_rollout_ref'"  # keys are printed in order of the alphabet
# Every line that a pattern of this module or of `config` can match holds one of these.
WORDS = (
    CONFIG_START,
    "+ ",
    "vanilla_mbridge",
    "use_megatron_fsdp",
    "parallel_size",
    "'strategy'",
    "experts",
    "> number of parameters on (tensor",
    "ppo_megatron_trainer",
    "--config-name",
    "training/global_step",
    "actor/grad_norm:",
    "Adapter parameters",
    "Trainable percentage",
    "global step to",
    SCRATCH,
    NO_ADAPTER,
    NO_LOADER_STATE,
    "Loaded ",
    "Saving checkpoint to",
    "local_global_step_folder",
    "Dist checkpointing save completed",
    "Saved bridge checkpoint",
    "module: ",
    "TF config:",
    "FSDP wrap policy",
    "verl/workers/fsdp_workers.py",
    " contains ",
    *UNMAPPED_HINTS,
    "jobspec: ",
    DUMMY,
    "already exists. Will do nothing",
)


@dataclass
class LogFacts:
    """Facts of one log, each with the line that says so; filled line by line."""

    settings: Settings = field(default_factory=Settings)
    megatron: EvidenceItem | None = None
    other_engine: EvidenceItem | None = None
    trained: dict[int, EvidenceItem] = field(default_factory=dict)
    adapters: list[tuple[float, EvidenceItem]] = field(default_factory=list)
    resumed: tuple[int, EvidenceItem] | None = None
    scratch: EvidenceItem | None = None
    no_adapter: EvidenceItem | None = None
    no_loader_state: EvidenceItem | None = None
    loaded: dict[tuple[str, str], EvidenceItem] = field(default_factory=dict)  # (actor|critic, what)
    saved: dict[int, EvidenceItem] = field(default_factory=dict)
    experts: EvidenceItem | None = None
    counts: list[int] = field(default_factory=list)  # parameters of a rank, by Megatron's own words
    wrappers: list[tuple[str, EvidenceItem]] = field(default_factory=list)  # class around the model
    unmapped: EvidenceItem | None = None
    no_head: EvidenceItem | None = None  # in a run with a critic its value head, which no checkpoint has
    dummy: EvidenceItem | None = None
    old_dummy: EvidenceItem | None = None
    imports: list[tuple[str, str, str, EvidenceItem]] = field(default_factory=list)  # where, module, file

    def add(self, text: str, item: EvidenceItem) -> None:
        """Note what a line says, Ray's prefix removed."""
        self.settings.add_line(text, item)
        self._add_model(text, item)
        self._add_resume(text, item)
        if trained := TRAINED.match(text):
            self.trained[int(trained["step"] or trained["old"])] = item
        if probe := PROBE.match(text):
            self.imports.append((probe["where"], probe["module"], probe["file"], item))

    def _add_model(self, text: str, item: EvidenceItem) -> None:
        if self.megatron is None and MEGATRON.search(text):
            self.megatron = item
        if self.other_engine is None and OTHER_ENGINE.search(text):
            self.other_engine = item
        if wrapper := WRAPPER.match(text):
            self.wrappers.append((wrapper["name"], item))
        if any(hint in text for hint in UNMAPPED_HINTS) and UNMAPPED.search(text):
            if HEAD.search(text):
                self.no_head = self.no_head or item
            else:
                self.unmapped = self.unmapped or item
        if adapter := ADAPTER.search(text):
            self.adapters.append((float((adapter["count"] or adapter["share"]).replace(",", "")), item))
        if (count := COUNT.search(text)) and count[1]:
            self.counts.append(int(count[1]))
        if (experts := EXPERTS.search(text)) and int(experts["count"] or experts["other"]) > 1:
            self.experts = self.experts or item
        if DUMMY in text:
            self.dummy = item
        if OLD_DUMMY.search(text):
            self.old_dummy = item

    def _add_resume(self, text: str, item: EvidenceItem) -> None:
        if resumed := RESUMED.search(text):
            self.resumed = (int(resumed["step"]), item)
        if SCRATCH in text:
            self.scratch = item
        if NO_ADAPTER in text:
            self.no_adapter = item
        if NO_LOADER_STATE in text:
            self.no_loader_state = item
        if saved := SAVED.search(text):
            self.saved.setdefault(int(saved["step"]), item)
        if loaded := LOADED.search(text):
            role = next((r for r in ("actor", "critic") if f"/{r}" in loaded["path"]), "")
            self.loaded.setdefault((role, loaded["what"]), item)


def read_logs(root: Path, names: Iterable[str]) -> tuple[LogFacts, ...]:
    """Facts of each log; `names` are relative to `root`. A log that cannot be read has none."""
    return tuple(_read(root / name, name) for name in names)


def _read(path: Path, name: str) -> LogFacts:
    """Only lines that hold one of `WORDS` are looked at: a log may have a gigabyte of others."""
    facts, blocks = LogFacts(), []
    try:
        for line in find_lines(path, Hints(WORDS)):
            text = clean(line.text)
            facts.add(text, EvidenceItem(name, line.number, text.strip()[:MAX_SHOWN]))
            if CONFIG_START in line.hints:
                blocks.append(line.number)
        for number in dict.fromkeys(blocks):
            for key, setting in _read_block(path, name, number):
                facts.settings.config.setdefault(key, []).append(setting)
    except OSError:
        pass
    return facts


def _read_block(path: Path, name: str, first: int) -> Iterator[tuple[str, Setting]]:
    """The configuration that is printed from line `first` on, without lines of other processes."""
    block = None
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for number, line in enumerate(islice(lines, first - 1, first - 1 + MAX_BLOCK_LINES), first):
            plain = strip_ansi(line)
            prefix = RAY_PREFIX.match(plain)
            source = prefix[0].strip() if prefix else ""
            text = without_ray(plain)
            block = block or Block(source)
            item = EvidenceItem(name, number, text.strip()[:MAX_SHOWN])
            if source == block.source and not block.add(text, item):
                break
    return block.settings() if block else iter(())
