"""A stand-in for Pyxis and Enroot on the test cluster, where the real ones are not built: `srun`, `enroot`.

It lies before the real srun on each node. A step with `--container-*` runs this file as its task, which
unpacks the image, mounts and becomes the command, as Pyxis 0.24.0 with Enroot 4.1.2 does (`build_pyxis.sh`).
What it keeps of them was seen there, or stands in their sources:

- a name `x` is the folder `pyxis_x` below Enroot's data folder; it stays after the step, and is used again
  without a look at the image; without a name it is `pyxis_JOB.STEP`, and goes with the step
- a folder that is there but half unpacked is taken for whole, and then has no shell
- the container starts by `sh` in the image; without one it does not start
- an image is a path when it begins with `.` or `/`, else a registry's name, and nothing answers here
- `:exec` joins the running container and ignores mounts
- the image's own variables (/etc/environment) win over the job's unless `--container-env` names them; PATH is
  the image's
- the user is in the image's /etc/passwd; `--container-remap-root` makes a plain user root of a user namespace
- the container starts by the image's /etc/rc, which sources /etc/rc.local: that one leaves it before the
  entry point of an imported image; the command begins where it went to
- /tmp and /run are empty and the container's own; the command starts in the user's home, which is made
- a task that does not start ends with 1; its lines name the node, and Enroot's whole log is among them

Not kept: `--container-save`, `--container-unshare`, overlays, several tasks of one node that start at once.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

SRUN = "/run/slurm/srun"  # the real one
OURS = re.compile(r"--(?:no-)?container-([a-z-]+)(?:=(.*))?\Z", re.DOTALL)
BASE = Path(f"/tmp/enroot-{os.getuid()}")
DATA = BASE / "data"
LOCK = ".lock"  # Enroot's mark of a root that is a container
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NEWNS, NEWUSER, BIND, REC, SLAVE, REMOUNT, READ_ONLY, DETACH = (
    0x20000,
    0x10000000,
    4096,
    16384,
    1 << 19,
    32,
    1,
    2,
)
HELP = "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH\n"

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> None:
    given = [word.encode() if isinstance(word, str) else word for word in arguments]
    if getattr(libc, name)(*given) != 0:
        raise OSError(ctypes.get_errno(), f"{name} {arguments}: {os.strerror(ctypes.get_errno())}")


def srun(words: list[str]) -> NoReturn:
    """Options of containers become a task that makes one; everything else is the real srun's."""
    count = next((index for index, word in enumerate(words) if not word.startswith("-")), len(words))
    options = {found[1]: (found[2] or "") if not word.startswith("--no-") else "no"
               for word in words[:count] if (found := OURS.match(word))}  # fmt: skip
    if not options:
        if words == ["--help"]:
            sys.stdout.write(HELP)
            sys.stdout.flush()
        os.execv(SRUN, ["srun", *words])
    rest = [word for word in words[:count] if not OURS.match(word)]
    task = [sys.executable, __file__, "task", json.dumps(options), *words[count:]]
    os.execv(SRUN, ["srun", *rest, *task])


def give_up(*lines: str) -> NoReturn:
    """The lines of Slurm's log in the step's stderr, and the end of the task."""
    plugin = "spank: required plugin spank_pyxis.so: task_init() failed with rc=-1"
    for line in (*(f"pyxis: {line}" for line in lines), plugin, "Failed to invoke spank plugin stack"):
        sys.stderr.write(f"slurmstepd-{os.uname().nodename}: error: {line}\n")
    sys.exit(1)


def not_created(what: str, log: str, code: int = 1) -> NoReturn:
    lines = [f"    {line}" for line in log.splitlines()]
    give_up(f"child 99 failed with error code: {code}", what, "printing enroot log file:", *lines)


def not_started(what: str, log: str) -> NoReturn:
    lines = [f"    {line}" for line in log.splitlines()]
    other = "container was not started successfully by another task"
    give_up(what, *(["printing enroot log file:", *lines] if lines else []), other)


