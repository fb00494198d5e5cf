"""Says which versions are installed beside those that a checkout locks; runs alone as `python3 - JSON`."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

# Packages that runs often have as sources on PYTHONPATH, without metadata: the file that has their version.
SOURCES = {"megatron-core": "megatron.core", "megatron-bridge": "megatron.bridge"}


def installed(name: str) -> str:
    """The version by the package's metadata, else by its sources; `missing` without both."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return from_sources(SOURCES.get(name, "")) or "missing"


def from_sources(module: str) -> str:
    """The version that package_info.py of `module` tells; empty without one. The module is not imported."""
    try:
        spec = find_spec(module) if module else None
        folders = list(spec.submodule_search_locations or []) if spec else []
        return str(run_path(str(Path(folders[0], "package_info.py")))["__version__"])
    except Exception:  # noqa: BLE001 - the file is the package's own and may raise anything
        return ""


def main(argv: list[str]) -> int:
    for name, versions in json.loads(argv[1]).items():
        found = installed(name)
        if not any("+" in version for version in versions):  # the local part names a build of a release
            found = found.partition("+")[0]
        sys.stdout.write(f"jobspec: package {name} is {found}, locked {','.join(versions)}\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
