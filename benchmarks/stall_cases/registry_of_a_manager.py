"""The trainer asks a registry in a manager's process for the newest weights; its method waits on a condition that only a publisher notifies, which has ended.
---
expect:
  kind: [lock, queue, pipe, waits]
  says: ['newest']
  never: ['queue between', 'full']
"""

import threading
from multiprocessing.managers import BaseManager

import _kit


class Registry:
    def __init__(self):
        self.changed, self.version = threading.Condition(), 0

    def newest(self, above):
        with self.changed:
            self.changed.wait_for(lambda: self.version > above)
            return self.version


class Manager(BaseManager):
    pass


Manager.register("Registry", Registry)

if __name__ == "__main__":
    _kit.steps()
    manager = Manager()
    manager.start()
    registry = manager.Registry()
    _kit.here()
    print(registry.newest(0))
