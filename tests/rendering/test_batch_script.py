"""The batch script in real bash: signals, exit codes, attempts, environment. Slurm is a stand-in."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from jobspec.rendering import files, node_containers
from jobspec.rendering.files import PACKAGE, render
from jobspec.rendering.step_prefix import BWRAP_SIGNALS
from jobspec.triage import scan_lines
from tests.kits.render_kit import RUN_ID, SLURM, Stage, resolve_text

BARE = "version: 1\nname: x\nframework: command\ntrain: {command: [x]}\nsecrets: [XSECRET]\n"
SPEC = BARE + "launch: {mode: ray}\n"
AGAIN = "{mode: ray, requeue: {max_attempts: 3}}"
PYXIS = SLURM + "container: {runtime: pyxis}\nhooks: {setup: ['export FROM_HOOK=\"$USER\"']}\n"
Write = Callable[[Path, Mapping[str, bytes]], Path]


@pytest.fixture
def run_dir(tmp_path: Path, write_scripts: Write, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A rendered run directory on disk for a spec and a profile. The job sees no installation unless told."""

    def make(spec: str = SPEC, profile: str = SLURM, package: str = "/not/here") -> Path:
        monkeypatch.setattr(files, "PACKAGE", package)
        folder = tmp_path / "runs" / RUN_ID
        resolved = resolve_text(spec, profile)
        assert resolved.plan is not None, [finding.text() for finding in resolved.findings]
        return write_scripts(folder, render(resolved, RUN_ID, str(folder)))

    return make


@pytest.mark.parametrize("code", [0, 7, 137])
def test_the_jobs_exit_code_is_the_steps(code: int, run_dir: Callable[..., Path], stage: Stage) -> None:
    stage.program("srun", then=f"exit {code}")
    assert stage.bash(run_dir() / "job.sbatch").returncode == code


def test_the_step_runs_in_a_clean_environment(run_dir: Callable[..., Path], stage: Stage) -> None:
    stage.program("srun")
    leaked = {
        "SLURM_CPU_BIND": "cores",
        "SLURM_CPU_BIND_LIST": "0x1",
        "SLURM_MEM_BIND": "x",
        "SLURM_EXPORT_ENV": "NONE",
    }
    done = stage.bash(run_dir() / "job.sbatch", env={**leaked, "XSECRET": "s", "SLURM_CONF": "/etc/x"})
    assert done.returncode == 0, done.stderr
    (call,) = stage.calls()
    assert not [name for name in leaked if name.encode() in call.env]
    assert (call.env[b"XSECRET"], call.env[b"SLURM_CONF"]) == (b"s", b"/etc/x")
    assert not any(b"XSECRET=" in word or word == b"s" for word in call.argv)


