"""Facts that logs of a run of unknown making state: exit codes, import paths, sizes. One pass per log.

A log is read in blocks and searched as bytes, so that a gigabyte takes seconds; only lines found are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from jobspec.log_text import clean
from jobspec.verdict import EvidenceItem

BLOCK_BYTES = 4 * 1024**2
MAX_LINE_BYTES = 64 * 1024
MAX_SHOWN = 300
MAX_HITS = 10_000  # per log and kind: every worker may print the same path
# The last line of NeMo-RL's ray.sub at 7ea279ab; Slurm's srun 22.05 to 24.11; jobspec's own agent.
ENDED = re.compile(r"\[NRL_PHASE\](?:\[([^\]]*)\])?.* exiting \(exit_code=(\d+)\)")
SRUN = re.compile(r"^srun: error: .*: Exited with exit code (\d+)")
SETTING = re.compile(
    r"(?<![\w.])(?:\w+\.)*(num_nodes|nnodes|n_gpus_per_node|gpus_per_node|expert_model_parallel_size|"
    r"pipeline_model_parallel_size|context_parallel_size|expert_tensor_parallel_size)['\"]?\s*[:=]\s*(\d+)\b"
)
MODEL = re.compile(
    r"(?<![\w.])(?:policy\.model_name|actor_rollout_ref\.model\.path|MODEL_ID|MODEL_PATH)=['\"]?"
    r"([^\s'\",\]$]+)|['\"]model_name['\"]: ['\"]([^'\"]+)"
)
# What `set -x` prints of the program that trains.
COMMAND = re.compile(r"^\++ ((?:\w+=\S+ )*(?:python[\d.]*|uv run|torchrun) .*)")
NAMES = {
    "num_nodes": "nodes",
    "nnodes": "nodes",
    "n_gpus_per_node": "gpus",
    "gpus_per_node": "gpus",
    "expert_model_parallel_size": "ep",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_tensor_parallel_size": "etp",
}
WORDS = (b"exit_code=", b"Exited with exit code", b"num_nodes", b"nnodes", b"gpus_per_node", b"parallel_size",
         b"model_name", b"model.path=", b"MODEL_ID=", b"MODEL_PATH=", b"+ ")  # fmt: skip


@dataclass
class Facts:
    """What the logs state.

    `ended` are jobs, with the time of their end and exit code, `tasks` tasks that ended badly. `sizes` holds
    the largest value of each: a part of a job may use fewer. `model` and `command` are the first that a log
    names.
    """

    ended: list[tuple[str, int, EvidenceItem]] = field(default_factory=list)
    tasks: list[tuple[int, EvidenceItem]] = field(default_factory=list)
    imports: dict[str, list[tuple[str, EvidenceItem]]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    model: str = ""
    command: str = ""


def scan_facts(logs: Iterable[tuple[Path, str]], modules: Iterable[str] = ()) -> Facts:
    """Facts of all logs, each given by path and name. A log that cannot be read states nothing."""
    facts = Facts()
    patterns = {module: import_pattern(module) for module in modules}
    paths = [module.replace(".", "/").encode() for module in patterns]
    words = (*WORDS, *paths)
    for path, name in logs:
        try:
            with path.open("rb") as stream:
                for number, line in find_lines(stream, words):
                    _note(facts, patterns, line, EvidenceItem(name, number, line[:MAX_SHOWN].strip()))
        except OSError:
            continue
    return facts


def import_pattern(module: str) -> re.Pattern[str]:
    """A line that says which file `module` is: named with it, alone on the line, or a traceback's frame."""
    path = rf"(/[^\s'\"<>:,]*/?{re.escape(module.replace('.', '/'))}(?:/[^\s'\"<>:,]+)?\.(?:py|so))"
    named = rf"(?<![\w.]){re.escape(module)}(?![\w.]).*?{path}"
    return re.compile(rf"{named}|^\s*{path}\s*$|\bFile \"{path}\"")


def find_lines(stream: BinaryIO, words: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    """Number and text of every line with one of `words`, each once; long lines are cut."""
    number, rest = 1, b""
    while data := stream.read(BLOCK_BYTES):
        data = rest + data
        cut = data.rfind(b"\n") + 1 or (len(data) if len(data) > BLOCK_BYTES else 0)
        block, rest = data[:cut], data[cut:]
        yield from _hits(block, number, words)
        number += block.count(b"\n")
    yield from _hits(rest, number, words)


def _hits(block: bytes, number: int, words: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    counted = 0
    for start, (at, end) in sorted(_lines(block, words).items()):
        number += block.count(b"\n", counted, start)
        counted = start
        # Around the hit: a printed configuration may be one line of any length.
        first = max(start, at - MAX_LINE_BYTES // 2)
        yield number, clean(block[first : min(end, first + MAX_LINE_BYTES)].decode("utf-8", "replace"))


def _lines(block: bytes, words: Sequence[bytes]) -> dict[int, tuple[int, int]]:
    """Start of each line with a word -> where the word and where the line's end is.

    One search for each word: ten times as fast as one pattern for all of them.
    """
    found: dict[int, tuple[int, int]] = {}
    for word in words:
        at = block.find(word)
        while at >= 0:
            start, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
            end = len(block) if end < 0 else end
            found.setdefault(start, (at, end))
            at = block.find(word, end)
    return found


def _note(facts: Facts, patterns: dict[str, re.Pattern[str]], line: str, item: EvidenceItem) -> None:
    if found := ENDED.search(line):
        facts.ended.append((found[1] or "", int(found[2]), item))
    elif (found := SRUN.search(line)) and len(facts.tasks) < MAX_HITS:
        facts.tasks.append((int(found[1]), item))
    if not facts.model and (found := MODEL.search(line)):
        facts.model = found[1] or found[2]
    if not facts.command and (found := COMMAND.match(line)):
        facts.command = found[1]
    for setting in SETTING.finditer(line):
        name = NAMES[setting[1]]
        facts.sizes[name] = max(facts.sizes.get(name, 0), int(setting[2]))
    for module, pattern in patterns.items():
        lines = facts.imports.setdefault(module, [])
        if (found := pattern.search(line)) and len(lines) < MAX_HITS:
            lines.append((next(group for group in found.groups() if group), item))
