"""Any test folders can be named together: they share one path for imports, whatever is collected first."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = [path for folder in ("tests", "tests/*") for path in sorted(ROOT.glob(f"{folder}/*.py"))]
OPTIONS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
SHARED = {ROOT / name for name in OPTIONS["pythonpath"]}


def imported(path: Path) -> set[str]:
    """First parts of the names of all modules that a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Import):
            found.update(name.name.partition(".")[0] for name in node.names)
    return found


def test_names_of_modules_are_unique() -> None:
    count = Counter(path.stem for path in MODULES if path.stem != "conftest")
    assert count["strategies"] == 1
    assert [name for name, times in count.items() if times > 1] == []


def test_no_conftest_is_imported_by_name() -> None:
    """There are several, and the name stands for the one that was loaded last."""
    assert [path for path in MODULES if "conftest" in imported(path)] == []


def test_what_a_module_imports_is_beside_it_or_shared() -> None:
    folders = {path.stem: path.parent for path in MODULES}
    strange = {
        (str(path), name)
        for path in MODULES
        for name in imported(path) & set(folders)
        if folders[name] not in {path.parent, *SHARED}
    }
    assert strange == set()
