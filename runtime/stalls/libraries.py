"""Which frames are of a library: they say how something is waited for; the program's own say what is done."""

from __future__ import annotations

import re
import sys

from jobspec.runtime.stalls.stacks import Frame

# Whose frames say how something is waited for; every other package's frame says what is done.
_LIBRARIES = frozenset(
    ("torch", "ray", "numpy", "zmq", "grpc", "aiohttp", "httpx", "httpcore", "anyio", "requests", "urllib3",
     "filelock", "tqdm", "uvloop", "fsspec", "joblib", "concurrent", "asyncio", "multiprocessing", "json",
     "importlib", "http", "email", "encodings", "ctypes", "unittest", "IPython", "debugpy")
)  # fmt: skip
_STDLIB = frozenset(getattr(sys, "stdlib_module_names", ())) | {
    "threading", "queue", "socket", "ssl", "selectors", "subprocess", "runpy", "contextlib", "functools",
}  # fmt: skip
_NATIVE_FILE = re.compile(r"\.(?:so(?:\.\d+)*|[ch]|cc|cpp|cu|S)$")
_PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/")
_PYTHON = re.compile(r"^.*/lib(?:64)?/python3\.\d+/")


def package(file: str) -> str:
    """The top package that a file belongs to; empty for one outside of Python's folders."""
    if file.startswith("<frozen"):
        return "importlib"
    for folders in (_PACKAGES, _PYTHON):
        if folders.match(file):
            return folders.sub("", file).split("/")[0].rsplit(".py", 1)[0]
    return "" if file.startswith(("/", "<")) else file.split("/")[0].rsplit(".py", 1)[0]


def is_library(frame: Frame) -> bool:
    if not frame.file:  # a C function of which nothing more is known
        return True
    top = package(frame.file)
    return top in _LIBRARIES or top in _STDLIB or _NATIVE_FILE.search(frame.file) is not None
