"""The SSH client against a real sshd on loopback with its own keys and port."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest

from jobspec.finding import JobspecError
from jobspec.launchers.access import ssh, transfer
from jobspec.launchers.access.ssh import SshClient
from tests.kits.lock_kit import await_waiting_for_lock
from tests.kits.sshd_kit import HAS_SSHD, Server, free_port

pytestmark = pytest.mark.skipif(
    not HAS_SSHD, reason="needs sshd and ssh-keygen (Debian: openssh-server, openssh-client)"
)


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if os.geteuid() != 0:
        pytest.skip("sshd needs root for its privilege separation")
    server = Server(tmp_path_factory.mktemp("sshd") / "server")
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def as_it_was(sshd: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    sshd.trust("host")
    sshd.configure()


def test_command_gives_both_streams_and_its_exit_code(sshd: Server) -> None:
    done = sshd.client().run(["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (done.code, done.stdout, done.stderr.strip().splitlines()[-1]) == (7, "out\n", "err")


@pytest.mark.parametrize("word", ["a b", "$(id)", "`id`", "'", '"', "\n", "*", "-n", "é", ""])
def test_words_arrive_as_they_are(sshd: Server, word: str) -> None:
    assert sshd.client().run(["printf", "%s|", word]).stdout == f"{word}|"


def test_secret_arrives_and_stands_in_no_argument_list(sshd: Server) -> None:
    script = 'echo "$TOKEN"; cat /proc/[0-9]*/cmdline | tr "\\0" " "'
    done = sshd.client().run(["sh", "-c", script], {"TOKEN": "t0p secret$"})
    first, _, arguments = done.stdout.partition("\n")
    assert first == "t0p secret$"
    assert "t0p secret" not in arguments


def test_large_output_on_both_streams_does_not_hang(sshd: Server) -> None:
    done = sshd.client().run(
        ["sh", "-c", "yes x | head -c 3000000; yes y | head -c 3000000 >&2"], timeout_s=60
    )
    assert (done.code, len(done.stdout)) == (0, 3_000_000)
    assert done.stderr.count("y") == 1_500_000


def test_command_that_hangs_is_given_up(sshd: Server) -> None:
    done = sshd.client().run(["sleep", "600"], timeout_s=0.5)
    assert (done.code, done.timed_out) == (124, True)


def test_missing_program_names_the_host(sshd: Server) -> None:
    with pytest.raises(JobspecError, match="`sbatch-of-nowhere` was not found on `login`"):
        sshd.client().run(["sbatch-of-nowhere"])


def test_folder_arrives_whole_with_its_modes(sshd: Server, tmp_path: Path) -> None:
    source, target = tmp_path / "run", tmp_path / "remote" / "runs" / "demo" / "id"
    (source / "points" / "0").mkdir(parents=True)
    (source / "job.sbatch").write_bytes(b"\x00\xff binary\n")
    (source / "points" / "0" / "plan.json").write_text("{}")
    (source / "job.sbatch").chmod(0o755)
    client = sshd.client()
    client.upload(source, str(target))
    assert (target / "job.sbatch").read_bytes() == b"\x00\xff binary\n"
    assert (target / "job.sbatch").stat().st_mode & 0o777 == 0o755
    assert (target / "points" / "0" / "plan.json").read_text() == "{}"
    assert [path.name for path in target.parent.iterdir()] == ["id"], "no partial copy is left"
    (target / "written-by-the-job").write_text("x")
    client.upload(source, str(target))
    assert (target / "written-by-the-job").exists(), "a second upload touches nothing"


def test_growing_files_are_continued_and_others_replaced(sshd: Server, tmp_path: Path) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"
    (remote / "attempts" / "1").mkdir(parents=True)
    events, results = remote / "attempts" / "1" / "events.jsonl", remote / "attempts" / "1" / "results.json"
    events.write_text("one\n")
    results.write_text("{}")
    client = sshd.client()
    client.download(str(remote), local)
    (local / "attempts" / "1" / "events.jsonl").write_text("ONE\n")  # to see that it is not fetched again
    with events.open("a") as file:
        file.write("two\n")
    results.write_text('{"outcome": "ok"}')
    client.download(str(remote), local)
    assert (local / "attempts" / "1" / "events.jsonl").read_text() == "ONE\ntwo\n"
    assert (local / "attempts" / "1" / "results.json").read_text() == '{"outcome": "ok"}'


def test_folder_that_cannot_be_written_is_a_finding(sshd: Server, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(JobspecError) as caught:
        sshd.client().upload(tmp_path / "run", str(tmp_path / "file" / "below"))
    assert "paths.runs" in caught.value.findings[0].fix


def test_unknown_host_key_is_refused(sshd: Server) -> None:
    sshd.known_hosts.write_text("")
    with pytest.raises(JobspecError) as caught:
        sshd.client().run(["true"])
    assert caught.value.findings[0].rule == "launch.ssh-unknown-host"


def test_changed_host_key_is_refused(sshd: Server) -> None:
    sshd.trust("stranger")
    with pytest.raises(JobspecError) as caught:
        sshd.client().run(["true"])
    assert caught.value.findings[0].rule == "launch.ssh-host-key"


def test_wrong_key_is_a_finding(sshd: Server) -> None:
    sshd.configure(key="stranger")
    with pytest.raises(JobspecError) as caught:
        sshd.client().run(["true"])
    assert caught.value.findings[0].rule == "launch.ssh-auth"
    assert "ssh-add" in caught.value.findings[0].fix


def test_closed_port_is_a_finding(sshd: Server) -> None:
    sshd.config.write_text(f"Host login\n  HostName 127.0.0.1\n  Port {free_port()}\n")
    with pytest.raises(JobspecError) as caught:
        sshd.client().reach()
    assert caught.value.findings[0].rule == "launch.ssh"


def test_name_that_does_not_exist_is_a_finding(sshd: Server) -> None:
    with pytest.raises(JobspecError, match="cannot be resolved"):
        SshClient("no-such-host.invalid", config=sshd.config).run(["true"])


@pytest.mark.parametrize("how", ["argument", "config"])
def test_jump_host_is_passed_through(sshd: Server, how: str) -> None:
    """Two logins: `SSH_CONNECTION` of the second one comes from the first one's machine."""
    if how == "config":
        sshd.configure(more="  ProxyJump gate\n")
    client = sshd.client(jump="gate" if how == "argument" else "")
    assert client.run(["echo", "there"]).stdout == "there\n"
    assert len(client._connections) == 2


