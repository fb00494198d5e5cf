"""A tool's call ran into its timeout, but its thread still reads: asyncio.run joins the threads of to_thread.
---
expect:
  kind: [join, network, event-loop, future, lock]
  ranks: [0]
  frame: call_tool
  never: ["(?i)coroutine call_tool", "(?i)exited before"]
"""

import asyncio
import socket
import subprocess
import sys

import _kit

SANDBOX = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connections = []
while True:
    connections.append(server.accept()[0])
"""

sandbox = subprocess.Popen([sys.executable, "-c", SANDBOX], stdout=subprocess.PIPE, text=True)
assert sandbox.stdout
port = int(sandbox.stdout.readline())


def call_tool(query: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{query}\n".encode())
        return connection.recv(4096)


async def rollout() -> float:
    try:
        return float(await asyncio.wait_for(asyncio.to_thread(call_tool, "ls"), 1))
    except TimeoutError:
        return 0.0


_kit.steps()
_kit.here()
reward = asyncio.run(rollout())
print("step 4", reward, flush=True)
