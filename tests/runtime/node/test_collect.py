import json
import os
from pathlib import Path

import pytest

from jobspec.runtime.base.redact import Redactor
from jobspec.runtime.node.collect import Folders, _renamed, already_there, collect, matcher

NOTHING = Redactor([])


def folders(path: Path) -> Folders:
    return Folders(attempt=str(path), checkpoint="", scratch="")


def run(path: Path, *patterns: str, **bounds: float) -> tuple[list[str], bool, list[str]]:
    target = path.parent / "artifacts"
    got = collect(
        patterns,
        folders(path),
        target,
        NOTHING,
        max_bytes=int(bounds.get("max_bytes", 10**9)),
        deadline_s=bounds.get("deadline_s", 30),
    )
    return sorted(os.path.relpath(one.path, target) for one in got.files), got.truncated, got.skipped


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "attempt"
    for name in ("a.log", "b.txt", "d/c.log", "d/e/f.log", "d/e/g.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("*.log", ["a.log"]),
        ("**/*.log", ["a.log", "d/c.log", "d/e/f.log"]),
        ("d/**", ["d/c.log", "d/e/f.log", "d/e/g.json"]),
        ("d", ["d/c.log", "d/e/f.log", "d/e/g.json"]),
        ("d/*", ["d/c.log", "d/e/f.log", "d/e/g.json"]),
        ("d/*/?.json", ["d/e/g.json"]),
        ("b.txt", ["b.txt"]),
        ("nothing", []),
        ("../*", []),
    ],
)
def test_patterns(tree: Path, pattern: str, files: list[str]) -> None:
    assert run(tree, pattern)[0] == files


def test_absolute_pattern(tree: Path) -> None:
    assert run(tree.parent / "attempt", f"{tree}/d/*.log")[0] == ["c.log"]


@pytest.mark.parametrize(
    ("pattern", "text", "match"), [("a[1].log", "a[1].log", True), ("a.log", "axlog", False)]
)
def test_other_characters_are_literal(pattern: str, text: str, match: bool) -> None:
    assert bool(matcher(pattern).match(text)) is match


def test_links_out_are_not_followed(tree: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.log"
    secret.write_text("x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "o.log").write_text("x")
    (tree / "link.log").symlink_to(secret)
    (tree / "dir").symlink_to(tmp_path / "outside")
    (tree / "inside.log").symlink_to(tree / "b.txt")
    assert run(tree, "**/*.log", "link.log", "dir/o.log")[0] == [
        "a.log",
        "d/c.log",
        "d/e/f.log",
        "inside.log",
    ]


def test_a_file_with_two_names_is_copied_once_and_a_linked_folder_is_read(tree: Path) -> None:
    (tree / "a-link.txt").symlink_to("b.txt")
    (tree / "hard.txt").hardlink_to(tree / "d/c.log")
    link = tree.parent / "attempt-link"
    link.symlink_to(tree)
    assert run(link, "*.txt", "d/*.log")[0] == ["a-link.txt", "hard.txt"]
    assert (tree.parent / "artifacts" / "a-link.txt").read_text() == "b.txt"


def test_fifo_does_not_hang(tree: Path) -> None:
    os.mkfifo(tree / "pipe.log")
    assert run(tree, "*.log")[0] == ["a.log"]


def test_small_files_come_before_a_huge_one(tree: Path) -> None:
    (tree / "0-core.log").write_bytes(b"x" * 10000)
    files, truncated, skipped = run(tree, "**/*.log", max_bytes=5000)
    assert files == ["a.log", "d/c.log", "d/e/f.log"]
    assert truncated
    assert skipped == [str(tree / "0-core.log")]


def test_deadline_is_kept(tree: Path) -> None:
    files, truncated, _ = run(tree, "**", deadline_s=0.0)
    assert (files, truncated) == ([], True)


def test_text_is_redacted_and_binary_is_left(tree: Path) -> None:
    (tree / "s.log").write_text("key secret-value\n")
    (tree / "s.bin").write_bytes(b"\0secret-value")
    target = tree.parent / "artifacts"
    redactor = Redactor([("K", "secret-value")])
    collect(["s.*"], folders(tree), target, redactor, max_bytes=10**9, deadline_s=30)
    assert (target / "s.log").read_text() == "key [redacted K]\n"
    assert (target / "s.bin").read_bytes() == b"\0secret-value"


def test_secret_in_a_name_reaches_no_manifest(tmp_path: Path) -> None:
    """Of collected files, and of those that the program itself has put there."""
    redactor = Redactor([("KEY", "secret-value")])
    source, artifacts = tmp_path / "attempt", tmp_path / "artifacts"
    for folder in (source / "d", artifacts / "secret-value"):
        folder.mkdir(parents=True)
    (source / "d" / "secret-value.txt").write_text("1")
    (artifacts / "secret-value" / "out").write_text("2")
    found = collect(["d/**"], folders(source), artifacts, redactor, max_bytes=100, deadline_s=60)
    rows = found.to_json(artifacts, "n")["files"]
    rows += already_there(artifacts, [row["path"] for row in rows], "n", redactor)
    assert [row["path"] for row in rows] == ["d/[redacted KEY].txt", "[redacted KEY]/out"]
    assert "secret-value" not in json.dumps(rows)
    left = sorted(path.relative_to(artifacts).as_posix() for path in artifacts.rglob("*"))
    assert left == ["[redacted KEY]", "[redacted KEY]/out", "d", "d/[redacted KEY].txt"]


def test_two_names_that_hold_the_secret_stay_two_files(tmp_path: Path) -> None:
    token = "hf_AbC123xyz"
    for name, text in ((token, "one"), (token.encode().hex(), "two")):
        (tmp_path / f"log-{name}.txt").write_text(text)
    redactor = Redactor([("T", token)])
    places = [_renamed(tmp_path, path.name, redactor)[0] for path in sorted(tmp_path.iterdir())]
    assert sorted(path.read_text() for path in places) == ["one", "two"]
    assert token not in " ".join(path.name for path in tmp_path.iterdir())


@pytest.mark.timeout(60)  # a search that tries every way for each star does not end
def test_many_stars_are_matched_in_one_way() -> None:
    assert not matcher("*a" * 20 + "*b").match("a" * 200)
    assert matcher("*a" * 20 + "*b").match("a" * 200 + "b")
    assert not matcher("**/" * 20 + "b").match("a/" * 40 + "c")


def test_a_disk_that_fails_is_told_and_a_file_that_vanished_is_not(tree: Path) -> None:
    (tree.parent / "artifacts").write_text("in the way")
    got = collect(["*.log"], folders(tree), tree.parent / "artifacts", NOTHING, max_bytes=99, deadline_s=9)
    assert got.to_json(tree.parent, "n")["failed"] == [f"`{tree}/a.log`: File exists"]
    assert (got.truncated, got.fix) == (False, "")
