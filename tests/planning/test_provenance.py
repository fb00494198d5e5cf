"""Git states, patches and digests, on real repositories."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jobspec.finding import JobspecError
from jobspec.plan import NOT_PINNED, ContainerPlan
from jobspec.planning.digests import file_digest, tree_digest
from jobspec.planning.lock import lock_text
from jobspec.planning.model import hub_commit
from jobspec.planning.provenance import changed_since, image_digest
from jobspec.planning.resolve import Resolved, resolve
from jobspec.runtime.checkouts import git as module
from jobspec.runtime.checkouts.git import git_state, resolve_ref, strip_credentials
from jobspec.spec.find_site import load_cluster, parse_cluster
from jobspec.spec.load import parse_spec
from tests.kits.checkout_kit import git


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "__init__.py").write_text("VALUE = 1\n")
    (folder / "data.bin").write_bytes(bytes(range(256)))
    (folder / ".gitignore").write_text("ignored/\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def rebuilt(repo: Path, state: module.GitState, tmp_path: Path) -> dict[str, bytes]:
    """The files of a fresh clone at the state's commit with its patch applied."""
    copy = tmp_path / "copy"
    git(tmp_path, "clone", "-q", str(repo), str(copy))
    git(copy, "checkout", "-q", state.commit)
    if state.diff:
        patch = tmp_path / "x.diff"
        patch.write_bytes(state.diff)
        git(copy, "apply", "--binary", "--whitespace=nowarn", str(patch))
    return contents(copy)


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_edit_in_the_second_of_the_commit_is_in_the_patch(repo: Path) -> None:
    """Git knows by the index's time that such a file may have changed; a copy of the index must keep it."""
    git(repo, "config", "core.trustctime", "false")
    source, index = repo / "pkg" / "__init__.py", repo / ".git" / "index"
    os.utime(source, (1e9, 1e9))
    git(repo, "update-index", "--refresh")
    source.write_text("VALUE = 2\n")  # as long as before
    os.utime(source, (1e9, 1e9))
    os.utime(index, (1e9, 1e9))
    assert b"+VALUE = 2" in git_state(repo).diff


def test_bytecode_is_no_change_of_a_checkout(repo: Path) -> None:
    (repo / "pkg" / "__pycache__").mkdir()
    (repo / "pkg" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"1")
    state = git_state(repo)
    assert (state.dirty, state.diff, state.left_out) == (False, b"", ())
    (repo / "new.py").write_text("")
    state = git_state(repo)
    assert state.dirty and b"new.py" in state.diff and b"pyc" not in state.diff


def test_a_clean_checkout_has_a_commit_and_no_patch(repo: Path) -> None:
    state = git_state(repo)
    assert state.commit == git(repo, "rev-parse", "HEAD")
    assert (state.branch, state.dirty, state.diff, state.diff_sha256) == ("main", False, b"", "")


def test_commit_and_patch_bring_back_every_change(repo: Path, tmp_path: Path) -> None:
    (repo / "pkg" / "__init__.py").write_text("VALUE = 2")  # no final newline
    (repo / "data.bin").write_bytes(bytes(reversed(range(256))))
    (repo / "new file ä.py").write_text("x = 'é'\r\n")
    (repo / "staged.py").write_text("staged\n")
    git(repo, "add", "staged.py")
    (repo / "deep" / "er").mkdir(parents=True)
    (repo / "deep" / "er" / "new.bin").write_bytes(b"\0\1\2" * 100)
    (repo / "empty").touch()
    state = git_state(repo)
    assert (state.dirty, state.left_out) == (True, ())
    assert rebuilt(repo, state, tmp_path) == contents(repo)


def test_deleted_and_renamed_files_and_modes_are_in_the_patch(repo: Path, tmp_path: Path) -> None:
    git(repo, "mv", "data.bin", "moved.bin")
    (repo / "pkg" / "__init__.py").chmod(0o755)
    (repo / "script.sh").write_text("#!/bin/bash\n")
    (repo / "script.sh").chmod(0o755)
    (repo / "link").symlink_to("pkg")
    assert rebuilt(repo, git_state(repo), tmp_path) == contents(repo)
    assert os.access(tmp_path / "copy" / "script.sh", os.X_OK)
    assert (tmp_path / "copy" / "link").is_symlink()


def test_looking_changes_nothing_in_the_checkout(repo: Path) -> None:
    (repo / "new.py").write_text("x\n")
    index = (repo / ".git" / "index").read_bytes()
    before = git(repo, "status", "--porcelain")
    git_state(repo)
    assert (repo / ".git" / "index").read_bytes() == index
    assert git(repo, "status", "--porcelain") == before


