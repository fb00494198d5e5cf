"""What an installed jobspec has: every module, every data file, and the licences of both."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOOL = PROJECT["tool"]["setuptools"]


def folder(package: str) -> Path:
    """Where the sources of a package lie: below the nearest package that `package-dir` names."""
    if package in TOOL["package-dir"]:
        return ROOT / TOOL["package-dir"][package]
    parent, _, name = package.rpartition(".")
    return folder(parent) / name


def test_every_file_of_the_packages_is_installed() -> None:
    files = {
        path
        for top in TOOL["package-dir"].values()
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    installed = {path for package in TOOL["packages"] for path in folder(package).glob("*.py")}
    for package, patterns in TOOL["package-data"].items():
        for pattern in patterns:
            matching = set(folder(package).glob(pattern))
            assert matching, f"`{pattern}` of `{package}` matches nothing"
            installed |= matching
    assert files - installed == set()


def test_the_licence_of_what_is_not_ours_travels_with_it() -> None:
    (licence,) = PROJECT["project"]["license-files"]
    assert "MIT License" in (ROOT / licence).read_text()
    assert PROJECT["project"]["license"] == "Apache-2.0 AND MIT"
