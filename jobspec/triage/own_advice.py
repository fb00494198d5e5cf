"""What a program's own message advises: the sentences that say what to do, and the values that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LINES_BELOW = 10  # of a message that goes on below its first line
MAX_CHARS = 320  # quoted
ASKS = "see what the line refuses or asks for"  # how a fix begins that leaves all to the message
# Where another voice speaks: a logger, a launcher, a shell, a bar, the next exception.
_OTHER_VOICE = re.compile(
    r"\[|\d+[-/:.]|[EWIF]\d{4} |Traceback\b|During handling|The above exception|srun|slurm|wandb:|\+"
    r"|[=*─-]{3}|(?:[A-Za-z_][\w.]*\.)?_?[A-Z]\w*(?:Error|Exception|Warning)\b(?!\([\"'])|File \"|\{'|.*\d%\|"
    r"|(?:INFO|ERROR|FATAL|WARNING|DEBUG)\b|\S+: line \d+:"
    r"|Exception ignored|Killed|(?:make|ninja|torchrun|ray)\b"
)
# A value behind a setting's colon (`NAME: False`) begins no sentence.
_SENTENCES = re.compile(
    r"(?<=[.!?;])\s+(?=[A-Z`(-]|please\b)|(?<=:)\s+(?!True\b|False\b|None\b|-\d)(?=[A-Z(-]|please\b)"
    r"|\s+(?=- )"
)
_DO = (
    r"try|make sure|ensure|consider|set|use|pass|specify|provide|install|upgrade|update|downgrade|add|remove"
    r"|increase|decrease|reduce|lower|raise|choose|enable|disable|re-?run|run|change|correct|rename|convert"
    r"|select|give"
)
_ADVISES = re.compile(
    rf"^(?:\(\d\) |- )?(?:(?:so|then|or|and|either|otherwise|instead|alternatively|also),? )?"
    rf"(?:(?:if|to|for|when|in order to) [^.]{{3,120}}?,? )?(?:please )?(?:{_DO})\b"
    r"|\byou (?:need to|have to|should|must|can(?!'t|not)|may want to|might want to|could)\b|\bplease\b"
    r"|\bdid you mean\b|^the easiest\b|\brequires? (?:users|you) to\b|\bpip install\b"
    r"|\b(?:needs?|has|have|must|should)(?: to)? be (?:set|given|specified|provided|installed|passed|enabled"
    r"|disabled)\b|\b(?:valid|allowed|supported|available|possible|accepted) (?:\w+ )?(?:values?|options?"
    r"|choices|keys|names|columns|splits?|types?|configs?)\b.*(?:\bare\b|:|\[)"
    r"|\b(?:must|should) be one of\b|\b(?:choose|select) (?:one )?from\b|\bexpected one of\b",
    re.IGNORECASE,
)
# Sentences that send to somebody or to a page, hide the error, or help to look for one of the program's own.
_NO_HELP = re.compile(
    r"\b(?:report|(?:an?|this|your|github) issue|issues/|file a bug|contact|traceback|documentation|docs"
    r"|refer to|installation page|bug in|try again)\b|^See |^Did you mean: '|for debugging|reduction dim"
    r"|please wait|(?:to see|for) more\b|\b[A-Z_]*(?:DEBUG|VERBOSE|LOG_LEVEL)\b ?="
    r"|\b(?:disable|suppress|silence|ignore) th(?:is|e) (?:error|warning|check)"
    r"|CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|set HYDRA_FULL_ERROR",
    re.IGNORECASE,
)


def whole(text: str, below: Iterable[str]) -> str:
    """The message with the lines below that go on with it."""
    return " ".join((text.strip(), *_goes_on(below)))


def advice_in(message: str) -> str:
    """The sentences of the message that say what to do, as they stand there; empty without one."""
    told, size = list[str](), 0
    for sentence in _SENTENCES.split(message.partition("<think>")[0].split(": ", 1)[-1]):
        words = " ".join(sentence.split())
        if not words or words in told or not _ADVISES.search(words) or _NO_HELP.search(words):
            continue
        if size + len(words) > MAX_CHARS:
            break
        told.append(words)
        size += len(words)
    return " ".join(told)


def with_advice(fix: str, text: str, message: str, where: str) -> str:
    """The fix; in its place what the message itself advises, or beside it the whole of a longer message."""
    said = advice_in(message)
    if said:
        return f'its own words: "{said}"' + (f"; it was raised at {where}" if where else "")
    if fix.startswith(ASKS) and len(message) > len(text):
        return f'{fix}; its message: "{_cut(message)}"'
    return fix


def _cut(words: str) -> str:
    return words if len(words) <= MAX_CHARS else f"{words[:MAX_CHARS]}..."


def _goes_on(below: Iterable[str]) -> Iterator[str]:
    for line, _ in zip(below, range(LINES_BELOW), strict=False):
        if _OTHER_VOICE.match(line):
            return
        if line.strip():
            yield line.strip()
