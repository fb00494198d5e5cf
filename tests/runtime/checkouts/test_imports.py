from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jobspec.plan import ImportProof
from jobspec.runtime.checkouts import imports


def package(root: Path, name: str, text: str = "") -> Path:
    """A regular package `name` below `root`."""
    folder = root.joinpath(*name.split("."))
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(text)
    return root


def prove(*proofs: ImportProof, path: tuple[Path, ...] = (), timeout_s: float = 60.0) -> imports.ImportResult:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, path))}
    return imports.prove(proofs, sys.executable, env, timeout_s)


def only(result: imports.ImportResult) -> tuple[str, str, str]:
    (finding,) = result.findings
    return finding.rule, finding.what, finding.why


def test_module_below_its_root_passes(tmp_path: Path) -> None:
    root = package(tmp_path / "check out ü", "trainer")
    result = prove(ImportProof("trainer", str(root)), path=(root,))
    assert result.ok and result.files == {"trainer": str(root / "trainer" / "__init__.py")}


def test_other_checkout_is_named_with_the_order(tmp_path: Path) -> None:
    old, new = package(tmp_path / "old", "trainer"), package(tmp_path / "new", "trainer")
    rule, what, why = only(prove(ImportProof("trainer", str(new), "rl"), path=(old, new)))
    assert rule == "imports.elsewhere"
    assert f"`trainer` of repo `rl` is imported from `{old}/trainer/__init__.py`" in what
    assert f"below `{new}`" in why and why.index(str(old)) < why.rindex(str(new))


def test_sibling_with_a_common_prefix_is_elsewhere(tmp_path: Path) -> None:
    root = package(tmp_path / "repo-old", "trainer")
    assert only(prove(ImportProof("trainer", str(tmp_path / "repo")), path=(root,)))[0] == "imports.elsewhere"


def test_links_are_resolved_on_both_sides(tmp_path: Path) -> None:
    root = package(tmp_path / "real", "trainer")
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "trainer").symlink_to(root / "trainer")
    assert prove(ImportProof("trainer", str(tmp_path / "link")), path=(tmp_path / "tree",)).ok


def test_missing_dependency_is_quoted(tmp_path: Path) -> None:
    root = package(tmp_path, "trainer", "import no_such_dependency\n")
    rule, what, why = only(prove(ImportProof("trainer", str(root)), path=(root,)))
    assert rule == "imports.failed" and "No module named 'no_such_dependency'" in what
    assert str(root / "trainer" / "__init__.py") in why


@pytest.mark.parametrize(
    "text", ["raise SystemExit(0)", "raise KeyboardInterrupt", "1/0", "syntax error here"]
)
def test_module_that_raises_anything_is_a_finding(tmp_path: Path, text: str) -> None:
    root = package(tmp_path, "trainer", text)
    good = package(tmp_path / "other", "good")
    result = prove(ImportProof("trainer", str(root)), ImportProof("good", str(good)), path=(root, good))
    assert only(result)[0] == "imports.failed" and "good" in result.files


def test_import_that_hangs_is_named_and_ended(tmp_path: Path) -> None:
    marker = tmp_path / "child"
    text = f"import os, time\nopen({str(marker)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    root, quick = package(tmp_path / "a", "slow_one", text), package(tmp_path / "b", "quick")
    proofs = [ImportProof("quick", str(quick)), ImportProof("slow_one", str(root)), ImportProof("os", "/")]
    result = prove(*proofs, path=(root, quick), timeout_s=8)
    assert only(result)[:2] == ("imports.ended", "`import slow_one` has not ended after 8 s")
    assert list(result.files) == ["quick"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)


def test_import_that_crashes_the_interpreter_is_named(tmp_path: Path) -> None:
    root = package(tmp_path, "broken", "import os, sys\nprint('last words', flush=True)\nos.abort()\n")
    rule, what, why = only(prove(ImportProof("broken", str(root)), path=(root,)))
    assert (rule, "status -6 while it imported `broken`" in what, "last words" in why) == (
        "imports.ended",
        True,
        True,
    )


def test_printing_modules_do_not_disturb(tmp_path: Path) -> None:
    text = "import sys, os\nprint('{\"event\": \"done\"}')\nos.write(1, b'\\xff\\n')\nsys.stdout.close()\n"
    root = package(tmp_path, "noisy", text)
    assert prove(ImportProof("noisy", str(root)), path=(root,)).ok


