"""A reward server's handler never releases its asyncio lock after an error: the next request waits for it.
---
expect: {kind: [network, event-loop, lock], frame: handle, says: ["handle", "post|read|reward"]}
"""

import asyncio
import multiprocessing
import socket
import urllib.error
import urllib.request

import _kit
from aiohttp import web


def serve(sock):
    lock = asyncio.Lock()

    async def handle(request):
        await lock.acquire()
        text = await request.text()
        if not text:
            raise ValueError("empty")
        lock.release()
        return web.json_response({})

    app = web.Application()
    app.router.add_post("/", handle)
    web.run_app(app, sock=sock, print=None)


def post_reward(port, data):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", data=data).read()
    except urllib.error.HTTPError:
        pass


sock = socket.create_server(("127.0.0.1", 0))
multiprocessing.get_context("fork").Process(target=serve, args=(sock,), daemon=True).start()
_kit.steps()
post_reward(sock.getsockname()[1], b"x")
post_reward(sock.getsockname()[1], b"")
_kit.here()
post_reward(sock.getsockname()[1], b"y")
