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
# Python's launchers give the signal that ended a process as a negative code (`return code = -6`).
# Behind the code a time or a duration may stand: `exit code 0, 4 h 17 min`.
STATED = re.compile(
    r"(?i)^(?!\s*\+).*\b(?:exit(?:s|ed)?(?: with)?(?: (?:exit|return))?[ _]?(?:code|status)|return ?code|rc"
    r"|(?:done|ended|finished|over|completed?)[,:;] exit)"
    r"\b[ =:]{1,3}((?<=return code = )-\d{1,2}|\d{1,3})"
    r"(?:\W*|\W{0,2}(?:[,(=-]+|after|at|in) ?\d[\d:.TZ hmins+-]*\W*)$"
)
# A line that is nothing but it, and the trace of such an `echo` or of a script's end; the script's own text,
# as `cat` shows it, has `exit 1` too.
BARE = re.compile(
    r"(?i)^\s*(?:(?:\+ echo ['\"]?)?exit ?[=:] ?|\+ echo ['\"]?exit |\+ exit (?:(?:code|status)[ =:]{1,2})?)"
    r"(\d{1,3})['\"]?\s*$"
)
# The last words of a script (`verl exited with 1`) and of a session at a prompt (`echo $?`, and its answer):
# above other lines they are said of one worker, or of another command.
EXITED = re.compile(
    r"(?i)^\s*(?!\S*(?:worker|rank|process|proc|node|task|actor|thread|child|server|engine|replica|router|ray|vllm"
    r"|sglang))[a-z][\w./-]* exited with (\d{1,3})\W*$"
)
ECHO = re.compile(r"^(?:\([\w.-]+\) ?)?\S*[$#] echo \$\?\s*$")
PROMPT = re.compile(r"^(?:\([\w.-]+\) ?)?\S*[$#]$")
ANSWER = re.compile(r"(\d{1,3})")
LAST_BYTES = 4096
# The trace of `rc=$?`; a script may also begin with `rc=0`, so no other command but such may follow.
KEPT = re.compile(r"^\+ (?:rc|ret|rv|code|status|exit_?code)=(\d{1,3})\s*$", re.IGNORECASE)
AFTER_KEPT = re.compile(r"^\++ (?:echo|date|exit|set|test|sync|cat|ls|printf|\[|\w+=)")
# A file of its own that holds nothing but the code.
CODE_FILE = re.compile(
    r"(?i)(?:^|/)(?:(?:job|run|train\w*)[._-])?(?:(?:exit|return)[._-]?(?:code|status)|rc)(?:\.\w+)?$"
)
CODE_ALONE = re.compile(r"\s*(?:\w+\s*[:=]\s*)?(\d{1,3})\s*")
MAX_CODE_FILE = 64  # bytes
MAX_CODE = 255
ENDED_WELL = "exits successfully"
# DeepSpeed's launcher, of each of its processes. Source: deepspeed `launcher/launch.py`.
WELL = re.compile(rf"\[launch\.py:\d+:main\] (?:dist_world_size=(\d{{1,6}})|Process (\d+) {ENDED_WELL})")
SETTING = re.compile(
    r"(?<![\w.])(?:\w+\.)*(num_nodes|nnodes|n_gpus_per_node|gpus_per_node|expert_model_parallel_size|"
    r"pipeline_model_parallel_size|context_parallel_size|expert_tensor_parallel_size)['\"]?\s*[:=]\s*(\d+)\b"
)
MODEL = re.compile(
    r"(?<![\w.])(?:policy\.model_name|actor_rollout_ref\.model\.path|worker\.actor\.model\.model_path|MODEL_ID|MODEL_PATH)=['\"]?"
    r"([^\s'\",\]$]+)|['\"]model_name['\"]: ['\"]([^'\"]+)"
)
OF_COMMAND = re.compile(r" --model(?:_name_or_path)?[ =]['\"]?([^\s'\"]+)")  # of the Trainer's scripts
# What `set -x` prints of the program that trains.
# Of a traced script the first that can train: no probe of an import, no tests, no installation.
COMMAND = re.compile(
    r"^\++ (?!.*\bpython[\d.]*(?: -[A-Za-z]+)* (?:-c |-m (?:pip|pytest|venv)\b)|.*\b(?:pip install|pytest) )"
    r"((?:\w+=\S+ )*(?:python[\d.]*|uv run|torchrun|accelerate launch|deepspeed) .*)"
)
# What people typed at a prompt, for want of a trace.
TYPED = re.compile(
    r"^(?:\([\w.-]+\) ?)?(?:\$|[\w.-]+@\S+[$#]) (?!.*(?: -c |\bpip |pytest))"
    r"((?:\w+=\S+ )*(?:python[\d.]*|uv run|torchrun|accelerate launch|deepspeed) .*)"
)
# The processes that a launcher's command asks for.
LAUNCH = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch|deepspeed)\b.*")
ASKED = re.compile(
    r"--(nproc|nnodes|num[_-]processes|num[_-]machines|num[_-]gpus|num[_-]nodes)(?:[_-]per[_-]node)?[ =]"
    r"(\d{1,5})(?![\w:.])"
)
MAX_LAUNCHES = 3
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
    "exit_code=", "Exited with exit code", "xit code", "xit status", "xit_code", "rc=", "rc: ", "rc ",
    "num_nodes", "eturn code", "eturncode",
    "dist_world_size=", ENDED_WELL, "nnodes", "gpus_per_node", "parallel_size", "model_name",
    "model.path=", "model.model_path=", "MODEL_ID=", "MODEL_PATH=", "+ ", "$ ", "# uv run", "# python",
    "# torchrun",
    "# accelerate", "exit=", "exit: ", "exit 0", "exit 1", "exit 2", "EXIT=", "EXIT:",
    "xited with ", "echo $?", "nproc",
    "num_processes", "num-processes", "num_gpus", "num-gpus",
)  # fmt: skip


