"""Standard streams that are closed, full or of another encoding cost no verdict and show no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.project_kit import HELLO, Project

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


def shell(project: Project, script: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """A line of bash with `$J` for jobspec."""
    command = f'J() {{ "{sys.executable}" -m jobspec.cli "$@"; }}; {script}'
    return subprocess.run(
        ["bash", "-c", command],
        cwd=project.root,
        env={**os.environ, **env},
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_change_no_exit_code(project: Project, closed: str) -> None:
    project.write("bad.yaml", "version: 1\n")
    for argv, code in (("validate hello.yaml", 0), ("validate bad.yaml", 2), ("status nosuch", 2)):
        done = shell(project, f"J {argv} {closed}")
        assert done.returncode == code, (argv, done)
        assert b"jobspec.bug" not in done.stderr


def test_files_are_not_written_into_by_output(project: Project) -> None:
    """The descriptor of a closed stream is free for the next file that is opened."""
    assert shell(project, "J render hello.yaml --out out >&- 2>&-").returncode == 0
    assert shell(project, "J render hello.yaml --out other").returncode == 0
    for name in ("job.sbatch", "driver.sh", "spec.yaml"):
        mine, other = ((project.root / folder / name).read_text() for folder in ("out", "other"))
        assert mine.replace("/out", "/other").count("\n") == other.count("\n")


def test_verdict_of_a_run_without_output(project: Project) -> None:
    project.write("fails.yaml", HELLO.replace("echo done", "false; exit 3; echo done"))
    done = shell(project, "J run fails.yaml >&-")
    assert done.returncode == 1, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_full_disk_is_no_bug(project: Project) -> None:
    done = shell(project, "J validate hello.yaml >/dev/full")
    assert done.returncode == 2
    assert done.stderr.decode().startswith("error[disk.write]\n  what: output cannot be written\n")
    assert shell(project, "J validate nosuch.yaml >/dev/full 2>&1").returncode == 2


def test_findings_into_a_closed_pipe(project: Project) -> None:
    for redirection in (">&9 2>&9", "--json >&9"):  # whose reader has certainly ended
        done = shell(project, f"exec 9> >(true); wait $!; J status nosuch {redirection}")
        assert done.returncode == 141
        assert done.stderr == b""


@pytest.mark.parametrize("env", [ASCII, {"LC_ALL": "C"}, {"PYTHONIOENCODING": "latin-1"}], ids=str)
def test_other_encodings(project: Project, env: dict[str, str]) -> None:
    project.write("größe 模型.yaml", HELLO)
    for argv in ("--help", "validate *模型.yaml", "explain *模型.yaml", "validate nösuch.yaml"):
        done = shell(project, f"J {argv}", **env)
        assert done.returncode == (2 if "such" in argv else 0), done
        assert b"jobspec.bug" not in done.stderr


def test_file_name_that_is_no_text(project: Project) -> None:
    name = os.fsencode(project.root) + b"/caf\xe9.yaml"
    Path(os.fsdecode(name)).write_text(HELLO)
    done = shell(project, r"J validate $'caf\xe9.yaml' && J validate $'caf\xe9.yaml' --json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"caf\\udce9.yaml: ok\n")