def test_one_connection_serves_many_commands(sshd: Server) -> None:
    client = sshd.client()
    client.reach()
    assert len(client._connections) == 1, "before a command's limit begins"
    for number in range(5):
        assert client.run(["echo", str(number)]).stdout == f"{number}\n"
    assert len(client._connections) == 1
    client.close()


def test_file_and_folder_that_vanish_are_left_out(
    sshd: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job replaces its files by renaming others, and its programs remove folders."""
    remote, local = tmp_path / "remote", tmp_path / "local"
    (remote / "folder").mkdir(parents=True)
    for name in (".results.json.1", "results.json"):
        (remote / name).write_text("{}")
    listed = paramiko.SFTPClient.listdir_attr

    def list_then_remove(sftp: paramiko.SFTPClient, path: str = ".") -> list[paramiko.SFTPAttributes]:
        entries = listed(sftp, path)
        if path == str(remote):
            (remote / ".results.json.1").unlink()
            (remote / "folder").rmdir()
        return entries

    monkeypatch.setattr(paramiko.SFTPClient, "listdir_attr", list_then_remove)
    sshd.client().download(str(remote), local)
    assert [path.name for path in local.iterdir()] == ["results.json"]


def test_two_downloads_at_once_bring_every_line_once(
    sshd: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"
    remote.mkdir()
    (remote / "events.jsonl").write_text("one\n")
    first, second = sshd.client(), sshd.client()
    first.download(str(remote), local)
    (remote / "events.jsonl").write_text("one\ntwo\n")
    other = threading.Thread(target=second.download, args=(str(remote), local))
    fetch = transfer._fetch

    def slow(*args: Any) -> None:
        if not other.ident:
            other.start()
            await_waiting_for_lock()
        fetch(*args)

    monkeypatch.setattr(transfer, "_fetch", slow)
    first.download(str(remote), local)
    other.join(60)
    assert (local / "events.jsonl").read_text() == "one\ntwo\n"


def test_log_that_grows_is_fetched_in_pieces_up_to_where_it_was_listed(
    sshd: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, local = tmp_path / "job.log", tmp_path / "local.log"
    text = bytes(range(256)) * 5000
    remote.write_bytes(text)
    local.write_bytes(text[:1000])
    asked: list[int] = []
    read = paramiko.SFTPFile.read

    def noted(file: Any, size: int | None = None) -> bytes:
        asked.append(1 << 40 if size is None else size)
        return read(file, size)

    monkeypatch.setattr(paramiko.SFTPFile, "read", noted)
    with sshd.client()._sftp() as sftp:
        listed = sftp.stat(str(remote))
        remote.write_bytes(text + b"and more, for ever")
        transfer._fetch(sftp, str(remote), listed, local)
    assert local.read_bytes() == text
    assert len(asked) > 4 and max(asked) <= transfer.PIECE


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("Authentication failed.", "launch.ssh-auth"),
        ("Authentication failed: transport shut down or saw EOF", "launch.ssh"),
        ("Authentication timeout.", "launch.ssh"),
    ],
)
def test_connection_that_ends_at_login_is_no_refused_login(said: str, rule: str) -> None:
    told = ssh._refused("login", paramiko.AuthenticationException(said))
    assert [(finding.rule, finding.why) for finding in told.findings] == [(rule, said)]


def test_lost_connection_is_a_finding_and_opened_anew(sshd: Server) -> None:
    client = sshd.client()
    client.run(["true"])
    client._transport().sock.close()
    with pytest.raises(JobspecError, match="was lost"):
        client.run(["true"])
    assert client.run(["echo", "again"]).stdout == "again\n"


def test_connection_lost_under_a_command_tells_nothing_of_it(sshd: Server) -> None:
    """No exit code: a job may have been accepted, so this must not look like a refusal."""
    client = sshd.client()
    with pytest.raises(JobspecError, match="was lost"):
        client.run(["sh", "-c", "kill -KILL $PPID"], timeout_s=600)
