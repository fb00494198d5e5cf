"""Staging straight from the hub, over real connections to a hub on this machine with its faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec.plan import StagePlan
from jobspec.runtime.staging import items
from jobspec.runtime.staging.hub_client import HubClient, Settings
from jobspec.runtime.staging.hub_files import HubFiles
from tests.kits.hub_lab import COMMIT, HubLab
from tests.runtime.staging.stage_kit import content, rules, safetensors, sharded
from tests.runtime.staging.swarm_kit import Node, Peer, nodes, peers_of

FILES = sharded(count=3, size=300_000)
WEIGHTS = "model-00001-of-00003.safetensors"
TOTAL = sum(map(len, FILES.values()))
INDEX = len(FILES["model.safetensors.index.json"])  # read once more, before the others


@pytest.fixture
def serve() -> Iterator[Callable[..., HubLab]]:
    made: list[HubLab] = []

    def start(files: Mapping[str, bytes] = FILES, **faults: Any) -> HubLab:
        made.append(HubLab(files, **faults))
        return made[-1]

    yield start
    for lab in made:
        lab.close()


def wanted(**more: Any) -> StagePlan:
    fields = {"name": "model", "kind": "model", "source": "models--acme--tiny", "repo_id": "acme/tiny"}
    return StagePlan(**{**fields, "revision": COMMIT, "from_hub": True, **more})


class Run:
    """One node's staging of one item from a lab."""

    def __init__(
        self,
        lab: HubLab,
        node: Path,
        settings: Mapping[str, Any] = {},
        env: Mapping[str, str] = {},
        **more: Any,
    ) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        chosen = Settings.of({"HF_ENDPOINT": lab.url, **env})
        chosen = replace(chosen, **{"stall_s": 5.0, "tries": 4, "pause_s": 0.01, **settings})
        files = HubFiles(HubClient(chosen, self.report))
        self.result = items.run([wanted(**more)], str(node), self.report, 60.0, files=files)

    def report(self, event: str, data: Mapping[str, Any]) -> None:
        self.events.append((event, dict(data)))

    @property
    def rules(self) -> list[str]:
        return rules(self.result)

    @property
    def folder(self) -> Path:
        return Path(self.result.ready["model"])

    def told(self, event: str) -> list[dict[str, Any]]:
        return [data for name, data in self.events if name == event]


def errors(run: Run) -> list[str]:
    return [finding.text() for finding in run.result.findings if finding.is_error]


