"""Facts in the logs of a foreign run: exit codes, sizes, model, command. One pass per log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from jobspec.log_search import Hints, find_lines
from jobspec.log_text import clean
from jobspec.verdict import EvidenceItem
from jobspec.words import some

MAX_SHOWN = 300
MAX_MODELS = 4
MAX_HITS = 10_000  # tasks that ended badly
# The last line of NeMo-RL's ray.sub at 7ea279ab; Slurm's srun 22.05 to 24.11; jobspec's own agent.
ENDED = re.compile(r"\[NRL_PHASE\](?:\[([^\]]*)\])?.* exiting \(exit_code=(\d+)\)")
SRUN = re.compile(r"^srun: error: .*: Exited with exit code (\d+)")
# What scripts of people say at their end; a trace of the shell (`+ echo ...`) is not what it says.
STATED = re.compile(
    r"(?i)^(?!\s*\+).*\b(?:exit(?:s|ed)?(?: with)?(?: (?:exit|return))?[ _]?(?:code|status)|return ?code|rc)"
    r"\b[ =:]{1,3}(\d{1,3})\W*$"
)
# A file of its own that holds nothing but the code.
CODE_FILE = re.compile(
    r"(?i)(?:^|/)(?:(?:job|run|train\w*)[._-])?(?:(?:exit|return)[._-]?(?:code|status)|rc)(?:\.\w+)?$"
)
CODE_ALONE = re.compile(r"\s*(?:\w+\s*[:=]\s*)?(\d{1,3})\s*")
MAX_CODE_FILE = 64  # bytes
ENDED_WELL = "exits successfully"
# DeepSpeed's launcher, of each of its processes. Source: deepspeed `launcher/launch.py`.
WELL = re.compile(rf"\[launch\.py:\d+:main\] (?:dist_world_size=(\d{{1,6}})|Process (\d+) {ENDED_WELL})")
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
    "eturn code", "eturncode",
    "dist_world_size=", ENDED_WELL, "nnodes", "gpus_per_node", "parallel_size", "model_name",
    "model.path=", "MODEL_ID=", "MODEL_PATH=", "+ ",
)  # fmt: skip


@dataclass
class Facts:
    """The facts that the logs state.

    `ended` holds the end time and exit code of each job, `tasks` the exit code of each task that ended badly,
    `stated` the last exit code that a script states in each log.
    `sizes` holds the largest value of each size: a part of a job may use fewer. `models` are all that logs
    name, `command` is the first.
    """

    ended: list[tuple[str, int, EvidenceItem]] = field(default_factory=list)
    tasks: list[tuple[int, EvidenceItem]] = field(default_factory=list)
    stated: dict[str, tuple[int, EvidenceItem]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    models: dict[str, None] = field(default_factory=dict)
    command: str = ""

    @property
    def model(self) -> str:
        """The model that the logs name; of several, which a reward model or a teacher may be, all."""
        if len(self.models) < 2:
            return "".join(self.models)
        return f"one of {some([f'`{name}`' for name in self.models], MAX_MODELS)}"


def scan_facts(logs: Iterable[tuple[Path, str]]) -> Facts:
    """Facts of all logs, given as (path, name). An unreadable log gives no fact."""
    facts = Facts()
    hints = Hints(WORDS)
    for path, name in logs:
        if CODE_FILE.search(name) and (code := _code_alone(path)) is not None:
            facts.ended.append(("", code, EvidenceItem(name, 1, str(code))))
        well: set[int] = set()
        size = 0
        for hit in find_lines(path, hints):
            line = clean(hit.text)
            item = EvidenceItem(name, hit.number, line[:MAX_SHOWN].strip())
            _note(facts, line, item)
            if found := WELL.search(line):
                size, well = (int(found[1]), set()) if found[1] else (size, {*well, int(found[2])})
                if len(well) == size:
                    facts.stated[name] = 0, item
                elif not well and ENDED_WELL in facts.stated.get(name, (0, item))[1].text:
                    del facts.stated[name]  # another launch
    return facts


def _code_alone(path: Path) -> int | None:
    with suppress(OSError):
        if path.stat().st_size <= MAX_CODE_FILE:
            found = CODE_ALONE.fullmatch(path.read_text("utf-8", "replace"))
            return int(found[1]) if found is not None else None
    return None


def _note(facts: Facts, line: str, item: EvidenceItem) -> None:
    if match := ENDED.search(line):
        facts.ended.append((match[1] or "", int(match[2]), item))
    elif (match := SRUN.search(line)) and len(facts.tasks) < MAX_HITS:
        facts.tasks.append((int(match[1]), item))
    elif match := STATED.search(line):
        facts.stated[item.file] = int(match[1]), item
    if len(facts.models) < MAX_MODELS and (match := MODEL.search(line)):
        facts.models.setdefault(match[1] or match[2])
    if not facts.command and (match := COMMAND.match(line)):
        facts.command = match[1]
    for setting in SETTING.finditer(line):
        name = NAMES[setting[1]]
        facts.sizes[name] = max(facts.sizes.get(name, 0), int(setting[2]))