def test_namespace_package_counts_by_the_folder_that_wins(tmp_path: Path) -> None:
    for root in ("a", "b"):
        (tmp_path / root / "space" / root).mkdir(parents=True)
    path = (tmp_path / "a", tmp_path / "b")
    assert prove(ImportProof("space", str(tmp_path / "a")), path=path).ok
    assert only(prove(ImportProof("space", str(tmp_path / "b")), path=path))[0] == "imports.elsewhere"


def test_zip_import_counts_by_its_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("zipped/__init__.py", "")
    path = (tmp_path / "lib.zip",)
    assert prove(ImportProof("zipped", str(tmp_path / "lib.zip")), path=path).ok
    assert only(prove(ImportProof("zipped", str(tmp_path / "lib")), path=path))[0] == "imports.elsewhere"


def test_module_of_the_interpreter_has_no_file() -> None:
    assert "the interpreter itself" in only(prove(ImportProof("sys", "/")))[1]


def test_editable_install_is_its_checkout(tmp_path: Path) -> None:
    """A .pth file and a finder in site-packages: both ways in which setuptools makes editable installs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    by_pth, by_finder = package(tmp_path / "one", "by_pth"), package(tmp_path / "two", "by_finder")
    (site / "one.pth").write_text(f"{by_pth}\n")
    (site / "two.pth").write_text("import _finder_of_two\n")
    (site / "_finder_of_two.py").write_text(
        "import importlib.util, sys\nclass Finder:\n    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name == 'by_finder':\n"
        f"            file = {str(by_finder / 'by_finder/__init__.py')!r}\n"
        "            return importlib.util.spec_from_file_location(name, file)\n"
        "sys.meta_path.append(Finder)\n"
    )
    proofs = [ImportProof("by_pth", str(by_pth)), ImportProof("by_finder", str(by_finder))]
    result = imports.prove(proofs, str(tmp_path / "venv/bin/python"), {}, 60)
    assert result.findings == () and set(result.files) == {"by_pth", "by_finder"}


def test_folder_of_the_caller_does_not_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "only_in_cwd")
    monkeypatch.chdir(tmp_path)
    assert only(prove(ImportProof("only_in_cwd", str(tmp_path))))[0] == "imports.failed"


def test_environment_is_exactly_the_given_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKED", "1")
    root = package(tmp_path, "sees", "import os\nassert 'LEAKED' not in os.environ\n")
    assert prove(ImportProof("sees", str(root)), path=(root,)).ok


def test_missing_interpreter_is_a_finding() -> None:
    result = imports.prove([ImportProof("os", "/")], "/no/such/python", {}, 5)
    assert only(result)[:2] == ("imports.python", "`/no/such/python` does not start")


def test_no_proof_starts_no_child() -> None:
    assert imports.prove([], "/no/such/python", {}).ok


def test_report_of_another_node_is_judged_alike(tmp_path: Path) -> None:
    """What `probe_module` returns from a Ray task is plain data; the head judges it with the node's name."""
    report = json.loads(json.dumps(imports.probe_module(["json", "no_such_module"])))
    report["host"] = "n3"
    proofs = [
        ImportProof("json", str(Path(json.__file__).parents[1])),
        ImportProof("no_such_module", str(tmp_path)),
    ]
    (finding,) = imports.judge(proofs, report)
    assert (finding.rule, finding.node) == ("imports.failed", "n3")
    assert imports.judge([ImportProof("json", str(tmp_path))], report)[0].rule == "imports.elsewhere"


def test_works_from_inside_a_zip_of_the_runtime(tmp_path: Path) -> None:
    """The runtime travels as a zipapp: the probe's text must be found there too."""
    root = Path(imports.__file__).resolve().parents[2]
    with zipfile.ZipFile(tmp_path / "runtime.pyz", "w") as archive:
        archive.writestr("jobspec/__init__.py", "")
        archive.writestr("jobspec/runtime/__init__.py", "")
        archive.writestr("jobspec/runtime/checkouts/__init__.py", "")
        for name in (
            "jobspec/finding.py",
            "jobspec/plan.py",
            "runtime/checkouts/imports.py",
            "runtime/checkouts/import_probe.py",
        ):
            archive.write(root / name, name if name.startswith("jobspec") else f"jobspec/{name}")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'runtime.pyz')!r})\n"
        "from jobspec.runtime.checkouts import imports\nfrom jobspec.plan import ImportProof\n"
        "r = imports.prove([ImportProof('json', sys.base_prefix)], sys.executable, {})\n"
        "print(imports.__file__, r.ok, *r.files)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == [
        str(tmp_path / "runtime.pyz/jobspec/runtime/checkouts/imports.py"),
        "True",
        "json",
    ], done.stderr