PRIVATE = [
    ".env",
    ".env.local",
    "deploy.pem",
    "id_ed25519",
    "secrets.yaml",
    "sub/.netrc",
    ".aws/config",
    "hf.token",
]


@pytest.mark.parametrize("name", PRIVATE)
def test_private_files_never_enter_a_patch(name: str, repo: Path) -> None:
    path = repo / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("s3cret")
    (repo / "code.py").write_text("code\n")
    state = git_state(repo)
    assert state.left_out == (name,)
    assert b"s3cret" not in state.diff
    assert b"+code" in state.diff


def test_a_tracked_private_file_stays_out_as_well(repo: Path) -> None:
    (repo / ".env").write_text("A=1\n")
    git(repo, "add", "-f", ".env")
    git(repo, "commit", "-qm", "env")
    (repo / ".env").write_text("A=s3cret\n")
    state = git_state(repo)
    assert (state.dirty, state.diff, state.left_out) == (True, b"", (".env",))


def test_ignored_and_large_files_stay_out(repo: Path) -> None:
    (repo / "ignored").mkdir()
    (repo / "ignored" / "x.py").write_text("x")
    (repo / "weights.bin").write_bytes(b"x" * (module.MAX_UNTRACKED_FILE_BYTES + 1))
    state = git_state(repo)
    assert (state.diff, state.left_out) == (b"", ("weights.bin",))


