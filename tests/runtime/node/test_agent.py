"""One agent, no Ray: phases, files, exit codes, signals, secrets."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.plan import CollectPlan, CommandPlan, RayPlan, SlurmPlan, StagePlan
from jobspec.runtime.base.identity import from_environment, node_paths
from jobspec.runtime.base.procs import started
from jobspec.runtime.node import exec_in_run
from tests.kits.agent_lab import make_run, running, shell
from tests.kits.pythons import PYTHON39, needs_python39

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to other users")


def test_phases_are_events_in_order(tmp_path: Path) -> None:
    with running(tmp_path, shell("echo out; echo err >&2")) as run:
        run.agent()
        code, output = run.finish()
        ends = [row["phase"] for row in run.events() if row["event"] == "end" and row["node"] == ""]
        results = run.results()
        (host,) = [row["name"] for row in results["nodes"]]
    assert code == 0, output
    assert [ends[0], *ends[-2:]] == ["preflight", "driver", "collect"]
    assert set(ends) == {"preflight", "stage", "helpers", "imports", "ray", "driver", "collect"}
    assert (results["outcome"], results["exit_code"], results["first_phase_failed"]) == ("ok", 0, "")
    assert all(row["outcome"] for row in results["phases"])
    assert "out\nerr\n" in output
    assert (run.attempt / "logs" / host / "train.log").read_text() == "out\nerr\n"
    assert (run.attempt / "logs" / host / "agent.log").exists()


@pytest.mark.parametrize(
    ("text", "code", "number"),
    [
        ("exit 7", 7, 0),
        ("false | tee /dev/null", 1, 0),
        ("(exit 9) | tail -1", 9, 0),
        ("kill -KILL $$", 137, 9),
    ],
)
def test_exit_code_is_the_commands(tmp_path: Path, text: str, code: int, number: int) -> None:
    with running(tmp_path, shell(text), shell("touch $JOBSPEC_RUN_DIR/second", name="second")) as run:
        run.agent()
        assert run.finish()[0] == code
        results = run.results()
        assert not (run.root / "second").exists()
    assert (results["outcome"], results["exit_code"], results["first_phase_failed"]) == (
        "failed",
        code,
        "driver",
    )
    assert [(c["name"], c["exit_code"], c["signal"]) for c in results["commands"]] == [
        ("train", code, number)
    ]
    assert results["findings"][0]["rule"] == "driver.exit-code"


def test_missing_program_is_named(tmp_path: Path) -> None:
    with running(tmp_path, CommandPlan("train", ("no-such-program", "-x"))) as run:
        run.agent()
        assert run.finish()[0] == 127
        first = run.results()["findings"][0]
    assert first["rule"] == "driver.cannot-start"
    assert "no-such-program" in first["what"]


def test_arguments_arrive_unchanged(tmp_path: Path) -> None:
    words = ["a b", "$HOME", "`id`", "ü", "--x={'k': \"v\"}", "line\nline"]
    code = "import json,sys; print(json.dumps(sys.argv[1:]))"
    with running(tmp_path, CommandPlan("train", (sys.executable, "-c", code, *words))) as run:
        run.agent()
        _, output = run.finish()
    assert json.dumps(words) in output


def test_environment_of_commands(tmp_path: Path) -> None:
    model = tmp_path / "shared" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "weights.bin").write_bytes(b"w" * 1000)
    item = StagePlan("model", "model", str(model), layout="plain")
    command = shell(
        "env -0 > $JOBSPEC_METRICS_DIR/env; cat $JOBSPEC_MODEL_PATH/config.json", env={"MINE": "a b"}
    )
    with running(tmp_path, command, stage=(item,), env={"SITE": "x"}) as run:
        run.agent()
        code, output = run.finish()
        env = dict(p.split("=", 1) for p in (run.attempt / "metrics" / "env").read_text().split("\0") if p)
    assert code == 0, output
    assert (env["MINE"], env["SITE"], env["HF_HUB_OFFLINE"], env["JOBSPEC_NODES"]) == ("a b", "x", "1", "1")
    assert env["PYTHONPATH"].split(":")[-1] == str(run.root / "runtime.pyz")
    assert "JOBSPEC_TOKEN" not in env
    assert "{}" in output


def test_secret_is_in_no_file_and_not_in_the_output(tmp_path: Path) -> None:
    secret = "s3cr3t/value+1"
    text = """
        echo "token is $MY_SECRET"; echo "$MY_SECRET" > $JOBSPEC_ATTEMPT_DIR/x.log
        printf "s3cr3t/"; sleep 0.1; printf "value+1"; exit 1
    """
    collect = CollectPlan(patterns=("*.log",))
    with running(tmp_path, shell(text), secrets=("MY_SECRET",), collect=collect) as run:
        run.agent(env={"MY_SECRET": secret})
        _, output = run.finish()
        (run.attempt / "x.log").unlink()  # the program's own file, on its own disk
        found = [p for p in run.root.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]
        tokens = [p for p in run.root.rglob("*") if p.is_file() and run.token.encode() in p.read_bytes()]
        copied = (run.root / "artifacts" / "x.log").read_text()
    assert output.count("[redacted MY_SECRET]") == 2
    assert secret not in output
    assert (found, tokens) == ([], [])
    assert copied == "[redacted MY_SECRET]\n"


def test_collect_writes_a_manifest(tmp_path: Path) -> None:
    text = """
        mkdir -p $JOBSPEC_ATTEMPT_DIR/d/e; echo 1 > $JOBSPEC_ATTEMPT_DIR/d/e/f.txt
        echo 2 > $JOBSPEC_ARTIFACTS_DIR/own
    """
    with running(tmp_path, shell(text), collect=CollectPlan(patterns=("d/**",))) as run:
        run.agent()
        assert run.finish()[0] == 0
        rows = json.loads((run.root / "artifacts" / "manifest.json").read_text())["files"]
        counted = run.results()["collect"]
    assert [(row["path"], row["bytes"]) for row in rows] == [("d/e/f.txt", 2), ("own", 2)]
    assert counted == {"files": 2, "bytes": 4, "truncated": False}


@pytest.mark.parametrize(
    ("number", "outcome", "code"),
    [
        (signal.SIGTERM, "cancelled", 143),
        (signal.SIGINT, "cancelled", 130),
        (signal.SIGHUP, "cancelled", 129),
        (signal.SIGUSR2, "cancelled", 140),
        (signal.SIGUSR1, "timeout", 124),
    ],
)
def test_signal_ends_the_run_and_collects(tmp_path: Path, number: int, outcome: str, code: int) -> None:
    """The program gets SIGTERM, whichever signal the job got, and time to save."""
    text = """
        trap 'echo saved > $JOBSPEC_ATTEMPT_DIR/saved.log; exit 0' TERM
        echo up > $JOBSPEC_ATTEMPT_DIR/up; sleep 60 & wait
    """
    with running(
        tmp_path, shell(text), collect=CollectPlan(patterns=("saved.log",)), slurm=SlurmPlan(grace_s=10)
    ) as run:
        agent = run.agent()
        run.wait_file(run.attempt / "up")
        agent.send_signal(number)
        assert run.finish()[0] == code
        results = run.results()
        assert (run.root / "artifacts" / "saved.log").read_text() == "saved\n"
        assert run.leftovers() == []
    assert (results["outcome"], results["exit_code"], results["first_phase_failed"]) == (
        outcome,
        code,
        "driver",
    )


def test_local_time_limit_is_kept(tmp_path: Path) -> None:
    with running(tmp_path, shell("sleep 100"), scheduler="local", time_limit_s=4) as run:
        run.agent()
        assert run.finish()[0] == 124
        assert run.results()["outcome"] == "timeout"


def test_killed_agent_leaves_nothing(tmp_path: Path) -> None:
    """SIGKILL of the agent itself: the guard ends its children, also those that left their session."""
    text = "setsid sleep 300 & echo up > $JOBSPEC_ATTEMPT_DIR/up; sleep 300"
    with running(tmp_path, shell(text)) as run:
        run.agent()
        run.wait_file(run.attempt / "up")
        os.kill(run.agent_pid(), signal.SIGKILL)
        assert run.finish()[0] == 137
        assert run.leftovers() == []


def test_killed_guard_ends_the_run(tmp_path: Path) -> None:
    with running(tmp_path, shell("echo up > $JOBSPEC_ATTEMPT_DIR/up; sleep 300")) as run:
        agent = run.agent()
        run.wait_file(run.attempt / "up")
        agent.kill()
        agent.wait(60)
        run.wait_file(run.attempt / "results.json")
        end = time.monotonic() + 60
        while run.leftovers() and time.monotonic() < end:
            time.sleep(0.1)
        assert run.leftovers() == []


def test_background_process_does_not_hold_the_run(tmp_path: Path) -> None:
    with running(tmp_path, shell("sleep 300 & echo done")) as run:
        run.agent()
        assert run.finish()[0] == 0
        assert run.leftovers() == []


def test_hold_keeps_the_node_until_cancelled(tmp_path: Path) -> None:
    """Ending a held run is what its user wants: the result stays the command's."""
    with running(tmp_path, shell("exit 0"), hold=True) as run:
        agent = run.agent()
        run.wait_event("driver", "progress", data={"what": "hold"})
        assert agent.poll() is None
        agent.terminate()
        assert run.finish()[0] == 0
        assert run.results()["outcome"] == "ok"


