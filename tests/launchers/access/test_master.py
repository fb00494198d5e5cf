"""A login node over the user's own OpenSSH master, against a real sshd: it counts the logins."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.launchers.access import command, connect, ssh
from jobspec.launchers.access.master import MasterClient
from jobspec.launchers.base import Access
from tests.kits.sshd_kit import HAS_SSHD, Server

pytestmark = pytest.mark.skipif(
    not HAS_SSHD or os.geteuid() != 0, reason="needs sshd as root (Debian: openssh-server)"
)


@dataclass(frozen=True)
class Mfa:
    """A site where the user has logged in once, and nobody can again: the key is not taken any more."""

    server: Server
    socket: Path

    def ssh(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = ["ssh", "-F", str(self.server.config), "-S", str(self.socket), *words, "login"]
        return subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)

    def log_in(self) -> None:
        keys = self.server.folder / "authorized"
        keys.write_text((self.server.folder / "user.pub").read_text())
        argv = ["ssh", "-fNM", "-F", str(self.server.config), "-S", str(self.socket), "login"]
        # Its master keeps standard output open, so nobody may wait for the end of that.
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        keys.write_text("")

    def log_out(self) -> None:
        self.ssh("-O", "exit")

    def logins(self) -> int:
        """Connections that came so far, let in or not."""
        return (self.server.folder / "log").read_text().count("Connection from ")

    def client(self, master: str = "", **options: str) -> MasterClient:
        return MasterClient("login", master=master or str(self.socket), config=self.server.config, **options)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("sshd") / "server", more="LogLevel VERBOSE\n")
    yield made
    made.stop()


@pytest.fixture
def mfa(server: Server, tmp_path: Path) -> Iterator[Mfa]:
    server.configure()
    made = Mfa(server, tmp_path / "master")
    made.log_in()
    yield made
    made.log_out()


def refusal(client: MasterClient) -> tuple[str, str]:
    with pytest.raises(JobspecError) as caught:
        client.run(["true"])
    (finding,) = caught.value.findings
    return finding.rule, finding.text()


def test_all_goes_over_the_one_connection(mfa: Mfa, tmp_path: Path) -> None:
    before, client = mfa.logins(), mfa.client()
    client.reach()
    done = client.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (done.code, done.stdout, done.stderr.strip().splitlines()[-1]) == (7, "out\n", "err")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/job.sbatch").write_bytes(b"\x00\xff")
    (tmp_path / "run/job.sbatch").chmod(0o750)
    client.upload(tmp_path / "run", str(tmp_path / "far/run"))
    assert (tmp_path / "far/run/job.sbatch").read_bytes() == b"\x00\xff"
    assert (tmp_path / "far/run/job.sbatch").stat().st_mode & 0o777 == 0o750
    (tmp_path / "large").write_bytes(os.urandom(8 * 1024**2))
    client.send(tmp_path / "large", str(tmp_path / "far/large"))
    client.download(str(tmp_path / "far"), tmp_path / "back")
    assert (tmp_path / "back/large").read_bytes() == (tmp_path / "large").read_bytes()
    assert mfa.logins() == before


@pytest.mark.parametrize("word", ["a b", "$(id)", "'", "\n", "é", ""])
def test_words_arrive_as_they_are(mfa: Mfa, word: str) -> None:
    assert mfa.client().run(["printf", "%s|", word]).stdout == f"{word}|"


def test_secret_and_input_arrive_and_stand_in_no_argument_list(mfa: Mfa) -> None:
    script = 'echo "$TOKEN"; cat; cat /proc/[0-9]*/cmdline | tr "\\0" " "'
    done = mfa.client().run(["sh", "-c", script], {"TOKEN": "t0p secret$"}, stdin="given")
    first, second, arguments = done.stdout.split("\n", 2)
    assert (first, second) == ("t0p secret$", "given")
    assert "t0p secret" not in arguments


def test_large_output_on_both_streams_does_not_hang(mfa: Mfa) -> None:
    script = "yes x | head -c 3000000; yes y | head -c 3000000 >&2"
    done = mfa.client().run(["sh", "-c", script], timeout_s=60)
    assert (done.code, len(done.stdout), done.stderr.count("y")) == (0, 3_000_000, 1_500_000)


def test_command_that_hangs_is_given_up_and_the_master_stays(mfa: Mfa) -> None:
    client = mfa.client()
    done = client.run(["sleep", "600"], timeout_s=2)
    assert (done.code, done.timed_out) == (124, True)
    assert client.run(["true"]).code == 0


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_command_that_prints_for_ever_is_given_up(
    stream: str, mfa: Mfa, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = mfa.client()
    monkeypatch.setattr(command, "MAX_ANSWER_BYTES", 5 << 20)
    with pytest.raises(JobspecError, match="`sh` printed more than 5 MiB on `login`"):
        client.run(["sh", "-c", f"yes{stream}"], timeout_s=600)
    assert client.run(["echo", "still there"]).stdout == "still there\n"


def test_input_larger_than_a_pipe_arrives_whole(mfa: Mfa) -> None:
    text = "é\n" * 200_000
    done = mfa.client().run(["sha256sum"], stdin=text)
    assert done.stdout.split()[0] == sha256(f"{text}\n".encode()).hexdigest()


def test_command_that_leaves_its_input_ends_as_it_says(mfa: Mfa) -> None:
    done = mfa.client().run(["sh", "-c", "exec <&-; exit 3"], stdin="x\n" * 2_000_000)
    assert (done.code, done.timed_out) == (3, False)


def test_exit_codes_of_ssh_are_the_commands_own_while_the_master_stands(mfa: Mfa) -> None:
    assert mfa.client().run(["sh", "-c", "exit 255"]).code == 255
    with pytest.raises(JobspecError, match="`sbatch-of-nowhere` was not found on `login`"):
        mfa.client().run(["sbatch-of-nowhere"])


def test_without_a_master_the_line_that_opens_it_is_told_and_nothing_is_opened(mfa: Mfa) -> None:
    mfa.log_out()
    before = mfa.logins()
    rule, text = refusal(mfa.client())
    assert rule == "launch.ssh-no-master"
    assert "no SSH master connection to `login` is open" in text and "No such file or directory" in text
    assert f"run `ssh -fNM -F {mfa.server.config} -S {mfa.socket} login`" in text
    assert mfa.logins() == before
    mfa.log_in()
    assert mfa.client().run(["true"]).code == 0


def test_socket_that_a_dead_master_left_is_no_master(mfa: Mfa) -> None:
    pid = mfa.ssh("-O", "check").stderr.split("pid=")[1].partition(")")[0]
    os.kill(int(pid), 9)
    before = mfa.logins()
    rule, text = refusal(mfa.client())
    assert rule == "launch.ssh-no-master" and "Connection refused" in text
    assert mfa.logins() == before
    mfa.socket.unlink(missing_ok=True)


def test_master_that_ends_at_the_last_moment_is_not_replaced(
    mfa: Mfa, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ssh itself would connect anew where the socket is gone."""
    client = mfa.client()
    client.reach()
    mfa.log_out()
    before, answers = mfa.logins(), iter([True, False])
    monkeypatch.setattr(client, "_stands", lambda: next(answers))
    rule, _ = refusal(client)
    assert rule == "launch.ssh-no-master"
    assert mfa.logins() == before