def test_a_patch_too_large_is_left_out_whole(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PATCH_BYTES", 100)
    (repo / "pkg" / "__init__.py").write_text("y" * 500)
    (repo / "new.py").write_text("x")
    state = git_state(repo)
    assert (state.diff, state.left_out) == (b"", ("new.py", "pkg/__init__.py"))


def test_a_submodule_with_changes_is_named(repo: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "submodule", "add", "-q", str(repo), "sub")
    git(outer, "commit", "-qm", "sub")
    (outer / "sub" / "pkg" / "__init__.py").write_text("changed\n")
    state = git_state(outer)
    assert (state.dirty, state.left_out) == (True, ("sub",))


def test_a_nested_checkout_is_named(repo: Path) -> None:
    git(repo, "clone", "-q", str(repo), str(repo / "inner"))
    assert git_state(repo).left_out == ("inner/",)


def test_a_folder_without_git_or_commit_has_no_commit(tmp_path: Path) -> None:
    assert not git_state(tmp_path).is_checkout
    git(tmp_path, "init", "-q")
    assert not git_state(tmp_path).is_checkout


def test_a_hooks_git_variables_do_not_lead_astray(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert git_state(repo).branch == "main"


def test_without_git_the_error_says_so(repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JobspecError, match="`git` is not installed"):
        git_state(repo)


@pytest.mark.parametrize(
    ("url", "clean"),
    [
        ("https://user:t0ken@github.com/a/b.git", "https://github.com/a/b.git"),
        ("https://t0ken@github.com/a/b", "https://github.com/a/b"),
        ("https://github.com/a/b?token=t0ken#x", "https://github.com/a/b"),
        ("ssh://git@host:22/a/b", "ssh://git@host:22/a/b"),
        ("ssh://ann:t0ken@host/a/b", "ssh://host/a/b"),
        ("git@github.com:a/b.git", "git@github.com:a/b.git"),
        ("/srv/git/a.git", "/srv/git/a.git"),
        ("https://[::1/x", ""),
        ("", ""),
    ],
)
def test_urls_lose_their_credentials(url: str, clean: str) -> None:
    assert strip_credentials(url) == clean


@given(
    st.from_regex(r"[A-Za-z0-9%._~-]{8,20}", fullmatch=True),
    st.sampled_from(["https", "http", "ssh", "git+https"]),
)
def test_no_password_survives(password: str, scheme: str) -> None:
    assert password not in strip_credentials(
        f"{scheme}://x{password}x:{password}@host.example/a/b?k={password}"
    )


def test_the_state_never_shows_the_remotes_credentials(repo: Path) -> None:
    git(repo, "remote", "add", "origin", "https://ann:t0ken@github.com/a/b.git")
    assert "t0ken" not in repr(git_state(repo))


def test_refs_resolve_to_commits(repo: Path) -> None:
    git(repo, "tag", "v1")
    commit = git(repo, "rev-parse", "HEAD")
    assert {resolve_ref(repo, ref) for ref in ("main", "v1", "HEAD", commit[:10], commit)} == {commit}
    assert resolve_ref(repo, "nowhere") == ""
    assert resolve_ref(repo, "--all") == ""


def test_digests_tell_files_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobspec.planning import digests

    monkeypatch.setattr(digests, "FULL_DIGEST_BYTES", 1000)
    monkeypatch.setattr(digests, "EDGE_BYTES", 100)
    small, large = tmp_path / "a.sqsh", tmp_path / "b.sqsh"
    small.write_bytes(b"x")
    large.write_bytes(b"y" * 2000)
    first = file_digest(large)
    assert file_digest(small).startswith("sha256:")
    assert first.startswith("edges-sha256:")
    large.write_bytes(b"z" + b"y" * 1999)
    assert file_digest(large) != first
    assert file_digest(tmp_path / "none") == ""


def test_a_tree_is_known_by_names_sizes_and_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobspec.planning import digests

    monkeypatch.setattr(digests, "MAX_TREE_FILES", 3)
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "x").write_bytes(b"1" * 200_000)
    (tmp_path / "data" / "y").write_text("2")
    known = {tree_digest(str(tmp_path / "data"))}
    os.utime(tmp_path / "data" / "y", (1, 1))
    assert {tree_digest(str(tmp_path / "data"))} == known
    for change in (
        lambda: (tmp_path / "data" / "y").write_text("3"),
        lambda: (tmp_path / "data" / "a" / "x").write_bytes(b"1" * 200_001),
        lambda: (tmp_path / "data" / "y").rename(tmp_path / "data" / "z"),
        lambda: (tmp_path / "data" / "gone").touch(),
    ):
        change()
        known.add(tree_digest(str(tmp_path / "data")))
    assert len(known) == 5 and all(text.startswith("edges-sha256:") for text in known)
    (tmp_path / "data" / "fourth").touch()
    assert (tree_digest(str(tmp_path / "data")), tree_digest(str(tmp_path / "none"))) == ("", "")


def test_image_digests(tmp_path: Path) -> None:
    pinned = "sha256:" + "a" * 64
    assert image_digest(f"registry.example.com#nvidia/x@{pinned}") == pinned
    assert image_digest("registry.example.com#nvidia/x:1") == ""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text("ID=debian\n")
    assert image_digest(str(tmp_path)).startswith("folder-sha256:")


def test_hub_commits(tmp_path: Path) -> None:
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs" / "main").write_text("b" * 40)
    assert hub_commit(tmp_path, "") == hub_commit(tmp_path, "main") == "b" * 40
    assert hub_commit(tmp_path, "c" * 40) == "c" * 40
    assert hub_commit(tmp_path, "../../etc/passwd") == hub_commit(tmp_path, "other") == ""


# what has changed since a lock

Make = Callable[[], Resolved]


@pytest.fixture
def locked(repo: Path, tmp_path: Path) -> tuple[Make, dict[str, object]]:
    """How to resolve the lock of a run that used `repo` and a model, and the lock's own facts."""
    snapshot = tmp_path / "hf" / "hub" / "models--org--m" / "snapshots" / ("d" * 40)
    snapshot.mkdir(parents=True)
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs" / "main").write_text("d" * 40)
    (repo / "pkg" / "new.py").write_text("dirty\n")
    text = (
        "version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n"
        f"repos: [{{name: r, path: {repo}}}]\nhf_cache: {{home: {tmp_path}/hf}}\nmodel: {{id: org/m}}\n"
    )

    def make(spec: str) -> Resolved:
        return resolve(
            parse_spec(spec, str(tmp_path / "s.yaml"), env={}),
            load_cluster(None, None, {"HOME": "/h"}),
            env={},
        )

    lock = lock_text(make(text))
    facts = parse_spec(lock, "lock", env={}).spec.lock
    assert isinstance(facts, dict)
    return lambda: make(lock), facts


def rules(locked: tuple[Make, dict[str, object]], **changed: object) -> list[str]:
    make, facts = locked
    return [finding.rule for finding in changed_since({**facts, **changed}, make())]


def test_nothing_has_changed_right_after(locked: tuple[Make, dict[str, object]]) -> None:
    assert rules(locked) == []


def test_a_lock_pins_commit_patch_and_revision(locked: tuple[Make, dict[str, object]], repo: Path) -> None:
    resolved = locked[0]()
    assert resolved.spec.repos[0].ref == git(repo, "rev-parse", "HEAD")
    assert resolved.spec.model is not None and resolved.spec.model.revision == "d" * 40
    assert resolved.plan is not None and not [f for f in resolved.findings if f.rule == "model.unpinned"]
    assert lock_text(resolved) == lock_text(locked[0]())


def test_other_uncommitted_changes_are_noticed(locked: tuple[Make, dict[str, object]], repo: Path) -> None:
    (repo / "pkg" / "new.py").write_text("other\n")
    assert rules(locked) == ["reproduce.patch"]


def test_another_commit_is_noticed(locked: tuple[Make, dict[str, object]], repo: Path) -> None:
    git(repo, "commit", "-q", "--allow-empty", "-m", "second")
    assert rules(locked) == ["reproduce.repo"]
    assert "repo.ref-mismatch" in [finding.rule for finding in locked[0]().findings]


def test_a_missing_revision_another_jobspec_and_profile_are_noticed(
    locked: tuple[Make, dict[str, object]], tmp_path: Path
) -> None:
    (tmp_path / "hf" / "hub" / "models--org--m" / "snapshots" / ("d" * 40)).rmdir()
    assert rules(locked, jobspec="0.0.1", cluster_sha256="x") == [
        "reproduce.jobspec",
        "reproduce.cluster",
        "reproduce.model",
    ]


def test_another_image_is_noticed(locked: tuple[Make, dict[str, object]], tmp_path: Path) -> None:
    make, facts = locked
    image = tmp_path / "a.sqsh"
    image.write_bytes(b"1")
    now = make()
    assert now.plan is not None
    container = ContainerPlan("pyxis", str(image), digest=file_digest(image))
    plan = replace(now.plan, container=container)
    assert changed_since({**facts, "image": file_digest(image)}, replace(now, plan=plan)) == ()
    (finding,) = changed_since({**facts, "image": "sha256:old"}, replace(now, plan=plan))
    assert (finding.rule, finding.is_error) == ("reproduce.image", True)
    gone = replace(plan, container=replace(container, digest=""))
    (finding,) = changed_since({**facts, "image": "sha256:old"}, replace(now, plan=gone))
    assert "gone" in finding.what
    (finding,) = changed_since({**facts, "image": NOT_PINNED}, replace(now, plan=plan))
    assert (finding.rule, finding.is_error) == ("reproduce.image", False)


PYXIS = """version: 1
name: lab
scheduler: slurm
container: {runtime: pyxis}
paths: {runs: /shared/runs, hf_home: /shared/hf, node_local: /raid}
node: {cpus: 8, gpus: 8, memory: 900G}
"""


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("org/x:1", NOT_PINNED),
        (f"org/x@sha256:{'c' * 64}", f"sha256:{'c' * 64}"),
        ("/no/such.sqsh", None),
    ],
)
def test_lock_says_which_image_and_which_revision_is_not_pinned(
    tmp_path: Path, image: str, said: str | None
) -> None:
    text = (
        "version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n"
        f"container: {{image: '{image}'}}\nmodel: {{id: org/tiny}}\nresources: {{time: '01:00:00'}}\n"
    )
    cluster = parse_cluster(PYXIS, tmp_path / "lab.yaml", "--cluster-file", {})
    spec = parse_spec(text, str(tmp_path / "s.yaml"), env={})
    lock = yaml.safe_load(lock_text(resolve(spec, cluster, env={})))
    assert lock["lock"].get("image") == said
    assert lock["lock"]["revisions"] == {"model": "not pinned: `main` may move"}


