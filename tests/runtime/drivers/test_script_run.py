"""Running a maintained script: real bash scripts in a folder that stands for a checkout."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobspec.runtime.drivers.nemo_rl import own_address, script_run

SCRIPT = """\
set -eou pipefail
out=tests/functional/it
rm -rf $out && mkdir -p $out/logs $out/case
echo trained "$@" | tee $out/run.log
echo '{}' > $out/metrics.json
echo '{}' > $out/case/metrics.json
echo x > $out/logs/events.out.tfevents.1
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    checkout = tmp_path / "checkout"
    (checkout / "tests/functional").mkdir(parents=True)
    (checkout / "tests/functional/it.sh").write_text(SCRIPT)
    monkeypatch.chdir(checkout)
    return tmp_path


def run(root: Path, *more: str, script: str = SCRIPT, words: tuple[str, ...] = ()) -> int:
    Path("tests/functional/it.sh").write_text(script)
    return script_run.main([*arguments(root, *more), "--", "bash", "tests/functional/it.sh", *words])


def arguments(root: Path, *more: str) -> list[str]:
    return [
        "--kept", str(root / "kept"), "--metrics", str(root / "metrics"), "--file", "metrics.json",
        "--outputs", "tests/functional/it", "--hold", "tests/functional/it.sh", *more,
    ]  # fmt: skip


def blocked(root: Path, *more: str, words: tuple[str, ...] = ()) -> int:
    with pytest.raises(SystemExit) as stopped:
        run(root, *more, words=words)
    return int(stopped.value.code or 0)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_files_of_the_script_are_kept(root: Path) -> None:
    assert run(root) == 0
    assert files(root / "kept") == {"run.log", "metrics.json", "case/metrics.json"}
    assert files(root / "metrics") == {"metrics.json"}


def test_files_of_an_earlier_start_are_not_kept(root: Path) -> None:
    old = Path("tests/functional/it/old.json")
    old.parent.mkdir()
    old.write_text("{}")
    os.utime(old, (1, 1))
    assert run(root, script="exit 0\n") == 0
    assert files(root / "kept") == set()


