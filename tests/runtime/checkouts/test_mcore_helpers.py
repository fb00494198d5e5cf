"""Megatron-Core's helpers with a real g++, from the installed package and from a checkout."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

from jobspec.plan import HelpersPlan, ImportProof
from jobspec.runtime.checkouts import imports, mcore_helpers, mcore_probe
from tests.kits.programs_kit import needs

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

if importlib.util.find_spec("megatron") is None or importlib.util.find_spec("pybind11") is None:
    pytest.skip("needs megatron-core and pybind11", allow_module_level=True)
pytestmark = needs("g++")

# A namespace package: other folders may be parts of it too.
INSTALLED = next(
    Path(folder) / "core"
    for folder in importlib.util.find_spec("megatron").submodule_search_locations  # type: ignore[union-attr]
    if (Path(folder) / "core").is_dir()
)
MAKEFILE = """CXXFLAGS += -O3 -Wall -shared -std=c++17 -fPIC -fdiagnostics-color
CPPFLAGS += $(shell python3 -m pybind11 --includes)
LIBNAME = helpers_cpp
LIBEXT = $(shell python3-config --extension-suffix)
OUT = $(LIBNAME)$(LIBEXT)
SRC = helpers.cpp
default: $(OUT)
$(OUT): $(SRC)
\t$(CXX) $(CXXFLAGS) $(CPPFLAGS) $< -o $@
"""

# A stand-in for helpers.cpp with the function that the proof calls. To compile the real one takes six
# seconds of a core, for pybind11's templates.
HELPERS = """
#include <Python.h>
#include <initializer_list>
static PyObject *build_blending_indices(PyObject *, PyObject *args) {
  Py_buffer dataset, sample, weights;
  int count, verbose;
  long long size;
  if (!PyArg_ParseTuple(args, "w*w*y*iLp", &dataset, &sample, &weights, &count, &size, &verbose)) return NULL;
  for (long long at = 0; at < size; at++) {  // all weights are the same
    static_cast<short *>(dataset.buf)[at] = at % count;
    static_cast<long long *>(sample.buf)[at] = at / count;
  }
  for (auto buffer : {&dataset, &sample, &weights}) PyBuffer_Release(buffer);
  Py_RETURN_NONE;
}
static PyMethodDef functions[] = {
  {"build_blending_indices", build_blending_indices, METH_VARARGS, ""},
  {"build_sample_idx_int32", build_blending_indices, METH_VARARGS, ""},
  {"build_sample_idx_int64", build_blending_indices, METH_VARARGS, ""},
  {NULL, NULL, 0, NULL},
};
static PyModuleDef helpers = {
  PyModuleDef_HEAD_INIT, "helpers_cpp", "", -1, functions, NULL, NULL, NULL, NULL
};
PyMODINIT_FUNC PyInit_helpers_cpp() { return PyModule_Create(&helpers); }
"""


def build(
    node: Path, env: dict[str, str] | None = None, python: str = sys.executable, **helpers: str
) -> mcore_helpers.HelpersResult:
    plan = HelpersPlan(**(helpers or {"package": "megatron.core"}))
    return mcore_helpers.build(plan, str(node), python, lambda event, data: None, env)


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without optimizing a build takes half the time; the package's is made as it is for training."""
    if "package" not in request.node.name:
        monkeypatch.setattr(mcore_helpers, "FLAGS", ("-O0", *mcore_helpers.FLAGS[1:]))


def rules(result: mcore_helpers.HelpersResult) -> list[str]:
    return [finding.rule for finding in result.findings]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One node-local folder for the tests of this file, so that each source is compiled once."""
    return tmp_path_factory.mktemp("node local ü")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git checkout shaped like Megatron-LM: Makefile and a small source, no library; read-only for us.

    Its core has the package's datasets without what needs torch, so that it imports in no time.
    """
    root = tmp_path_factory.mktemp("src") / "Megatron LM"
    datasets = root / "megatron" / "core" / "datasets"
    datasets.mkdir(parents=True)
    (root / "megatron" / "core" / "__init__.py").write_text("")
    (root / "megatron" / "core" / "models").mkdir()
    (root / "megatron" / "core" / "models" / "__init__.py").write_text("NAME = 'checkout'\n")
    (root / "megatron" / "training").mkdir()
    (root / "megatron" / "training" / "__init__.py").write_text("")
    for name in ("__init__.py", "helpers.py"):
        shutil.copy(INSTALLED / "datasets" / name, datasets)
    (datasets / "helpers.cpp").write_text(HELPERS)
    (datasets / "Makefile").write_text(MAKEFILE)
    # What another interpreter left there, and what `make` leaves without python3-config.
    (datasets / "helpers_cpp.cpython-38-x86_64-linux-gnu.so").write_bytes(b"\x7fELF old")
    (datasets / "helpers_cpp").write_bytes(b"\x7fELF")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(root)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "as upstream"], check=True)
    return root


