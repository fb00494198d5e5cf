"""An event loop waits for a future that nobody sets.
---
expect: {kind: [event-loop], says: [event loop]}
"""

import asyncio

import _kit


async def main() -> None:
    _kit.here()
    await asyncio.get_running_loop().create_future()


_kit.steps()
asyncio.run(main())
