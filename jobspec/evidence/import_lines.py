"""Lines of logs that say where a module was imported from: the one reader for all frameworks.

People print a module's file in many forms: by its name (`megatron.bridge: /p`, `<module 'megatron.bridge'
from '/p'>`, JSON), as a bare path, beside others. Python shows it in tracebacks and warnings. A line that
only handles the file (`cp`, `grep`, a shell's trace), says where it should come from, or comes from a session
of pytest shows no import by the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from posixpath import normpath, realpath

from jobspec.log_search import Hints, find_lines
from jobspec.log_text import LINE_HEAD, RAY_PREFIX, bare, strip_ansi
from jobspec.units import is_below
from jobspec.verdict import EvidenceItem

BRIDGE, CORE = "megatron.bridge", "megatron.core"
VENDORED_BRIDGE = "3rdparty/Megatron-Bridge-workspace/Megatron-Bridge/src"  # below a NeMo-RL checkout
INSTALLED = frozenset({"site-packages", "dist-packages"})
MAX_SHOWN, MAX_LINE, AROUND = 300, 4000, 1000
MAX_PLACES = 1000  # of one module in one log; each place is kept once
# Ray processes that do not train: drivers, rollout engines and environments may have another search path.
DRIVER = re.compile(
    r"^(?:\w*TaskRunner\w*|main_task|\w*driver\w*|\w*vllm\w*|\w*sglang\w*|\w*environment\w*)$", re.I
)
RANK = re.compile(r"^\s*\[(?:rank|default)\d+\]:")
WORKER = re.compile(r"\b(?:\w*worker\w*|rank|actor|remote)\b", re.IGNORECASE)
# What stands before the path in a line that does not tell of an import.
SHELL = re.compile(r"\s*(?:[+$#>%]|-[rwx-]{9})")
CLAUSE = re.compile(r"[;,.!|] ")
NO_IMPORT = re.compile(
    r"\b(?:cp|mv|rm|sed|cat|ls|ln|rsync|tar|touch|diff|git|grep|chmod|patch\w*|"
    r"cop(?:y|ies|ied|ying)|sync\w*|writ\w+|wrote|edit\w*|creat\w+|delet\w+|remov\w+|replac\w+|upload\w*|"
    r"download\w*|compil\w+|collect\w*|mount\w*|skip\w*|install\w*|expect\w*|should|must|want\w*|would|"
    r"cannot|can't|not|no|missing|instead of|rather than|shadow\w*|ignor\w*|overrid\w*|hid(?:es|ing))\b",
    re.IGNORECASE,
)
NOT_THIS = re.compile(
    r"['\"]?,? (?:is|was|has been) (?:not|shadowed|ignored|overridden|hidden|missing|skipped)\b"
)
TESTS_BEGIN = re.compile(r"^=+ (?:test session starts|warnings summary|FAILURES|ERRORS)\b")
TESTS_END = re.compile(r"^(?:=+ )?(?:\d+ [a-z]+, )*(?:\d+ [a-z]+|no tests ran) in \d+\.\d+s\b")
TEST_WORDS = (
    "test session starts", "warnings summary", "= FAILURES =", "= ERRORS =", "passed in ", "failed in ",
    "warning in ", "warnings in ", "error in ", "errors in ", "skipped in ", "deselected in ",
    "tests ran in ",
)  # fmt: skip


@dataclass(frozen=True)
class ImportLine:
    """A line that shows a file of a module. `root` is the folder that Python searched: `<checkout>/src`.

    `worker` marks a line of a Ray worker or of a rank; a driver may have another search path than they.
    """

    file: str
    root: str
    item: EvidenceItem
    worker: bool = False

    @property
    def installed(self) -> bool:
        """Whether the file belongs to an installed package, which is nobody's checkout."""
        return is_installed(self.file)


Imports = Mapping[str, Sequence[ImportLine]]


def is_installed(path: str) -> bool:
    return not INSTALLED.isdisjoint(PurePosixPath(path).parts)


def is_local(line: ImportLine, module: str, folder: str) -> bool:
    """Whether the file comes from the checkout at `folder`, or from its folder of sources.

    The Bridge counts only from the folders that belong on `PYTHONPATH`: its checkout may hold a wheel, a
    build or another copy. An installed package counts only where `folder` names one.
    """
    return any(
        _is_local(line, module, named) for named in dict.fromkeys((normpath(folder), realpath(folder)))
    )


