"""The configuration files of the test cluster, as text. Pure functions; `cluster.py` writes them.

Source of the less obvious settings: slurm.conf(5), gres.conf(5), cgroup.conf(5), oci.conf(5) of Slurm 22.05,
and what was seen on it; each has its reason beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.slurm.machine import release_wanted

ALICE = 2001  # uid and gid of the unprivileged user that exists only inside the cluster

SICK = "/run/sick"  # a node with this file fails its Epilog

Preemption = Literal["none", "partition"]


@dataclass(frozen=True)
class Options:
    """What a test cluster is like. `gpus` per node are clones of /dev/null: they can only be counted.

    `gpu_types` are given to the nodes by turns; an empty one is none.
    """

    nodes: int = 4
    accounting: Literal["none", "slurmdbd"] = "slurmdbd"
    preemption: Preemption = "partition"
    gpus: int = 0
    cpus: int = 16
    memory_mib: int = 64000
    gpu_types: tuple[str, ...] = ()
    own_freezer: bool = False  # as on a machine with cgroup v2 alone
    whole_nodes: bool = False  # a job gets all of a node, whatever it asks for
    expedite: bool = False  # `--requeue=expedite` is taken; the Epilog fails on a node that has SICK
    release: str = field(default_factory=release_wanted)  # the Debian release whose Slurm it is


def node_names(options: Options) -> list[str]:
    return [f"n{index}" for index in range(1, options.nodes + 1)]


def address(node: str) -> str:
    """IPv4 address in the cluster's own network; it exists in no other network namespace."""
    return "10.77.0.1" if node == "ctl" else f"10.77.0.{10 + int(node[1:])}"


