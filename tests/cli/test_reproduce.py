"""Runs made again from their folder or their lock alone, with the checkout gone, elsewhere, or as it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.kits.checkout_kit import git, unpushed_work
from tests.kits.project_kit import Project

SPEC = """\
version: 1
name: own
framework: command
launch: {mode: srun}
repos: [{name: code, path: ROOT/work, prove: {import: mod}}]
train:
  command:
    - bash
    - -c
    - |
      python3 ROOT/work/say.py
      score='import json, mod; print(json.dumps({"step": 1, "score": mod.x}))'
      python3 -c "$score" >> "$JOBSPEC_METRICS_DIR/metrics.jsonl"
      echo out > ROOT/work/out.log
  seed: 7
metrics: {require: ["max(score) > 0"]}
"""


@pytest.fixture
def work(project: Project) -> Path:
    """A checkout with a pushed commit, one that was never pushed, and uncommitted changes."""
    work = unpushed_work(project.root, {})
    (work / "say.py").write_text("import mod\nprint('this is', mod.x)\n")
    project.write("own.yaml", SPEC.replace("ROOT", str(project.root)))
    return work


def logs(project: Project) -> str:
    return "".join(path.read_text() for path in project.last().root.rglob("*.log"))


def test_right_after_a_pass_nothing_has_changed(project: Project, work: Path) -> None:
    assert project.cli("run", "own.yaml").code == 0
    assert (work / "out.log").is_file() and "out.log" in git(work, "status", "--porcelain")
    checked = project.cli("reproduce", "last", "--check")
    assert checked.code == 0, checked.text
    assert "same: code `code`, seed, environment" in checked.out
    again = project.cli("reproduce", "last", "--watch")
    assert (again.code, again.err.count("warning[command.unused-key]")) == (0, 1), (
        "a warning of the spec is told once"
    )


def test_a_run_is_made_again_after_its_checkout_is_gone(project: Project, work: Path) -> None:
    done = project.cli("run", "own.yaml")
    assert done.code == 0, done.text
    first, commit = project.last(), git(work, "rev-parse", "HEAD")
    facts = yaml.safe_load(first.lock.read_text())["lock"]["repos"]["code"]
    assert (facts["commit"], (first.root / facts["bundle"]).is_file()) == (commit, True)
    shutil.rmtree(work)
    again = project.cli("reproduce", "last", "--watch")
    assert again.code == 0, again.text
    assert "this is 3" in logs(project)
    lock = yaml.safe_load(project.last().lock.read_text())
    (folder,) = Path("runs/.checkouts").glob("code-*-????????")
    assert lock["repos"][0]["path"] == str(folder.absolute())
    assert {"branch": "main", **lock["lock"]["repos"]["code"]} == facts
    assert f"python3 {folder.absolute()}/say.py" in lock["train"]["command"][2]
    assert not work.exists()
    rows = {
        row["name"]: row
        for row in project.cli("report", "last", "--format", "json").json["reproduction"]["rows"]
    }
    assert (rows["verdict"]["first"], rows["verdict"]["now"], rows["verdict"]["word"]) == (
        "Pass",
        "Pass",
        "same",
    )
    assert (rows["metric score"]["word"], rows["metric score"]["reason"]) == (
        "same",
        "identical at all 1 steps",
    )
    assert "code `code`" in next(name for name in rows if rows[name]["first"] == "" == rows[name]["now"])
    third = project.cli("reproduce", "last", "--check")
    assert third.code == 0, third.text


def test_code_of_no_repository_is_never_called_the_same(project: Project) -> None:
    plain = project.root / "plain"
    plain.mkdir()
    (plain / "mod.py").write_text("x = 1\n")
    project.write("own.yaml", SPEC.replace("ROOT/work", str(plain)).replace(", prove: {import: mod}", ""))
    (plain / "say.py").write_text("")
    assert project.cli("run", "own.yaml").code == 0
    (plain / "mod.py").write_text("x = 2\n")
    checked = project.cli("reproduce", "last", "--check")
    assert "can't tell: code `code`" in checked.text, checked.text
    assert project.cli("reproduce", "last", "--strict", "--watch").code == 2
    assert project.cli("reproduce", "last", "--watch", "--allow", "reproduce.unpinned").code == 0
    rows = project.cli("report", "last", "--format", "json").json["reproduction"]["rows"]
    (row,) = (row for row in rows if "code `code`" in row["name"])
    assert (row["name"], row["word"]) == ("code `code`", "can't tell")


def test_another_users_settings_of_git_make_no_difference(
    project: Project, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "mod.py").write_text("\n".join(f"def f{at}():\n    x = {at}\n" for at in range(40)) + "x = 1\n")
    git(work, "commit", "-qam", "long")
    (work / "mod.py").write_text((work / "mod.py").read_text().replace("x = 20", "x = 99") + "x = 3\n")
    assert project.cli("run", "own.yaml").code == 0
    config, attributes = project.root / "gitconfig", project.root / "attributes"
    attributes.write_text("*.py diff=other\n")
    config.write_text(
        f"[core]\nattributesFile = {attributes}\n[diff]\nalgorithm = patience\ncontext = 9\n"
        'interHunkContext = 50\nindentHeuristic = false\n[diff "other"]\nxfuncname = ^(x.*)$\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    checked = project.cli("reproduce", "last", "--check")
    assert checked.code == 0, checked.text
    shutil.rmtree(work)
    again = project.cli("reproduce", "last", "--watch")
    assert again.code == 0, again.text
    assert "this is 3" in logs(project)


def test_a_checkout_that_has_moved_on_stays_as_it_is(project: Project, work: Path) -> None:
    assert project.cli("run", "own.yaml").code == 0
    git(work, "commit", "-qam", "later")
    (work / "mod.py").write_text("x = 9\n")
    again = project.cli("reproduce", "last", "--watch")
    assert again.code == 0, again.text
    assert "this is 3" in logs(project) and (work / "mod.py").read_text() == "x = 9\n"
    (folder,) = Path("runs/.checkouts").glob("code-*-????????")
    head = git(work, "rev-parse", "HEAD")[:12]
    assert f"`code` is taken from `{folder.absolute()}`, since `{work}` is at {head} now\n" in again.err


def test_check_restores_nothing_and_says_what_would_be(project: Project, work: Path) -> None:
    assert project.cli("run", "own.yaml").code == 0
    (work / "mod.py").write_text("x = 9\n")
    for options in ((), ("--yes",)):
        checked = project.cli("reproduce", "last", "--check", *options)
        assert checked.code == 1, checked.text
        parts = f"file://{project.root}/server.git and bundle code.bundle and patch code.diff"
        assert f"`code` has moved on: it will be made again from {parts} at" in checked.err
        assert f"`{work}` has other uncommitted changes now" in checked.err
        assert not Path("runs/.checkouts").exists()


def test_facts_are_told_of_a_checkout_that_has_moved_on(project: Project, work: Path) -> None:
    assert project.cli("run", "own.yaml").code == 0
    git(work, "commit", "-qam", "later")
    (work / "mod.py").write_text("x = 9\n")
    checked = project.cli("reproduce", "last", "--check")
    assert "same: code `code`, seed, environment" in checked.out, checked.text
    rows = project.cli("reproduce", "last", "--check", "--json").json["facts"]
    assert {row["name"]: row["is"] for row in rows}["code `code`"] == "same"


def test_lock_whose_checkout_is_gone_names_the_command_that_makes_it(project: Project, work: Path) -> None:
    assert project.cli("run", "own.yaml").code == 0
    lock = project.last().lock
    git(work, "commit", "-qam", "later")
    elsewhere = project.cli("run", str(lock))
    assert (elsewhere.code, "error[repo.ref-mismatch]" in elsewhere.err) == (2, True), elsewhere.text
    assert f"run `jobspec reproduce {lock}`" in elsewhere.err
    shutil.rmtree(work)
    gone = project.cli("run", str(lock))
    assert (gone.code, "error[repo.missing]" in gone.err) == (2, True), gone.text
    assert f"run `jobspec reproduce {lock}`" in gone.err
    assert project.cli("reproduce", str(lock), "--watch").code == 0


def test_commit_is_taken_from_the_old_checkout_without_a_server(project: Project, work: Path) -> None:
    assert project.cli("run", "own.yaml").code == 0
    first = yaml.safe_load(project.last().lock.read_text())["lock"]["repos"]["code"]
    git(work, "commit", "-qam", "later")
    shutil.move(project.root / "server.git", project.root / "away.git")
    again = project.cli("reproduce", "last", "--watch")
    assert again.code == 0, again.text
    assert "this is 3" in logs(project)
    lock = yaml.safe_load(project.last().lock.read_text())["lock"]["repos"]["code"]
    assert {"branch": "main", **lock} == first, "what origin lacks is in its bundle again"


def test_allowed_difference_keeps_the_checkout(project: Project, work: Path) -> None:
    assert project.cli("run", "own.yaml").code == 0
    (work / "mod.py").write_text("x = 99\n")  # another size: Python tells files of one second by it
    git(work, "add", ".")
    git(work, "commit", "-qm", "later")
    again = project.cli("reproduce", "last", "--allow", "reproduce.repo", "--watch")
    assert again.code == 0, again.text
    assert "warning[reproduce.repo]" in again.err and "warning[reproduce.patch]" in again.err
    assert "this is 99" in logs(project) and "is taken from" not in again.text
    assert not Path("runs/.checkouts").exists()


@pytest.fixture
def sent(project: Project, work: Path) -> Path:
    """The files of a run as somebody else gets them; its checkout is gone."""
    assert project.cli("render", "own.yaml", "--out", "sent").code == 0
    shutil.rmtree(work)
    return project.root / "sent"


def test_a_strangers_run_is_made_again_once_it_is_confirmed(project: Project, sent: Path) -> None:
    refused = project.process("reproduce", sent / "spec.lock.yaml")
    assert (refused.code, "reproduce.not-confirmed" in refused.err) == (2, True), refused.text
    assert (
        f"restores  file://{project.root}/server.git and bundle code.bundle and patch code.diff"
        in refused.err
    )
    assert "changes   a/mod.py b/mod.py   (by code.diff)" in refused.err
    assert not Path("runs/.checkouts").exists()
    done = project.cli("reproduce", sent / "spec.lock.yaml", "--yes", "--watch")
    assert done.code == 0, done.text
    assert "this is 3" in logs(project)


def test_what_was_confirmed_is_what_starts(
    project: Project, sent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobspec.planning import restored

    restore, lock = restored.restore, sent / "spec.lock.yaml"

    def slow(item: restored.Restoration) -> None:
        restore(item)  # and its author changes the lock while the clone goes on
        lock.write_text(lock.read_text().replace("seed: 7", "seed: 8").replace("say.py", "mod.py"))

    monkeypatch.setattr(restored, "restore", slow)
    done = project.cli("reproduce", lock, "--yes", "--watch")
    assert done.code == 0, done.text
    assert "seed: 8" in lock.read_text() and "this is 3" in logs(project)
    assert yaml.safe_load(project.last().lock.read_text())["train"]["seed"] == 7


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("code.diff", None, "code.diff` is not there"),
        ("code.bundle", None, "code.bundle` is not there"),
        ("code.diff", b"\n", "code.diff` is another file"),
    ],
)
def test_what_cannot_be_made_again_is_refused(
    name: str, change: bytes | None, why: str, project: Project, sent: Path
) -> None:
    file = sent / "patches" / name
    file.write_bytes(file.read_bytes() + change) if change else file.unlink()
    done = project.cli("reproduce", sent / "spec.lock.yaml", "--yes")
    assert done.code == 2 and "error[reproduce.repo]" in done.err, done.text
    assert f"cannot be made again: `{file}" in done.err and why in done.err


def test_without_the_server_the_bundle_alone_is_not_enough_and_said(project: Project, sent: Path) -> None:
    shutil.rmtree(project.root / "server.git")
    done = project.cli("reproduce", sent / "spec.lock.yaml", "--yes")
    assert done.code == 2 and "server.git" in done.err, done.text
    assert not list(Path("runs/.checkouts").glob("code*[!k]"))


def test_a_checkout_without_a_server_is_made_of_its_bundle(project: Project, work: Path) -> None:
    git(work, "remote", "remove", "origin")
    assert project.cli("run", "own.yaml").code == 0
    shutil.rmtree(work)
    done = project.cli("reproduce", "last", "--watch")
    assert done.code == 0, done.text
    assert "this is 3" in logs(project)


def test_unpushed_commits_beyond_the_limit_are_told(
    project: Project, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobspec.planning import repos

    for limit, out in ((10, "a"), (300, "b")):  # told before it is packed, and after
        monkeypatch.setattr(repos, "MAX_SAVED_BYTES", limit)
        done = project.cli("render", "own.yaml", "--out", out)
        assert done.code == 0 and "warning[repo.bundle]" in done.err, done.text
        assert f"{limit} are allowed" in done.err and not Path(out, "patches/code.bundle").exists()


def test_why_commits_were_not_packed_in_time_is_told(
    project: Project, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobspec.planning import git_bundle

    monkeypatch.setattr(git_bundle, "BUNDLE_TIMEOUT_S", 0.0)
    done = project.cli("render", "own.yaml", "--out", "a")
    assert done.code == 0 and "warning[repo.bundle]" in done.err, done.text
    assert "`git bundle`" in done.err and "took longer than 0 s" in done.err


def test_strict_refuses_what_nobody_can_tell(project: Project, work: Path) -> None:
    project.write("own.yaml", Path("own.yaml").read_text().replace("  seed: 7\n", ""))
    assert project.cli("run", "own.yaml").code == 0
    checked = project.cli("reproduce", "last", "--check")
    assert checked.code == 0 and "nothing that can be told differs" in checked.out
    done = project.cli("reproduce", "last", "--strict")
    assert done.code == 2 and "error[reproduce.not-same]" in done.err, done.text
    assert "nobody can tell whether seed is the same" in done.err
    facts = {
        row["name"]: row["is"] for row in project.cli("reproduce", "last", "--check", "--json").json["facts"]
    }
    assert (facts["seed"], facts["code `code`"], facts["Python"]) == ("can't tell", "same", "same")


def test_code_that_no_repository_names_is_never_called_the_same(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    done = project.cli("reproduce", "last", "--check")
    assert done.code == 0 and "can't tell: code" in done.out and "everything is as it was" not in done.out


def test_a_machine_that_differs_is_a_difference(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    results = project.last().attempt(1) / "results.json"
    data = json.loads(results.read_text())
    for node in data["nodes"]:
        node["facts"]["python"] = "3.9.1"
    results.write_text(json.dumps(data))
    checked = project.cli("reproduce", "last", "--check")
    assert checked.code == 1 and "differs: Python: it was 3.9.1, and is " in checked.out
    assert checked.out.endswith("spec.lock.yaml: 1 difference\n")
    assert project.cli("reproduce", "last", "--check", "--json").json["same"] is False
    assert project.cli("reproduce", "last", "--watch").code == 0, "it is told, and runs"


SITE = """\
version: 1
name: NAME
scheduler: local
paths: {runs: ROOT/NAME/runs, hf_home: ROOT/NAME/hf}
env: {SITE_NAME: NAME}
"""


def test_a_run_is_made_again_on_another_site(project: Project, work: Path) -> None:
    for name in ("here", "there"):
        text = SITE.replace("NAME", name).replace("ROOT", str(project.root))
        project.write(f"{name}.yaml", text)
    spec = Path("own.yaml").read_text() + "checkpoint: {dir: '${cluster:runs}/ckpt'}\n"
    project.write("own.yaml", spec)
    done = project.cli("run", "own.yaml", "--cluster-file", "here.yaml")
    assert done.code == 0, done.text
    (first,) = Path("here/runs/own").iterdir()
    shutil.rmtree(work)
    done = project.cli("reproduce", first, "--cluster-file", "there.yaml", "--watch")
    assert done.code == 0, done.text
    assert "the run was made on `here`, and this is `there`" in done.text
    assert "differs: environment" in done.out
    (second,) = Path("there/runs/own").iterdir()
    before, lock = (yaml.safe_load((run / "spec.lock.yaml").read_text()) for run in (first, second))
    assert (lock["cluster"], lock["hf_cache"]["home"]) == ("there", f"{project.root}/there/hf")
    assert lock["checkpoint"]["dir"] == f"{project.root}/there/runs/ckpt"
    assert before["checkpoint"]["dir"] == f"{project.root}/here/runs/ckpt"
    assert "this is 3" in "".join(path.read_text() for path in second.rglob("*.log"))


def test_each_point_of_a_sweep_stands_beside_its_first(project: Project) -> None:
    text = project.spec.read_text().replace("0.$step", "0.$VALUE")
    grid = 'sweep: {grid: {container.env.VALUE: ["4", "5"]}}\n'
    project.write("grid.yaml", text + grid)
    assert project.cli("run", "grid.yaml").code == 0
    first = project.last()
    checked = project.cli("reproduce", "last", "--check")
    assert (checked.code, "differs:" in checked.out) == (0, False), "its points differ, not the sweep"
    assert "can't tell: code, seed, environment" in checked.out
    done = project.cli("reproduce", "last", "--rerun", "--watch")
    assert done.code == 0, done.text
    for point, end in (("0", "0.4"), ("1", "0.5")):
        report = project.cli("report", project.last().root / "points" / point, "--format", "json").json
        rows = {row["name"]: row for row in report["reproduction"]["rows"]}
        assert report["reproduction"]["folder"] == str(first.root / "points" / point)
        assert (rows["metric score"]["first"], rows["metric score"]["now"]) == (end, end)
    index = first.root / "points.json"
    index.write_text(index.read_text().replace('"4"', '"9"'))
    report = project.cli("report", project.last().root / "points" / "0", "--format", "json").json
    assert "other settings" in report["reproduction"]["problem"]