def tree_state(root: Path) -> list[tuple[str, int, int]]:
    """All files, and folders without their times: an import makes `__pycache__` in them."""
    return sorted(
        (str(p), p.lstat().st_size, 0 if p.is_dir() else p.lstat().st_mtime_ns)
        for p in root.rglob("*")
        if "__pycache__" not in p.parts
    )


def test_package_is_built_and_found_by_its_name(node: Path) -> None:
    before = tree_state(INSTALLED / "datasets")
    result = build(node)
    assert result.findings == () and result.ok
    assert result.library.startswith(str(node)) and result.library.endswith(SUFFIX)
    assert tree_state(INSTALLED / "datasets") == before


@pytest.mark.slow
def test_real_import_of_package_takes_the_built_library(node: Path) -> None:
    """With torch and all: the package's own prebuilt library lies in site-packages and is not taken."""
    result = build(node)
    proofs = [
        result.proof,
        ImportProof("megatron.core.datasets.helpers", str(INSTALLED)),
        ImportProof("megatron.core", str(INSTALLED)),
    ]
    proved = imports.prove(proofs, sys.executable, mcore_probe.with_folder(os.environ, result.folder))
    assert proved.findings == ()
    assert proved.files[mcore_probe.MODULE] == result.library


@pytest.mark.parametrize("source", ["the real one", "a small one"])
def test_checkout_is_built_and_stays_as_it_was(tmp_path: Path, checkout: Path, source: str) -> None:
    tree = tmp_path / "Megatron LM"
    shutil.copytree(checkout, tree)
    if source == "the real one":
        shutil.copy(INSTALLED / "datasets/helpers.cpp", tree / "megatron/core/datasets")
    before = tree_state(tree)
    result = build(tmp_path / "node", source=str(tree))
    assert result.findings == ()
    env = mcore_probe.with_folder({**os.environ, "PYTHONPATH": str(tree)}, result.folder)
    proofs = [
        result.proof,
        ImportProof("megatron.core", str(tree)),
        ImportProof("megatron.core.models", str(tree)),
        ImportProof("megatron.training", str(tree)),
    ]
    assert imports.prove(proofs, sys.executable, env).findings == ()
    assert tree_state(tree) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount the checkout read-only")
def test_read_only_checkout_without_python3_config(tmp_path: Path, checkout: Path) -> None:
    """The job's PATH has a compiler and what it needs, and no python3-config at all."""
    mounted, tools = tmp_path / "read only", tmp_path / "bin"
    mounted.mkdir()
    tools.mkdir()
    for name in ("g++", "as", "ld", "cc1plus"):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    for command in (["--bind", str(checkout)], ["-o", "remount,bind,ro"]):
        done = subprocess.run(["mount", *command, str(mounted)], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"needs the right to mount: {done.stderr.decode()}")
    try:
        assert os.statvfs(mounted).f_flag & os.ST_RDONLY
        result = build(tmp_path / "node", {**os.environ, "PATH": str(tools)}, source=str(mounted))
        assert result.findings == () and result.library.endswith(SUFFIX)
    finally:
        subprocess.run(["umount", mounted], check=False)


