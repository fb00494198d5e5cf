"""The launcher of tools waits for whichever child ends next; the one that was to end waits for a signal that nobody sends, the others serve.
---
expect:
  kind: [subprocess, signal, sleep, waits, several]
  says: ['reap|until_told']
  never: ['that is pid', 'lock']
"""

import os
import signal
import time

import _kit


def until_told():
    signal.sigwait({signal.SIGUSR1})


def serve():
    while True:
        time.sleep(30)


def reap():
    return os.wait()


_kit.steps()
for index in range(3):
    if os.fork() == 0:
        serve() if index else until_told()
        os._exit(0)
time.sleep(0.5)
_kit.here()
reap()
