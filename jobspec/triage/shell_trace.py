"""Whether a script that traces itself (`bash -x`) shows that it outlived a command that it could not start,
or forgave.

That the trace goes on is not enough: the lines may be those of `COMMAND || { echo ...; exit 1; }`, of a trap,
or of a shell with `set -e` that cleans up. They show it where another program ran behind the command, at its
level or outside of it, nothing after that ends the script by its own word, and neither `set -e` nor a trap
was seen. What later commands build on, such as a launcher, is not outlived though they run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from jobspec.log_text import strip_ansi

LINES_ABOVE = 3  # between the traced command and the shell's word that it is not there
COMMAND_ABOVE = 400  # lines
MAX_CHARS, MAX_SHOWN = 500, 100  # read of a line; shown of a command
_MISSING = re.compile(r"(?:\d{1,5}: )?\S+: (?:line )?\d+: (\S+): (?:command not found|not found)$")
_TRACED = re.compile(r"((?:\d{1,5}: )?)(\++) (\S.*)$")
# Words of a shell that deal with a failure, or run nothing.
_NO_PROGRAM = re.compile(
    r"(?:echo|printf|:|true|false|test|\[\[?|\(\(|sleep|rm|kill|wait|date|local|export|unset|return|shift|break)\b"
    r"|[:\[]|\w+\+?="
)
_BUILT_ON = re.compile(
    r"(?:\S*/)?(?:python[\d.]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|srun|ray|uv|pip[\d.]*|git|make|cmake"
    r"|wget|curl|tar|unzip|huggingface-cli|hf|apptainer|singularity|enroot|docker|podman)\Z"
)
_DONE = ("true", ":")
# Commands that clear up, and a pull, in whose place an image of before may serve: a script that forgives them
# goes on without them. One that forgives its training, or a download, has a failure all the same.
_MINOR = re.compile(
    r"(?:\S*/)?(?:(?:docker|podman) (?:pull|rmi?|stop|kill|network|volume)"
    r"|umount|rm|rmdir|pkill|killall|ipcrm)\b"
)
_ENDS = re.compile(r"(?:exit|return|exec|false)\b")
_GUARDS = re.compile(r"(?:set|(?:\S*/)?(?:ba)?sh) (?:.* )?-(?:\w*e\w*|o errexit)(?: |$)|trap ")


def outlived_by(lines: Sequence[bytes], offset: int) -> str:
    """The program that ran after the shell missed the command of `lines[offset]`; empty if not shown."""
    missing = _MISSING.match(_text(lines[offset]))
    if missing is None or _BUILT_ON.match(missing[1]):
        return ""
    above = list(_traced(lines[max(0, offset - LINES_ABOVE) : offset]))
    head, level, command = above[-1] if above else ("", 0, "")
    if command.split(" ")[0].strip("'") != missing[1]:
        return ""
    if any(_GUARDS.match(said) for _, _, said in _traced(lines[:offset])):
        return ""
    after = [row for row in _traced(lines[offset + 1 :]) if row[0] == head and row[1] <= level]
    if any(_ENDS.match(said) for _, _, said in after):
        return ""
    return next((said for _, _, said in reversed(after) if not _NO_PROGRAM.match(said)), "")


def is_forgiven(lines: Sequence[bytes], offset: int) -> bool:
    """Whether a traced script ran `true` or `:` right behind the line, as `COMMAND || true` does, where the
    command is a minor one, and another program ran after it."""
    if not any(said in _DONE for _, _, said in _traced(lines[offset + 1 : offset + 2])):
        return False
    above = list(_traced(lines[max(0, offset - LINES_ABOVE) : offset]))
    if not above or not _MINOR.match(above[-1][2]):
        return False
    return any(not _NO_PROGRAM.match(said) for _, _, said in _traced(lines[offset + 2 :]))


def last_command(lines: Sequence[bytes]) -> str:
    """The last command among the lines that a script traced and that runs a program; "" if none."""
    above = _traced(reversed(lines[-COMMAND_ABOVE:]))
    command = next((said for _, _, said in above if not _NO_PROGRAM.match(said)), "")
    return command[:MAX_SHOWN]


def _traced(lines: Iterable[bytes]) -> Iterator[tuple[str, int, str]]:
    """Of each traced command the launcher's head, the level and the words."""
    for line in lines:
        found = _TRACED.match(_text(line)) if b"+ " in line[:32] else None
        if found is not None:
            yield found[1], len(found[2]), found[3]


def _text(line: bytes) -> str:
    return strip_ansi(line[:MAX_CHARS].decode("utf-8", "replace")).rstrip()