def test_defaults_stand_in_for_a_missing_environment(run_dir: Callable[..., Path], stage: Stage) -> None:
    """`--export=NIL` may leave neither PATH nor HOME nor USER; all must reach the step."""
    script = (run_dir() / "job.sbatch").read_text().replace('"${PATH:-', f'"{stage.bin}:${{PATH:-')
    stage.program("srun")
    bare = run_dir().parent / "bare.sh"
    bare.write_text(script)
    done = subprocess.run(["/bin/bash", str(bare)], env={}, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (call,) = stage.calls()
    assert call.env[b"HOME"] and call.env[b"USER"] and call.env[b"PATH"]


def test_each_attempt_has_its_own_token_and_number(run_dir: Callable[..., Path], stage: Stage) -> None:
    stage.program("srun")
    folder = run_dir()
    stage.bash(folder / "job.sbatch")
    (folder / "attempts" / "1").mkdir(parents=True)
    stage.bash(folder / "job.sbatch")
    stage.bash(folder / "job.sbatch", env={"SLURM_RESTART_COUNT": "4"})
    calls = stage.calls()
    assert [call.env[b"JOBSPEC_ATTEMPT"] for call in calls] == [b"1", b"2", b"5"]
    tokens = {call.env[b"JOBSPEC_TOKEN"] for call in calls}
    assert len(tokens) == 3
    assert all(len(token) == 64 for token in tokens)
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert not any(token in written for token in tokens)


def start(stage: Stage, script: Path, group: bool = False, **env: str) -> subprocess.Popen[bytes]:
    own = {"PATH": f"{stage.bin}:/usr/bin:/bin", "HOME": str(stage.folder), **env}
    argv = ["/bin/bash", str(script)]
    return subprocess.Popen(argv, env=own, cwd=stage.work, stderr=subprocess.PIPE, start_new_session=group)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "nothing happened for 60 s"
        time.sleep(0.01)


STEP = """\
trap 'echo USR1 >> {log}; [ -z "{on_usr1}" ] || exit {on_usr1}' USR1
trap 'echo USR2 >> {log}; /bin/sleep 0.3; echo collected >> {log}; exit 9' USR2
trap 'echo forcing job termination >> {log}; exit 1' TERM INT
echo ready >> {log}
while :; do /bin/sleep 0.05; done
"""


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_signals_reach_the_step_and_its_end_is_waited_for(
    name: str, run_dir: Callable[..., Path], stage: Stage, tmp_path: Path
) -> None:
    """srun would kill its tasks on TERM and INT: the agents get USR2, and read which signal it stands for."""
    log = tmp_path / "log"
    stage.program("srun", then=STEP.format(log=log, on_usr1=""))
    folder = run_dir()
    job = start(stage, folder / "job.sbatch")
    wait_for(lambda: log.exists() and "ready" in log.read_text())
    (folder / "attempts/1").mkdir(parents=True)  # as the head's agent does
    job.send_signal(signal.SIGUSR1)
    wait_for(lambda: "USR1" in log.read_text())
    job.send_signal(signal.Signals[f"SIG{name}"])
    assert job.wait(timeout=30) == 9
    assert log.read_text().split() == ["ready", "USR1", "USR2", "collected"]
    assert (folder / "attempts/1/signal").read_text().split() == [name]


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_signals_reach_the_step_of_a_local_run(
    name: str, run_dir: Callable[..., Path], stage: Stage, tmp_path: Path
) -> None:
    """bash starts it with SIGINT ignored, and a container's shell cannot change that."""
    log, folder = tmp_path / "log", run_dir(BARE, "version: 1\nname: here\nscheduler: local\n")
    (folder / "local.sh").write_text(
        f"trap 'echo told >>{log}; exit 9' TERM\necho ready >>{log}\nwhile :; do /bin/sleep 0.05; done\n"
    )
    job = start(stage, folder / "job.sbatch")
    wait_for(lambda: log.exists() and "ready" in log.read_text())
    job.send_signal(signal.Signals[f"SIG{name}"])
    assert job.wait(timeout=30) == 9
    assert log.read_text().split() == ["ready", "told"]


def test_signals_to_the_process_group_do_not_reach_the_step(
    run_dir: Callable[..., Path], stage: Stage, tmp_path: Path
) -> None:
    """`scancel --full` sends its signal to the script and all that it has started."""
    log = tmp_path / "log"
    stage.program("srun", then=STEP.format(log=log, on_usr1=""))
    job = start(stage, run_dir() / "job.sbatch", group=True)
    wait_for(lambda: log.exists() and "ready" in log.read_text())
    os.killpg(job.pid, signal.SIGTERM)
    assert job.wait(timeout=30) == 9
    assert log.read_text().split() == ["ready", "USR2", "collected"]


def test_signal_that_comes_before_the_step_is_known_is_handed_on(
    run_dir: Callable[..., Path], stage: Stage, tmp_path: Path
) -> None:
    """bash has started the step, and has not yet noted its number."""
    early = tmp_path / "early.sh"
    early.write_text("""trap '[[ $BASH_COMMAND != "step=\\$!" ]] || kill -TERM $$' DEBUG\n""")
    stage.program("srun", then="for i in {1..600}; do /bin/sleep 0.05; done")
    job = start(stage, run_dir() / "job.sbatch", BASH_ENV=str(early))
    assert job.wait(timeout=30) == 128 + signal.SIGUSR2


def in_allocation(stage: Stage, folder: Path, log: Path, grace: str, on_usr1: str) -> int:
    """The exit code of a run at whose limit the keeper sends USR1; its results were written before."""
    stage.program("srun", then=STEP.format(log=log, on_usr1=on_usr1))
    job = start(stage, folder / "job.sbatch", JOBSPEC_GRACE_S=grace)
    wait_for(lambda: log.exists() and "ready" in log.read_text())
    (folder / "attempts/1").mkdir(parents=True)
    (folder / "attempts/1/results.json").write_text("{}")
    job.send_signal(signal.SIGUSR1)
    return job.wait(timeout=60)


def test_a_step_that_hangs_at_its_limit_in_an_allocation_is_killed(
    run_dir: Callable[..., Path], stage: Stage, tmp_path: Path
) -> None:
    """Slurm ends a job at its limit, and not a run that shares the job with others."""
    folder = run_dir()
    assert in_allocation(stage, folder, tmp_path / "log", "0.5", "") == 137
    assert (folder / "job-overdue").is_file()
    (call,) = stage.calls()
    assert b"JOBSPEC_GRACE_S" not in call.env


def test_a_step_that_ends_at_its_limit_leaves_nobody_who_waits_to_kill_it(
    run_dir: Callable[..., Path], stage: Stage, tmp_path: Path
) -> None:
    folder = run_dir()
    assert in_allocation(stage, folder, tmp_path / "log", "611.7", "5") == 5
    assert not (folder / "job-overdue").exists()
    waiting = ["pgrep", "-f", "sleep 611[.]7"]
    wait_for(lambda: subprocess.run(waiting, capture_output=True, check=False).returncode == 1)


@pytest.mark.parametrize(("restarts", "requeued"), [("", True), ("1", True), ("2", False)])
def test_the_time_limit_leads_to_another_attempt(
    restarts: str, requeued: bool, run_dir: Callable[..., Path], stage: Stage, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    stage.program("srun", then=STEP.format(log=log, on_usr1="5"))
    stage.program("scontrol")
    spec = BARE + "launch: {mode: ray, requeue: {max_attempts: 3}}\n"
    job = start(
        stage,
        run_dir(spec) / "job.sbatch",
        SLURM_JOB_ID="77",
        **({"SLURM_RESTART_COUNT": restarts} if restarts else {}),
    )
    wait_for(lambda: log.exists() and "ready" in log.read_text())
    job.send_signal(signal.SIGUSR1)
    assert job.wait(timeout=30) == 5
    asked = [call.argv[1:] for call in stage.calls() if call.argv[0].endswith(b"scontrol")]
    assert asked == ([(b"requeue", b"77")] if requeued else [])


LOSES = "mkdir -p $JOBSPEC_RUN_DIR/attempts/$JOBSPEC_ATTEMPT; cd $_; echo n2,n4 >requeue; exit 1"
SCONTROL = """[ "$1" != show ] || echo "JobId=77 ReqNodeList=(null) ExcNodeList={before} NodeList=n[1-2]"
"""


@pytest.mark.parametrize(
    ("before", "restarts", "excluded"),
    [("(null)", "", b"n2,n4"), ("n[6-7]", "1", b"n[6-7],n2,n4"), ("(null)", "2", b"")],
)
def test_lost_nodes_lead_to_another_attempt_without_them(
    before: str, restarts: str, excluded: bytes, run_dir: Callable[..., Path], stage: Stage
) -> None:
    """The head's mark of them is there when the attempt has got on; the last attempt says that it is."""
    stage.program("srun", then=LOSES)
    stage.program("scontrol", then=SCONTROL.format(before=before))
    stage.program("sbatch")
    script = run_dir(BARE + "launch: {mode: ray, requeue: {max_attempts: 3}}\n") / "job.sbatch"
    done = stage.bash(script, env={"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": restarts})
    assert done.returncode == 1
    asked = [call.argv[1:] for call in stage.calls() if call.argv[0].endswith(b"scontrol")]
    if not excluded:
        assert asked == []
        assert b"attempt 3 is the last of 3: not requeued" in done.stderr
        return
    assert asked[-2:] == [(b"requeue", b"77"), (b"update", b"JobId=77", b"ExcNodeList=" + excluded)]
    (tried,) = [call.argv[1:] for call in stage.calls() if call.argv[0].endswith(b"sbatch")]
    assert tried == (b"--test-only", b"--exclude=" + excluded, str(script).encode())


def test_lost_nodes_that_no_others_replace_are_not_excluded(
    run_dir: Callable[..., Path], stage: Stage
) -> None:
    """A job that excludes them could never start."""
    stage.program("srun", then=LOSES)
    stage.program("scontrol", then=SCONTROL.format(before="(null)"))
    stage.program("sbatch", then="exit 1")
    script = run_dir(BARE + "launch: {mode: ray, requeue: {max_attempts: 3}}\n") / "job.sbatch"
    done = stage.bash(script, env={"SLURM_JOB_ID": "77"})
    assert done.returncode == 1
    asked = [call.argv[1] for call in stage.calls() if call.argv[0].endswith(b"scontrol")]
    assert asked == [b"show", b"requeue"]
    assert b"start the job without n2,n4\njobspec: the next attempt may get n2,n4 again" in done.stderr


APART = """\
groups:
- {name: trainer, nodes: 1, gpus_per_node: 0}
- {name: envs, nodes: 2, gpus_per_node: 0, slurm: {partition: cpu}}
"""
OF_COMPONENTS = """case "$1 $2" in
"show job") printf '%s\\n' "JobId=77 HetJobId=77 HetJobOffset=0 HetJobIdSet=77-78 ExcNodeList=n8 N=n1" \\
  "JobId=78 HetJobId=77 HetJobOffset=1 HetJobIdSet=77-78 ExcNodeList=(null) NodeList=n[2-3]" ;;
"show hostnames") tr , '\\n' <<<"$3" ;;
esac
"""
SINFO = "printf '%s\\n' {}"


@pytest.mark.parametrize(
    ("usable", "refuses", "updates", "told"),
    [
        ("'n1 idle' 'n3 mix' 'n5 alloc' 'n2 mix'", "", [b"n8,n2,n4", b"n2,n4"], b""),
        ("'n1 idle' 'n3 mix' 'n5 down*' 'n2 mix'", "", [], b"fewer nodes than the 3 of all groups"),
        ("", "", [b"n8,n2,n4", b"n2,n4"], b""),  # sinfo does not answer: nobody knows better than sbatch
        ("'n1 idle'", "*--exclude=n8\\ :\\ --exclude=n2,n4\\ *", [], b"not start group envs without n2,n4"),
    ],
)
def test_each_component_keeps_its_own_excluded_nodes(
    usable: str, refuses: str, updates: list[bytes], told: bytes, run_dir: Callable[..., Path], stage: Stage
) -> None:
    stage.program("srun", then=LOSES)
    stage.program("scontrol", then=OF_COMPONENTS)
    stage.program("sbatch", then=f'case "$*" in {refuses or "-"}) exit 1 ;; esac')
    stage.program("sinfo", then=SINFO.format(usable) if usable else "exit 1")
    folder = run_dir(BARE + APART + f"launch: {AGAIN}\n")
    lists = {f"SLURM_JOB_NODELIST_HET_GROUP_{part}": f"n{part}" for part in (0, 1)}
    done = stage.bash(folder / "job.sbatch", env={"SLURM_JOB_ID": "77", **lists})
    assert done.returncode == 1, done.stderr
    asked = [call.argv[1:] for call in stage.calls() if call.argv[0].endswith(b"scontrol")]
    assert [call for call in asked if call[0] == b"update"] == [
        (b"update", b"JobId=77+%d" % part, b"ExcNodeList=" + nodes) for part, nodes in enumerate(updates)
    ]
    tried = [call.argv[1:-1] for call in stage.calls() if call.argv[0].endswith(b"sbatch")]
    assert tried == [
        (b"--test-only", b"--exclude=n8,n2,n4", b":", b"--exclude="),
        (b"--test-only", b"--exclude=n8", b":", b"--exclude=n2,n4"),
    ]
    assert told in done.stderr


def test_a_job_restarted_too_often_stops_at_once(run_dir: Callable[..., Path], stage: Stage) -> None:
    stage.program("srun")
    folder = run_dir(BARE + "launch: {mode: ray, requeue: {max_attempts: 2}}\n")
    done = stage.bash(folder / "job.sbatch", env={"SLURM_RESTART_COUNT": "2"})
    assert done.returncode == 1
    assert b"restarted 2 times, allowed are 1" in done.stderr
    assert stage.calls() == []


def test_the_job_writes_its_reports_and_keeps_its_exit_code(
    run_dir: Callable[..., Path], stage: Stage
) -> None:
    """Whatever the directory it starts in, and whatever a site's modules set for Python."""
    stage.program("srun", then="exit 7")
    hook = "hooks: {setup: ['export PYTHONPATH=/shadow PYTHONHOME=/shadow']}\n"
    folder = run_dir(profile=SLURM + hook, package=PACKAGE)
    (stage.work / "jobspec.py").write_text("raise SystemExit(9)\n")
    done = stage.bash(folder / "job.sbatch")
    assert (done.returncode, done.stderr) == (7, b"")
    assert (folder / "report.log").read_text() == f"{RUN_ID}: Nothing ran\n"
    assert json.loads((folder / "report.json").read_text())["result"] == "Nothing ran"


@pytest.mark.parametrize(("launch", "reported"), [("{mode: ray}", True), (AGAIN, False)])
def test_a_job_that_slurm_may_start_again_does_not_report_on_its_signal(
    launch: str, reported: bool, run_dir: Callable[..., Path], stage: Stage, tmp_path: Path
) -> None:
    """`hooks.on_end` tells once: a run that was preempted would be told as ended."""
    log = tmp_path / "log"
    stage.program("srun", then=STEP.format(log=log, on_usr1=""))
    folder = run_dir(BARE + f"launch: {launch}\n", package=PACKAGE)
    job = start(stage, folder / "job.sbatch", SLURM_JOB_ID="77")
    wait_for(lambda: log.exists() and "ready" in log.read_text())
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=60) == 9
    assert (folder / "report.json").exists() == reported


def test_a_report_that_cannot_be_written_or_takes_too_long_changes_nothing(
    run_dir: Callable[..., Path], stage: Stage
) -> None:
    stage.program("srun", then="exit 7")
    folder = run_dir(package=PACKAGE)
    (folder / "report.log").mkdir()
    done = stage.bash(folder / "job.sbatch")
    assert (done.returncode, done.stderr, done.stdout) == (7, b"", b"")
    (folder / "report.log").rmdir()
    stage.program("timeout", then='shift 5; exec /usr/bin/timeout 0.01 "$@"')  # the 60 s
    done = stage.bash(folder / "job.sbatch")
    assert (done.returncode, done.stderr, done.stdout) == (7, b"", b"")
    (limited,) = [call.argv for call in stage.calls() if call.argv[0].endswith(b"timeout")]
    assert limited[1:6] == (b"-s", b"INT", b"-k", b"5", b"60")
    assert not (folder / "report.json").exists()


def test_a_node_without_the_installation_writes_no_report(run_dir: Callable[..., Path], stage: Stage) -> None:
    stage.program("srun")
    folder = run_dir()
    assert stage.bash(folder / "job.sbatch").returncode == 0
    assert not (folder / "report.log").exists()


def test_nodes_of_a_cluster_behind_ssh_are_not_asked_for_an_installation() -> None:
    resolved = resolve_text(SPEC, SLURM + "access: {login: login.example.org}\n")
    script = render(resolved, RUN_ID, "/far/run")["job.sbatch"].decode()
    assert "jobspec.cli" not in script
    assert sys.executable not in script


def test_a_failing_hook_ends_the_job_before_the_step(run_dir: Callable[..., Path], stage: Stage) -> None:
    stage.program("srun")
    folder = run_dir(profile=SLURM + "hooks: {setup: ['module() { return 3; }', module load x]}\n")
    assert stage.bash(folder / "job.sbatch").returncode == 3
    assert stage.calls() == []


def test_pyxis_gets_its_folders_before_and_is_cleaned_up_after(
    run_dir: Callable[..., Path], stage: Stage
) -> None:
    stage.program("srun", then='case "$*" in *" node "*) exit 4 ;; esac')
    spec = SPEC + "container: {image: /images/a.sqsh}\n"
    done = stage.bash(run_dir(spec, PYXIS) / "job.sbatch", env={"USER": "ann"})
    assert done.returncode == 4, done.stderr
    made, step, removed = stage.calls()
    assert made.argv[-4:] == (b"bash", RUN_ID.encode(), b"/tmp/js", b"/shared/hf")
    assert step.env[b"FROM_HOOK"] == b"ann"
    assert f"--container-name=jobspec-{RUN_ID}_1".encode() in step.argv
    assert removed.argv[-2:] == (b"bash", f"pyxis_jobspec-{RUN_ID}_1".encode())
    assert removed.argv[-3].endswith(b'enroot remove --force "$1"')


# Those of runs that are over, one made before attempts had their own; half a container of this run's attempt
# before; one that runs, and one that is being unpacked.
LISTED = f"""\
NAME PID COMM
pyxis_jobspec-20260101-000000-dead
pyxis_jobspec-20260101-000000-gone_1
pyxis_jobspec-{RUN_ID}_1
pyxis_jobspec-20260101-000000-runs_2 77 python
               78 bash
pyxis_jobspec-20260101-000000-busy_1
pyxis_of-somebody
"""


def test_only_containers_that_nobody_uses_are_swept(stage: Stage, tmp_path: Path) -> None:
    stage.program("enroot", then=f"[[ $1 != list ]] || echo {shlex.quote(LISTED)}")
    stage.program(
        "ps",
        then="echo unsquashfs -d /data/pyxis_jobspec-20260101-000000-busy_1 /images/a.sqsh; "
        f"echo bash /runs/x/{RUN_ID}/ray.sub",
    )
    (tmp_path / "prepare").write_text(node_containers.PREPARE)
    done = stage.bash(tmp_path / "prepare", RUN_ID, str(tmp_path / "made"))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    removed = [call.argv[-1] for call in stage.calls() if b"remove" in call.argv]
    gone = ("20260101-000000-dead", "20260101-000000-gone_1", f"{RUN_ID}_1")
    assert removed == [f"pyxis_jobspec-{name}".encode() for name in gone]
    assert (tmp_path / "made").is_dir()


def test_container_that_another_job_begins_to_unpack_meanwhile_stays(stage: Stage, tmp_path: Path) -> None:
    name, began = "pyxis_jobspec-20260101-000000-busy", tmp_path / "began"
    listed = f"touch {began}; printf 'NAME PID\\n{name}\\n'"
    stage.program("enroot", then=f"[[ $1 != list ]] || {{ {listed}; }}")
    stage.program("ps", then=f"[[ ! -e {began} ]] || echo unsquashfs -d /data/{name} /images/a.sqsh")
    (tmp_path / "prepare").write_text(node_containers.PREPARE)
    assert stage.bash(tmp_path / "prepare", RUN_ID).returncode == 0
    assert began.exists()
    assert not [call for call in stage.calls() if b"remove" in call.argv]


def test_without_enroot_on_the_node_the_folders_are_made(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "prepare").write_text(node_containers.PREPARE)
    assert stage.bash(tmp_path / "prepare", RUN_ID, str(tmp_path / "made")).returncode == 0
    assert (tmp_path / "made").is_dir()


def test_cleanup_asks_living_nodes_alone(run_dir: Callable[..., Path], stage: Stage) -> None:
    """A step on a lost node waits until Slurm has noticed it, the other nodes idle."""
    leave = (
        'mkdir -p "$JOBSPEC_RUN_DIR/attempts/1"; echo "3 n4" >"$JOBSPEC_RUN_DIR/attempts/1/exit"; sleep 60'
    )
    stage.program("srun", then=f'case "$*" in *" node "*) {leave} ;; esac')
    spec = SPEC + "resources: {nodes: 4}\ncontainer: {image: /images/a.sqsh}\n"
    done = stage.bash(run_dir(spec, PYXIS) / "job.sbatch", env={"USER": "ann", "SLURM_JOB_ID": "1"})
    assert done.returncode == 3, done.stderr
    removed = stage.calls()[-1].argv
    wanted = (b"--overlap", b"--nodes=3", b"--ntasks=3", b"--exclude=n4")
    assert removed[removed.index(b"--mpi=none") + 1 :][:4] == wanted


@pytest.mark.parametrize(
    ("code", "results", "salvaged"), [(137, False, True), (137, True, False), (1, False, False)]
)
def test_files_of_killed_agents_are_saved_by_a_step_of_its_own(
    code: int, results: bool, salvaged: bool, run_dir: Callable[..., Path], stage: Stage
) -> None:
    folder = run_dir()
    leave = 'mkdir -p "$JOBSPEC_RUN_DIR/attempts/1"; touch "$JOBSPEC_RUN_DIR/attempts/1/results.json";'
    stage.program("srun", then=f"{leave if results else ''} exit {code}")
    done = stage.bash(folder / "job.sbatch")
    assert done.returncode == code
    steps = [call for call in stage.calls() if b"node" in call.argv]
    assert [call.env.get(b"JOBSPEC_SALVAGE") for call in steps] == [None, b"1"][: 1 + salvaged]
    assert len({call.argv for call in steps}) == 1, "in the same container"


def test_cleanup_does_not_wait_for_a_dead_node(run_dir: Callable[..., Path], stage: Stage) -> None:
    stage.program(
        "srun", then='case "$*" in *mkdir*) ;; *"enroot remove"*) sleep 600 ;; *" node "*) exit 4 ;; esac'
    )
    stage.program("timeout", then='shift 3; exec /usr/bin/timeout 1 "$@"')  # the 60 s, in one
    spec = SPEC + "container: {image: /images/a.sqsh}\n"
    assert stage.bash(run_dir(spec, PYXIS) / "job.sbatch", env={"USER": "ann"}).returncode == 4
    *_, limited = [call.argv for call in stage.calls() if call.argv[0].endswith(b"timeout")]
    assert limited[1:5] == (b"-k", b"5", b"60", b"srun")
    assert b"enroot remove" in b" ".join(limited)


ONE_SECOND = 'shift 3; exec /usr/bin/timeout 1 "$@"'  # in the place of what the script allows


def test_folders_that_are_not_made_in_time_end_the_job(run_dir: Callable[..., Path], stage: Stage) -> None:
    """As on a node whose file server has gone: the step hangs, and the job would hold its nodes for ever."""
    stage.program("srun", then='case "$*" in *mkdir*) sleep 600 ;; esac')
    stage.program("timeout", then=ONE_SECOND)
    spec = SPEC + "container: {image: /images/a.sqsh}\n"
    done = stage.bash(run_dir(spec, PYXIS) / "job.sbatch", env={"USER": "ann"})
    assert done.returncode == 124
    assert b"the folders that the container mounts were not made within 600 s: stopping" in done.stderr
    assert not [call for call in stage.calls() if b"node" in call.argv]
    (match,) = scan_lines(done.stderr.decode().splitlines())
    assert match.signature == "disk.prepare-late"


@pytest.mark.parametrize("asked", ["show", "requeue", "update"])
def test_controller_that_never_answers_does_not_hold_the_job(
    asked: str, run_dir: Callable[..., Path], stage: Stage
) -> None:
    stage.program("srun", then=LOSES)
    hangs = f'[ "$1" != {asked} ] || sleep 600; '
    stage.program("scontrol", then=hangs + SCONTROL.format(before="n6"))
    stage.program("sbatch")
    stage.program("timeout", then=ONE_SECOND)
    script = run_dir(BARE + "launch: {mode: ray, requeue: {max_attempts: 3}}\n") / "job.sbatch"
    done = stage.bash(script, env={"SLURM_JOB_ID": "77"})
    assert done.returncode == 1
    calls = [call.argv[1] for call in stage.calls() if call.argv[0].endswith(b"scontrol")]
    wanted = {"show": [b"show", b"requeue"], "requeue": [b"show", b"requeue"]}
    assert calls == wanted.get(asked, [b"show", b"requeue", b"update"])
    told = {"show": b"does not tell the job's excluded nodes", "requeue": b"did not requeue the job"}
    assert told.get(asked, b"") in done.stderr


def test_a_look_at_the_steps_that_hangs_is_followed_by_another(
    run_dir: Callable[..., Path], stage: Stage
) -> None:
    """Without it a held run that nobody uses would keep its nodes."""
    folder = '"$JOBSPEC_RUN_DIR"/attempts/1'
    seen = f"for _ in $(seq 200); do [ ! -s {folder}/steps ] || exit 0; sleep 0.1; done; exit 9"
    stage.program("srun", then=f'case "$*" in *" node "*) mkdir -p {folder}; {seen} ;; esac')
    stage.program("squeue", then=f"[ -e {folder}/asked ] || {{ touch {folder}/asked; sleep 99; }}; echo 77.0")
    stage.program("timeout", then=ONE_SECOND)
    script = run_dir(BARE + "launch: {mode: ray, hold: true, hold_idle: 4s}\n") / "job.sbatch"
    assert stage.bash(script, env={"SLURM_JOB_ID": "77"}).returncode == 0
    assert (script.parent / "attempts/1/steps").read_text().endswith(" 1\n")


BOXED = SLURM + "container: {runtime: bubblewrap}\n"
SERVED = (
    "container: {image: /images/a}\n"
    "services: [{name: judge, command: [serve], container: {image: /images/judge}}]\n"
)


def test_step_of_a_service_ends_by_itself_and_its_status_is_told(
    run_dir: Callable[..., Path], stage: Stage
) -> None:
    said = '"$JOBSPEC_RUN_DIR"/attempts/1/services/judge.ended'
    seen = f"for _ in $(seq 200); do [ ! -s {said} ] || exit 7; sleep 0.1; done; exit 9"
    stage.program(
        "srun", then=f'case "$*" in *" service judge "*) echo no image; exit 5 ;; *" node "*) {seen} ;; esac'
    )
    script = run_dir(SPEC + SERVED, BOXED) / "job.sbatch"
    assert stage.bash(script).returncode == 7
    told = script.parent / "attempts/1/services"
    assert ((told / "judge.ended").read_text(), (told / "judge.log").read_text()) == ("5\n", "no image\n")


def test_step_of_a_service_that_hangs_does_not_hold_the_job(
    run_dir: Callable[..., Path], stage: Stage
) -> None:
    hangs = "trap '' TERM; touch \"$JOBSPEC_RUN_DIR/hangs\"; while :; do sleep 0.1; done"
    begun = 'for _ in $(seq 200); do [ ! -e "$JOBSPEC_RUN_DIR/hangs" ] || exit 7; sleep 0.1; done; exit 9'
    stage.program("srun", then=f'case "$*" in *" service judge "*) {hangs} ;; *" node "*) {begun} ;; esac')
    script = run_dir(SPEC + SERVED, BOXED) / "job.sbatch"
    assert stage.bash(script).returncode == 7
    running = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    assert str(script.parent) not in running


def test_steps_of_services_do_not_keep_a_held_run(run_dir: Callable[..., Path], stage: Stage) -> None:
    folder = '"$JOBSPEC_RUN_DIR"/attempts/1'
    seen = f"for _ in $(seq 200); do [ ! -s {folder}/steps ] || exit 0; sleep 0.1; done; exit 9"
    stage.program("srun", then=f'case "$*" in *" service judge "*) sleep 99 ;; *" node "*) {seen} ;; esac')
    stage.program("squeue", then="echo 77.batch; echo 77.0; echo 77.1")
    spec = BARE + SERVED + "launch: {mode: ray, hold: true, hold_idle: 4s}\n"
    script = run_dir(spec, BOXED) / "job.sbatch"
    assert stage.bash(script, env={"SLURM_JOB_ID": "77"}).returncode == 0
    assert (script.parent / "attempts/1/steps").read_text() == "1 1\n"


@pytest.mark.parametrize("script", ["ray.sub", "local.sh"])
def test_a_step_script_alone_says_what_is_missing(
    script: str, run_dir: Callable[..., Path], stage: Stage
) -> None:
    profile = SLURM if script == "ray.sub" else "version: 1\nname: here\nscheduler: local\n"
    done = stage.bash(run_dir(profile=profile) / script)
    assert done.returncode != 0
    assert b"is set by job.sbatch" in done.stderr


ATTACH = [
    (["-j", "9", "-n", "n4", "--", "ls", "a b"], b"9", b"n4", (b"ls", b"a b")),
    (["--", "-l"], b"123", b"n1", (b"-l",)),
    ([], b"123", b"n1", (b"bash",)),
]


@pytest.mark.parametrize(("args", "job", "node", "command"), ATTACH)
def test_attach_finds_job_and_head_node(
    args: list[str],
    job: bytes,
    node: bytes,
    command: tuple[bytes, ...],
    run_dir: Callable[..., Path],
    stage: Stage,
) -> None:
    stage.program("srun")
    stage.program("squeue", then="echo 'n[1-4]'")
    stage.program("scontrol", then="printf 'n1\\nn2\\n'")
    folder = run_dir()
    (folder / "launch.json").write_text(json.dumps({"v": 1, "job_id": "123", "cluster": "lab"}, indent=2))
    done = stage.bash(folder / "attach.sh", *args)
    assert done.returncode == 0, done.stderr
    call = next(call for call in stage.calls() if call.argv[0].endswith(b"srun"))
    assert b"--jobid=" + job in call.argv
    assert b"--nodelist=" + node in call.argv
    runtime = f"{folder}/runtime.pyz".encode()
    assert call.argv[call.argv.index(runtime) :] == (runtime, b"exec", b"--", *command)


PODMAN = SLURM + "container: {runtime: podman}\n"


@pytest.mark.parametrize(
    ("profile", "word"),
    [
        (PYXIS, f"--container-name=jobspec-{RUN_ID}_10:exec"),
        (PODMAN, f"jobspec-{RUN_ID}_10"),
        (PODMAN.replace("scheduler: slurm", "scheduler: local"), f"jobspec-{RUN_ID}_10"),
    ],
)
def test_attach_enters_the_container_of_the_last_attempt(
    profile: str, word: str, run_dir: Callable[..., Path], stage: Stage
) -> None:
    for name in ("srun", "podman"):
        stage.program(name)
    folder = run_dir(SPEC + "container: {image: /images/a}\n", profile)
    for number in (1, 2, 10):
        (folder / f"attempts/{number}").mkdir(parents=True)
    done = stage.bash(folder / "attach.sh", "-j", "9", "-n", "n4", "--", "ls", env={"USER": "ann"})
    assert done.returncode == 0, done.stderr
    (call,) = stage.calls()
    assert word.encode() in call.argv


def test_two_attempts_have_containers_of_their_own(run_dir: Callable[..., Path], stage: Stage) -> None:
    """NVIDIA/pyxis#161: the folder of an attempt that was killed, half unpacked, is no image."""
    stage.program("srun")
    folder = run_dir(SPEC + "container: {image: /images/a.sqsh}\n", PYXIS)
    for attempt in ("1", "2"):
        (folder / "attempts" / attempt).mkdir(parents=True)
        stage.bash(folder / "job.sbatch", env={"USER": "ann"})
    names = [word for call in stage.calls() for word in call.argv if word.startswith(b"--container-name=")]
    assert names == [f"--container-name=jobspec-{RUN_ID}_{number}".encode() for number in (2, 3)]


def test_every_component_has_all_its_tasks(run_dir: Callable[..., Path], stage: Stage) -> None:
    """Slurm 26.05 tells the script the number of tasks of the first component, and srun takes it for each."""
    stage.program("srun")
    groups = "[{name: a, nodes: 1}, {name: b, nodes: 2, slurm: {partition: low}}]"
    folder = run_dir(SPEC + f"groups: {groups}\nresources: {{nodes: 3}}\n")
    told = {"SLURM_NTASKS": "1", "SLURM_NPROCS": "1"}
    stage.program("scontrol", then="printf 'n0\\nn1\\n'")
    lists = {f"SLURM_JOB_NODELIST_HET_GROUP_{index}": f"n{index}" for index in range(2)}
    assert stage.bash(folder / "job.sbatch", env={"SLURM_JOB_ID": "7", **told, **lists}).returncode == 0
    calls = [call for call in stage.calls() if b"--het-group=0-1" in call.argv]
    assert calls
    assert not [name for call in calls for name in told if name.encode() in call.env]


def test_attach_without_a_job_id_says_so(run_dir: Callable[..., Path], stage: Stage) -> None:
    folder = run_dir()
    (folder / "launch.json").write_text("{}")
    done = stage.bash(folder / "attach.sh")
    assert done.returncode == 2
    assert b"no job id" in done.stderr


OCI_SRUN = """\
while [ $# -gt 0 ] && [ "$1" != python3 ]; do shift; done
[ $# -gt 0 ] || exit 0
program=$1; shift
exec /usr/bin/env -i PATH=/usr/bin:/bin {python} "$@"
"""


def test_oci_containers_get_their_environment_over_standard_input(
    run_dir: Callable[..., Path], stage: Stage, tmp_path: Path
) -> None:
    """Slurm's OCI support passes no environment; neither argv nor disk may carry the secret."""
    host = os.uname().nodename
    seen = stage.program("seen")
    stage.program("srun", then=OCI_SRUN.format(python=sys.executable))
    stage.program("scontrol", then=f"printf 'other\\n{host}\\n'")
    spec = SPEC + "container: {image: /bundle, python: python3}\n"
    folder = run_dir(spec, SLURM + "container: {runtime: oci}\n")
    script = folder / "ray.sub"
    script.write_text(
        script.read_text().replace(f" python3 {folder}/runtime.pyz", f" {seen} {folder}/runtime.pyz")
    )
    secret = "s3cret 'x'\n$(id)"
    done = stage.bash(
        folder / "job.sbatch", env={"XSECRET": secret, "SLURM_JOB_NODELIST": "x", "SLURM_NODEID": "0"}
    )
    assert done.returncode == 0, done.stderr
    call = next(call for call in stage.calls() if call.argv[0] == str(seen).encode())
    assert call.env[b"XSECRET"] == secret.encode()
    assert call.env[b"SLURM_NODEID"] == b"1"
    assert call.env[b"JOBSPEC_RUN_DIR"] == str(folder).encode()
    assert not any(b"s3cret" in word for other in stage.calls() for word in other.argv)


PARTS_SRUN = """\
[[ " $* " == *" --input="* ]] || exit 0
part=''
for word; do
  case $word in
    --het-group=*) part=${word#*=} ;;
    --input=*) tr '\\0' '\\n' <"${word#*=}" >"$JOBSPEC_RUN_DIR/input-$part" ;;
  esac
done
"""


def test_each_component_of_oci_containers_has_an_input_of_its_own(
    run_dir: Callable[..., Path], stage: Stage
) -> None:
    """A real srun gives its standard input to the first component alone: agents of the others never began."""
    stage.program("srun", then=PARTS_SRUN)
    stage.program("scontrol", then="printf 'n1\\nn2\\n'")
    groups = "[{name: a, nodes: 1}, {name: b, nodes: 1, slurm: {partition: low}}]"
    spec = SPEC + f"groups: {groups}\ncontainer: {{image: /bundle, python: python3}}\n"
    folder = run_dir(spec, SLURM + "container: {runtime: oci}\n")
    lists = {f"SLURM_JOB_NODELIST_HET_GROUP_{index}": f"n{index}" for index in range(2)}
    done = stage.bash(folder / "job.sbatch", env={"SLURM_JOB_ID": "7", "XSECRET": "s3cret", **lists})
    assert done.returncode == 0, done.stderr
    for part in "01":
        assert {"XSECRET=s3cret", "JOBSPEC_HOSTS=n1 n2"} < set(
            (folder / f"input-{part}").read_text().splitlines()
        )
    step = next(call.argv for call in stage.calls() if b":" in call.argv)
    assert step.count(f"{folder}/runtime.pyz".encode()) == 2


def test_bwraps_child_gets_the_signals(tmp_path: Path) -> None:
    """The stand-in `parent` behaves like bwrap: it waits for its child and would itself end on TERM."""
    log = tmp_path / "log"
    child = (
        f"trap 'echo USR1 >> {log}' USR1; trap 'echo USR2 >> {log}' USR2; "
        f"trap 'echo TERM >> {log}; exit 6' TERM; "
        f"echo ready >> {log}; while :; do sleep 0.05; done"
    )
    parent = tmp_path / "parent"
    parent.write_text('#!/bin/bash\nbash -c "$1" &\nwait $!\n')
    parent.chmod(0o755)
    job = subprocess.Popen(["bash", "-c", BWRAP_SIGNALS, str(parent), child])
    wait_for(lambda: log.exists() and "ready" in log.read_text())
    for name in ("USR1", "USR2"):
        job.send_signal(signal.Signals[f"SIG{name}"])
        wait_for(lambda name=name: name in log.read_text())  # type: ignore[misc]
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=30) == 6


