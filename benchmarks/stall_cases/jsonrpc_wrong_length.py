"""A tool process reads as many bytes as the header says, which counts characters twice; the client waits for its answer line.
---
expect: {kind: [pipe, waits, subprocess], says: ["call|serve"], never: ["computes", "is stopped"]}
"""

import json
import subprocess
import sys

import _kit

SERVER = """
import json, sys
def serve():
    while True:
        size = int(sys.stdin.buffer.readline())
        request = json.loads(sys.stdin.buffer.read(size))
        sys.stdout.write(json.dumps({"answer": request["code"]}) + chr(10))
        sys.stdout.flush()
serve()
"""
tool = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def call(code: str, extra: int = 0) -> dict:
    body = json.dumps({"code": code}).encode()
    tool.stdin.write(b"%d\n" % (len(body) + extra) + body)
    tool.stdin.flush()
    return json.loads(tool.stdout.readline())


_kit.steps()
print(call("1+1"))
_kit.here()
call("é", extra=2)