def test_lock_of_a_folder_without_git_says_so(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    text = (
        "version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n"
        "repos: [{name: code, path: ./plain}]\n"
    )
    spec = parse_spec(text, str(tmp_path / "s.yaml"), env={})
    resolved = resolve(spec, load_cluster("local", env={}), env={"HOME": str(tmp_path)})
    facts = yaml.safe_load(lock_text(resolved))["lock"]["repos"]["code"]
    assert facts == {"commit": "not known: no git checkout with a commit"}


@pytest.mark.parametrize(
    "repos",
    [None, {}, [], "x", {"r": None}, {"r": {}}, {"r": {"commit": "main"}}, {"r": {"url": "https://h/x"}}],
)
def test_lock_without_a_commit_is_not_as_it_was(
    locked: tuple[Make, dict[str, object]], repos: object
) -> None:
    make, facts = locked
    (finding,) = changed_since({**facts, "repos": repos}, make())
    assert (finding.rule, finding.is_error) == ("reproduce.unpinned", True)
    assert "the commit of repo `r`" in finding.what


def test_lock_without_a_revision_or_the_digest_of_its_image_is_not_as_it_was(
    locked: tuple[Make, dict[str, object]],
) -> None:
    make, facts = locked
    now = make()
    assert now.plan is not None and now.spec.model is not None
    model = msgspec.structs.replace(now.spec.model, revision=None)
    plan = replace(now.plan, container=replace(now.plan.container, runtime="pyxis", image="nvcr.io#x:1"))
    bare = replace(now, plan=plan, spec=msgspec.structs.replace(now.spec, model=model))
    found = changed_since(facts, bare)
    assert [(item.rule, item.path, item.is_error) for item in found] == [
        ("reproduce.unpinned", "model", True),
        ("reproduce.unpinned", "container.image", False),
    ]