@dataclass
class Facts:
    """The facts that the logs state.

    `ended` holds the end time and exit code of each job, `tasks` the exit code of each task that ended badly,
    `stated` the last exit code that a script states in each log.
    `sizes` holds the largest value of each size: a part of a job may use fewer. `models` are all that logs
    name, `command` is the first. `launches` says how many processes each launch asks for.
    """

    ended: list[tuple[str, int, EvidenceItem]] = field(default_factory=list)
    tasks: list[tuple[int, EvidenceItem]] = field(default_factory=list)
    stated: dict[str, tuple[int, EvidenceItem]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    models: dict[str, None] = field(default_factory=dict)
    command: str = ""
    launches: dict[str, None] = field(default_factory=dict)

    @property
    def launched(self) -> str:
        """How many processes the launches ask for; empty where no known one says it, or too many do."""
        return " or ".join(self.launches) if len(self.launches) <= MAX_LAUNCHES else ""

    @property
    def model(self) -> str:
        """The model that the logs name; of several, which a reward model or a teacher may be, all."""
        if not self.models and (given := OF_COMMAND.search(self.command)):
            return given[1]
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
        size, kept, typed, said = 0, None, "", None
        for hit in find_lines(path, hints):
            line = clean(hit.text)
            item = EvidenceItem(name, hit.number, line[:MAX_SHOWN].strip())
            _note(facts, line, item)
            if (found := KEPT.match(line)) and _is_code(found[1]):
                kept = int(found[1]), item
            elif line.startswith("+") and not AFTER_KEPT.match(line):
                kept = None
            said = item if EXITED.match(line) or ECHO.match(line) else said
            typed = typed or (found[1] if (found := TYPED.match(line)) else "")
            if found := WELL.search(line):
                size, well = (int(found[1]), set()) if found[1] else (size, {*well, int(found[2])})
                if len(well) == size:
                    facts.stated[name] = 0, item
                elif not well and ENDED_WELL in facts.stated.get(name, (0, item))[1].text:
                    del facts.stated[name]  # another launch
        if kept is not None and kept[1].line >= facts.stated.get(name, kept)[1].line:
            facts.stated[name] = kept
        if said is not None and (code := _last_words(path)) is not None:
            facts.stated[name] = code, said
        facts.command = facts.command or typed
    return facts


def _code_alone(path: Path) -> int | None:
    with suppress(OSError):
        if path.stat().st_size <= MAX_CODE_FILE:
            found = CODE_ALONE.fullmatch(path.read_text("utf-8", "replace"))
            return int(found[1]) if found is not None and _is_code(found[1]) else None
    return None


def _last_words(path: Path) -> int | None:
    """The exit code that the last lines of a log state in words that mean another thing above other lines."""
    with suppress(OSError), path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - LAST_BYTES))
        lines = [clean(line).strip() for line in stream.read().decode("utf-8", "replace").splitlines()]
        lines = [line for line in lines if line and not PROMPT.match(line)]
        if found := lines and EXITED.match(lines[-1]):
            return int(found[1]) if _is_code(found[1]) else None
        if len(lines) > 1 and ECHO.match(lines[-2]) and (found := ANSWER.fullmatch(lines[-1])):
            return int(found[1]) if _is_code(found[1]) else None
    return None


def _note(facts: Facts, line: str, item: EvidenceItem) -> None:
    if (match := ENDED.search(line)) and _is_code(match[2]):
        facts.ended.append((match[1] or "", int(match[2]), item))
    elif (match := SRUN.search(line)) and _is_code(match[1]) and len(facts.tasks) < MAX_HITS:
        facts.tasks.append((int(match[1]), item))
    elif (match := STATED.search(line) or BARE.match(line)) and _is_code(match[1]):
        facts.stated[item.file] = int(match[1]), item
    if len(facts.models) < MAX_MODELS and (match := MODEL.search(line)):
        facts.models.setdefault(match[1] or match[2])
    if not facts.command and (match := COMMAND.match(line)):
        facts.command = match[1]
    for setting in SETTING.finditer(line):
        name = NAMES[setting[1]]
        facts.sizes[name] = max(facts.sizes.get(name, 0), int(setting[2]))
    if (match := LAUNCH.search(line)) and (asked := _processes(match[0])):
        facts.launches.setdefault(asked)


def _is_code(text: str) -> bool:
    """Whether a number can be a process's exit code; a larger one is of something else."""
    return int(text[:4]) <= MAX_CODE


def _processes(command: str) -> str:
    """The processes that a launcher's command names a number of."""
    asked = {found[1].replace("-", "_"): int(found[2]) for found in ASKED.finditer(command)}
    nodes = asked.get("nnodes") or asked.get("num_machines") or asked.get("num_nodes") or 0
    each = asked.get("nproc") or asked.get("num_gpus") or 0
    if total := asked.get("num_processes", 0):
        return _counted(total) + (f" on {nodes} nodes" if nodes > 1 else "")
    if not each:
        return ""
    # Without a number of nodes torchrun takes one; DeepSpeed those of its hostfile.
    alone = nodes == 1 or not (nodes or "nnodes" in command or "deepspeed" in command)
    return (
        _counted(each)
        if alone
        else f"{_counted(each)} on each of {nodes} nodes"
        if nodes
        else f"{_counted(each)} a node"
    )


def _counted(number: int) -> str:
    return f"{number} process{'es' if number > 1 else ''}"