def task(options: dict[str, str], command: list[str]) -> NoReturn:
    """Make or join the container of this step on this node, and become the command in it."""
    name, _, flag = options.get("name", "").partition(":")
    full = f"pyxis_{name}" if name else f"pyxis_{os.environ['SLURM_JOB_ID']}.{os.environ['SLURM_STEP_ID']}"
    running = pids_of(full)
    if flag == "exec" and not running:
        give_up('error: "exec" flag was passed to --container-name but the container is not running')
    if running:
        join(running[0])
        os.chdir(home())
    else:
        root = DATA / full
        if not root.is_dir():
            create(full, options.get("image", ""))
        if not name:
            end_with_step(full)
        start(root, options)
    environment = inside(options.get("env", "").split(","))
    try:
        os.chdir(options.get("workdir") or ".")
    except OSError as problem:
        give_up(f"couldn't chdir to {options['workdir']}: {problem.strerror}")
    try:
        os.execvpe(command[0], command, environment)
    except OSError as problem:
        node = os.uname().nodename
        sys.stderr.write(f"slurmstepd-{node}: error: execve(): {command[0]}: {problem.strerror}\n")
        sys.exit(2)


def create(name: str, image: str) -> None:
    failed = f"failed to create container filesystem for image: {image}"
    if not image:
        give_up(f'error: a container with name "{name}" does not exist, and --container-image is not set')
    if not image.startswith((".", "/")):
        asked = "[INFO] Querying registry for permission grant"
        failed = f"failed to import docker image: {image}"
        not_created(failed, f"{asked}\ncurl: (6) Could not resolve host: registry-1.docker.io", 6)
    if not Path(image).is_file():
        not_created(failed, f"[ERROR] No such file or directory: {image}")
    if subprocess.run(["unsquashfs", "-s", image], capture_output=True, check=False).returncode != 0:
        not_created(failed, f"[ERROR] Invalid image format: {image}")
    DATA.mkdir(parents=True, exist_ok=True, mode=0o700)
    argv = ["unsquashfs", "-no-progress", "-user-xattrs", "-d", str(DATA / name), image]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        not_created(failed, f"[INFO] Extracting squashfs filesystem...\n{done.stderr}")


def start(root: Path, options: dict[str, str]) -> None:
    """Enter a mount namespace whose root is the container's."""
    mounts = [entry.split(":") for entry in options.get("mounts", "").split(",") if entry]
    for source, *_ in mounts:
        if not Path(source).exists():
            not_started(f"--container-mounts: source path does not exist: {source}",
                        "couldn't create enroot start configuration script")  # fmt: skip
    if not (root / "bin/sh").exists() and not (root / "usr/bin/sh").exists():
        not_started("container start failed with error code: 1",
                    "enroot-switchroot: failed to execute: /bin/sh: No such file or directory")  # fmt: skip
    (root / LOCK).touch()
    user, group = os.getuid(), os.getgid()
    know_user(root)
    call("unshare", NEWNS | (NEWUSER if user else 0))
    if user:
        mapped = (0, 0) if options.get("remap-root") == "" else (user, group)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{mapped[0]} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{mapped[1]} {group} 1")
    call("mount", "none", "/", None, REC | SLAVE, None)
    call("mount", str(root), str(root), None, BIND | REC, None)
    system = [["/proc", "/proc"], ["/sys", "/sys"], ["/dev", "/dev"], ["/etc/hosts", "/etc/hosts"]]
    for folder in ("tmp", "run"):
        (root / folder).mkdir(exist_ok=True)
        call("mount", "tmpfs", str(root / folder), "tmpfs", 0, "mode=0755")
    for source, *more in [*system, ["/etc/resolv.conf", "/etc/resolv.conf"], *mounts]:
        bind(source, root / (more[0] if more else source).lstrip("/"), read_only=more[1:2] == ["ro"])
    os.chdir(root)
    call("syscall", 155 if os.uname().machine == "x86_64" else 41, b".", b".")  # pivot_root(2)
    call("umount2", ".", DETACH)
    run_rc()