EXPEDITES = SLURM.replace("gpus: gres", "gpus: gres, requeue: expedite")


@pytest.mark.parametrize(
    ("profile", "spec", "option"),
    [
        (EXPEDITES, "launch: {mode: ray, requeue: {max_attempts: 3}}\n", "#SBATCH --requeue=expedite\n"),
        (EXPEDITES, "launch: {mode: ray}\n", "#SBATCH --no-requeue\n"),
        (SLURM, "launch: {mode: ray, requeue: {max_attempts: 3}}\n", "#SBATCH --requeue\n"),
    ],
)
def test_requeueing_is_expedited_where_the_site_says_so(
    profile: str, spec: str, option: str, run_dir: Callable[..., Path]
) -> None:
    assert option in (run_dir(BARE + spec, profile) / "job.sbatch").read_text()


@pytest.mark.parametrize(
    ("ends", "asked"),
    [
        ("exit 0", []),
        ("exit 5", [(b"update", b"JobId=77", b"Requeue=0")]),
        (LOSES, [(b"show", b"job", b"-o", b"77"), (b"requeue", b"77"), (b"update", b"JobId=77")]),
    ],
)
def test_a_failed_end_leaves_no_held_job_in_the_queue(
    ends: str, asked: list[tuple[bytes, ...]], run_dir: Callable[..., Path], stage: Stage
) -> None:
    """As Slurm's own tests of expedited requeueing have it; a run that goes on is left as it is."""
    stage.program("srun", then=ends)
    stage.program("scontrol", then=SCONTROL.format(before="(null)"))
    stage.program("sbatch")
    spec = BARE + "launch: {mode: ray, requeue: {max_attempts: 3}}\n"
    stage.bash(run_dir(spec, EXPEDITES) / "job.sbatch", env={"SLURM_JOB_ID": "77"})
    calls = [call.argv[1:] for call in stage.calls() if call.argv[0].endswith(b"scontrol")]
    assert [call[: len(want)] for call, want in zip(calls, asked, strict=True)] == asked


