"""A cluster behind SSH: submitted, followed and judged from a machine that shares no folder with it.

sshd runs on the login node; jobspec runs there as well but with a home of its own and by the SSH profile
alone, so that everything it knows about the cluster came over the connection.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.sshd_kit import HAS_SSHD, SSHD
from tests.slurm.lab import Lab, await_true, profile_text

PORT = 2222
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(not HAS_SSHD, reason="needs sshd (Debian: openssh-server)"),
]


class Remote:
    """jobspec as a laptop has it: home, SSH configuration and site profile, nothing else."""

    def __init__(self, lab: Lab, home: Path) -> None:
        self.lab, self.home = lab, home
        ssh = home / ".ssh"
        ssh.mkdir(mode=0o700, parents=True)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / name)], check=True)
        kind, text = (ssh / "host.pub").read_text().split()[:2]
        (ssh / "known_hosts").write_text(f"[127.0.0.1]:{PORT} {kind} {text}\n")
        (ssh / "config").write_text(
            f"Host lab-login\n  HostName 127.0.0.1\n  Port {PORT}\n  User root\n"
            f"  IdentityFile {ssh / 'user'}\n  UserKnownHostsFile {ssh / 'known_hosts'}\n"
        )
        (home / "sshd_config").write_text(
            f"Port {PORT}\nListenAddress 127.0.0.1\nHostKey {ssh / 'host'}\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {ssh / 'user.pub'}\nStrictModes no\nSubsystem sftp internal-sftp\n"
        )
        self.profile = home / "lab-remote.yaml"
        self.profile.write_text(profile_text(lab.cluster, "lab-remote") + "access: {login: lab-login}\n")

    def jobspec(self, *argv: object, timeout: float = 240.0) -> subprocess.CompletedProcess[str]:
        env = {"HOME": str(self.home), "JOBSPEC_CLUSTERS": str(self.profile), "JOBSPEC_CLUSTER": "lab-remote"}
        return self.lab.cluster.run("ctl", ["jobspec", *map(str, argv)], env=env, timeout=timeout)


@pytest.fixture
def remote(lab: Lab, tmp_shared: Path) -> Iterator[Remote]:
    made = Remote(lab, tmp_shared / "home")
    start = f"mkdir -p /run/sshd && exec {SSHD} -D -e -f {made.home / 'sshd_config'}"
    server = lab.cluster.popen("ctl", ["sh", "-c", start])
    try:
        probe = ["bash", "-c", f": < /dev/tcp/127.0.0.1/{PORT}"]
        await_true(lambda: lab.cluster.run("ctl", probe).returncode == 0, "sshd to listen", 60)
        yield made
    finally:
        os.killpg(server.pid, signal.SIGTERM)  # nsenter forks: the daemon is its child
        server.communicate(timeout=60)


def test_run_over_ssh_is_uploaded_followed_and_judged(lab: Lab, remote: Remote) -> None:
    spec = lab.command_spec("faraway", ["bash", "-c", "echo hello from $(hostname)"], nodes=2)
    done = remote.jobspec("run", spec)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout
    row = json.loads(remote.jobspec("status", "last", "--json").stdout)[0]
    assert row["state"] == "COMPLETED"
    here, there = Path(row["run_dir"]), lab.runs / "faraway" / row["run_id"]
    assert here.is_relative_to(remote.home), "the copy is ours"
    assert (there / "attempts/1/results.json").is_file(), "the run is the cluster's"
    assert f"JOBSPEC_RUN_DIR={there}" in (here / "job.sbatch").read_text()
    assert "hello from n1" in remote.jobspec("logs", "last").stdout


def test_run_goes_over_the_users_own_master(lab: Lab, remote: Remote) -> None:
    """A site with a second factor: nobody is let in again, and the run needs nobody to be."""
    sock, keys = Path("/tmp/jobspec-master"), remote.home / ".ssh/user.pub"  # of the login node; short
    profile = remote.profile.read_text().replace("lab-login}", f"lab-login, master: {sock}}}")
    remote.profile.write_text(profile)
    words = f"ssh -fNM -F {remote.home}/.ssh/config -S {sock} lab-login"
    spec = lab.command_spec("factor", ["bash", "-c", "echo hello from $(hostname)"], nodes=2)
    refused = remote.jobspec("run", spec)
    assert refused.returncode == 2
    assert f"run `ssh -fNM -S {sock} lab-login`" in refused.stderr
    # The master goes on in the background, and would keep the ends of pipes.
    lab.cluster.run("ctl", ["sh", "-c", f"{words} >/dev/null 2>&1"])
    keys.write_text("")
    try:
        done = remote.jobspec("run", spec)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "PASS" in done.stdout
        assert "hello from n1" in remote.jobspec("logs", "last").stdout
    finally:
        lab.cluster.run("ctl", ["ssh", "-S", str(sock), "-O", "exit", "lab-login"])


def test_job_over_ssh_is_entered_and_cancelled(lab: Lab, remote: Remote) -> None:
    spec = lab.command_spec("faraway", ["bash", "-c", "echo up; sleep 600"], nodes=2)
    submitted = remote.jobspec("submit", spec, "--json")
    assert submitted.returncode == 0, submitted.stderr
    run = json.loads(submitted.stdout)
    lab.await_phase(str(lab.runs / "faraway" / run["run_id"]), "driver")
    inside = remote.jobspec("exec", "last", "--node", "n2", "--", "hostname")
    assert inside.stdout.strip() == "n2", inside.stderr
    assert remote.jobspec("cancel", "last").returncode == 0
    assert lab.await_end(run["job_id"], timeout=60)[0] == "CANCELLED"
    assert json.loads(remote.jobspec("status", "last", "--json").stdout)[0]["state"] == "CANCELLED"
