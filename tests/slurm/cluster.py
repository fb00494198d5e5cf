"""A real Slurm cluster on one machine: munge, slurmctld, slurmd and, if wanted, slurmdbd with MariaDB.

Each node lives in network, uts, ipc, mount and pid namespaces of its own: own host name, own address and
ports, own /tmp. `ctl` is the login node and runs the controllers. One folder, `shared`, is the same
everywhere. SIGKILL of a node's PID 1, its link down before, is a power failure. Root on Debian 12; nothing
outside is touched but /tmp/jobspec-lab-ID and cgroup folders of that name, which `stop` removes.

    python -m tests.slurm.cluster start [--nodes 4] [--accounting none|slurmdbd] [--gpus N]
    python -m tests.slurm.cluster in ctl sinfo          (--user alice: as the unprivileged user)
    python -m tests.slurm.cluster kill n3; python -m tests.slurm.cluster revive n3
    python -m tests.slurm.cluster status; python -m tests.slurm.cluster stop
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.slurm import cluster_files as files
from tests.slurm.cluster_files import ALICE, Options, address, hardware_address, node_names
from tests.slurm.machine import (
    CHECKOUT,
    Process,
    alone,
    cgroup_folders,
    children,
    closed_ancestors,
    missing,
    prepare_database,
    pyxis,
    read_only_paths,
    remove_cgroup,
    slurm_of,
)

INIT = Path(__file__).resolve().with_name("node-init.sh")
STAND_IN = INIT.with_name("stand_in_pyxis.py")
LAB_PREFIX = "jobspec-lab-"  # short, below /tmp: socket paths end at 107 bytes
START_TIMEOUT_S = 60.0


class ClusterError(Exception):
    """The cluster did not come up or a command could not be started; the text says what was seen."""


class Cluster:
    """One cluster of this checkout. `name` keeps several apart (`dev` for `make cluster`)."""

    def __init__(self, name: str = "dev", options: Options | None = None, owned: bool = False) -> None:
        """`owned`: it belongs to this process, so `sweep` may remove it once the process is gone."""
        digest = hashlib.sha256(f"{CHECKOUT}\0{name}\0{os.geteuid()}".encode()).hexdigest()[:6]
        self.name = name
        self.lab = Path("/tmp") / f"{LAB_PREFIX}{digest}"
        self.shared = self.lab / "shared"
        self.options = options or Options()
        self._owner = Process.of(os.getpid()) if owned else None
        self._spawned: list[subprocess.Popen[str]] = []
        self._processes: dict[str, Process] = {}
        if (self.lab / "state.json").exists():
            self._load()

    # state

    def _load(self) -> None:
        data = json.loads((self.lab / "state.json").read_text())
        self.options = Options(**data["options"])
        self._processes = {name: Process(**process) for name, process in data["processes"].items()}

    def _save(self) -> None:
        processes = {name: dataclasses.asdict(process) for name, process in self._processes.items()}
        owner = dataclasses.asdict(self._owner) if self._owner else None
        data = {"name": self.name, "checkout": str(CHECKOUT), "owner": owner, "processes": processes}
        data["options"] = dataclasses.asdict(self.options)
        whole = self.lab / "state.new"  # `sweep` of another process may read at any time
        whole.write_text(json.dumps(data, indent=1))
        whole.replace(self.lab / "state.json")

    @staticmethod
    def sweep() -> None:
        """Remove what killed test sessions of this checkout left behind. Two processes may do so at once."""
        with alone("sweep"):
            for state in Path("/tmp").glob(f"{LAB_PREFIX}*/state.json"):
                try:
                    data = json.loads(state.read_text())
                except FileNotFoundError:  # its owner has just ended it
                    continue
                owner = data.get("owner")
                if data.get("checkout") == str(CHECKOUT) and owner and not Process(**owner).alive():
                    Cluster(data["name"]).stop()

    def alive(self, node: str = "ctl") -> bool:
        return node in self._processes and self._processes[node].alive()

    @property
    def nodes(self) -> list[str]:
        return node_names(self.options)

    def cgroups(self) -> list[tuple[str, Path]]:
        return cgroup_folders(self.lab, self.options.own_freezer)

    # life

    def start(self) -> None:
        """Bring everything up; returns when Slurm says that all nodes are idle.

        Raises: ClusterError with the daemons' last lines.
        """
        if self.alive():
            return
        if reason := missing(self.options.accounting == "slurmdbd", self.options.release):
            raise ClusterError(reason)
        self.stop()
        self._write_files()
        try:
            self._spawn("ctl")
            for node in self.nodes:
                self._spawn(node)
            self._await("all nodes idle", self._all_idle)
        except BaseException:
            self.stop(keep_logs=True)
            raise

    def stop(self, keep_logs: bool = False) -> None:
        """End every process of the cluster and remove its folder and cgroups. Idempotent."""
        for process in self._processes.values():
            if process.alive():
                os.kill(process.pid, signal.SIGKILL)
        for name, process in self._processes.items():
            self._await(f"{name} to end", lambda p=process: not p.alive())  # type: ignore[misc]
        for spawned in self._spawned:
            spawned.wait(timeout=START_TIMEOUT_S)
        self._spawned.clear()
        self._processes.clear()
        for _, folder in self.cgroups():
            remove_cgroup(folder)
        if os.path.ismount(self.lab / "freezer"):
            subprocess.run(["umount", str(self.lab / "freezer")], check=True)
        if not keep_logs and self.lab.exists():
            shutil.rmtree(self.lab)
        elif self.lab.exists():
            (self.lab / "state.json").unlink(missing_ok=True)

    def link(self, node: str, up: bool) -> None:
        """Cut the node's cable, or put it back."""
        _ip(self._processes["ctl"].pid, f"link set v{node} {'up' if up else 'down'}")

    def kill(self, node: str, silently: bool = False) -> None:
        """Every process of the node dies at once. `silently`: as without power, no connection is closed."""
        if silently:
            self.link(node, up=False)
        process = self._processes[node]
        os.kill(process.pid, signal.SIGKILL)
        self._await(f"{node} to end", lambda: not process.alive())

    def revive(self, node: str) -> None:
        """Start a killed node again and wait until Slurm has it back."""
        if self.alive(node):
            raise ClusterError(f"{node} is alive")
        self._spawn(node)
        self._await(
            f"{node} to be back", lambda: self._states().get(node, "").startswith(("idle", "mix", "alloc"))
        )

    # commands

    def command(
        self,
        node: str,
        argv: Sequence[str],
        user: str = "root",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[str]:
        """The argv that runs `argv` on `node` with a clean environment, entered from this machine."""
        if not self.alive(node):
            raise ClusterError(f"{node} is not running; start the cluster with `make cluster`")
        home = self.shared / "home" / user
        variables = {
            "PATH": f"{Path(sys.prefix) / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(home),
            "USER": user,
            "LOGNAME": user,
            "LANG": "C.UTF-8",
            "JOBSPEC_CLUSTERS": str(self.shared / "clusters"),
            **(env or {}),
        }
        enter = ["nsenter", "--target", str(self._processes[node].pid), "-m", "-u", "-i", "-n", "-p"]
        enter += [f"--wdns={cwd or home}"]
        drop = (
            ["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups"] if user == "alice" else []
        )
        return [*enter, *drop, "env", "-i", *(f"{k}={v}" for k, v in variables.items()), *argv]

    def run(
        self,
        node: str,
        argv: Sequence[str],
        *,
        user: str = "root",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node. A client of a broken Slurm waits for ever: `timeout` is in seconds."""
        process = self.popen(node, argv, user=user, cwd=cwd, env=env)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise ClusterError(
                f"{' '.join(argv)} took over {timeout} s\n{out[-2000:]}\n{err[-2000:]}"
            ) from None
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def popen(self, node: str, argv: Sequence[str], **how: object) -> subprocess.Popen[str]:
        """Like `run` without waiting; in a process group of its own."""
        command = self.command(node, argv, **how)  # type: ignore[arg-type]
        return subprocess.Popen(
            command,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # A shell that starts the tests in its background has them, and all below, ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def processes(self, node: str) -> list[str]:
        """Command lines of every process on `node` but its daemons."""
        listing = self.run(node, ["ps", "-eo", "pid=,args="]).stdout.splitlines()
        daemons = ("bash " + str(INIT), "slurmd", "sleep infinity", "ps -eo")
        rows = [line.strip().split(" ", 1)[1] for line in listing]
        return [row for row in rows if not row.startswith(daemons) and "<defunct>" not in row]

    # inside

    def _write_files(self) -> None:
        lab, options = self.lab, self.options
        lab.mkdir(mode=0o755)
        for folder in ("etc/slurm", "munge", "state", "log", "dev", "shared/home/root", "shared/home/alice"):
            (lab / folder).mkdir(parents=True)
        os.chown(lab / "shared/home/alice", ALICE, ALICE)
        (lab / "shared").chmod(0o1777)
        folders = self.cgroups()
        if folders[0][1].is_relative_to(lab):
            (lab / "freezer").mkdir()
            subprocess.run(
                ["mount", "-t", "cgroup", "-o", "freezer", "freezer", str(lab / "freezer")], check=True
            )
        self.limits_memory = len(folders) > 1
        etc, slurm = lab / "etc", lab / "etc/slurm"
        _write(slurm / "slurm.conf", files.slurm_conf(lab, options, self.limits_memory))
        _write(slurm / "cgroup.conf", files.cgroup_conf(self.limits_memory))
        _write(slurm / "oci.conf", files.oci_conf(lab))
        _write(etc / "epilog", f"#!/bin/sh\n[ ! -e {files.SICK} ]\n", 0o755)
        self._write_pyxis()
        if options.gpus:
            _write(slurm / "gres.conf", files.gres_conf(lab, options))
            for index in range(options.gpus):
                os.mknod(lab / f"dev/nvidia{index}", 0o20666, os.makedev(1, 3))
        if options.accounting == "slurmdbd":
            _write(slurm / "slurmdbd.conf", files.slurmdbd_conf(lab), 0o600)
            _write(etc / "mysql-init.sql", files.mysql_init())
            prepare_database(lab / "mysql")
        _write(etc / "hosts", files.hosts(options))
        _write(etc / "passwd", files.passwd(Path("/etc/passwd").read_text(), lab / "shared/home"))
        _write(etc / "group", files.group(Path("/etc/group").read_text()))
        _write(etc / "resolv.conf", "nameserver 127.0.0.1\n")  # no DNS: fail at once, not after 20 s
        visible = read_only_paths()
        _write(etc / "read_only", "".join(f"{path}\n" for path in visible))
        _write(etc / "hidden", "".join(f"{path}\n" for path in closed_ancestors([*visible, lab])))
        _write(etc / "slurm_usr", f"{slurm_of(options.release)}\n" if options.release else "")
        _write(etc / "cgroups", "".join(f"{name} {folder}\n" for name, folder in folders))
        (lab / "munge/key").write_bytes(os.urandom(128))
        (lab / "munge/key").chmod(0o400)

    def _write_pyxis(self) -> None:
        real, programs = pyxis(self.options.release), self.lab / "programs"
        if real is not None:
            plugin = f"required {real}/lib/slurm/spank_pyxis.so\n"
            _write(self.lab / "etc/slurm/plugstack.conf", plugin)
        else:
            programs.mkdir()
            for name in ("srun", "enroot"):
                _write(programs / name, f'#!/bin/bash\nexec /usr/bin/python3 {STAND_IN} {name} "$@"\n', 0o755)
        _write(self.lab / "etc/programs", f"{real / 'bin' if real else programs}\n")

    def _spawn(self, node: str) -> None:
        with (self.lab / "log" / f"init-{node}.log").open("a") as log:
            spawned = subprocess.Popen(
                [
                    "unshare",
                    "--net",
                    "--uts",
                    "--ipc",
                    "--mount",
                    "--pid",
                    "--fork",
                    "--mount-proc",
                    "--propagation",
                    "private",
                    "--kill-child",
                    "bash",
                    str(INIT),
                    str(self.lab),
                    node,
                    address(node),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
                cwd="/",
            )
        assert spawned.stdin and spawned.stdout
        self._spawned.append(spawned)
        if spawned.stdout.readline() != "ready\n":
            raise ClusterError(f"{node} did not start\n{self._log_tails()}")
        self._processes[node] = Process.of(next(children(spawned.pid)))
        self._save()
        self._connect(node)
        spawned.stdin.close()
        spawned.stdout.close()

    def _connect(self, node: str) -> None:
        ctl, pid = self._processes["ctl"].pid, self._processes[node].pid
        if node == "ctl":
            _ip(ctl, f"link add br0 address {hardware_address(node)} type bridge", "link set br0 up")
            return
        # A killed node's end of the pair may still be there.
        subprocess.run(
            ["nsenter", "-t", str(ctl), "-n", "ip", "link", "del", f"v{node}"],
            capture_output=True,
            check=False,
        )
        # As after a real reboot: with another address others would look for the node in vain for some 9 s.
        peer = f"peer name eth0 address {hardware_address(node)} netns {pid}"
        _ip(ctl, f"link add v{node} type veth {peer}", f"link set v{node} master br0 up")
        _ip(pid, f"addr add {address(node)}/24 dev eth0", "link set eth0 up")

    def _states(self) -> dict[str, str]:
        done = self.run("ctl", ["timeout", "5", "sinfo", "-hN", "-p", "main", "-o", "%N %t"])
        return dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)

    def _all_idle(self) -> bool:
        for node, process in self._processes.items():
            if not process.alive():
                raise ClusterError(f"{node} ended during start\n{self._log_tails()}")
        states = self._states()
        return len(states) == self.options.nodes and set(states.values()) == {"idle"}

    def _await(self, what: str, holds: Callable[[], bool], timeout_s: float = START_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {timeout_s:.0f} s for {what}\n{self._log_tails()}")
            time.sleep(0.05)

    def _log_tails(self) -> str:
        tails = []
        for log in sorted((self.lab / "log").glob("*")):
            lines = log.read_text(errors="replace").splitlines()[-5:]
            tails += [f"{log.name}: {line}" for line in lines]
        return "\n".join(tails)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)


def _ip(pid: int, *commands: str) -> None:
    """`ip` commands in the network namespace of a process."""
    subprocess.run(
        ["nsenter", "-t", str(pid), "-n", "ip", "-batch", "-"],
        input="\n".join(commands),
        text=True,
        check=True,
        capture_output=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--name", default=os.environ.get("JOBSPEC_LAB", "dev"), help="several clusters of one checkout"
    )
    actions = parser.add_subparsers(dest="action", required=True)
    start = actions.add_parser("start")
    start.add_argument("--nodes", type=int, default=4)
    start.add_argument("--accounting", choices=["none", "slurmdbd"], default="slurmdbd")
    start.add_argument("--preemption", choices=["none", "partition"], default="partition")
    start.add_argument("--gpus", type=int, default=0, help="GPUs per node that Slurm counts (there are none)")
    start.add_argument("--whole-nodes", action="store_true", help="a job gets all of a node")
    actions.add_parser("stop")
    actions.add_parser("status")
    for action in ("kill", "revive"):
        actions.add_parser(action).add_argument("node")
    inside = actions.add_parser("in")
    inside.add_argument("--user", choices=["root", "alice"], default="root")
    inside.add_argument("node")
    inside.add_argument("argv", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    try:
        return _act(args)
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1


def _act(args: argparse.Namespace) -> int:
    cluster = Cluster(args.name)
    if args.action == "start":
        if not cluster.alive():
            options = Options(
                args.nodes, args.accounting, args.preemption, args.gpus, whole_nodes=args.whole_nodes
            )
            cluster = Cluster(args.name, options)
        began = time.monotonic()
        cluster.start()
        from tests.slurm.lab import Lab  # imports this module

        Lab(cluster).prepare()
        seconds = time.monotonic() - began
        print(f"{len(cluster.nodes)} nodes up in {seconds:.1f} s; shared folder {cluster.shared}")
    elif args.action == "status":
        for node in ["ctl", *cluster.nodes]:
            print(f"{node:4} {'up' if cluster.alive(node) else 'down'}")
    elif args.action == "in":
        command = cluster.command(args.node, args.argv or ["bash", "-i"], user=args.user)
        return subprocess.run(command, check=False).returncode
    elif args.action == "stop":
        cluster.stop()
    else:
        getattr(cluster, args.action)(args.node)
    return 0


if __name__ == "__main__":
    sys.exit(main())
