"""Files are replaced whole, by one function, and through no link that waits for a partial file."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobspec.runtime.base import safe_write
from jobspec.runtime.base.safe_write import beside, replacing, write_bytes, write_text

ROOT = Path(__file__).resolve().parents[3]
# Who else gives a file or a folder another name, and what of: no file that is written beside its place.
OTHERS = {
    "jobspec/planning/clones.py": "a clone",
    "jobspec/planning/elsewhere.py": "a copy of a checkout's text files",
    "jobspec/planning/far_side.py": "a checkout",
    "jobspec/planning/frozen.py": "a whole checkout",
    "jobspec/planning/git_bundle.py": "a bundle, and a checkout",
    "jobspec/planning/restored.py": "a checkout",
    "jobspec/rendering/run_folder.py": "a whole run folder",
    "runtime/base/own_folder.py": "a link",
    "runtime/base/safe_write.py": "here",
    "runtime/checkouts/mcore_helpers.py": "a library that a compiler wrote",
    "runtime/drivers/rlix/cache.py": "a link",
    "runtime/node/agent.py": "a link",
    "runtime/node/collect.py": "a collected file whose name held a secret",
    "runtime/staging/image_import.py": "an image that Enroot or Apptainer wrote",
    "runtime/staging/leases.py": "a folder that goes",
    "runtime/staging/publish.py": "a folder, and a link",
    "runtime/staging/shared.py": "a folder",
    "runtime/staging/transfer.py": "a part, which a later run continues: opened without following links",
}


def test_old_or_new(tmp_path: Path) -> None:
    file = tmp_path / "new/folder/file"
    write_text(file, "one \udcff\n")
    assert file.read_bytes() == b"one \\udcff\n"
    write_bytes(file, b"two")
    with pytest.raises(RuntimeError), replacing(file) as half:
        half.write(b"thr")
        raise RuntimeError
    assert file.read_bytes() == b"two"
    assert list(file.parent.iterdir()) == [file]


def test_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "file").symlink_to(victim)
    write_text(tmp_path / "file", "new")
    assert (victim.read_text(), (tmp_path / "file").read_text()) == ("mine", "new")
    assert not (tmp_path / "file").is_symlink()


def test_partial_name_that_is_taken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, file = tmp_path / "victim", tmp_path / "file"
    victim.write_text("mine")
    monkeypatch.setattr(safe_write, "beside", lambda path: path.with_name("guessed"))
    (tmp_path / "guessed").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_text(file, "new")
    assert victim.read_text() == "mine"
    assert not file.exists()


def test_names_differ_and_fit(tmp_path: Path) -> None:
    long = tmp_path / ("ü" * 120)
    assert beside(long) != beside(long)
    write_text(long, "text")
    assert long.read_text() == "text"


def test_nothing_is_wider_than_asked(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_text(tmp_path / "file", "")
        write_text(tmp_path / "own", "", mode=0o600)
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "file", tmp_path / "own")] == [0o644, 0o600]


def renames(tree: ast.AST) -> Iterator[ast.Call]:
    """`os.replace(a, b)`, `os.rename(a, b)`, `path.replace(b)` and `path.rename(b)`; no `str.replace`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords:
            on_os = isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
            if node.func.attr in ("replace", "rename") and len(node.args) == (2 if on_os else 1):
                yield node


def test_nobody_else_writes_a_file_beside_its_place() -> None:
    sources = [path for room in ("jobspec", "launchers", "runtime") for path in (ROOT / room).rglob("*.py")]
    found = {
        path.relative_to(ROOT).as_posix()
        for path in sources
        if any(renames(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found - set(OTHERS) == set()
    assert "runtime/base/safe_write.py" in found
