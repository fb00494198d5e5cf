"""Says which versions are installed beside those that a checkout locks; runs alone as `python3 - JSON`."""

from __future__ import annotations

import json
import sys
from importlib import metadata


def main(argv: list[str]) -> int:
    for name, versions in json.loads(argv[1]).items():
        try:
            found = metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            found = "missing"
        sys.stdout.write(f"jobspec: package {name} is {found}, locked {','.join(versions)}\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