@pytest.mark.parametrize(
    ("ends", "hook", "restarts", "code"),
    [
        ("exit 0", "true", "3", 1),
        ("exit 3", "true", "0", 3),
        ("sleep 600", "true", "0", 124),
        ("exit 0", "false", "0", 1),
    ],
)
def test_an_end_before_the_run_leaves_no_held_job_either(
    ends: str, hook: str, restarts: str, code: int, run_dir: Callable[..., Path], stage: Stage
) -> None:
    """Restarted too often; the container's folders are not made, or not in time; the site's set-up fails."""
    stage.program("srun", then=f'case "$*" in *mkdir*) {ends} ;; esac')
    stage.program("scontrol")
    stage.program("timeout", then=ONE_SECOND)
    spec = BARE + f"container: {{image: /images/a.sqsh}}\nlaunch: {AGAIN}\n"
    profile = EXPEDITES + f"container: {{runtime: pyxis}}\nhooks: {{setup: ['{hook}']}}\n"
    env = {"USER": "ann", "SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": restarts}
    done = stage.bash(run_dir(spec, profile) / "job.sbatch", env=env)
    assert done.returncode == code
    calls = [call.argv[1:] for call in stage.calls() if call.argv[0].endswith(b"scontrol")]
    assert calls == [(b"update", b"JobId=77", b"Requeue=0")]
    assert not [call for call in stage.calls() if b"node" in call.argv]