def test_exec_runs_in_the_drivers_environment(tmp_path: Path) -> None:
    with running(
        tmp_path, shell("echo up > $JOBSPEC_ATTEMPT_DIR/up; sleep 300"), env={"SITE": "x"}, secrets=("KEY",)
    ) as run:
        run.agent(env={"KEY": "secret-value"})
        run.wait_file(run.attempt / "up")
        pid_files = list((tmp_path / "l").glob("agents-*/*"))
        argv = [
            sys.executable,
            str(run.root / "runtime.pyz"),
            "exec",
            "--",
            "sh",
            "-c",
            "echo $SITE $KEY $JOBSPEC_TOKEN; exit 5",
        ]
        done = subprocess.run(
            argv, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
        )
    assert (done.returncode, done.stdout, done.stderr) == (5, "x secret-value\n", "")
    assert [stat.S_IMODE(p.stat().st_mode) & 0o077 for p in pid_files if p.exists()] in ([0], [])


def test_exec_finds_programs_beside_the_runs_python(tmp_path: Path) -> None:
    """`exec -- ray status` with a venv that nobody has activated."""
    with running(tmp_path, shell("echo up > $JOBSPEC_ATTEMPT_DIR/up; sleep 300")) as run:
        run.agent(env={"PATH": "/usr/bin:/bin"})
        run.wait_file(run.attempt / "up")
        argv = [sys.executable, str(run.root / "runtime.pyz"), "exec", "--", "sh", "-c", "echo $PATH"]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == f"/usr/bin:/bin:{Path(sys.executable).parent}\n"