def run_rc() -> None:
    """The start script of the image; its working folder is the command's."""
    Path("/etc/rc.local").write_text('exec "$@"')
    os.chdir(home())
    script = ["/bin/sh", "/etc/rc"] if Path("/etc/rc").exists() else []
    argv = [*script, "/bin/sh", "-c", "pwd"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        not_started(f"container start failed with error code: {done.returncode}", "")
    os.chdir(done.stdout.strip())


def bind(source: str, target: Path, read_only: bool) -> None:
    if not target.exists():
        if Path(source).is_dir():
            target.mkdir(parents=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
    call("mount", source, str(target), None, BIND | REC, None)
    if read_only:
        locked = os.statvfs(target).f_flag & (2 | 4 | 8 | 1024 | 2048)  # a user namespace may not drop these
        call("mount", "none", str(target), None, BIND | REMOUNT | READ_ONLY | locked, None)


def know_user(root: Path) -> None:
    """Enroot's hook 10-shadow.sh: the user is in the image's /etc/passwd, and has a home."""
    user, passwd = pwd.getpwuid(os.getuid()), root / "etc/passwd"
    (root / user.pw_dir.lstrip("/")).mkdir(parents=True, exist_ok=True)
    old = passwd.read_text() if passwd.exists() else ""
    if f"\n{user.pw_name}:" not in f"\n{old}":
        passwd.parent.mkdir(exist_ok=True)
        home = f"{user.pw_name}:x:{user.pw_uid}:{user.pw_gid}::{user.pw_dir}:/bin/sh\n"
        passwd.unlink(missing_ok=True)
        passwd.write_text(old + home)


def home() -> str:
    """Where a command starts: `enroot-switchroot` goes to the home that its hook has made."""
    folder = os.environ.get("HOME", "/")
    return folder if Path(folder).is_dir() else "/"


def join(pid: int) -> None:
    for kind, flag in (("user", NEWUSER), ("mnt", NEWNS)):
        mine, theirs = (Path(f"/proc/{who}/ns/{kind}").stat().st_ino for who in ("self", pid))
        if mine != theirs:
            with Path(f"/proc/{pid}/ns/{kind}").open() as file:
                call("setns", file.fileno(), flag)


def inside(kept: list[str]) -> dict[str, str]:
    """The environment of the command."""
    try:
        of_image = Path("/etc/environment").read_text().splitlines()
    except OSError:
        of_image = []
    image = dict(line.split("=", 1) for line in [PATH, *of_image] if "=" in line)
    return {**os.environ, **{key: value for key, value in image.items() if key not in kept}}


def end_with_step(name: str) -> None:
    """A container without a name is removed when its task has ended."""
    child = os.fork()
    if child == 0:
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda got, _: os.kill(child, got))
    _, status = os.waitpid(child, 0)
    shutil.rmtree(DATA / name, ignore_errors=True)
    sys.exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def pids_of(name: str) -> list[int]:
    """Processes whose root is the container's."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "root" / LOCK).exists():
                rows = [line.split() for line in (entry / "mountinfo").read_text().splitlines()]
                root = next(row[3] for row in rows if row[4] == "/")
                if root.endswith(f"/{name}"):
                    found.append(int(entry.name))
        except (OSError, StopIteration):
            continue
    return sorted(found)


def enroot(words: list[str]) -> int:
    """`list`, `list -f` and `remove --force NAME`."""
    if words[:1] == ["list"]:
        names = sorted(path.name for path in DATA.iterdir()) if DATA.is_dir() else []
        if words[1:] != ["-f"]:
            print("\n".join(names))
            return 0
        print("NAME PID COMM STATE STARTED TIME MNTNS USERNS COMMAND")
        for name in names:
            pids = pids_of(name)
            print(name, *(f"{pids[0]} python Ss" for _ in pids[:1]))
        return 0
    if words[:2] == ["remove", "--force"]:
        if not (DATA / words[2]).is_dir():
            print(f"[ERROR] No such file or directory: {DATA / words[2]}", file=sys.stderr)
            return 1
        shutil.rmtree(DATA / words[2])
        return 0
    print(f"[ERROR] the stand-in knows no `enroot {' '.join(words)}`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    role, *given = sys.argv[1:]
    if role == "srun":
        srun(given)
    elif role == "enroot":
        sys.exit(enroot(given))
    else:
        task(json.loads(given[0]), given[1:])
