"""The lines of the program at which frames stand, and the locks that blocks around them hold.

Read on the node, where the files are. A lock is held inside a `with` block, or after `X.acquire()` without a
`X.release()` before the line: by the text alone, so whatever is built on it is inferred.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from jobspec.runtime.stalls import texts
from jobspec.runtime.stalls.libraries import is_library
from jobspec.runtime.stalls.stacks import Frame, Process

MAX_BYTES = 2 * 1024**2
MAX_TEXT = 160
_OF_LOCKS = re.compile(r"/(?:threading|multiprocessing/synchronize)\.py$")
_SECRET = re.compile(
    r"""(?i)((?:key|token|password|passwd|secret)\w*["']?\]?\s*[=:]\s*[bfru]{0,2}["'])[^"']+"""
)


class Sources:
    """Files read once."""

    def __init__(self) -> None:
        self._files: Dict[str, Tuple[List[str], Optional[ast.AST]]] = {}

    def process(self, process: Process) -> Process:
        threads = tuple(
            replace(thread, frames=_let_go([self.frame(frame) for frame in thread.frames]))
            for thread in process.threads
        )
        return replace(process, threads=threads)

    def frame(self, frame: Frame) -> Frame:
        """The frame with its line and the locks held there; one of a library stays as it is. Those of
        Python's locks have their line: it tells a wait for a signal from one for the lock beneath."""
        library = is_library(frame)
        if not frame.line or not frame.file.startswith("/"):
            return frame
        if library and not _OF_LOCKS.search(frame.file):
            return frame
        lines, tree = self._read(frame.file)
        if frame.line > len(lines):
            return frame
        text = _SECRET.sub(r"\1***", lines[frame.line - 1].strip())[:MAX_TEXT]
        holds = tree is not None and not library
        return replace(frame, text=text, held=held(tree, frame.line) if tree and holds else ())

    def _read(self, file: str) -> Tuple[List[str], Optional[ast.AST]]:
        if file not in self._files:
            lines: List[str] = []
            tree: Optional[ast.AST] = None
            try:
                with Path(file).open("rb") as stream:
                    data = stream.read(MAX_BYTES)
                lines = data.decode("utf-8", "replace").splitlines()
                tree = ast.parse(data)
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                pass
            self._files[file] = (lines, tree)
        return self._files[file]


def _let_go(frames: Sequence[Frame]) -> Tuple[Frame, ...]:
    """The frames without the lock of the condition at which the thread waits: it has let that go."""
    own = next((at for at, frame in enumerate(frames) if not is_library(frame)), 0)
    if not any(frame.function.endswith("Condition.wait") for frame in frames[:own]):
        return tuple(frames)
    here = frames[own]
    here = replace(here, held=tuple(name for name in here.held if not texts.lets_go(name, here.text)))
    return (*frames[:own], here, *frames[own + 1 :])


def held(tree: ast.AST, line: int) -> Tuple[str, ...]:
    """The locks that are held at the line, by the text of the function around it."""
    names: List[str] = []
    function: Optional[ast.AST] = None
    for node in ast.walk(tree):
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0
        if not first <= line <= last:
            continue
        if isinstance(node, (ast.With, ast.AsyncWith)) and node.lineno < node.body[0].lineno <= line:
            names += [ast.unparse(item.context_expr) for item in node.items]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = node
    return tuple(dict.fromkeys([*filter(_is_name, names), *_acquired(function, line)]))


def _is_name(text: str) -> bool:
    """Whether it may be a lock's name, or the call that gives a shared value's lock."""
    return "(" not in text or re.fullmatch(r"[\w.]+lock\(\)", text) is not None


def _acquired(function: Optional[ast.AST], line: int) -> List[str]:
    taken: List[str] = []
    calls = (
        [node for node in ast.walk(function) if isinstance(node, ast.Call)] if function is not None else []
    )
    for call in sorted(calls, key=lambda node: node.lineno):
        if call.lineno >= line or not isinstance(call.func, ast.Attribute):
            continue
        name = ast.unparse(call.func.value)
        if call.func.attr == "acquire":
            taken.append(name)
        elif call.func.attr == "release" and name in taken:
            taken.remove(name)
    return taken