def test_exec_without_a_run_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    argv = [sys.executable, str(run.root / "runtime.pyz"), "exec", "--", "true"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "exec.no-agent" in done.stderr


def test_exec_takes_no_other_process_for_an_agent(tmp_path: Path) -> None:
    """An agent that was killed leaves its pid file, and the pid goes to another process."""
    run = make_run(tmp_path)
    folder = Path(run.plan.node_local) / f"agents-{os.getuid()}"
    folder.mkdir(parents=True)
    record = {"pid": os.getpid(), "started": 1, "run_dir": str(run.root), "attempt": 1, "env": {}}
    (folder / "killed.json").write_text(json.dumps(record))
    with pytest.raises(JobspecError) as told:
        exec_in_run.find_agent(run.plan, run.root)
    assert [finding.rule for finding in told.value.findings] == ["exec.no-agent"]


def test_exec_in_a_run_whose_kept_ray_has_gone_is_no_bug(tmp_path: Path) -> None:
    """Its agent's pid may be another program's by then, which has no token."""
    run = make_run(tmp_path)
    folder = Path(run.plan.node_local) / f"agents-{os.getuid()}"
    folder.mkdir(parents=True, mode=0o700)
    with subprocess.Popen(["sleep", "60"], env={}) as other:
        env = {"RAY_AUTH_MODE": "token", "JOBSPEC_KEPT_RAY": str(other.pid)}
        pid = os.getpid()
        record = {"pid": pid, "started": started(pid), "run_dir": str(run.root), "env": env}
        (folder / "agent.json").write_text(json.dumps(record))
        assert exec_in_run.environment(run.plan, run.root)["RAY_AUTH_TOKEN"]
        other.kill()


@ROOT
@pytest.mark.parametrize("whose", ["another's", "open", "a link", "in another's"])
def test_exec_believes_no_record_that_others_may_write(tmp_path: Path, whose: str) -> None:
    """A planted one made `exec` run a stranger's program with this user's rights."""
    run = make_run(tmp_path)
    local = Path(run.plan.node_local)
    folder = local / f"agents-{os.getuid()}"
    real = tmp_path / "elsewhere" if whose == "a link" else folder
    real.mkdir(parents=True)
    record = {"pid": os.getpid(), "started": started(os.getpid()), "run_dir": str(run.root), "env": {}}
    (real / "planted.json").write_text(json.dumps(record))
    if whose == "a link":
        local.mkdir()
        folder.symlink_to(real)
    elif whose == "open":
        folder.chmod(0o777)
    else:
        os.chown(folder if whose == "another's" else local, 65534, 65534)
    with pytest.raises(JobspecError) as told:
        exec_in_run.find_agent(run.plan, run.root)
    named = local if whose == "in another's" else folder
    assert [(one.rule, one.file) for one in told.value.findings] == [("preflight.node-local", str(named))]


@ROOT
@pytest.mark.parametrize(
    ("name", "spoil", "words"),
    [
        ("", "chown nobody", "belongs to user `nobody`"),
        ("", "chmod 0777", "may be written by others (mode 0777)"),
        ("", "ln -s other", "is a link of user `nobody`"),
        ("agents-{uid}", "chown nobody", "belongs to user `nobody`"),
        ("agents-{uid}", "chmod 0770", "may be written by others (mode 0770)"),
        ("agents-{uid}", "ln -s ../../other", "is a link to `../../other`"),
        ("run-{digest}", "chown nobody", "belongs to user `nobody`"),
        ("run-{digest}", "ln -s ../../other", "is a link to `../../other`"),
    ],
)
def test_folder_on_the_node_that_others_may_change_is_refused_by_name(
    tmp_path: Path, name: str, spoil: str, words: str
) -> None:
    with running(tmp_path, shell("true")) as run:
        who = from_environment(run.root, {"JOBSPEC_TOKEN": run.token, "JOBSPEC_ATTEMPT": "1"})
        paths = node_paths(run.plan, who)
        folder = {"": paths.agents.parent, "agents-{uid}": paths.agents}.get(name, paths.scratch)
        (tmp_path / "other").mkdir()
        if spoil.startswith("ln"):
            folder.parent.mkdir(exist_ok=True)
            folder.symlink_to(spoil.split()[2])
            os.chown(folder, 65534, 65534, follow_symlinks=False)
        else:
            folder.mkdir(parents=True)
            subprocess.run([*spoil.split(), str(folder)], check=True)
        run.agent()
        assert run.finish()[0] == 3
        found = run.results()["findings"]
    assert [(one["rule"], one["file"]) for one in found] == [("preflight.node-local", str(folder))]
    assert words in found[0]["what"]
    assert list((tmp_path / "other").iterdir()) == []


def test_local_folder_may_be_shared_like_tmp(tmp_path: Path) -> None:
    with running(tmp_path, shell("true")) as run:
        (tmp_path / "disk").mkdir()
        (tmp_path / "disk").chmod(0o1777)
        Path(run.plan.node_local).symlink_to("disk")
        run.agent()
        assert run.finish()[0] == 0


def test_exec_beside_a_run_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pid file is gone between the listing and the look."""
    run = make_run(tmp_path)
    folder = Path(run.plan.node_local) / f"agents-{os.getuid()}"
    folder.mkdir(parents=True)
    own = {"pid": os.getpid(), "started": started(os.getpid()), "run_dir": str(run.root), "env": {}}
    (folder / "own.json").write_text(json.dumps(own))
    glob = Path.glob
    monkeypatch.setattr(Path, "glob", lambda path, pattern: [folder / "gone.json", *glob(path, pattern)])
    assert exec_in_run.find_agent(run.plan, run.root) == own


def test_blocked_run_never_starts_the_command(tmp_path: Path) -> None:
    """Each is found before training, with the node's name."""
    ray = RayPlan(port=40000, port_min=33000, port_max=34000)
    with running(
        tmp_path, shell("touch $JOBSPEC_RUN_DIR/ran"), interface="no-such0", ray=ray, gpus_per_node=64
    ) as run:
        run.agent()
        assert run.finish()[0] == 3
        results = run.results()
        assert not (run.root / "ran").exists()
    assert (results["outcome"], results["exit_code"], results["first_phase_failed"]) == (
        "blocked",
        3,
        "preflight",
    )
    assert {f["rule"] for f in results["findings"]} == {
        "preflight.address",
        "preflight.ports",
        "preflight.gpus",
    }
    assert {f["node"] for f in results["findings"]} == {os.uname().nodename.split(".")[0]}


def test_missing_source_blocks_in_stage(tmp_path: Path) -> None:
    item = StagePlan("model", "model", str(tmp_path / "nothing"), layout="plain")
    with running(tmp_path, shell("true"), stage=(item,)) as run:
        run.agent()
        assert run.finish()[0] == 3
        assert run.results()["first_phase_failed"] == "stage"


def test_pid_file_and_scratch_are_removed(tmp_path: Path) -> None:
    with running(tmp_path, shell("echo x > $JOBSPEC_SCRATCH/x")) as run:
        run.agent()
        assert run.finish()[0] == 0
        assert [p.name for p in (tmp_path / "l").iterdir()] == [f"agents-{os.getuid()}"]
        assert list((tmp_path / "l" / f"agents-{os.getuid()}").iterdir()) == []


@pytest.mark.parametrize(
    ("env", "rule"), [({"JOBSPEC_TOKEN": ""}, "runtime.token"), ({"SLURM_NNODES": "3"}, "runtime.nodelist")]
)
def test_wrong_environment_is_told(tmp_path: Path, env: dict[str, str], rule: str) -> None:
    with running(tmp_path, shell("true")) as run:
        run.agent(env=env)
        code, output = run.finish()
    assert code == 3
    assert rule in output
    assert "Traceback" not in output


def test_missing_plan_is_told(tmp_path: Path) -> None:
    with running(tmp_path, shell("true")) as run:
        (run.root / "plan.json").unlink()
        run.agent()
        code, output = run.finish()
    assert code == 3
    assert "runtime.plan" in output


@needs_python39
def test_agent_runs_on_python_39(tmp_path: Path) -> None:
    item = tmp_path / "data.txt"
    item.write_text("x")
    stage = (StagePlan("d", "dataset", str(item), layout="plain"),)
    reads = 'cat "$JOBSPEC_DATA_D" && case $JOBSPEC_DATA_D in *.txt) exit 7;; esac'
    with running(tmp_path, shell(reads), stage=stage) as run:  # readers tell a format by its suffix
        run.agent(python=str(PYTHON39))
        code, output = run.finish()
        facts = run.results()["nodes"][0]["facts"] if code == 7 else output
    assert code == 7, output
    assert facts["python"].startswith("3.9.")


def test_old_python_is_told_in_its_own_syntax() -> None:
    """The entry must compile on any Python 3: it is what tells an old one."""
    source = (Path(__file__).parents[3] / "runtime" / "__main__.py").read_text()
    assert 'f"' not in source
    assert "from __future__" not in source


def test_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jobspec.runtime", "version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("jobspec runtime, plan version 1")


def test_closed_job_log_does_not_stop_the_program(tmp_path: Path) -> None:
    text = "for i in $(seq 3000); do echo line $i of a long output; done; echo up > $JOBSPEC_ATTEMPT_DIR/up"
    with running(tmp_path, shell(text)) as run:
        agent = run.agent()
        assert agent.stdout is not None
        agent.stdout.close()
        assert agent.wait(60) == 0
        (log,) = run.attempt.glob("logs/*/train.log")
        assert log.read_text().splitlines()[-1] == "line 3000 of a long output"