def hardware_address(node: str) -> str:
    """The MAC address of a node, the same each time that it is started."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address(node).split("."))


def slurm_conf(lab: Path, options: Options, limits_memory: bool) -> str:
    """proctrack/cgroup, since proctrack/linuxproc leaves what has left its session (Ray's daemons) behind."""
    lines = [
        "ClusterName=lab",
        "SlurmctldHost=ctl(10.77.0.1)",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        # A requeued job waits for its old credential to expire: 120 s by default, some 15 s with this.
        f"AuthInfo=socket={lab}/munge/socket,cred_expire=10",
        f"StateSaveLocation={lab}/state/slurmctld",
        f"SlurmdSpoolDir={lab}/state/%n",
        f"SlurmctldPidFile={lab}/state/slurmctld.pid",
        f"SlurmdPidFile={lab}/state/%n.pid",
        f"SlurmctldLogFile={lab}/log/slurmctld.log",
        f"SlurmdLogFile={lab}/log/slurmd-%n.log",
        "ProctrackType=proctrack/cgroup",
        f"TaskPlugin=task/{'cgroup' if limits_memory else 'none'}",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=5",
        *_select(options),
        "SlurmdParameters=config_overrides",  # nodes claim more CPUs and memory than this machine has
        "ReturnToService=2",
        "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=2",
        "MpiDefault=none",
        "PrologFlags=Alloc",
        "SlurmctldTimeout=30",
        "SlurmdTimeout=20",
        "KillWait=10",
        "CompleteWait=0",
        "MinJobAge=600",
        "MaxJobCount=20000",
        "MaxArraySize=2001",
    ]
    if options.gpus:
        lines.append("GresTypes=gpu")
    if options.expedite:
        lines += ["SlurmctldParameters=enable_expedited_requeue", f"Epilog={lab}/etc/epilog"]
    if options.accounting == "slurmdbd":
        lines += [
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=ctl",
            f"AccountingStoragePass={lab}/munge/socket",  # clients of slurmdbd ignore AuthInfo
        ]
    if options.preemption == "partition":
        lines += ["PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"]
    everything = ",".join(node_names(options))
    lines += [
        f"NodeName={node} CPUs={options.cpus} RealMemory={options.memory_mib}"
        + (f" Gres=gpu:{_type(options, node, ':')}{options.gpus}" if options.gpus else "")
        + " State=UNKNOWN"
        for node in node_names(options)
    ]
    lines += [
        f"PartitionName=main Nodes={everything} Default=YES MaxTime=INFINITE State=UP PriorityTier=10",
        f"PartitionName=low Nodes={everything} MaxTime=INFINITE State=UP PriorityTier=1",
        f"PartitionName=high Nodes={everything} MaxTime=INFINITE State=UP PriorityTier=100"
        + (" PreemptMode=OFF" if options.preemption == "partition" else ""),
    ]
    return "\n".join(lines) + "\n"


def _select(options: Options) -> list[str]:
    if options.whole_nodes:
        return ["SelectType=select/linear", "SelectTypeParameters=CR_Memory"]
    return ["SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU_Memory", "DefMemPerNode=12000"]


def slurmdbd_conf(lab: Path) -> str:
    return f"""\
DbdHost=ctl
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={lab}/munge/socket
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
LogFile={lab}/log/slurmdbd.log
PidFile={lab}/state/slurmdbd.pid
"""


def mysql_init() -> str:
    """The database listens on loopback of the cluster's own network namespace only."""
    return """\
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';
CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED BY 'slurm';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';
"""


def cgroup_conf(limits_memory: bool) -> str:
    """ConstrainRAMSpace is what makes a real out-of-memory kill."""
    constrain = "yes" if limits_memory else "no"
    return f"""\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainRAMSpace={constrain}
"""


def gres_conf(lab: Path, options: Options) -> str:
    """One device file per GPU: a bare count leaves the node `inval` in Slurm 22.05.

    Without the flag a step has the variables of all makers, ROCR_VISIBLE_DEVICES among them.
    """
    last = options.gpus - 1
    rows = [
        f"NodeName={node} Name=gpu {_type(options, node, ' ', 'Type=')}Count={options.gpus} "
        f"Flags=nvidia_gpu_env File={lab}/dev/nvidia[0-{last}]\n"
        for node in node_names(options)
    ]
    return "".join(rows)


def _type(options: Options, node: str, behind: str, before: str = "") -> str:
    """The type of a node's GPUs between two texts; empty where they have none."""
    types = options.gpu_types or ("",)
    kind = types[(int(node[1:]) - 1) % len(types)]
    return f"{before}{kind}{behind}" if kind else ""


def oci_conf(lab: Path) -> str:
    """Slurm's OCI support with crun; `%b` is the bundle, `%e` the file with the step's environment."""
    crun = "crun --rootless=false --cgroup-manager=disabled --root=/run/oci/"
    name = "%n.%u.%j.%s.%t"
    return f"""\
CreateEnvFile=true
RunTimeQuery="{crun} state {name}"
RunTimeKill="{crun} kill -a {name}"
RunTimeDelete="{crun} delete --force {name}"
RunTimeRun="{crun} run --bundle %b {name}"
"""


def hosts(options: Options) -> str:
    rows = [("127.0.0.1", "localhost")] + [(address(n), n) for n in ["ctl", *node_names(options)]]
    return "".join(f"{ip} {name}\n" for ip, name in rows)


def passwd(original: str, homes: Path) -> str:
    """The machine's users plus alice; both homes lie on the shared folder, as on a real cluster."""
    kept = [line for line in original.splitlines() if line and not line.startswith(("root:", "alice:"))]
    root = f"root:x:0:0:root:{homes}/root:/bin/bash"
    alice = f"alice:x:{ALICE}:{ALICE}:alice:{homes}/alice:/bin/bash"
    return "\n".join([root, *kept, alice]) + "\n"


def group(original: str) -> str:
    kept = [line for line in original.splitlines() if line and not line.startswith("alice:")]
    return "\n".join([*kept, f"alice:x:{ALICE}:"]) + "\n"
