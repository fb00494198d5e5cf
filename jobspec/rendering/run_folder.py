"""Writes a run directory in one step, the agent in it included, and reads its plan again."""

from __future__ import annotations

import functools
import io
import marshal
import os
import re
import shlex
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import resources
from importlib.machinery import SourceFileLoader
from importlib.resources.abc import Traversable
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from types import CodeType
from typing import cast

from jobspec.finding import fail
from jobspec.plan import Plan, from_json
from jobspec.runs.paths import RunPaths
from jobspec.runtime.base.full_disk import refusal
from jobspec.runtime.base.run_files import read_text
from jobspec.runtime.base.safe_write import FILE_MODE, beside

_RUN_DIR = re.compile(r"^export JOBSPEC_RUN_DIR=(.+)$", re.MULTILINE)

ARCHIVE_MAIN = b"""\
import sys
from jobspec.runtime.__main__ import main

sys.exit(main())
"""


@functools.cache
def build_runtime() -> bytes:
    """`runtime.pyz`: the agent as one file for Python 3.9 or newer. Same sources and same Python, same bytes.

    Each module has its bytecode beside it: compiling them takes longer than all else that an agent does at
    its start. Another version of Python than this one takes the sources.
    """
    package = resources.files("jobspec")
    found = {f"jobspec/{name}.py": package / f"{name}.py" for name in ("__init__", "finding", "plan")}
    for name, module in _modules(resources.files("jobspec.runtime")):
        found[f"jobspec/runtime/{name}"] = module
    # On the programs' PYTHONPATH: a node's agent can ask each Python of the run for its stacks.
    found["sitecustomize.py"] = found["jobspec/runtime/stalls/hook.py"]
    files = {"__main__.py": ARCHIVE_MAIN}
    for name, module in found.items():
        files[name] = module.read_bytes()
        if isinstance(module, Path):
            files[f"{name}c"] = _bytecode(name, module, files[name])
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return b"#!/usr/bin/env python3\n" + stream.getvalue()


def _modules(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        if item.is_dir() and item.name != "__pycache__":
            yield from _modules(item, f"{prefix}{item.name}/")
        elif item.name.endswith(".py"):
            yield prefix + item.name, item


def _bytecode(name: str, module: Path, source: bytes) -> bytes:
    """A `.pyc` that nobody compares with its source (PEP 552); this installation's own, where that is fresh.

    The second version of the format has no references, which follow what else the process has in memory.
    """
    code = cast(CodeType, SourceFileLoader(name, str(module)).get_code(name))
    return MAGIC_NUMBER + b"\1\0\0\0" + source_hash(source) + marshal.dumps(_in_archive(code, name), 2)


def _in_archive(code: CodeType, name: str) -> CodeType:
    """With the name that its tracebacks show: not this installation's."""
    inner = (_in_archive(one, name) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=f"runtime.pyz/{name}", co_consts=tuple(inner))


def write_run(files: Mapping[str, bytes], run_dir: str | Path, runtime: bool = True) -> Path:
    """Write a whole run directory or nothing: a temporary folder beside it, then one rename.

    Raises: JobspecError when the directory already exists or cannot be written.
    """
    target = Path(run_dir)
    scratch = beside(target)
    content = dict(files)
    if runtime:
        content["runtime.pyz"] = build_runtime()
    try:
        if target.exists():
            raise fail(
                "run.exists", f"`{target}` exists already", fix="name a folder that does not exist yet"
            )
        _write_files(scratch, content)
        scratch.rename(target)
    except OSError as cause:
        why, fix = refusal(cause, target)
        fix = fix or (
            "name a writable folder by `--out`, or by `paths.runs` of the site profile; "
            "users who share a profile need a folder each, as in `/shared/${user}/runs`"
        )
        raise fail("run.write", f"cannot write `{target}`: {why}", fix=fix) from cause
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def bring_py_spy(runs: Path, run_dir: Path) -> None:
    """Link this installation's py-spy (extra `stalls`) into the run's folder, for images that have none.

    All runs share one copy. Best effort: the runtime has another way to take stacks.
    """
    source, target = Path(sys.executable).with_name("py-spy"), runs / ".tools" / "py-spy"
    with suppress(OSError):
        if not target.exists():
            made = beside(target)
            target.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(source, made)
            made.chmod(0o755)
            made.rename(target)
        os.link(target, run_dir / "py-spy")


def _write_files(folder: Path, content: Mapping[str, bytes]) -> None:
    """Plain system calls: a sweep has thousands of small files, and pathlib takes three times as long."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir()
    for parent in sorted({name.rpartition("/")[0] for name in content}):
        os.makedirs(folder / parent, exist_ok=True)  # noqa: PTH103
    spec = content.get("spec.yaml")
    for name, data in content.items():
        # No spec is written again, so all points share the sweep's spec: one file with many names.
        if name.endswith("/spec.yaml") and data == spec and _link(f"{folder}/spec.yaml", f"{folder}/{name}"):
            continue
        target = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(target, rest) :]
        finally:
            os.close(target)


def _link(file: str, name: str) -> bool:
    """Give a file a second name; False where the file system allows no second or no further name."""
    try:
        os.link(file, name)
    except OSError:
        return False
    return True


def read_plan(run: RunPaths) -> Plan:
    """The plan of a rendered folder. Raises: JobspecError when it cannot be read."""
    try:
        return from_json(read_text(run.plan))
    except (OSError, ValueError) as problem:
        raise fail(
            "run.damaged-file",
            "`plan.json` cannot be read",
            why=str(problem),
            fix="render the spec again",
            file=str(run.plan),
        ) from problem


def refuse_moved(run: RunPaths) -> None:
    """Raises: JobspecError when the scripts of a folder name another folder, where the run would write."""
    folder = (run.points() or [run])[0]
    match = _RUN_DIR.search(folder.job.read_text(encoding="utf-8")) if folder.job.is_file() else None
    rendered = Path(*shlex.split(match.group(1))) if match else folder.root
    if run.state.exists() or (rendered.exists() and rendered.samefile(folder.root)):
        return
    raise fail(
        "launch.moved",
        f"`{folder.root}` was rendered as `{rendered}`",
        why="the scripts in it name that folder: the run would write there, or not start",
        fix="render the spec again with `--out`, or move the folder back",
    )
