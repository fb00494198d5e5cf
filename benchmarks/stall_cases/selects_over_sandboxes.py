"""Main selects over the output pipes of two sandboxes, which both wait for their next line of input.
---
expect:
  kind: [other, pipe, waits, several]
  says: ['next_output|select']
  never: ['computes', 'lock']
"""

import select
import subprocess
import sys

import _kit

BOX = "import sys\nfor line in sys.stdin:\n    print(len(line), flush=True)\n"


def next_output(boxes):
    ready, _, _ = select.select([box.stdout for box in boxes], [], [])
    return ready[0].readline()


_kit.steps()
boxes = [subprocess.Popen([sys.executable, "-c", BOX], stdin=-1, stdout=-1) for _ in range(2)]
for box in boxes:
    box.stdin.write(b"1 + 1\n")
    box.stdin.flush()
    box.stdout.readline()
_kit.here()
next_output(boxes)
