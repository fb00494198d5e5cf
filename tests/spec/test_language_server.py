"""The schema of job specs in the YAML language server, which VS Code and other editors start over a pipe."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.kits.programs_kit import skip_or_fail

ROOT = Path(__file__).parents[2]
SERVER = ROOT / ".cache/language-server/node_modules/.bin/yaml-language-server"  # by `make language-server`
EXAMPLES = [
    path
    for path in sorted((ROOT / "examples").rglob("*.yaml"))
    if path.read_text().startswith("# yaml-language-server: $schema=")
]
HEAD = """\
# yaml-language-server: $schema=job.schema.json
version: 1
name: x
framework: verl
cluster: local
"""


class Editor:
    """A client of the Language Server Protocol: JSON-RPC behind a header with the length."""

    def __init__(self, server: subprocess.Popen[bytes], folder: Path) -> None:
        assert server.stdin is not None and server.stdout is not None
        self.folder = folder
        self._in: IO[bytes] = server.stdin
        self._out: IO[bytes] = server.stdout
        self._number = 0
        self.ask("initialize", processId=None, rootUri=folder.as_uri(), capabilities={})
        self._tell("initialized")

    def write(self, text: str) -> Path:
        """A new file beside the schema."""
        path = self.folder / f"spec-{self._number}-{len(list(self.folder.iterdir()))}.yaml"
        path.write_text(text)
        return path

    def problems(self, path: Path) -> list[tuple[str, str]]:
        """What the server marks in a file: the marked text and the message."""
        text = path.read_text()
        self._open(path, text)
        while True:
            message = self._read()
            if message.get("method") != "textDocument/publishDiagnostics":
                continue
            if message["params"]["uri"] == path.as_uri():
                found = message["params"]["diagnostics"]
                return [(_marked(text, item["range"]), item["message"]) for item in found]

    def choices(self, text: str) -> list[str]:
        """What the server offers at the end of the text."""
        path = self.write(text)
        self._open(path, text)
        place = {"line": text.count("\n"), "character": len(text.rpartition("\n")[2])}
        answer = self.ask("textDocument/completion", textDocument={"uri": path.as_uri()}, position=place)
        return [item["label"] for item in answer["items"]]

    def ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        self._send(id=self._number, method=method, params=params)
        while True:
            message = self._read()
            if message.get("id") == self._number and "method" not in message:
                assert "error" not in message, message
                return message["result"]

    def _open(self, path: Path, text: str) -> None:
        document = {"uri": path.as_uri(), "languageId": "yaml", "version": 1, "text": text}
        self._tell("textDocument/didOpen", textDocument=document)

    def _tell(self, method: str, **params: Any) -> None:
        self._send(method=method, params=params)

    def _send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._in.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._in.flush()

    def _read(self) -> dict[str, Any]:
        length = 0
        while line := self._out.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the server has ended"
        message: dict[str, Any] = json.loads(self._out.read(length))
        if "id" in message and "method" in message:  # the server asks for settings: there are none
            items = message.get("params", {}).get("items", ())
            self._send(id=message["id"], result=[None] * len(items) if items else None)
        return message


def _marked(text: str, place: dict[str, Any]) -> str:
    line = text.splitlines()[place["start"]["line"]]
    end = place["end"]["character"] if place["end"]["line"] == place["start"]["line"] else None
    return line[place["start"]["character"] : end]


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    """An editor in a folder with `job.schema.json`, the schema with the names of this installation."""
    if not SERVER.exists() or shutil.which("node") is None:
        skip_or_fail("needs the YAML language server: `make language-server`, which takes npm")
    server = subprocess.Popen([str(SERVER), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    folder = tmp_path_factory.mktemp("edited")
    argv = [sys.executable, "-m", "jobspec.cli", "schema", "job", "--here"]
    (folder / "job.schema.json").write_bytes(subprocess.run(argv, capture_output=True, check=True).stdout)
    try:
        yield Editor(server, folder)
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_has_no_mark(editor: Editor, example: Path) -> None:
    assert editor.problems(example) == []


@pytest.mark.parametrize(
    ("more", "marked", "said"),
    [
        ("trian: {steps: 1}\n", "trian", "trian is not allowed"),
        ("train: {stesp: 1}\n", "stesp", "stesp is not allowed"),
        ("train: {steps: many}\n", "many", "integer"),
        ("coverage: {level: refit}\n", "refit", '"smoke", 0, "checkpoint", 1'),  # a level of nemo_rl
        ("coverage: {variants: [lore]}\n", "lore", '"lora"'),
    ],
)
def test_a_mistake_is_marked_where_it_stands(editor: Editor, more: str, marked: str, said: str) -> None:
    ((text, message),) = editor.problems(editor.write(HEAD + more))
    assert (text, said in message) == (marked, True), message


@pytest.mark.parametrize(
    ("name", "wrong", "said"), [("verl", "verll", '"trl", "verl"'), ("local", "lokal", '"local"')]
)
def test_frameworks_and_clusters_of_this_installation_are_known(
    editor: Editor, name: str, wrong: str, said: str
) -> None:
    assert editor.problems(editor.write(HEAD)) == []
    ((text, message),) = editor.problems(editor.write(HEAD.replace(name, wrong)))
    assert (text, said in message) == (wrong, True), message


def test_keys_and_values_are_offered(editor: Editor) -> None:
    keys = editor.choices(HEAD + "c")
    assert {"coverage", "container", "checkpoint"} <= {*keys}
    assert len(keys) == len({*keys}), "each once"
    assert {"steps", "seed", "overrides"} <= {*editor.choices(HEAD + "train:\n  s")}
    verl = {*editor.choices(HEAD + "coverage:\n  level: ")}
    nemo_rl = {*editor.choices(HEAD.replace("verl", "nemo_rl") + "coverage:\n  level: ")}
    assert "fsdp" in verl - nemo_rl
    assert "refit" in nemo_rl - verl
    assert {"trl", "verl", "skyrl"} <= {*editor.choices(HEAD.partition("verl")[0])}
    assert {"local", "slurm-generic"} <= {*editor.choices(HEAD.partition("local")[0])}
