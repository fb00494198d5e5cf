"""Writing a run directory: whole or not at all, with a runtime that old interpreters can run."""

from __future__ import annotations

import errno
import io
import os
import random
import re
import shutil
import subprocess
import sys
import zipfile
from datetime import UTC, datetime
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.plan import from_json, to_json
from jobspec.rendering.files import new_run_id, plan_json, render
from jobspec.rendering.run_folder import bring_py_spy, build_runtime, write_run
from jobspec.rendering.script_check import check_scripts
from jobspec.runtime.base.safe_write import write_text
from tests.kits.pythons import PYTHON39, needs_python39
from tests.kits.render_kit import RUN_ID, SLURM, resolve_text

BOTH = pytest.mark.parametrize(
    "python",
    [pytest.param(Path(sys.executable), id="this"), pytest.param(PYTHON39, id="3.9", marks=needs_python39)],
)
SPEC = "version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n"


def test_the_runtime_is_the_same_for_the_same_sources() -> None:
    """Also in a process that has other things in memory."""
    code = "import sys, json, jobspec.rendering.run_folder as it; sys.stdout.buffer.write(it.build_runtime())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == build_runtime()


def test_the_runtime_carries_no_login_node_code() -> None:
    names = zipfile.ZipFile(io.BytesIO(build_runtime())).namelist()
    names = [name for name in names if not name.endswith(".pyc")]
    ours = {name for name in names if not name.startswith("jobspec/runtime/")}
    modules = {"jobspec/__init__.py", "jobspec/finding.py", "jobspec/plan.py"}
    assert ours == {"__main__.py", "sitecustomize.py", *modules}