def test_snapshot_comes_whole_in_cache_layout(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    lab = serve()
    run = Run(lab, tmp_path)
    assert run.rules == [] and run.result.bytes == TOTAL == lab.sent - INDEX
    assert content(run.folder) == FILES
    repo = tmp_path / f"hf-{os.geteuid()}" / "hub" / "models--acme--tiny"
    assert run.folder == repo / "snapshots" / COMMIT
    assert {path.name for path in (repo / "blobs").iterdir()} == {lab.etag(name) for name in FILES}
    assert (repo / "refs" / "main").read_text() == COMMIT


def test_huggingface_hub_makes_the_same_of_the_same_hub(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    """What shows that the lab speaks as the hub does: the hub's own client takes it for one."""
    pytest.importorskip("huggingface_hub")
    lab = serve()
    code = (
        "import sys; from huggingface_hub import snapshot_download as get\n"
        "get(sys.argv[1], cache_dir=sys.argv[2], revision=sys.argv[3])"
    )
    env = {**os.environ, "HF_ENDPOINT": lab.url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path / "home")}
    env.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run(
        [sys.executable, "-c", code, lab.repo, str(tmp_path / "theirs"), COMMIT],
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    theirs = tmp_path / "theirs" / "models--acme--tiny"
    Run(lab, tmp_path / "node")
    ours = tmp_path / "node" / f"hf-{os.geteuid()}" / "hub" / "models--acme--tiny"
    names = [
        str(path.relative_to(theirs / "snapshots")) for path in sorted((theirs / "snapshots").rglob("*"))
    ]
    assert [
        str(path.relative_to(ours / "snapshots")) for path in sorted((ours / "snapshots").rglob("*"))
    ] == names
    for path in (theirs / "snapshots").rglob("*"):
        if path.is_symlink():
            assert (ours / path.relative_to(theirs)).readlink() == path.readlink()


def test_second_run_asks_nobody(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    lab = serve()
    first = Run(lab, tmp_path)
    lab.close()
    second = Run(lab, tmp_path, require=("config.json",))
    assert (second.rules, second.result.bytes, second.result.cached) == ([], 0, True)
    assert second.folder == first.folder


def test_killed_run_goes_on_with_what_is_there(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    big = {"model.safetensors": safetensors(4 << 20), "config.json": b"{}"}
    lab = serve(big, slow_s=0.01)
    code = (
        "import os, signal, sys, threading, time\n"
        "from tests.runtime.staging.test_stage_hub import Run\n"
        "class Lab: url = sys.argv[1]\n"
        "from pathlib import Path\n"
        "node = Path(sys.argv[2])\n"
        "def watch():\n"
        "    while True:\n"
        "        parts = list(node.rglob('*.parts/*'))\n"
        "        if any(p.is_file() and p.stat().st_size > 2 << 20 for p in parts):\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        time.sleep(0.005)\n"
        "threading.Thread(target=watch, daemon=True).start()\n"
        "Run(Lab, node)\n"
    )
    root = str(Path(__file__).parents[3])
    killed = subprocess.run([sys.executable, "-c", code, lab.url, str(tmp_path)], cwd=root)
    assert killed.returncode == -9
    lab.slow_s, before = 0.0, len(lab.seen)
    run = Run(lab, tmp_path)
    assert run.rules == [] and content(run.folder) == big
    assert run.result.bytes < len(big["model.safetensors"]) - (2 << 20) + 2
    assert not [one for one in lab.seen[before:] if "/api/" in one.path]
    start = int(
        next(one.range for one in lab.seen[before:] if one.server == "files").split("=")[1].split("-")[0]
    )
    assert start > 2 << 20


def test_connection_that_stands_still_is_made_anew(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    files = {"model.safetensors": safetensors(400_000)}
    lab = serve(files, stall=2)
    run = Run(lab, tmp_path, {"stall_s": 0.5})
    assert content(run.folder) == files and run.rules == ["stage.hub-restarts"]
    assert "2 connections" in run.result.findings[0].what
    assert [data["why"] for data in run.told("restarted")] == ["no byte for 0.5 s"] * 2
    size = len(files["model.safetensors"])
    assert [data["at"] for data in run.told("restarted")] == [size // 2, size // 2 + size // 4]
    assert lab.sent == size  # nothing that had come was asked for again


def test_cut_connection_goes_on_at_its_byte(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    files = {"model.safetensors": safetensors(400_000)}
    lab = serve(files, cut=1)
    run = Run(lab, tmp_path)
    size = len(files["model.safetensors"])
    assert content(run.folder) == files and run.rules == ["stage.hub-restarts"]
    assert [one.range for one in lab.seen if one.server == "files"] == [
        f"bytes=0-{size - 1}", f"bytes={size // 2}-{size - 1}"
    ]  # fmt: skip


@pytest.mark.parametrize("fault", ["cut", "stall"])
def test_index_that_breaks_off_is_asked_for_again(
    serve: Callable[..., HubLab], tmp_path: Path, fault: str
) -> None:
    """The index is the first file that is read, as a whole and before the others."""
    lab = serve(**{fault: 1})
    run = Run(lab, tmp_path, {"stall_s": 0.5})
    assert run.rules == ["stage.hub-restarts"] and content(run.folder) == FILES
    assert run.told("restarted")[0]["file"].endswith("model.safetensors.index.json")


def test_what_never_comes_ends_and_the_next_run_goes_on(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    files = {"model.safetensors": safetensors(200_000)}
    lab = serve(files, silent=10**6)
    run = Run(lab, tmp_path, {"stall_s": 0.2, "tries": 2})
    assert run.rules == ["stage.hub-stalled", "stage.hub-restarts"] and run.result.ready == {}
    assert "3 connections in a row brought no byte, the last one: no byte for 0.2 s" in errors(run)[0]
    lab.silent = 0
    assert content(Run(lab, tmp_path).folder) == files


def test_hub_that_is_not_there(tmp_path: Path) -> None:
    lab = HubLab(FILES)
    lab.close()
    run = Run(lab, tmp_path, {"tries": 2})
    assert run.rules[:1] == ["stage.hub-stalled"]
    assert "3 connections in a row brought no byte" in errors(run)[0] and "refused" in errors(run)[0]


def test_rate_limit_is_waited_out_as_the_hub_asks(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    lab = serve(refuse=3, retry_after="1")
    run = Run(lab, tmp_path)
    assert content(run.folder) == FILES and run.rules == [] and lab.refuse == 0
    assert [data["seconds"] for data in run.told("paused")][:1] == [1.0]
    assert run.told("paused")[0]["why"] == "the hub answered 429"


def test_hub_that_has_us_wait_beyond_the_deadline_is_no_dead_mount(
    serve: Callable[..., HubLab], tmp_path: Path
) -> None:
    files = HubFiles(HubClient(Settings.of({"HF_ENDPOINT": serve(refuse=1, retry_after="60").url})))
    result = items.run([wanted()], str(tmp_path), lambda event, data: None, 1.0, files=files)
    assert rules(result) == ["stage.stalled"]
    assert "`acme/tiny` does not answer for 1 s" in result.findings[0].what
    assert "paused" in result.findings[0].fix and "mount" not in result.findings[0].fix


def test_rate_limit_tells_by_its_own_header_when_it_ends(
    serve: Callable[..., HubLab], tmp_path: Path
) -> None:
    lab = serve(refuse=1, ratelimit='"api";r=0;t=0')
    run = Run(lab, tmp_path)
    assert run.rules == [] and [data["seconds"] for data in run.told("paused")] == [1.0]


def test_refusal_without_end_is_told(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    lab = serve(refuse=10**6)
    run = Run(lab, tmp_path, {"tries": 2})
    assert run.rules == ["stage.hub-refused"] and "HF_TOKEN" in run.result.findings[0].fix
    assert len(lab.seen) == 3


def test_busy_hub_is_asked_again(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    run = Run(serve(broken=2), tmp_path)
    assert run.rules == [] and content(run.folder) == FILES


@pytest.mark.parametrize(
    ("faults", "env", "rule", "said"),
    [
        ({"token": "hf_right", "gated": True}, {}, "stage.hub-denied", "`HF_TOKEN` is not set"),
        ({"token": "hf_right"}, {"HF_TOKEN": "hf_wrong"}, "stage.hub-denied", "`HF_TOKEN` is set"),
        (
            {"token": "hf_right", "gated": True},
            {"HF_TOKEN": "hf_right"},
            "stage.hub-denied",
            "accept the terms",
        ),
    ],
)
def test_gated_model(
    serve: Callable[..., HubLab], tmp_path: Path, faults: Any, env: Any, rule: str, said: str
) -> None:
    lab = serve(**faults)
    run = Run(lab, tmp_path, env=env)
    assert run.rules == [rule] and said in errors(run)[0]
    assert "hf_" not in errors(run)[0] and len(lab.of("/resolve/")) == (1 if lab.gated else 0)


def test_unknown_revision_and_repository(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    lab = serve()
    run = Run(lab, tmp_path, revision="0" * 40)
    assert run.rules == ["stage.hub-absent"] and "RevisionNotFound" in errors(run)[0]
    run = Run(lab, tmp_path, repo_id="acme/other")
    assert run.rules == ["stage.hub-denied"] and "RepoNotFound" in errors(run)[0]


def test_token_is_shown_to_the_hub_alone(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    lab = serve(token="hf_right")
    run = Run(lab, tmp_path, env={"HF_TOKEN": "hf_right"})
    assert run.rules == [] and content(run.folder) == FILES
    assert {one.token for one in lab.seen if one.server == "hub"} == {"hf_right"}
    assert {one.token for one in lab.seen if one.server == "files"} == {""}
    kept = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()) + repr(run.events).encode()
    assert b"hf_right" not in kept and b"secret-signature" not in kept


def test_wrong_bytes_once_are_read_again(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    files = {"model.safetensors": safetensors(200_000)}
    lab = serve(files, flip=1)
    run = Run(lab, tmp_path)
    assert (
        run.rules == [] and content(run.folder) == files and lab.sent == 2 * len(files["model.safetensors"])
    )


def test_wrong_bytes_always_are_no_model(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    lab = serve({"model.safetensors": safetensors(200_000)}, flip=10**6)
    run = Run(lab, tmp_path)
    assert run.rules == ["stage.corrupt"] and "HF_ENDPOINT" in run.result.findings[0].fix
    assert lab.etag("model.safetensors") in errors(run)[0] and not list(tmp_path.rglob("snapshots/*"))


def test_signed_place_that_has_run_out_is_asked_for_again(
    serve: Callable[..., HubLab], tmp_path: Path
) -> None:
    files = {"model.safetensors": safetensors(300_000)}
    lab = serve(files, cut=1, expire=0)
    take = lab.take

    def expire_second(fault: str) -> bool:
        return (
            take(fault) if fault != "expire" else len([1 for one in lab.seen if one.server == "files"]) == 2
        )

    lab.take = expire_second  # type: ignore[method-assign]
    run = Run(lab, tmp_path)
    assert content(run.folder) == files
    assert [one.status for one in lab.seen if one.server == "files"] == [206, 403, 206]
    assert len(lab.of("/resolve/")) == 2


def test_slow_hub_is_not_taken_for_a_dead_one(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    files = {"model.safetensors": safetensors(300_000)}
    run = Run(serve(files, slow_s=0.15), tmp_path, {"stall_s": 0.6})
    assert run.rules == [] and content(run.folder) == files and run.told("restarted") == []


def test_proxy_without_ranges_is_named(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    lab = serve({"model.safetensors": safetensors(300_000)}, cut=1, whole=True)
    run = Run(lab, tmp_path)
    assert "stage.hub-range" in run.rules and "cannot be read from byte 150" in errors(run)[0]


def test_space_is_looked_at_before_the_first_byte(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    lab = serve()
    listing = lab.listing()
    for row in listing["siblings"]:  # type: ignore[attr-defined]
        if row["rfilename"] == WEIGHTS:
            row["lfs"]["size"] = 1 << 60
    lab.listing = lambda: listing  # type: ignore[method-assign]
    run = Run(lab, tmp_path)
    assert run.rules == ["stage.space"] and not [one for one in lab.seen if one.server == "files"]


def test_missing_shard_is_told_before_the_first_byte(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    lab = serve({name: data for name, data in FILES.items() if name != WEIGHTS})
    run = Run(lab, tmp_path, require=("chat_template.jinja", "config.json:model_type"))
    assert sorted(run.rules) == ["stage.require", "stage.require", "stage.shards"]
    assert not [one for one in lab.seen if one.server == "files"]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["siblings"][0].update(rfilename="../../outside"),
        lambda data: data["siblings"][0].update(rfilename="/etc/passwd"),
        lambda data: data["siblings"][0].update(blobId="../../x", lfs=None),
        lambda data: data["siblings"][0].update(rfilename="\ud800"),
        lambda data: data["siblings"][0].update(size=float("inf"), lfs=None),
        lambda data: data.update(sha="main"),
        lambda data: data.update(sha="1" * 40),
        lambda data: data.pop("siblings"),
    ],
)
def test_listing_that_cannot_be_true_is_refused(
    serve: Callable[..., HubLab], tmp_path: Path, change: Callable[[Any], Any]
) -> None:
    lab = serve()
    data = json.loads(json.dumps(lab.listing()))
    change(data)
    lab.listing = lambda: data  # type: ignore[method-assign]
    assert Run(lab, tmp_path).rules == ["stage.hub-listing"]


def test_header_that_belies_its_file_blocks_each_run(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    """The hub's hash is right, the file is not: the second run, which downloads nothing, says so as well."""
    lab = serve({"model.safetensors": safetensors(5000)[:-100]})
    assert Run(lab, tmp_path).rules == ["stage.corrupt"]
    again = Run(lab, tmp_path)
    assert (again.rules, again.result.ready, again.result.bytes) == (["stage.corrupt"], {}, 0)


def test_patterns_choose_before_the_download(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    lab = serve()
    run = Run(lab, tmp_path, allow=("*.json",))
    assert sorted(content(run.folder)) == ["config.json", "model.safetensors.index.json"]


def test_data_set_comes_from_its_own_place(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    files = {"main/train.parquet.bin": b"x" * 5000, "README.md": b"hello"}
    lab = serve(files, repo="openai/gsm8k", kind="datasets")
    run = Run(lab, tmp_path, name="model", kind="dataset", repo_id="openai/gsm8k")
    assert run.rules == [] and content(run.folder) == files
    assert lab.of("/api/datasets/openai/gsm8k/revision/") and lab.of("/datasets/openai/gsm8k/resolve/")


def test_names_with_blanks_and_signs(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    files = {"a b/100% & ü?.json": b"{}", "x#y.bin": b"z" * 99}
    run = Run(serve(files), tmp_path)
    assert run.rules == [] and content(run.folder) == files


PATIENCE_S = 3.0  # of the nodes with each other; twice in vain for one chunk, and a node is left out


class SwarmOfHub:
    """Several nodes, each with a folder of its own, that download one model together."""

    def __init__(self, lab: HubLab, folder: Path, count: int, **settings: Any) -> None:
        chosen = replace(Settings.of({"HF_ENDPOINT": lab.url}), stall_s=10.0, tries=4, pause_s=0.01)
        self.nodes = nodes(folder, count, stall_s=PATIENCE_S)
        self.files = [
            HubFiles(HubClient(replace(chosen, **settings), node.report), sharing=True) for node in self.nodes
        ]

    def stage(self) -> None:
        peers = peers_of(self.nodes)
        threads = [
            threading.Thread(target=self._one, args=(node, files, peers))
            for node, files in zip(self.nodes, self.files, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for node in self.nodes:
            node.swarm.close()

    def _one(self, node: Node, files: HubFiles, peers: list[Peer]) -> None:
        node.swarm.meet(peers, files.open, 2, files.client.alive)
        item = wanted(name="m0")
        node.result = items.run([item], str(node.folder), node.report, 60.0, swarm=node.swarm, files=files)


BIG = {"model.safetensors": safetensors(40 << 20), "config.json": b"{}\n"}


def test_nodes_share_the_download(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    lab = serve(BIG)
    swarm = SwarmOfHub(lab, tmp_path, 3)
    swarm.stage()
    assert [rules(node.done) for node in swarm.nodes] == [[], [], []]
    assert all(content(node.ready()) == BIG for node in swarm.nodes)
    total = sum(map(len, BIG.values()))
    assert lab.sent == total == sum(node.done.bytes for node in swarm.nodes)
    assert all(node.done.received > 0 for node in swarm.nodes)


def test_nodes_wait_for_each_other_while_the_hub_has_them_wait(
    serve: Callable[..., HubLab], tmp_path: Path
) -> None:
    """A pause is longer than the nodes' patience with each other, and still nobody is left out."""
    lab = serve(BIG)
    swarm = SwarmOfHub(lab, tmp_path, 3)
    take, asked = lab.take, threading.Event()

    def limited(fault: str) -> bool:
        late = lab.of("/resolve/") and not asked.is_set()
        if fault == "refuse" and late and len(lab.of("/api/")) == 3:
            asked.set()
            return True
        return take(fault)

    lab.take, lab.retry_after = limited, "12"  # type: ignore[method-assign]
    swarm.stage()
    assert [rules(node.done) for node in swarm.nodes] == [[], [], []]
    assert asked.is_set() and lab.sent == sum(map(len, BIG.values()))


def test_slow_hub_makes_nobody_leave_anybody_out(serve: Callable[..., HubLab], tmp_path: Path) -> None:
    """Each chunk takes longer than the nodes' patience with each other."""
    lab = serve({"model.safetensors": safetensors(12 << 20)}, slow_s=0.045)
    swarm = SwarmOfHub(lab, tmp_path, 2)
    swarm.stage()
    assert [rules(node.done) for node in swarm.nodes] == [[], []]
    assert lab.sent == len(lab.files["model.safetensors"])