def test_make_in_the_tree_does_nothing(node: Path, checkout: Path) -> None:
    """Megatron's compile_helpers() runs `make` there when training starts."""
    result = build(node, source=str(checkout))
    before = Path(result.library).stat()
    env = {"PATH": "/usr/bin:/bin"}  # no python3-config of this interpreter
    done = subprocess.run(
        ["make", "-C", str(Path(result.library).parent)], env=env, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Path(result.library).stat() == before
    assert not (Path(result.library).parent / "helpers_cpp").exists()


def test_second_build_is_taken_from_the_node(node: Path, checkout: Path) -> None:
    build(node, source=str(checkout))
    result = build(node, {**os.environ, "CXX": ""}, source=str(checkout))
    assert result.cached


def test_changed_source_is_another_build(tmp_path: Path, node: Path, checkout: Path) -> None:
    first = build(node, source=str(checkout))
    copy = tmp_path / "copy"
    shutil.copytree(checkout, copy)
    with (copy / "megatron/core/datasets/helpers.cpp").open("a") as stream:
        stream.write("// changed\n")
    second = build(node, source=str(copy))
    assert not second.cached and second.folder != first.folder


def test_library_spoiled_on_the_node_is_built_again(node: Path, checkout: Path) -> None:
    result = build(node, source=str(checkout))
    os.truncate(result.library, 1000)
    again = build(node, source=str(checkout))
    assert again.ok and not again.cached


def test_many_at_once_build_once(tmp_path: Path, checkout: Path) -> None:
    results: list[mcore_helpers.HelpersResult] = []
    threads = [
        threading.Thread(target=lambda: results.append(build(tmp_path, source=str(checkout))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.cached for result in results) == [False, True, True, True]
    assert len({result.library for result in results}) == 1 and all(result.ok for result in results)


def test_first_compiler_error_is_the_message(tmp_path: Path, checkout: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(checkout, copy)
    source = copy / "megatron/core/datasets/helpers.cpp"
    source.write_text("#include <no_such_header.h>\n" + source.read_text() + "\nint broken(\n")
    result = build(tmp_path / "node", source=str(copy))
    (finding,) = result.findings
    assert finding.rule == "helpers.build" and "fatal error: no_such_header.h" in finding.what
    assert finding.why.startswith(str(shutil.which("g++"))) and result.folder == ""
    assert not list((tmp_path / "node").rglob("*.so"))


def without(tmp_path: Path, *missing: str) -> dict[str, str]:
    """An environment whose PATH has everything that /usr/bin has, but for some programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for path in Path("/usr/bin").iterdir():
        if not any(path.name.startswith(name) or path.name.endswith(name) for name in missing):
            (folder / path.name).symlink_to(path)
    return {"PATH": str(folder)}


def test_no_compiler_names_the_package_to_install(tmp_path: Path, checkout: Path) -> None:
    result = build(tmp_path / "node", without(tmp_path, "g++", "c++", "clang"), source=str(checkout))
    assert rules(result) == ["helpers.compiler"] and "apt-get install g++" in result.findings[0].fix


def test_no_compiler_but_a_good_prebuilt_library(tmp_path: Path) -> None:
    if not (INSTALLED / "datasets" / f"helpers_cpp{SUFFIX}").exists():
        pytest.skip("this megatron-core brings no library for this Python")
    result = build(tmp_path / "node", without(tmp_path, "g++", "c++", "clang"))
    assert rules(result) == ["helpers.prebuilt"] and result.ok and result.folder == ""
    assert imports.prove([result.proof], sys.executable, os.environ).findings == ()


def child_python(tmp_path: Path, *packages: str) -> str:
    """A bare virtual environment that sees only the named packages of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    for name in packages:
        where = Path(next(iter(importlib.util.find_spec(name).submodule_search_locations)))  # type: ignore[union-attr,arg-type]
        (site / name).symlink_to(where)
        if (where.parent / f"{name}.libs").exists():
            (site / f"{name}.libs").symlink_to(where.parent / f"{name}.libs")
    return str(tmp_path / "venv" / "bin" / "python")


def test_no_pybind11_in_the_jobs_interpreter(tmp_path: Path, checkout: Path) -> None:
    python = child_python(tmp_path, "numpy")
    result = build(tmp_path / "node", python=python, source=str(checkout))
    assert rules(result) == ["helpers.pybind11"]
    assert result.findings[0].fix == f"`{python} -m pip install pybind11`"


def test_no_headers_and_no_pybind11_are_told_together(tmp_path: Path, checkout: Path) -> None:
    python = child_python(tmp_path, "numpy")
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    (site / "sitecustomize.py").write_text(
        "import sysconfig\nreal = sysconfig.get_paths\n"
        "gone = {'include': '/no/include', 'platinclude': '/no/include'}\n"
        "sysconfig.get_paths = lambda *a: {**real(*a), **gone}\n"
    )
    result = build(tmp_path / "node", python=python, source=str(checkout))
    assert rules(result) == ["helpers.headers", "helpers.pybind11"]
    assert "/no/include" in result.findings[0].why


def test_no_numpy_is_found_by_the_proof(tmp_path: Path, checkout: Path) -> None:
    result = build(tmp_path / "node", python=child_python(tmp_path, "pybind11"), source=str(checkout))
    assert rules(result) == ["helpers.import"] and "No module named 'numpy'" in result.findings[0].what


def test_other_interpreter_gets_its_own_suffix(tmp_path: Path, checkout: Path) -> None:
    """Built for the job's Python, whatever Python the agent runs on; headers of both may be installed."""
    others = sorted(Path.home().glob(".pyenv/versions/3.12.*/bin/python3.12"))
    if not others:
        pytest.skip("needs a python3.12 with headers")
    subprocess.run([others[0], "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    where = Path(next(iter(importlib.util.find_spec("pybind11").submodule_search_locations)))  # type: ignore[union-attr,arg-type]
    (site / "pybind11").symlink_to(where)
    (site / "numpy.py").write_text("raise ImportError('numpy of this test is not for 3.12')\n")
    python = str(tmp_path / "venv/bin/python")
    commands: list[str] = []
    result = mcore_helpers.build(
        HelpersPlan(source=str(checkout)),
        str(tmp_path / "node"),
        python,
        lambda e, d: commands.extend(d.get("command", [])),
    )
    assert any(part.endswith(".cpython-312-x86_64-linux-gnu.so") for part in commands)
    assert any("python3.12" in part for part in commands) and not any(
        "python3.11" in part for part in commands[:-3]
    )
    # It loads in 3.12 up to this test's numpy: the library itself was accepted.
    assert "numpy of this test" in result.findings[0].what


def test_missing_source_says_where_it_looked(tmp_path: Path) -> None:
    result = build(tmp_path / "node", source=str(tmp_path / "empty"))
    assert rules(result) == ["helpers.source"]
    assert str(tmp_path / "empty/megatron/core/datasets/helpers.cpp") in result.findings[0].why


def test_missing_package_says_which_interpreter(tmp_path: Path) -> None:
    result = build(tmp_path / "node", python=child_python(tmp_path), package="megatron.core")
    assert rules(result) == ["helpers.source"] and str(tmp_path / "venv") in result.findings[0].why


def test_interpreter_that_is_not_there(tmp_path: Path) -> None:
    assert rules(build(tmp_path / "node", python="/no/such/python")) == ["helpers.python"]


def test_other_checkout_first_on_the_path_cannot_win(tmp_path: Path, node: Path, checkout: Path) -> None:
    """A .pth file runs before PYTHONPATH is looked at only if it inserts: then the proof says so."""
    rival = tmp_path / "rival"
    shutil.copytree(checkout, rival)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(f"import sys\nsys.path.insert(0, {str(rival)!r})\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    result = build(node, env, source=str(checkout))
    assert rules(result) == ["helpers.elsewhere"] and str(rival) in result.findings[0].why


def test_target_that_cannot_be_written(tmp_path: Path, checkout: Path) -> None:
    (tmp_path / "file").write_text("")
    result = build(tmp_path / "file" / "node", source=str(checkout))
    assert rules(result) == ["helpers.io"] and result.findings[0].file.startswith(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "In file included from a.cpp:1:\na.h:3:5: warning: x\na.h:9:1: error: expected ';'\nb: error: y",
            "a.h:9:1: error: expected ';'",
        ),
        (
            "/usr/bin/ld: cannot open output file x.so: Read-only file system\ncollect2: error: ld",
            "/usr/bin/ld: cannot open output file x.so: Read-only file system",
        ),
        (
            "a.cpp:1:10: fatal error: pybind11/pybind11.h: No such file or directory",
            "a.cpp:1:10: fatal error: pybind11/pybind11.h: No such file or directory",
        ),
        ("Killed\n", "Killed"),
        ("", ""),
    ],
)
def test_first_error_of_compiler_output(text: str, expected: str) -> None:
    assert mcore_helpers.first_error(text) == expected