@pytest.mark.parametrize("access", ["", "access: {login: login.example.org}\n"])
def test_a_job_that_slurm_may_start_again_is_not_given_up_on_its_signal(
    access: str, run_dir: Callable[..., Path], stage: Stage, tmp_path: Path
) -> None:
    """Preempted, by TERM: also where the job does not report, behind a login node."""
    log = tmp_path / "log"
    stage.program("srun", then=STEP.format(log=log, on_usr1=""))
    stage.program("scontrol")
    script = run_dir(BARE + f"launch: {AGAIN}\n", EXPEDITES + access) / "job.sbatch"
    job = start(stage, script, SLURM_JOB_ID="77")
    wait_for(lambda: log.exists() and "ready" in log.read_text())
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=60) == 9
    assert not [call for call in stage.calls() if call.argv[0].endswith(b"scontrol")]


def test_giving_up_has_a_deadline(run_dir: Callable[..., Path], stage: Stage) -> None:
    stage.program("srun", then="exit 5")
    stage.program("scontrol", then="sleep 600")
    stage.program("timeout", then=ONE_SECOND)
    script = run_dir(BARE + f"launch: {AGAIN}\n", EXPEDITES) / "job.sbatch"
    done = stage.bash(script, env={"SLURM_JOB_ID": "77"})
    assert done.returncode == 5
    assert [call.argv[1:] for call in stage.calls() if call.argv[0].endswith(b"scontrol")] == [
        (b"update", b"JobId=77", b"Requeue=0")
    ]


