"""The driver of a batch script as `train.command`: secrets out, references of the running job kept."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace

from jobspec.cli.from_sbatch.bash import CLOSE, OPEN
from jobspec.cli.from_sbatch.notes import Notes, is_secret, is_secret_option
from jobspec.cli.from_sbatch.options import Draft, put
from jobspec.cli.from_sbatch.steps import Script, Step

# Word of a command -> the framework whose adapter jobspec has, or None.
KNOWN = (
    ("verl.trainer", "verl", True), ("run_grpo.py", "nemo_rl", True), ("skyrl", "skyrl", True),
    ("trl", "trl", True), ("openrlhf", "OpenRLHF", False), ("pretrain_gpt", "Megatron-LM", False),
    ("slime", "slime", False), ("areal", "AReaL", False),
)  # fmt: skip
MARKED = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")
OF_GROUPS = re.compile(r"\$\{?JOBSPEC_GROUP_")
SHELL_NAME = re.compile(r"\$\{?(\w+)\}?\Z")


def add_command(
    step: Step, script: Script, spec: Draft, notes: Notes, arms: Sequence[tuple[str, Step]] = ()
) -> None:
    """Put the driver's words into the draft, and say what only the batch script knew.

    `arms`: groups and what runs on their nodes, where that is not the driver's command everywhere.
    """
    words = _points(own_words(step, spec, notes), script, spec, notes)
    later = tell_later(words, step, script, notes, "train.command")
    if arms:
        put(spec, "train/command", [_case(words, step, script, spec, notes, arms)])
        put(spec, "train/shell", True)
    elif later:
        put(spec, "train/command", [shell_text(words)])
        put(spec, "train/shell", True)
    else:
        put(spec, "train/command", words)
    _tell_framework(words, step, notes)


def own_words(step: Step, spec: Draft, notes: Notes) -> list[str]:
    """A step's words without secrets and without arguments of the script."""
    words, before = [], ""
    for word in step.words:
        if own := re.fullmatch(rf"{OPEN}(\$\{{?[0-9*@]\}}?){CLOSE}", word):
            notes.add("told", f"`{own[1]}`: arguments of the script, left out of the command", step.line)
            continue
        if is_secret_option(before, word) or is_secret("", word):
            word = f"{OPEN}${notes.secret(before, word, step.line)}{CLOSE}"
        for value, name in notes.secrets.items():  # `--key=value`, `https://user:value@host`
            word = word.replace(value, f"{OPEN}${name}{CLOSE}")
        words.append(word)
        before = word
    read = {name for word in words for name in notes.secrets.values() if f"{OPEN}${name}{CLOSE}" in word}
    if read:
        spec["secrets"] = sorted({*spec.get("secrets", ()), *read})
    return words


def with_env(step: Step, spec: Draft, notes: Notes) -> list[str]:
    """A step's words behind the variables that it alone has."""
    given = [f"{name}={value}" for name, value in step.env]
    before = ("env", *given) if given else ()
    return own_words(replace(step, words=(*before, *step.words)), spec, notes)


def shell_text(words: list[str]) -> str:
    """The command for bash. A reference that the run does not have ends it: else it is the empty text."""
    return "set -u\n" + " ".join(_quoted(word) for word in words)


def _case(
    words: list[str], step: Step, script: Script, spec: Draft, notes: Notes, arms: Sequence[tuple[str, Step]]
) -> str:
    """One text that runs on all nodes, and on each what its group is for."""
    lines = []
    for groups, one in arms:
        if one is not step:
            words_of = with_env(one, spec, notes)
            tell_later(words_of, one, script, notes, "train.command")
        else:
            words_of = words
        lines.append(f"{groups}) exec {' '.join(_quoted(word) for word in words_of)} ;;\n")
    return 'set -u\ncase "$JOBSPEC_GROUP" in\n' + "".join(lines) + "esac"


def tell_later(words: list[str], step: Step, script: Script, notes: Notes, key: str) -> list[str]:
    """The references of a command that are filled in when the run starts, and what has to be checked."""
    later = [m for word in words for m in MARKED.findall(word)]
    for reference in dict.fromkeys(later):
        variable = SHELL_NAME.match(reference)
        if OF_GROUPS.match(reference):
            continue
        if variable is None or (variable[1] in script.assigned and variable[1] not in script.values.arrays):
            what = f"`{reference}` in the command: the batch script set it; check it in `{key}`"
            notes.add("told", what, step.line)
        elif variable[1] not in (*notes.secrets.values(), *script.values.arrays):
            notes.add("told", f"`{reference}` in the command is filled in when the run starts", step.line)
    return later


def _tell_framework(words: list[str], step: Step, notes: Notes) -> None:
    whole = " ".join(words)
    found = next(
        (
            (kind, adapter)
            for word, kind, adapter in KNOWN
            if re.search(rf"(?<![A-Za-z]){re.escape(word)}", whole)
        ),
        None,
    )
    if found and found[1]:
        notes.add(
            "told",
            f"the command is of {found[0]}: `jobspec init {found[0]}` starts a spec whose levels jobspec can "
            "prove; this one runs it as `command`",
            step.line,
        )
    elif found:
        notes.add("told", f"the command is of {found[0]}, for which jobspec has no adapter", step.line)


def _points(words: list[str], script: Script, spec: Draft, notes: Notes) -> list[str]:
    """Values of arrays by the number of a job array's task: variables of the points of a sweep."""
    pattern = re.compile(r"\$\{(\w+)\[\$\{?SLURM_ARRAY_TASK_ID\}?\]\}")
    names = [name for name in dict.fromkeys(pattern.findall(" ".join(words))) if name in script.values.arrays]
    if names:
        lists = [script.values.arrays[name] for name in names]
        points = [
            {f"container.env.{name}": value for name, value in zip(names, row, strict=False)}
            for row in zip(*lists, strict=False)
        ]
        spec["sweep"] = {"list": points}
        notes.add("told", f"the job array is a sweep of {len(points)} points over {', '.join(names)}")
    return [pattern.sub(lambda m: f"${m[1]}" if m[1] in names else m[0], word) for word in words]


def _quoted(word: str) -> str:
    """A word for bash: literal text quoted, references of the running job left in double quotes."""
    if OPEN not in word:
        return shlex.quote(word)
    parts = MARKED.split(word)
    return (
        '"'
        + "".join(part if at % 2 else re.sub(r'([\\"$`])', r"\\\1", part) for at, part in enumerate(parts))
        + '"'
    )
