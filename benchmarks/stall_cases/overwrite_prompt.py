"""The checkpoint's export asks at stdin whether it may overwrite the folder; stdin is a pipe that the launcher keeps open.
---
expect: {kind: [input, pipe], frame: export, says: ["export"], never: ["computes", "sleeps"]}
"""

import os
import subprocess
import sys

import _kit


def export() -> None:
    answer = input("folder exists, overwrite? [y/N] ")
    print(answer)


if len(sys.argv) > 1:
    export()
else:
    _kit.steps()
    reader, writer = os.pipe()
    _kit.here()
    subprocess.run([sys.executable, __file__, "export"], stdin=reader)