def test_a_broken_node_that_cannot_be_left_out_is_not_tried_again(
    run_dir: Callable[..., Path], stage: Stage
) -> None:
    stage.program("srun", then=LOSES.replace("n2,n4", "n2 only"))
    stage.program("scontrol", then=SCONTROL.format(before="(null)"))
    stage.program("sbatch", then="exit 1")
    script = run_dir(BARE + "launch: {mode: ray, requeue: {max_attempts: 3}}\n") / "job.sbatch"
    done = stage.bash(script, env={"SLURM_JOB_ID": "77"})
    assert done.returncode == 1
    assert [call.argv[1] for call in stage.calls() if call.argv[0].endswith(b"scontrol")] == [b"show"]
    assert b"start the job without n2\njobspec: another attempt might get n2 again" in done.stderr


def test_a_broken_node_is_left_out_however_far_the_attempt_came(
    run_dir: Callable[..., Path], stage: Stage
) -> None:
    stage.program("srun", then=LOSES.replace("n2,n4", "n2 only"))
    stage.program("scontrol", then=SCONTROL.format(before="n7"))
    stage.program("sbatch")
    script = run_dir(BARE + "launch: {mode: ray, requeue: {max_attempts: 3}}\n") / "job.sbatch"
    stage.bash(script, env={"SLURM_JOB_ID": "77"})
    asked = [call.argv[1:] for call in stage.calls() if call.argv[0].endswith(b"scontrol")]
    assert asked[-2:] == [(b"requeue", b"77"), (b"update", b"JobId=77", b"ExcNodeList=n7,n2")]
