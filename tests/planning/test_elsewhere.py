"""Checkouts of a cluster behind SSH: a real sshd that sees other files under the same paths than we do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from jobspec import pipeline
from jobspec.finding import Finding, JobspecError
from jobspec.launchers.access.ssh import SshClient
from jobspec.pipeline import Rendered, Request
from jobspec.plan import Plan
from tests.kits.checkout_kit import git, write_checkout
from tests.kits.sshd_kit import HAS_SSHD, Server

pytestmark = pytest.mark.skipif(
    not HAS_SSHD or os.geteuid() != 0, reason="needs sshd as root (Debian: openssh-server)"
)


class Sides:
    """A laptop with `here`, and a cluster that sees `there` in its place; `/far` is the cluster's alone."""

    def __init__(self, root: Path, server: Server) -> None:
        self.root, self.server = root, server
        self.here, self.there, self.scratch = root / "src", root / "far", root / "scratch"
        self.spec = root / "spec.yaml"

    def write_spec(self, *repos: dict[str, object], **more: object) -> None:
        spec = {"version": 1, "name": "far", "framework": "command", "resources": {"time": "10:00"}}
        command = {"train": {"command": ["python3", f"{self.here}/code/train.py"]}}
        self.spec.write_text(yaml.safe_dump({**spec, **command, "repos": list(repos), **more}))

    def request(self) -> Request:
        return Request(self.spec, cluster_file=self.root / "far.yaml")

    def check(self) -> dict[str, Finding]:
        return {item.rule: item for item in pipeline.check(self.request())}

    def plan(self) -> Plan:
        return pipeline.make_plan(self.request())

    def render(self, name: str) -> Rendered:
        return pipeline.render_run(self.request(), self.root / name)

    def state(self) -> Path:
        return self.root / "home/.local/state/jobspec/remote/far"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Server]]:
    root = tmp_path_factory.mktemp("sides")
    for name in ("src", "far", "home/.ssh", "scratch", "runs"):
        (root / name).mkdir(parents=True)
    server = Server(root / "server", {root / "src": root / "far"})
    (root / "home/.ssh/config").write_text(server.config.read_text())
    yield root, server
    server.stop()


@pytest.fixture
def sides(server: tuple[Path, Server], monkeypatch: pytest.MonkeyPatch) -> Iterator[Sides]:
    root, sshd = server
    for name in ("src", "far", "scratch", "runs"):
        subprocess.run(["find", str(root / name), "-mindepth", "1", "-delete"], check=True)
    subprocess.run(["rm", "-rf", str(root / "home/.local")], check=True)
    monkeypatch.setenv("HOME", str(root / "home"))
    for name in ("XDG_STATE_HOME", "SSH_AUTH_SOCK", "JOBSPEC_CLUSTER", "JOBSPEC_RUNS"):
        monkeypatch.delenv(name, raising=False)
    profile = {
        "version": 1,
        "name": "far",
        "access": {"login": "login"},
        "container": {"runtime": "none"},
        "paths": {"runs": str(root / "runs"), "scratch": str(root / "scratch")},
        "node": {"gpus": 0},
    }
    (root / "far.yaml").write_text(yaml.safe_dump(profile))
    yield Sides(root, sshd)


CODE = {"name": "code", "pythonpath": ["src"]}


def test_checkout_of_the_cluster_is_planned_and_recorded_not_ours(sides: Sides) -> None:
    write_checkout(sides.here / "code", {"src/a.py": "x = 'laptop'\n", "train.py": ""})
    theirs = write_checkout(sides.there / "code", {"src/a.py": "x = 'cluster'\n", "train.py": ""})
    (theirs / "src/a.py").write_text("x = 'cluster, edited'\n")
    path = str(sides.here / "code")
    sides.write_spec({**CODE, "path": path, "prove": {"import": "a"}})
    commit = git(theirs, "rev-parse", "HEAD")
    found = sides.check()
    assert commit[:12] in found["repo.two-sides"].what and "uncommitted" in found["repo.two-sides"].what
    run = sides.render("out").run
    plan = json.loads(run.plan.read_text())
    assert plan["repos"][0]["commit"] == commit
    assert plan["repos"][0]["path"] == path and plan["repos"][0]["pythonpath"] == [f"{path}/src"]
    assert list(plan["repos"][0]["changes"]) == ["src/a.py"]
    assert plan["proofs"][0]["root"] == f"{path}/src"
    assert str(sides.state()) not in run.plan.read_text() + (run.root / "driver.sh").read_text()
    lock = yaml.safe_load((run.root / "spec.lock.yaml").read_text())
    assert lock["lock"]["repos"]["code"]["commit"] == commit and lock["repos"][0]["path"] == path
    assert "cluster, edited" in (run.root / "patches/code.diff").read_text()