def test_file_that_vanishes_does_not_cost_the_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the script has left running removes a file between two looks."""
    seen = Path.stat

    def vanish(path: Path, **more: bool) -> os.stat_result:
        info = seen(path, **more)
        if path.parent.name == "case":
            path.unlink()
        return info

    monkeypatch.setattr(Path, "stat", vanish)
    (root / "checkout/tests/functional/it/case").mkdir(parents=True)
    for name in ("metrics.json", "case/metrics.json"):
        (root / "checkout/tests/functional/it" / name).write_text("{}")
    found = script_run._fresh(Path("tests/functional/it"), script_run.LOGS, 0.0)
    assert Path("tests/functional/it/metrics.json") in found


def test_event_files_stand_in_for_a_missing_metric_file(root: Path) -> None:
    """A training that fails leaves no metrics.json, which only the next stage would have written."""
    failing = SCRIPT.replace("echo '{}' > $out/metrics.json\n", "") + "exit 7\n"
    assert run(root, script=failing) == 7
    assert files(root / "metrics") == {"logs/events.out.tfevents.1"}


@pytest.mark.parametrize("code", [0, 5])
def test_scratch_is_removed_after_a_success_alone(root: Path, code: int) -> None:
    folder = root / "kept/hf-import"
    script = f"mkdir -p '{folder}/iter_0000000'\nexit {code}\n"
    assert run(root, "--scratch", str(folder), script=script) == code
    assert folder.exists() is (code != 0)


def test_several_metric_files_keep_their_folders(root: Path) -> None:
    assert run(root, "--file", "case/metrics.json") == 0
    assert files(root / "metrics") == {"metrics.json", "case/metrics.json"}


@pytest.mark.parametrize("left", ["kept", "checkpoints", "checkout/results/sft/step_2"])
def test_leftovers_block(root: Path, left: str, capsys: pytest.CaptureFixture[str]) -> None:
    (root / left).mkdir(parents=True)
    more = ("--checkpoints", str(root / "checkpoints"), "--leftover", "results/sft/step_*")
    assert blocked(root, *more) == script_run.BLOCKED
    assert "jobspec: blocked:" in capsys.readouterr().err
    assert not Path("tests/functional/it").exists()


@pytest.mark.parametrize("word", ["key=a b", "key=\t", "key=*", "key=[1]", ""])
def test_a_word_that_the_script_would_split_blocks(root: Path, word: str) -> None:
    assert blocked(root, words=(word,)) == script_run.BLOCKED


def test_two_runs_of_one_script_do_not_meet(root: Path) -> None:
    with Path("tests/functional/it.sh").open("r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert blocked(root) == script_run.BLOCKED
    assert not Path("tests/functional/it").exists()


def test_lock_ends_with_the_run(root: Path) -> None:
    assert run(root) == 0
    with Path("tests/functional/it.sh").open("r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_program_that_is_not_there(root: Path) -> None:
    assert script_run.main([*arguments(root), "--", "/nonexistent/uv"]) == 127


def test_signal_reaches_the_script_and_its_files_are_kept(root: Path) -> None:
    slow = SCRIPT + "trap 'exit 9' TERM\ntouch ready\nwhile :; do sleep 0.05; done\n"
    Path("tests/functional/it.sh").write_text(slow)
    argv = [*arguments(root), "--", "bash", "tests/functional/it.sh"]
    child = subprocess.Popen([sys.executable, "-m", "jobspec.runtime.drivers.nemo_rl.script_run", *argv])
    deadline = time.monotonic() + 60
    while not Path("ready").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=60) == 9
    assert "run.log" in files(root / "kept")


def test_checkpoints_are_named_when_complete(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = root / "check[points]"
    save = (
        f"c='{folder}'\n"
        'mkdir -p "$c"/step_3/policy/weights/iter_0000000 "$c"/step_2/policy/weights "$c"/tmp_step_4\n'
        'touch "$c"/step_{2,3}/training_info.json\n'
    )
    assert run(root, "--checkpoints", str(folder), script=save) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "checkpoint" in line]
    assert lines == [
        f"jobspec: complete checkpoint {folder}/step_3",
        f"jobspec: unfinished checkpoint {folder}/tmp_step_4",
    ]


@pytest.mark.parametrize(
    ("seen", "skipped"), [("10.0", True), ("12.1", True), ("9.0", False), ("8.9", False), ("", False)]
)
def test_newer_gpus_are_skipped(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seen: str, skipped: bool
) -> None:
    monkeypatch.setattr(script_run, "capability", lambda: seen)
    assert run(root, "--below-capability", "10.0") == 0
    assert ("jobspec: skipped:" in capsys.readouterr().out) is skipped
    assert Path("tests/functional/it").exists() is not skipped


def test_capability_is_the_newest_gpu_s(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = root / "nvidia-smi"
    fake.write_text("#!/bin/sh\nprintf '9.0\\n10.0\\n[N/A]\\n'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}:{os.environ['PATH']}")
    assert script_run.capability() == "10.0"


def test_another_ray_on_the_node_blocks(root: Path) -> None:
    process = root / "proc/42"
    process.mkdir(parents=True)
    (process / "cmdline").write_bytes(b"/opt/ray/core/src/ray/gcs/gcs_server\0--port=6379\0")
    with pytest.raises(SystemExit):
        script_run._refuse_foreign_ray(root / "proc")
    (process / "cmdline").write_bytes(b"grep\0gcs_server\0")
    script_run._refuse_foreign_ray(root / "proc")


@pytest.mark.parametrize(
    ("address", "nodes", "works"),
    [
        ("10.0.0.7", 2, True),
        ("127.0.1.1", 1, True),
        ("127.0.1.1", 2, False),
        ("169.254.3.1", 1, False),
        ("169.254.3.1", 2, False),
    ],
)
def test_announced_address(address: str, nodes: int, works: bool) -> None:
    assert (own_address.problem(address, nodes) == "") is works


def test_announced_address_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("socket.gethostbyname", lambda _: "169.254.3.1")
    assert own_address.main(["1"]) == own_address.BLOCKED
    assert "routable interface" in capsys.readouterr().err
    monkeypatch.setattr("socket.gethostbyname", lambda _: "10.1.2.3")
    assert own_address.main(["4"]) == 0