def _is_local(line: ImportLine, module: str, named: str) -> bool:
    if line.installed and not is_installed(named):
        return False
    if module != BRIDGE:
        return is_below(line.file, named)
    named = named.removesuffix(f"/{_relative(BRIDGE)}")
    return line.root in (named, normpath(f"{named}/src"), normpath(f"{named}/{VENDORED_BRIDGE}"))


def place_of(module: str, file: str, item: EvidenceItem, worker: bool = False) -> ImportLine:
    """A file that is known to be the module's, as a line. Its root is as long as can be."""
    path = normpath(file)
    before, inside, _ = f"{path}/".rpartition(f"/{_relative(module)}/")
    if not inside:  # a module of one file
        before = path.rpartition(f"/{_relative(module)}.")[0]
    return ImportLine(path, before or "/", item, worker)


def read_imports(logs: Iterable[tuple[Path, str]], modules: Iterable[str]) -> dict[str, list[ImportLine]]:
    """Lines by module of all logs, given as (path, name); of each place and kind of process the first one."""
    found: dict[str, list[ImportLine]] = {module: [] for module in modules}
    forms = {module: _Forms(module) for module in found}
    hints = Hints((*(_relative(module) for module in found), *TEST_WORDS))
    for path, name in logs if found else ():
        seen: set[tuple[str, str, bool]] = set()
        testing = False
        for hit in find_lines(path, hints):
            text = bare(hit.text)
            if len(text) > MAX_LINE:
                text = _around(text, forms)
            if TESTS_BEGIN.match(text) or TESTS_END.match(text):
                testing = TESTS_BEGIN.match(text) is not None
            if testing:
                continue
            item = EvidenceItem(name, hit.number, text[:MAX_SHOWN].strip())
            for module, form in forms.items():
                for line in form.lines(text, item, _process(hit.text)):
                    key = (module, line.root, line.worker)
                    if key not in seen and len(seen) < MAX_PLACES:
                        seen.add(key)
                        found[module].append(line)
    return found


def _around(text: str, forms: Iterable[str]) -> str:
    """What stands around the first paths in a very long line, such as a printed configuration."""
    places = (text.find(_relative(module)) for module in forms)
    return " ".join(text[max(0, at - AROUND) : at + AROUND] for at in places if at >= 0)


def _relative(module: str) -> str:
    return module.replace(".", "/")


def _process(raw: str) -> bool:
    """Whether the head of a line names a Ray process that is no driver, or a rank."""
    text = strip_ansi(raw)
    ray = RAY_PREFIX.match(LINE_HEAD.sub("", text))
    task = (ray["task"] or "").partition("[")[0] if ray else ""
    return bool(RANK.match(text)) or (ray is not None and not DRIVER.match(task))


class _Forms:
    """The forms in which a line shows a file of one module."""

    def __init__(self, module: str) -> None:
        self.module, part = module, re.escape(_relative(module))
        # A relative path, or one below a variable, names no place.
        path = r"(?<![\w.~$}/\\*-])(?:(?<=['\"])/(?:[^'\"<>]*/)?|/+(?:[^\s'\"<>:,;|()\[\]]*/)?)" + part
        own = rf"{path}(?:/__init__\.py[co]?|\.py|(?:\.[\w-]+)*\.so)(?![\w/])"
        inner = rf"{path}/[^\s'\"<>:,]+\.(?:py|so)(?![\w/])"
        self.own = re.compile(own)
        self.named = re.compile(rf"{own}|{inner}|{path}/?(?=['\"\])\s,}}]|$)")
        self.name = re.compile(rf"(?<![\w.]){re.escape(module)}(?:\.__\w+__)?(?![\w.-])")
        self.running = re.compile(
            rf"(?P<alone>^\s*['\"]?(?P<a>{inner})['\"]?\s*$)|\bFile \"(?P<b>{inner})\", line \d"
            rf"|^\s*(?P<c>{inner}):\d+: \w*Warning\b"
        )

    def lines(self, text: str, item: EvidenceItem, worker: bool) -> Iterator[ImportLine]:
        if running := self.running.search(text):
            yield place_of(self.module, running["a"] or running["b"] or running["c"], item, worker)
            return
        if SHELL.match(text):
            return
        name = self.name.search(text)
        before = 0  # where the text about the next path begins
        for match in (self.named if name else self.own).finditer(text):
            label = CLAUSE.split(text[before : match.start()])[-1]
            before = match.end()
            own = self.own.fullmatch(match[0]) is not None
            if NO_IMPORT.search(label) or NOT_THIS.match(text, match.end()):
                continue
            if own or (name and name.end() <= match.start()):
                yield place_of(self.module, match[0], item, worker or bool(WORKER.search(label)))
