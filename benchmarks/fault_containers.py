"""The rows of `benchmarks/faults.py` about containers of Pyxis: images, mounts, starts, left-overs.

They run one after another on the first two nodes, since some need a node that is unlike the other.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fault_acts import Trial, finish, jobspec_cancel, no_act, power, scancel
from benchmarks.fault_rows import CANCEL, LOST, Row
from tests.slurm import rootfs
from tests.slurm.lab import Lab
from tests.slurm.machine import CACHE

CONTAINERS = "ls -d /tmp/enroot-*/data/pyxis_jobspec-*"  # on the test cluster's nodes, of any user
ROOT, PLAIN = "lab-pyxis-root", "lab-pyxis-plain"  # site profiles with and without `remap_root`
# As `enroot import` writes /etc/rc for a Docker image with `ENTRYPOINT ["false"]`: src/docker.sh of 4.1.2.
IMPORTED_RC = """\
mkdir -p "/" 2> /dev/null
cd "/" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec 'false' "$@"
else
    exec 'false'
fi
"""
CLOSED = "cp {image} /tmp/closed.sqsh; test $(uname -n) = ctl || chmod 600 /tmp/closed.sqsh"
KILL = ("--signal=KILL", "--full")


def make_images(lab: Lab) -> None:
    """Images that are wrong in one way each, beside the whole one."""
    folder, root = lab.shared / "images", rootfs.make_rootfs(CACHE)
    folder.mkdir()
    (folder / "cut.sqsh").write_bytes(Path(lab.image("pyxis")).read_bytes()[: 4 << 20])
    (folder / "text.sqsh").write_text("<html>the page of a proxy</html>\n")
    for name in ("empty", "shell"):
        (folder / name / "etc").mkdir(parents=True)
    for name in ("bin/dash", "lib/x86_64-linux-gnu/libc.so.6", "lib64/ld-linux-x86-64.so.2"):
        target = folder / "shell" / name.replace("dash", "sh")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((root / name).read_bytes())
        target.chmod(0o755)
    _squash(folder / "shell", folder / "shell.sqsh")
    _squash(folder / "empty", folder / "empty.sqsh")
    for name, text in {"entry": IMPORTED_RC, "rc": "exit 7"}.items():
        (folder / f"{name}.rc").write_text(text)
        made = f"etc/rc f 755 0 0 cat {folder}/{name}.rc"
        _squash(root, folder / f"{name}.sqsh", "-p", made, "-e", "usr/share", "usr/lib/gcc", "usr/include")
    lab.add_profile(ROOT, "pyxis", remap_root=True)
    lab.add_profile(PLAIN, "pyxis", remap_root=False)


def _squash(root: Path, image: Path, *more: str) -> None:
    argv = ["mksquashfs", str(root), str(image), "-all-root", "-comp", "zstd", "-Xcompression-level", "1"]
    subprocess.run([*argv, *more], check=True, capture_output=True)


def container(image: str = "", mount: str = "", python: str = "") -> Callable[[Lab], dict[str, Any]]:
    """The section of the spec: another image, one more mount, another Python."""

    def section(lab: Lab) -> dict[str, Any]:
        found = lab.container("pyxis")
        if image:
            found["image"] = image if image.startswith("/") else f"{lab.shared}/images/{image}"
        if mount:
            found["mounts"].append({"source": mount, "target": mount, "read_only": True})
        return {**found, "python": python or found["python"]}

    return section


def container_rows() -> Iterator[Row]:
    """Where one of the two nodes is at fault, the cause names it."""

    def row(fault: str, moment: str, act: Any, state: str, cause: str, image: str = "", mount: str = "",
            python: str = "", **more: Any) -> Row:  # fmt: skip
        more = {"kept": False, "cluster": "lab-pyxis", "alone": True, **more}
        made = container(image, mount, python)
        return Row(f"container: {fault}", moment, act, state, cause, container=made, **more)

    def bad(fault: str, cause: str, **more: Any) -> Row:
        return row(fault, "start", no_act, "FAILED", cause, **more)

    none = on_nodes("cp {image} /tmp/none.sqsh", "rm -f /tmp/none.sqsh", "ctl")  # or it is not submitted
    yield bad("image missing", r"No such file.*none\.sqsh", image="/tmp/none.sqsh", before=none)
    yield bad("image cut off", r"damaged|corrupt|cut off", image="cut.sqsh")
    yield bad("image is a text", r"text\.sqsh", image="text.sqsh")
    closed = on_nodes(CLOSED, "rm -f /tmp/closed.sqsh", "n1", "n2", "ctl")
    yield bad("image not readable", r"closed\.sqsh", image="/tmp/closed.sqsh", user="alice", before=closed)
    yield bad(
        "node disk too small for it", r"No space left", before=on_nodes(SMALL, "umount -l /tmp/enroot-0")
    )
    here = on_nodes("cp {image} /tmp/here.sqsh", "rm -f /tmp/here.sqsh", "n1", "ctl")
    yield bad(
        "image on one node only",
        r"n2.*/tmp/here\.sqsh|/tmp/here\.sqsh.*n2",
        image="/tmp/here.sqsh",
        before=here,
    )
    only = on_nodes("mkdir -p /tmp/only", "rmdir /tmp/only")
    yield bad("mount missing on one node", r"n2.*/tmp/only|/tmp/only.*n2", mount="/tmp/only", before=only)
    yield bad("no Python in it", r"python3", image="shell.sqsh", python="python3")
    yield bad("no shell in it", r"/bin/sh", image="empty.sqsh")
    well = ("training", finish, "COMPLETED", "^$")
    yield bad("start script that exits", r"error code: 7", image="rc.sqsh")
    yield row("entry point that exits", *well, image="entry.sqsh", kept=True)
    yield row("root for a plain user", *well, user="alice", cluster=ROOT, kept=True)
    yield row("a plain user", *well, user="alice", cluster=PLAIN, kept=True)
    yield row("/etc/passwd read-only", *well, mount="/etc/passwd", kept=True)
    yield row("scancel", "unpacking", scancel(), "CANCELLED", CANCEL)
    yield row(
        "scancel --full --signal=KILL", "unpacking", scancel(*KILL), "CANCELLED|FAILED", r"cancel|[Kk]illed"
    )
    yield row("jobspec cancel", "unpacking", jobspec_cancel, "CANCELLED", CANCEL)
    yield row("worker without power", "unpacking", power("worker"), "FAILED|NODE_FAIL", r"{worker}")
    again = {"launch": {"requeue": {"max_attempts": 2}}}
    yield row("requeued", "unpacking", requeue_then_finish, "COMPLETED", "^$", extra=again, kept=True)
    yield row("worker without power", "training", power("worker"), "FAILED", LOST, kept=True)
    yield row("scancel", "training", scancel(), "CANCELLED", CANCEL, kept=True)
    yield row(
        "scancel --full --signal=KILL", "training", scancel(*KILL), "CANCELLED|FAILED", r"cancel|[Kk]illed"
    )


def requeue_then_finish(trial: Trial) -> None:
    trial.lab.slurm("scontrol", "requeue", trial.job)
    finish(trial)


SMALL = "mkdir -p -m 700 /tmp/enroot-0 && mount -t tmpfs -o size=100m tmpfs /tmp/enroot-0"


def on_nodes(command: str, undo: str, *nodes: str) -> Callable[[Lab], Callable[[], object]]:
    """The first node is made unlike the second, or those that are named."""

    def everywhere(lab: Lab, text: str) -> None:
        for node in nodes or ("n1",):
            done = lab.cluster.run(node, ["sh", "-c", text])
            assert done.returncode == 0, done.stderr

    def before(lab: Lab) -> Callable[[], object]:
        everywhere(lab, command.format(image=lab.image("pyxis")))
        return lambda: everywhere(lab, undo)

    return before


def left_containers(lab: Lab, nodes: Sequence[str], run_id: str = "") -> Iterator[str]:
    """Root file systems of a run's containers, or of any run's."""
    for node in nodes:
        if not lab.cluster.alive(node):
            continue
        found = lab.cluster.run(node, ["sh", "-c", CONTAINERS]).stdout.splitlines()
        if any(run_id in line for line in found):
            yield f"container on {node}"
