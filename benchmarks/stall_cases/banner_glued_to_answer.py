"""A search tool writes its banner without a line's end, so its first answer stands on the same line, which the client skips as it is no JSON: the client waits for the answer, the tool for the next request.
---
expect:
  kind: [pipe, input, subprocess]
  says: ["(?i)call_tool|readline|pipe|stdout"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)pipe[^.;]* (is )?full"]
"""

import json
import subprocess
import sys

import _kit

TOOL = """
import json, sys
sys.stdout.write("search 1.2, 4 shards ... ")
sys.stdout.flush()
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"id": request["id"], "hits": ["a", "b"]}), flush=True)
"""


class SearchTool:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def call_tool(self, number: int, query: str) -> list[str]:
        self.process.stdin.write(json.dumps({"id": number, "query": query}) + "\n")
        self.process.stdin.flush()
        while line := self.process.stdout.readline():
            try:
                answer = json.loads(line)
            except ValueError:
                continue  # some tools print to stdout
            if answer["id"] == number:
                return answer["hits"]
        raise RuntimeError("the tool has ended")


_kit.steps()
tool = SearchTool()
_kit.here()
print(tool.call_tool(1, "largest prime below 100"))
