"""What verl's own log lines say, one pass over each log. Reads; judges nothing.

Source: verl releases 0.7.0 to 0.10.0.dev, both trainers. Ray's prefixes and colours are removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jobspec.metrics.text import clean
from jobspec.verdict import EvidenceItem

SETTING = re.compile(
    r"(?:(?P<trace>actor_rollout_ref\.actor\.megatron\.)|')(?P<key>vanilla_mbridge|use_mbridge|use_megatron_fsdp|strategy"
    r"|(?:tensor|pipeline|context)_model_parallel_size|context_parallel_size|expert_model_parallel_size"
    r"|expert_tensor_parallel_size)(?:': |=)'?(?P<value>\w+)"
)
SHELL_VANILLA = re.compile(r"^\+ (?:export )?VANILLA_MBRIDGE=(?P<value>\w+)")
MEGATRON = re.compile(r"ppo_megatron_trainer|'strategy': 'megatron'|^(?:actor_)?module: \d|^TF config:")
TRAINED = re.compile(r"^step:\d+ - .*(?<![\w/])training/global_step:(?:np\.\w+\()?(?P<step>\d+)")
ADAPTER = re.compile(r"(?:Adapter parameters: +(?P<count>[\d,]+)|Trainable percentage: +(?P<share>[\d.]+)%)")
RESUMED = re.compile(r"setting global step to (?P<step>\d+)", re.IGNORECASE)
SCRATCH = "Training from scratch"
NO_ADAPTER = "no adapter checkpoint found at"
LOADED = re.compile(r"Loaded (?P<what>[\w -]*?)(?: checkpoint)? from (?P<path>\S+)")


@dataclass
class LogFacts:
    """Facts of one log, each with the line that says so; filled line by line."""

    settings: dict[tuple[str, str], EvidenceItem] = field(default_factory=dict)
    megatron: EvidenceItem | None = None
    trained: dict[int, EvidenceItem] = field(default_factory=dict)
    adapter: EvidenceItem | None = None
    resumed: tuple[int, EvidenceItem] | None = None
    scratch: EvidenceItem | None = None
    no_adapter: EvidenceItem | None = None
    loaded: dict[tuple[str, str], EvidenceItem] = field(default_factory=dict)  # (actor|critic, what)

    def add(self, text: str, item: EvidenceItem) -> None:
        for found in SETTING.finditer(text):
            self.settings.setdefault((found["key"], found["value"]), item)
            if found["trace"]:
                self.settings.setdefault((f"trace:{found['key']}", found["value"]), item)
        if shell := SHELL_VANILLA.match(text):
            self.settings.setdefault(("vanilla_mbridge", shell["value"]), item)
        if self.megatron is None and MEGATRON.search(text):
            self.megatron = item
        if trained := TRAINED.match(text):
            self.trained[int(trained["step"])] = item
        if (adapter := ADAPTER.search(text)) and float(
            (adapter["count"] or adapter["share"]).replace(",", "")
        ):
            self.adapter = self.adapter or item
        if resumed := RESUMED.search(text):
            self.resumed = (int(resumed["step"]), item)
        if SCRATCH in text:
            self.scratch = item
        if NO_ADAPTER in text:
            self.no_adapter = item
        if loaded := LOADED.search(text):
            role = next((r for r in ("actor", "critic") if f"/{r}" in loaded["path"]), "")
            self.loaded.setdefault((role, loaded["what"]), item)


def read_logs(root: Path, names: Iterable[str]) -> tuple[LogFacts, ...]:
    """Facts of each log that can be read; `names` are relative to `root`."""
    found = []
    for name in names:
        facts = LogFacts()
        for text, item in read_lines(root, name):
            facts.add(text, item)
        found.append(facts)
    return tuple(found)


def read_lines(root: Path, name: str) -> Iterator[tuple[str, EvidenceItem]]:
    """Cleaned lines with their places; nothing when the log cannot be read."""
    try:
        with (root / name).open(encoding="utf-8", errors="replace", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                for part in line.split("\r"):
                    text = clean(part)
                    yield text, EvidenceItem(name, number, text.strip()[:300])
    except OSError:
        return