def test_files_of_the_cluster_are_checked_not_ours(sides: Sides) -> None:
    write_checkout(sides.here / "code", {"src/a.py": ""})
    write_checkout(sides.there / "code", {"lib/a.py": ""})
    sides.write_spec({**CODE, "path": str(sides.here / "code")})
    finding = sides.check()["repo.pythonpath"]
    assert (finding.is_error, finding.what) == (True, f"`{sides.here}/code/src` is no folder")
    sides.write_spec({**CODE, "path": str(sides.here / "code"), "pythonpath": ["lib"], "ref": "main-2"})
    assert f"git -C {sides.here}/code fetch" in sides.check()["repo.ref-unknown"].fix
    git(sides.there / "code", "tag", "main-2")
    assert "repo.ref-unknown" not in sides.check()


def test_checkout_comes_once_and_again_after_an_edit(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = write_checkout(sides.there / "code", {"src/a.py": "", ".gitignore": "big\n"})
    (theirs / "token.txt").write_text("secret")
    (theirs / "big").write_bytes(b"0" * 1000)
    sides.write_spec({**CODE, "path": str(sides.here / "code")})
    calls: list[str] = []
    run = SshClient.run

    def counted(client: SshClient, argv: list[str], *args: object, **more: object) -> object:
        done = run(client, argv, *args, **more)  # type: ignore[arg-type]
        calls.append(done.stdout)
        return done

    monkeypatch.setattr(SshClient, "run", counted)
    sides.plan()
    sides.plan()
    (theirs / "src/a.py").write_text("x = 1\n")
    sides.plan()
    assert [json.loads(text)["looked"][0].get("files") is not None for text in calls] == [True, False, True]
    copies = sorted((sides.state() / "code/code").iterdir(), key=lambda path: path.stat().st_mtime)
    assert sorted(path.name for path in copies[-1].iterdir()) == [".gitignore", "src"]
    assert (copies[-1] / "src/a.py").read_text() == "x = 1\n"


def test_home_of_a_path_is_the_clusters(sides: Sides) -> None:
    sides.write_spec({**CODE, "path": "~/no-such-code"})
    home = sides.server.client().run(["printenv", "HOME"]).stdout.strip()
    assert f"`{home}/no-such-code` does not exist on `login`" in sides.check()["repo.missing"].what
    sides.write_spec({"name": "verl", "path": "~/no-such verl"})
    source = "https://github.com/verl-project/verl"
    wanted = f"run `git clone --recurse-submodules {source} '{home}/no-such verl'` on `login`"
    assert sides.check()["repo.missing"].fix.startswith(wanted)


def test_checkout_that_is_only_here_is_copied_once_with_edits_and_submodules(sides: Sides) -> None:
    if not (sides.root / "core").exists():
        write_checkout(sides.root / "core", {"core.py": "v = 1\n"})
    ours = write_checkout(sides.here / "code", {"src/a.py": "x = 1\n", "train.py": ""})
    git(ours, "submodule", "add", "-q", str(sides.root / "core"), "third/core")
    git(ours, "commit", "-qm", "submodule")
    (ours / "src/a.py").write_text("x = 2\n")
    (ours / "third/core/core.py").write_text("v = 2\n")
    sides.write_spec({**CODE, "path": str(ours)})
    assert sides.check()["repo.synced"].severity == "warning"
    assert list(sides.scratch.iterdir()) == []
    plan = json.loads(sides.render("out-1").run.plan.read_text())
    copy = Path(plan["repos"][0]["path"])
    assert copy.parent == sides.scratch / "jobspec/code"
    assert (copy / "src/a.py").read_text() == "x = 2\n"
    assert (copy / "third/core/core.py").read_text() == "v = 2\n"
    assert plan["commands"][0]["argv"] == ["python3", f"{copy}/train.py"]
    inode = copy.stat().st_ino
    assert json.loads(sides.render("out-2").run.plan.read_text())["repos"][0]["path"] == str(copy)
    assert copy.stat().st_ino == inode
    (ours / "src/a.py").write_text("x = 3\n")
    git(ours, "commit", "-qam", "three")
    third = Path(json.loads(sides.render("out-3").run.plan.read_text())["repos"][0]["path"])
    assert third != copy and (third / "src/a.py").read_text() == "x = 3\n"
    assert (third / "third/core/core.py").read_text() == "v = 2\n"
    assert list((sides.scratch / "jobspec/code/.incoming").iterdir()) == []
    for name in ("out-1", "out-2", "out-3"):
        subprocess.run(["rm", "-r", str(sides.root / name)], check=True)


def test_asked_for_it_this_machines_checkout_wins(sides: Sides) -> None:
    ours = write_checkout(sides.here / "code", {"src/a.py": "x = 'laptop'\n"})
    write_checkout(sides.there / "code", {"src/a.py": "x = 'cluster'\n"})
    sides.write_spec({**CODE, "path": str(ours), "sync": True})
    repo = sides.plan().repos[0]
    assert repo.commit == git(ours, "rev-parse", "HEAD") and repo.path.startswith(str(sides.scratch))
    run = sides.render("synced").run
    lock = yaml.safe_load(run.lock.read_text())["repos"][0]
    copy = json.loads(run.plan.read_text())["repos"][0]["path"]
    assert (lock["path"], lock.get("sync")) == (copy, None), "the lock's path is the cluster's"
    assert not (sides.state() / "code").exists(), "nothing of the cluster's checkout came here"


def test_transfer_that_was_cut_off_goes_on(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = write_checkout(sides.here / "code", {"src/a.py": "x = 1\n", "noise": os.urandom(400_000).hex()})
    sides.write_spec({**CODE, "path": str(ours)})
    sent: list[tuple[Path, str]] = []
    send = SshClient.send

    def cut(client: SshClient, local: Path, remote: str) -> None:
        sent.append((local, remote))
        Path(remote).parent.mkdir(parents=True)
        Path(remote).write_bytes(local.read_bytes()[:100_000])
        raise JobspecError()

    monkeypatch.setattr(SshClient, "send", cut)
    with pytest.raises(JobspecError):
        sides.render("cut")
    (_, remote) = sent[0]
    inode = Path(remote).stat().st_ino
    inodes: list[int] = []

    def seen(client: SshClient, local: Path, target: str) -> None:
        send(client, local, target)
        inodes.append(Path(target).stat().st_ino)
        assert Path(target).read_bytes() == local.read_bytes() and target == remote

    monkeypatch.setattr(SshClient, "send", seen)
    plan = json.loads(sides.render("whole").run.plan.read_text())
    assert inodes == [inode], "the file of the first transfer was continued"
    assert (Path(plan["repos"][0]["path"]) / "noise").read_text() == (ours / "noise").read_text()


def test_damaged_transfer_is_refused_and_begun_anew(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = write_checkout(sides.here / "code", {"src/a.py": "x = 1\n"})
    sides.write_spec({**CODE, "path": str(ours)})
    send = SshClient.send

    def damaged(client: SshClient, local: Path, remote: str) -> None:
        Path(remote).parent.mkdir(parents=True, exist_ok=True)
        Path(remote).write_bytes(b"x" * local.stat().st_size)
        send(client, local, remote)

    monkeypatch.setattr(SshClient, "send", damaged)
    with pytest.raises(JobspecError) as problem:
        sides.render("damaged")
    assert "its SHA-256 is not" in problem.value.findings[0].why
    monkeypatch.setattr(SshClient, "send", send)
    sides.render("mended")


def test_copy_of_another_user_is_refused(sides: Sides) -> None:
    ours = write_checkout(sides.here / "code", {"src/a.py": "x = 1\n"})
    sides.write_spec({**CODE, "path": str(ours)})
    copy = Path(sides.plan().repos[0].path)
    copy.mkdir(parents=True)
    os.chown(copy, 65534, 65534)
    finding = sides.check()["repo.sync"]
    assert finding.is_error and finding.what == f"`{copy}` is no folder of yours"
    with pytest.raises(JobspecError):
        sides.render("theirs")
    os.chown(copy, os.geteuid(), os.getegid())
    assert "repo.sync" not in sides.check()


def test_two_commands_at_once_bring_one_checkout(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = write_checkout(sides.here / "code", {"noise": os.urandom(400_000).hex()})
    sides.write_spec({"name": "code", "path": str(ours)})
    send, sent, rival = SshClient.send, [], []
    code = "import sys; from jobspec.cli import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", code, "render", str(sides.spec), "--out", str(sides.root / "rival")]
    argv += ["--cluster-file", str(sides.root / "far.yaml")]

    def slow(client: SshClient, local: Path, remote: str) -> None:
        sent.append(remote)
        rival.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        held = local.parent.with_name(f"{local.parent.name}.lock")
        status = held.stat()
        inode = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        assert inode in Path("/proc/locks").read_text()
        send(client, local, remote)

    monkeypatch.setattr(SshClient, "send", slow)
    first = json.loads(sides.render("first").run.plan.read_text())["repos"][0]["path"]
    out = rival[0].communicate(timeout=120)[0]
    assert rival[0].returncode == 0, out
    second = json.loads((sides.root / "rival/plan.json").read_text())["repos"][0]["path"]
    assert (first, len(sent)) == (second, 1)
    assert (Path(first) / "noise").read_text() == (ours / "noise").read_text()
    assert list((sides.scratch / "jobspec/code/.incoming").iterdir()) == []


def test_copy_that_another_command_made_meanwhile_is_taken(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = write_checkout(sides.here / "code", {"src/a.py": "x = 1\n"})
    sides.write_spec({**CODE, "path": str(ours)})
    copy = Path(sides.plan().repos[0].path)
    send = SshClient.send

    def overtaken(client: SshClient, local: Path, remote: str) -> None:
        send(client, local, remote)
        git(sides.root, "clone", "-q", str(ours), str(copy))

    monkeypatch.setattr(SshClient, "send", overtaken)
    assert json.loads(sides.render("overtaken").run.plan.read_text())["repos"][0]["path"] == str(copy)
    assert list((sides.scratch / "jobspec/code/.incoming").iterdir()) == []


def test_names_that_begin_alike_have_copies_of_their_own(sides: Sides) -> None:
    names = [f"code{end}" for end in ("", "-a", "-b", "-c")]
    for name in names:
        write_checkout(sides.there / name, {"src/a.py": f"x = '{name}'\n"})
    sides.write_spec(*({"name": name, "path": str(sides.here / name)} for name in names))
    sides.plan()
    copies = {path.parent.name: path for path in (sides.state() / "code").glob("*/*")}
    assert sorted(copies) == names
    long_ago = time.time() - 8 * 86400
    os.utime(copies["code-a"], (long_ago, long_ago))
    old = copies["code"].with_name("0" * 24)
    old.mkdir()
    os.utime(old, (long_ago, long_ago))
    sides.plan()
    assert all(path.is_dir() for path in copies.values()) and not old.exists()


def test_paths_in_a_script_of_several_lines_are_the_copys(sides: Sides) -> None:
    ours = write_checkout(sides.here / "code", {"run.sh": ""})
    script = f"set -e\n{ours}/run.sh --x\nbash {ours}/run.sh"
    train = {"shell": True, "command": [script]}
    sides.write_spec({"name": "code", "path": str(ours)}, train=train)
    plan = sides.plan()
    assert plan.commands[0].argv[0] == script.replace(str(ours), plan.repos[0].path)


def test_folder_without_a_commit_is_refused_with_the_advice(sides: Sides) -> None:
    (sides.here / "code/src").mkdir(parents=True)
    sides.write_spec({**CODE, "path": str(sides.here / "code")})
    finding = sides.check()["repo.sync"]
    assert finding.is_error and "commit it to a git repository" in finding.fix


def test_clone_by_url_is_made_here_and_copied(sides: Sides) -> None:
    origin = sides.root / "origin"
    if not origin.exists():
        write_checkout(origin, {"src/a.py": "x = 1\n"})
    commit = git(origin, "rev-parse", "HEAD")
    sides.write_spec({**CODE, "url": f"file://{origin}", "ref": commit})
    plan = json.loads(sides.render("by-url").run.plan.read_text())
    assert (Path(plan["repos"][0]["path"]) / "src/a.py").is_file()
    assert plan["repos"][0]["path"].startswith(str(sides.scratch)) and plan["repos"][0]["commit"] == commit
    assert not (sides.state() / "code").exists(), "the folder of the spec is the cluster's own"
    sides.write_spec({**CODE, "url": f"file://{origin}", "ref": "no-such-branch"})
    assert sides.check()["repo.ref-unknown"].is_error


def test_login_without_a_new_python_is_told(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobspec.launchers.access import far_side

    sides.write_spec({**CODE, "path": str(sides.here / "code")})
    monkeypatch.setattr(far_side, "FIND_PYTHON", f"PATH=/nowhere\n{far_side.FIND_PYTHON}")
    finding = sides.check()["repo.elsewhere"]
    assert finding.is_error and "Python 3.9" in finding.what


def test_login_that_does_not_answer_is_told(sides: Sides) -> None:
    sides.write_spec({**CODE, "path": str(sides.here / "code")})
    profile = (sides.root / "far.yaml").read_text().replace("login: login", "login: no-such-host.invalid")
    (sides.root / "far.yaml").write_text(profile)
    assert sides.check()["launch.ssh-name"].is_error


def test_same_code_on_both_sides_is_no_finding(sides: Sides) -> None:
    ours = write_checkout(sides.here / "code", {"src/a.py": "x = 1\n"})
    git(sides.there, "clone", "-q", str(ours), "code")
    sides.write_spec({**CODE, "path": str(ours)})
    assert [rule for rule in sides.check() if rule.startswith("repo.")] == []