def test_master_lost_under_a_command_is_told(mfa: Mfa) -> None:
    client = mfa.client()
    kill = f"kill -9 {mfa.ssh('-O', 'check').stderr.split('pid=')[1].partition(')')[0]}"
    with pytest.raises(JobspecError) as caught:
        client.run(["sh", "-c", f"{kill}; sleep 60"])
    assert caught.value.findings[0].rule == "launch.ssh-no-master"
    mfa.socket.unlink(missing_ok=True)


def test_auto_is_the_control_path_of_the_configuration(mfa: Mfa) -> None:
    rule, text = refusal(mfa.client("auto"))
    assert rule == "launch.ssh-no-master"
    assert "the SSH configuration has no `ControlPath` for `login`" in text
    mfa.server.configure(more=f"  ControlPath {mfa.socket.parent}/mas%%ter-%n\n")
    os.link(mfa.socket, mfa.socket.with_name("mas%ter-login"))
    assert mfa.client("auto").run(["echo", "there"]).stdout == "there\n"


def test_tokens_of_a_path_are_those_of_ssh(mfa: Mfa) -> None:
    os.link(mfa.socket, mfa.socket.with_name("to-login"))
    assert mfa.client(f"{mfa.socket.parent}/to-%n").run(["echo", "there"]).stdout == "there\n"


def test_path_that_no_socket_can_have_is_told(mfa: Mfa) -> None:
    """ssh would look for the beginning of its name."""
    longest = f"/{'x' * 89}"
    assert "No such file" in refusal(mfa.client(longest))[1]
    rule, text = refusal(mfa.client(longest + "x"))
    assert rule == "launch.ssh-no-master"
    assert "is too long for the socket of a master: 90 bytes is the most" in text
    argv = ["ssh", "-fNM", "-F", str(mfa.server.config), "-S", f"{longest}x", "login"]
    (mfa.server.folder / "authorized").write_text((mfa.server.folder / "user.pub").read_text())
    said = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    (mfa.server.folder / "authorized").write_text("")
    assert "too long" in said.stderr


def test_terminal_is_a_session_of_the_master(mfa: Mfa, tmp_path: Path) -> None:
    before = mfa.logins()
    assert mfa.client().interactive(["sh", "-c", f"echo $SSH_CONNECTION > {tmp_path}/seen; exit 3"]) == 3
    assert (tmp_path / "seen").read_text().startswith("127.0.0.1 ")
    assert mfa.logins() == before


def test_jump_is_a_part_of_the_line_that_opens_it(mfa: Mfa) -> None:
    mfa.log_out()
    _, text = refusal(mfa.client(jump="gate"))
    assert f"ssh -fNM -F {mfa.server.config} -J gate -S {mfa.socket} login" in text


def test_profile_with_a_master_gets_its_client() -> None:
    assert isinstance(connect(Access("login", master="auto")), MasterClient)


def test_without_paramiko_both_ways_say_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    with pytest.raises(JobspecError) as of_ssh:
        ssh._read_config(tmp_path / "config")
    with pytest.raises(JobspecError) as of_master, MasterClient("login")._sftp():
        pass
    assert of_ssh.value.findings == of_master.value.findings
    assert of_ssh.value.findings[0].rule == "launch.no-paramiko"