@BOTH
def test_the_runtime_runs_from_its_archive(python: Path, tmp_path: Path) -> None:
    (tmp_path / "runtime.pyz").write_bytes(build_runtime())
    argv = [str(python), "-I", str(tmp_path / "runtime.pyz"), "version"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("jobspec runtime")


@BOTH
def test_packages_inside_the_runtime_travel_in_its_archive(python: Path, tmp_path: Path) -> None:
    (tmp_path / "runtime.pyz").write_bytes(build_runtime())
    code = "import sys; sys.path.insert(0, sys.argv[1])\nfrom jobspec.runtime.head import metric_watch"
    code += "\nprint(metric_watch.judge.__code__.co_filename)"
    argv = [str(python), "-I", "-c", code, str(tmp_path / "runtime.pyz")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    # This Python's bytecode travels with the sources: then the name is the archive's, wherever that lies.
    folder = Path() if python == Path(sys.executable) else tmp_path
    assert Path(done.stdout.strip()) == folder / "runtime.pyz/jobspec/runtime/base/requirement.py"


def test_bytecode_of_the_runtime_is_of_its_sources(tmp_path: Path) -> None:
    """Nobody compares them on the nodes. A traceback still quotes the line."""
    archive = zipfile.ZipFile(io.BytesIO(build_runtime()))
    for name in archive.namelist():
        if name.endswith(".py") and name != "__main__.py":
            header = archive.read(f"{name}c")[:16]
            assert header == MAGIC_NUMBER + b"\1\0\0\0" + source_hash(archive.read(name)), name
    (tmp_path / "runtime.pyz").write_bytes(build_runtime())
    code = (
        "import sys, traceback; sys.path.insert(0, sys.argv[1])\nfrom jobspec.runtime.base import hostlist\n"
    )
    code += "try: hostlist.expand(3)\nexcept TypeError: traceback.print_exc()"
    argv = [sys.executable, "-I", "-c", code, str(tmp_path / "runtime.pyz")]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stderr
    assert re.search(
        r'File "runtime.pyz/jobspec/runtime/base/hostlist.py", line \d+, in expand\n    \S', said
    )


@needs_python39
def test_every_module_of_the_runtime_compiles_on_3_9(tmp_path: Path) -> None:
    zipfile.ZipFile(io.BytesIO(build_runtime())).extractall(tmp_path)
    argv = [str(PYTHON39), "-m", "compileall", "-q", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_a_run_directory_is_written_whole(tmp_path: Path) -> None:
    target = tmp_path / "x" / RUN_ID
    files = render(resolve_text(SPEC), RUN_ID, str(target))
    assert write_run(files, target) == target
    written = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert written == {*files, "runtime.pyz"}
    assert list(target.parent.iterdir()) == [target]


def test_a_run_directory_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with pytest.raises(JobspecError, match="exists already"):
        write_run({"a": b""}, tmp_path / "old")
    assert list(tmp_path.iterdir()) == [tmp_path / "old"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(JobspecError, match="cannot write"):
        write_run({"a": b"1", "a/b": b"2"}, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


SWEEP = dict.fromkeys(("spec.yaml", "points/0/spec.yaml", "points/1/spec.yaml"), b"a")


def test_points_share_the_sweeps_spec_and_nothing_else(tmp_path: Path) -> None:
    run = write_run(
        {**SWEEP, "points/2/spec.yaml": b"b", "driver.sh": b"a", "points/0/driver.sh": b"a"}, tmp_path / "run"
    )
    links = {str(path.relative_to(run)): path.stat().st_nlink for path in run.rglob("*.*")}
    own = {"points/2/spec.yaml": 1, "driver.sh": 1, "points/0/driver.sh": 1, "runtime.pyz": 1}
    assert links == {**dict.fromkeys(SWEEP, 3), **own}


def test_a_points_spec_is_its_own_in_a_copy_and_once_replaced(tmp_path: Path) -> None:
    run = write_run(SWEEP, tmp_path / "run")
    copy = shutil.copytree(run, tmp_path / "copy")
    assert (copy / "points/1/spec.yaml").stat().st_nlink == 1
    write_text(run / "points/0/spec.yaml", "new")
    assert [(run / name).read_text() for name in SWEEP] == ["a", "new", "a"]


def test_points_have_a_spec_where_the_disk_has_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "as vfat and some FUSE file systems answer")

    monkeypatch.setattr(os, "link", refuse)
    run = write_run(SWEEP, tmp_path / "run")
    assert [((run / name).read_text(), (run / name).stat().st_nlink) for name in SWEEP] == [("a", 1)] * 3


def test_run_ids_sort_by_time_and_name_their_run() -> None:
    moment = datetime(2026, 11, 28, 1, 2, 3, tzinfo=UTC)
    assert re.fullmatch(r"20261128-010203-[0-9a-f]{6}", new_run_id(moment))
    assert new_run_id(moment) != new_run_id(moment)
    assert new_run_id(moment, random.Random(1)) == new_run_id(moment, random.Random(1))


def test_plan_json_is_the_plans_own_canonical_text() -> None:
    plan = resolve_text(SPEC + 'container: {env: {A: "ä \\n \\" 🙂 \\u2028"}}\ncheckpoint: {dir: ./c}\n').plan
    assert plan is not None
    assert plan_json(plan).decode() == to_json(plan)
    assert from_json(plan_json(plan).decode()) == plan


def test_check_scripts_names_the_broken_file() -> None:
    (finding,) = check_scripts({"job.sbatch": b"if true; then\n", "plan.json": b"{"})
    assert (finding.rule, finding.file) == ("render.bash", "job.sbatch")


def test_check_scripts_reads_a_sites_hooks() -> None:
    profile = SLURM + 'hooks: {setup: ["if [ x = y ; then"]}\n'
    findings = check_scripts(render(resolve_text(SPEC, profile), RUN_ID, "/r/x"))
    assert [(finding.rule, finding.file) for finding in findings] == [("render.bash", "job.sbatch")]


def test_a_plan_with_errors_is_not_rendered() -> None:
    resolved = resolve_text(SPEC + "coverage: {level: nonsense}\n")
    assert resolved.plan is None
    with pytest.raises(JobspecError, match="nothing to render"):
        render(resolved, RUN_ID, "/runs/x")


def test_py_spy_is_one_file_for_all_runs_of_a_folder(tmp_path: Path) -> None:
    runs = [tmp_path / name for name in ("a", "b")]
    for run in runs:
        run.mkdir()
        bring_py_spy(tmp_path, run)
    program = Path(sys.executable).with_name("py-spy")
    if not program.is_file():
        assert not list(tmp_path.glob("*/py-spy"))  # the extra is not installed, and nothing fails
        return
    assert {(run / "py-spy").stat().st_ino for run in runs} == {(tmp_path / ".tools/py-spy").stat().st_ino}
    assert (runs[0] / "py-spy").stat().st_mode & 0o777 == 0o755
    assert (runs[0] / "py-spy").read_bytes() == program.read_bytes()
