"""Whether a command was seen to use Ray: its words, and the scripts that it names, as far as they lie here.

Only texts are read. What cannot be read may use Ray; so may a package that a script imports.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath

from jobspec.disk import is_file
from jobspec.frameworks.command_files import SCRIPTS, found
from jobspec.python_text import parsed
from jobspec.spec.job import JobSpec

MAX_SCRIPT, MAX_SCRIPTS = 1 << 20, 32  # bytes of one script, scripts that call each other
_CALL = re.compile(r"(?:^|[\s;&|(/\"'])ray\s{1,8}(?:job|start|status)\b")
_IMPORT = re.compile(
    r"(?:^|[\"';])[ \t]*(?:import|from)[ \t]{1,8}(?:[\w., ]{1,200},[ \t]{0,8})?ray\b", re.MULTILINE
)
_COMMENT = re.compile(r"^[ \t]*#.*", re.MULTILINE)
_CD = re.compile(r"\b(?:cd|pushd)[ \t]{1,8}[\"']?(/[^\s;&|\"']+)")
_MODULE = re.compile(r"\bpython[\d.]{0,5}[ \t]{1,8}(?:-[a-zA-Z]{1,8}[ \t]{1,8}){0,4}?-m[ \t]{1,8}([\w.]+)")
_BETWEEN = re.compile(r"[\s;&|()<>\"'`=]+")
_SHELL, _PYTHON = re.compile(r"(?:ba|da|z|k)?sh"), re.compile(r"python[\d.]*")


def may_use_ray(spec: JobSpec, base: Path, repo_paths: Mapping[str, str]) -> bool:
    """Whether the command was seen to use Ray, or names a script that cannot be read here."""
    command, reader = tuple(spec.train.command or ()), _Reader(spec, base, repo_paths)
    return reader.in_shell("\n".join(command)) if spec.train.shell else reader.in_words(command)


class _Reader:
    """Reads each script once. Every answer is whether Ray was seen, or something could not be read."""

    def __init__(self, spec: JobSpec, base: Path, repo_paths: Mapping[str, str]) -> None:
        self.spec, self.base, self.repo_paths = spec, base, repo_paths
        self.seen: set[Path] = set()

    def in_words(self, words: Sequence[str]) -> bool:
        """Of a program and its arguments. Its text or its scripts decide, then its module, then itself."""
        if not words or _CALL.search(" ".join(words)):
            return bool(words)
        at = next((at for at, word in enumerate(words[:-1]) if re.fullmatch(r"-[a-zA-Z]*c", word)), 0)
        programs = [PurePath(word).name for word in words[:at]]
        if any(map(_SHELL.fullmatch, programs)):
            return self.in_shell(words[at + 1])
        if any(map(_PYTHON.fullmatch, programs)):
            return in_python(words[at + 1])
        program = [word for word in words[:1] if "/" in word]
        scripts = [
            word
            for before, word in zip(("", *words), words, strict=False)
            # The value of an option may be a file that the command writes.
            if word.endswith(SCRIPTS) and not (before.startswith("--") and self.file(word) is None)
        ]
        if not scripts and "-m" in words[:-1]:
            return self.any_module([words[words.index("-m") + 1]])
        known = [word for word in program if not scripts or self.file(word)]
        return self.any_of([*known, *scripts])

    def in_shell(self, text: str, folder: Path | None = None) -> bool:
        """Of a shell's text, or script in a folder. Scripts decide; without one the modules that it runs."""
        text = _COMMENT.sub("", text)
        if _CALL.search(text) or _IMPORT.search(text):
            return True
        folders = [*map(Path, _CD.findall(text)), *([folder] if folder else [])]
        scripts = [word for word in dict.fromkeys(_BETWEEN.split(text)) if word.endswith(SCRIPTS)]
        return self.any_of(scripts, folders) if scripts else self.any_module(_MODULE.findall(text))

    def any_of(self, words: Iterable[str], folders: Sequence[Path] = ()) -> bool:
        paths = (self.file(word, folders) for word in words)
        return any(path is None or self.in_file(path) for path in paths)

    def any_module(self, names: Iterable[str]) -> bool:
        others = [name for name in names if name.partition(".")[0] not in sys.stdlib_module_names]
        paths = map(self.module, others)
        return any(path is None or self.in_file(path) for path in paths)

    def file(self, word: str, folders: Sequence[Path] = ()) -> Path | None:
        places = [Path(word)] if word.startswith("/") else [folder / word for folder in folders]
        here = next((path for path in places if is_file(path)), None)
        if here or word.startswith("/") or self.spec.container.workdir:
            return here
        return found(word, self.spec, self.base, self.repo_paths)

    def module(self, name: str) -> Path | None:
        """The file of a module in the folders of `pythonpath`."""
        inside = name.replace(".", "/")
        folders = [
            Path(self.repo_paths.get(repo.name, "/nowhere"), part)
            for repo in self.spec.repos
            for part in repo.pythonpath
        ]
        places = [folder / end for folder in folders for end in (f"{inside}.py", f"{inside}/__main__.py")]
        return next((path for path in places if is_file(path)), None)

    def in_file(self, path: Path) -> bool:
        if path in self.seen:
            return False
        self.seen.add(path)
        try:
            with path.open("rb") as file:
                data = file.read(MAX_SCRIPT + 1)
        except OSError:
            return True
        if b"\0" in data[:1024]:  # a program
            return False
        if len(data) > MAX_SCRIPT or len(self.seen) > MAX_SCRIPTS:
            return True
        text = data.decode("utf-8", "replace")
        if path.suffix == ".py" or re.match(r"#!.*python", text):
            return in_python(text)
        return self.in_shell(text, path.parent)


def in_python(text: str) -> bool:
    """Whether Python imports Ray anywhere, or calls it by a text; or is no Python of this version."""
    tree = parsed(text)
    if tree is None:
        return True
    nodes = [*ast.walk(tree)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return any(name.partition(".")[0] == "ray" for name in names) or any(map(_CALL.search, texts))
