"""The settings that a verl run really had: the configuration that it printed, else the script's trace.

The runner prints its resolved configuration as one Python literal over hundreds of lines; other processes
may write between them. The literal wins over the script's trace: overrides come after the script's own
values. A log may hold several launches, so each setting keeps all values that the log shows.
Source: verl, `pprint(OmegaConf.to_container(config, resolve=True))` of both trainers; bash, `set -x`.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jobspec.verdict import EvidenceItem

MAX_BLOCK_LINES = 20_000  # a configuration has some 900
ENTRY = "verl.trainer.main_ppo"
SHELL = re.compile(r"^\++ (?:export )?(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>.*)$")
LEAF = re.compile(r"'(?P<key>[a-z_0-9]+)': (?P<value>'[^']*'|[\w.+-]+)")
QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'" + r'|"(?:[^"\\]|\\.)*"')
MEGATRON = "actor_rollout_ref.actor.megatron"
# The script's variable that stands for a key when no known line shows the key itself.
VARIABLE_OF = {
    f"{MEGATRON}.vanilla_mbridge": "VANILLA_MBRIDGE",
    f"{MEGATRON}.use_megatron_fsdp": "USE_MEGATRON_FSDP",
    f"{MEGATRON}.tensor_model_parallel_size": "ACTOR_TP",
    f"{MEGATRON}.pipeline_model_parallel_size": "ACTOR_PP",
    f"{MEGATRON}.virtual_pipeline_model_parallel_size": "ACTOR_VPP",
    f"{MEGATRON}.context_parallel_size": "ACTOR_CP",
    f"{MEGATRON}.expert_model_parallel_size": "ACTOR_EP",
    f"{MEGATRON}.expert_tensor_parallel_size": "ACTOR_ETP",
    f"{MEGATRON}.router_replay.mode": "ROUTING_REPLAY_MODE",
    "critic.megatron.vanilla_mbridge": "VALUE_VANILLA_MBRIDGE",
    "actor_rollout_ref.model.lora.rank": "LORA_RANK",
    "algorithm.adv_estimator": "ADV_ESTIMATOR",
    "trainer.total_training_steps": "TOTAL_TRAIN_STEPS",
}
KEY_OF = {variable: key for key, variable in VARIABLE_OF.items()}
# Sizes of rollout engines have the name of the trainer's: a lone line does not say whose it is.
AMBIGUOUS = frozenset({"tensor_model_parallel_size", "enable", "mode", "rank", "path", "strategy"})

# Settings that decide about the whole run: without a whole configuration, every source counts.
SWITCHES = frozenset({"vanilla_mbridge", "use_megatron_fsdp"})


@dataclass(frozen=True)
class Setting:
    """One value of one setting, as text (`True`, `null`, `2`), and the line that shows it."""

    value: str
    item: EvidenceItem
    added: bool = False  # by an override with `+`, which Hydra takes for keys that nothing reads


@dataclass
class Settings:
    """Settings by where they were shown: printed configuration, arguments, variables, lone lines."""

    config: dict[str, list[Setting]] = field(default_factory=dict)
    trace: dict[str, list[Setting]] = field(default_factory=dict)
    shell: dict[str, list[Setting]] = field(default_factory=dict)
    leaves: dict[str, list[Setting]] = field(default_factory=dict)

    def values(self, key: str) -> list[Setting]:
        """All values that the strongest source shows for `key`; `[]` when none does."""
        leaf = key.rpartition(".")[2]
        leaves = [] if leaf in AMBIGUOUS else self.leaves.get(leaf, [])
        shell = self.shell.get(key if key.isupper() else VARIABLE_OF.get(key, ""), [])
        trace = self.trace.get(key, [])
        if leaf in SWITCHES:
            return self.config.get(key) or [*trace, *shell, *leaves]
        return self.config.get(key) or trace or shell or leaves

    def proved(self, key: str) -> list[Setting]:
        """What verl itself shows for `key`: its resolved configuration, an override that it knows, a line.

        A variable of the script proves nothing: a release without the key does not read it.
        """
        leaf = key.rpartition(".")[2]
        trace = [setting for setting in self.trace.get(key, []) if not setting.added]
        leaves = [] if leaf in AMBIGUOUS else self.leaves.get(leaf, [])
        if leaf in SWITCHES:
            return self.config.get(key) or [*trace, *leaves]
        return self.config.get(key) or trace or leaves

    def add_line(self, text: str, item: EvidenceItem) -> None:
        """Note what a single line shows."""
        if text.startswith("+"):
            if shell := SHELL.match(text):
                value = _unquoted(shell["value"])
                self.shell.setdefault(shell["name"], []).append(Setting(value, item))
            elif ENTRY in text:
                for key, value in _arguments(text):
                    setting = Setting(value, item, added=key.startswith("+"))
                    self.trace.setdefault(key.lstrip("+~"), []).append(setting)
            return
        for leaf in LEAF.finditer(text):
            value = "null" if leaf["value"] == "None" else leaf["value"].strip("'")
            self.leaves.setdefault(leaf["key"], []).append(Setting(value, item))


def _unquoted(text: str) -> str:
    try:
        return " ".join(shlex.split(text)) if text else ""
    except ValueError:
        return text


def _arguments(text: str) -> Iterator[tuple[str, str]]:
    """The last value of each Hydra override of a traced command."""
    try:
        words = shlex.split(text.lstrip("+"))
    except ValueError:  # the line was cut off
        words = text.split()
    overrides: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals and "." in key and not key.startswith("-"):
            bare = key.lstrip("+~")
            overrides = {name: old for name, old in overrides.items() if name.lstrip("+~") != bare}
            overrides[key] = value.strip("'\"")
    return iter(overrides.items())


class Block:
    """The lines of one printed configuration, from one process, until its last brace."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines: list[str] = []
        self._items: list[EvidenceItem] = []
        self._depth = 0

    def add(self, text: str, item: EvidenceItem) -> bool:
        """Whether the block goes on after this line."""
        self._lines.append(text)
        self._items.append(item)
        self._depth += _depth(text)
        return self._depth > 0 and len(self._lines) < MAX_BLOCK_LINES

    def settings(self) -> Iterator[tuple[str, Setting]]:
        """Dotted keys with their values; nothing when the text is no whole configuration of verl."""
        try:
            tree = ast.parse("\n".join(self._lines).strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return
        if not isinstance(tree, ast.Dict):
            return
        top = {key.value for key in tree.keys if isinstance(key, ast.Constant)}
        if {"trainer", "actor_rollout_ref"} & top:
            yield from self._flatten(tree, "")

    def _flatten(self, node: ast.Dict, prefix: str) -> Iterator[tuple[str, Setting]]:
        for key, value in zip(node.keys, node.values, strict=True):
            if not isinstance(key, ast.Constant):
                continue
            name = f"{prefix}{key.value!s}"
            if isinstance(value, ast.Dict):
                yield from self._flatten(value, f"{name}.")
                continue
            try:
                text = value_text(ast.literal_eval(value))
            except ValueError:  # `nan` and `inf` are no literals
                text = ast.unparse(value)
            yield name, Setting(text, self._items[min(key.lineno, len(self._items)) - 1])


def _depth(text: str) -> int:
    """Braces that a line opens, less those that it closes; quoted ones do not count."""
    plain = QUOTED.sub("", text)
    return plain.count("{") - plain.count("}")


def value_text(value: Any) -> str:
    """A value as Hydra and the script write it: `True`, `null`, `[a,b]`."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join(value_text(item) for item in value)}]"
    return "null" if value is None else str(value)
