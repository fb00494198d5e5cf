"""Login nodes that print what nobody asked for, never end, or end at once: a real sshd with such a shell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.launchers.access import command, transfer
from jobspec.launchers.access.master import MasterClient
from jobspec.launchers.access.transfer import Transfers
from tests.kits.sshd_kit import HAS_SSHD, Server

pytestmark = pytest.mark.skipif(
    not HAS_SSHD, reason="needs sshd and ssh-keygen (Debian: openssh-server, openssh-client)"
)
ESC = "\\033]0;owned\\007\\033[2J\\b\\302\\233 jobspec-0000000000000000\\n\\377"
MEGABYTES = "head -c 3000000 /dev/urandom; head -c 3000000 /dev/urandom >&2"
BANNER = f"{'=' * 70}\n\x1b[31mAuthorised users only\x1b[0m\x07\n" * 200
Login = Callable[[str], Server]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its logins run `shell.sh` of its folder, as a login shell's profile does before a command."""
    if os.geteuid() != 0:
        pytest.skip("sshd needs root for its privilege separation")
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "banner").write_text(BANNER)
    more = f"ForceCommand bash {folder}/shell.sh\nBanner {folder}/banner\n"
    server = Server(folder / "server", more=more)
    yield server
    server.stop()


@pytest.fixture
def login(server: Server, monkeypatch: pytest.MonkeyPatch) -> Login:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    def says(text: str) -> Server:
        (server.folder.parent / "shell.sh").write_text(f"{text}\nexec bash -s\n")
        return server

    return says


@pytest.mark.parametrize(
    "noise", ["", f"printf '{ESC}'", f"printf '{ESC}' >&2", MEGABYTES, "printf no-newline"]
)
def test_what_a_profile_prints_is_no_part_of_the_answer(noise: str, login: Login) -> None:
    done = login(noise).client().run(["sh", "-c", "printf 'a\\nb'; echo wrong >&2; exit 3"])
    assert (done.code, done.stdout) == (3, "a\nb")
    assert done.complaint.endswith("wrong")


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_command_that_prints_for_ever_is_given_up(
    stream: str, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = login("").client()
    assert client.run(["sh", "-c", f"yes{stream}"], timeout_s=1).timed_out
    monkeypatch.setattr(command, "MAX_ANSWER_BYTES", 5 << 20)
    with pytest.raises(JobspecError, match="`sh` printed more than 5 MiB on `login`"):
        client.run(["sh", "-c", f"yes{stream}"], timeout_s=600)
    assert client.run(["echo", "still there"]).stdout == "still there\n"


def test_profile_that_prints_for_ever_is_given_up(login: Login) -> None:
    done = login("yes").client().run(["true"], timeout_s=1)
    assert (done.code, done.timed_out, done.stdout) == (124, True, "")


SFTP = "/usr/lib/openssh/sftp-server"


@pytest.mark.parametrize("kind", ["own", "master"])
@pytest.mark.parametrize("text", ["sleep 600", f"{SFTP} | {{ head -c 1000; sleep 600; }}"])
def test_storage_that_falls_silent_is_given_up(
    kind: str, text: str, login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the file server of the login node hangs, at once or in mid-download."""
    monkeypatch.setattr(transfer, "SILENCE_S", 1.0)
    remote, local = tmp_path / "remote", tmp_path / "local"
    remote.mkdir()
    (remote / "job.log").write_bytes(b"x" * 5000)
    server = login(text)
    with opened(server, kind, tmp_path / "socket") as client, pytest.raises(JobspecError) as caught:
        client.download(str(remote), local)
    assert [finding.rule for finding in caught.value.findings] == ["launch.ssh-closed"]
    assert not (local / "job.log").exists()


@contextmanager
def opened(server: Server, kind: str, path: Path) -> Iterator[Transfers]:
    if kind == "own":
        client = server.client()
        yield client
        client.close()
        return
    ssh = ["ssh", "-F", str(server.config), "-S", str(path)]
    subprocess.run([*ssh, "-fNM", "login"], check=True, capture_output=True)
    try:
        yield MasterClient("login", master=str(path), config=server.config)
    finally:
        subprocess.run([*ssh, "-O", "exit", "login"], check=False, capture_output=True)


def test_profile_that_never_ends_is_given_up(login: Login) -> None:
    assert login("sleep 600").client().run(["true"], timeout_s=0.5).timed_out


@pytest.mark.parametrize(
    ("profile", "timeout_s", "said"), [("sleep 2", 60, "3000001\n"), ("sleep 600", 1, "")]
)
def test_input_waits_for_a_profile_that_takes_its_time(
    profile: str, timeout_s: float, said: str, login: Login
) -> None:
    """Until the shell reads, the connection takes no more than its window, 2 MiB here."""
    done = login(profile).client().run(["wc", "-c"], stdin="x" * 3_000_000, timeout_s=timeout_s)
    assert (done.stdout, done.timed_out) == (said, not said)


def test_login_that_ends_at_once_is_no_answer(login: Login) -> None:
    done = login("echo 'This account is not available' >&2; exit 1").client().run(["squeue"])
    assert (done.code, done.stdout) == (1, "")
    assert done.complaint.endswith("This account is not available")


def test_control_characters_of_a_complaint_reach_no_terminal(login: Login, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    client = login(f"printf '{ESC}' >&2; exit 1").client()
    with pytest.raises(JobspecError) as caught:
        client.upload(tmp_path, "/nowhere/at/all")
    shown = caught.value.findings[0].text()
    assert "owned" in shown
    assert not [char for char in shown if char in "\x1b\x07\b\x9b"]
