"""Facts in the logs of a foreign run: exit codes, sizes, model, command. One pass per log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from jobspec.log_search import Hints, find_lines
from jobspec.log_text import clean
from jobspec.verdict import EvidenceItem

MAX_SHOWN = 300
MAX_HITS = 10_000  # tasks that ended badly
# The last line of NeMo-RL's ray.sub at 7ea279ab; Slurm's srun 22.05 to 24.11; jobspec's own agent.
ENDED = re.compile(r"\[NRL_PHASE\](?:\[([^\]]*)\])?.* exiting \(exit_code=(\d+)\)")
SRUN = re.compile(r"^srun: error: .*: Exited with exit code (\d+)")
# What scripts of people say at their end; a trace of the shell (`+ echo ...`) is not what it says.
STATED = re.compile(
    r"(?i)^(?!\s*\+).*\b(?:exit(?:ed)?(?: with)?(?: exit)?[ _]?(?:code|status)|rc)\b[ =:]{1,3}(\d{1,3})\W*$"
)
SETTING = re.compile(
    r"(?<![\w.])(?:\w+\.)*(num_nodes|nnodes|n_gpus_per_node|gpus_per_node|expert_model_parallel_size|"
    r"pipeline_model_parallel_size|context_parallel_size|expert_tensor_parallel_size)['\"]?\s*[:=]\s*(\d+)\b"
)
MODEL = re.compile(
    r"(?<![\w.])(?:policy\.model_name|actor_rollout_ref\.model\.path|MODEL_ID|MODEL_PATH)=['\"]?"
    r"([^\s'\",\]$]+)|['\"]model_name['\"]: ['\"]([^'\"]+)"
)
# What `set -x` prints of the program that trains.
# Of a traced script the first that can train: no probe of an import, no tests, no installation.
COMMAND = re.compile(
    r"^\++ (?!.*\bpython[\d.]*(?: -[A-Za-z]+)* (?:-c |-m (?:pip|pytest|venv)\b)|.*\b(?:pip install|pytest) )"
    r"((?:\w+=\S+ )*(?:python[\d.]*|uv run|torchrun) .*)"
)
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
WORDS = (
    "exit_code=", "Exited with exit code", "xit code", "xit status", "xit_code", "rc=", "rc: ", "num_nodes",
    "nnodes", "gpus_per_node", "parallel_size", "model_name", "model.path=", "MODEL_ID=", "MODEL_PATH=", "+ ",
)  # fmt: skip


@dataclass
class Facts:
    """The facts that the logs state.

    `ended` holds the end time and exit code of each job, `tasks` the exit code of each task that ended badly,
    `stated` the last exit code that a script states in each log.
    `sizes` holds the largest value of each size: a part of a job may use fewer. `model` and `command` are the
    first ones that a log names.
    """

    ended: list[tuple[str, int, EvidenceItem]] = field(default_factory=list)
    tasks: list[tuple[int, EvidenceItem]] = field(default_factory=list)
    stated: dict[str, tuple[int, EvidenceItem]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    model: str = ""
    command: str = ""


def scan_facts(logs: Iterable[tuple[Path, str]]) -> Facts:
    """Facts of all logs, given as (path, name). An unreadable log gives no fact."""
    facts = Facts()
    hints = Hints(WORDS)
    for path, name in logs:
        for hit in find_lines(path, hints):
            line = clean(hit.text)
            _note(facts, line, EvidenceItem(name, hit.number, line[:MAX_SHOWN].strip()))
    return facts


def _note(facts: Facts, line: str, item: EvidenceItem) -> None:
    if match := ENDED.search(line):
        facts.ended.append((match[1] or "", int(match[2]), item))
    elif (match := SRUN.search(line)) and len(facts.tasks) < MAX_HITS:
        facts.tasks.append((int(match[1]), item))
    elif match := STATED.search(line):
        facts.stated[item.file] = int(match[1]), item
    if not facts.model and (match := MODEL.search(line)):
        facts.model = match[1] or match[2]
    if not facts.command and (match := COMMAND.match(line)):
        facts.command = match[1]
    for setting in SETTING.finditer(line):
        name = NAMES[setting[1]]
        facts.sizes[name] = max(facts.sizes.get(name, 0), int(setting[2]))
