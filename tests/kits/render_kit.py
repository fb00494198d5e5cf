"""Specs from text, and scripts run in real bash with recording stand-ins for the programs that they call."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobspec.planning.resolve import Resolved, resolve
from jobspec.spec.find_site import load_cluster, parse_cluster
from jobspec.spec.load import parse_spec

RUN_ID = "20261128-010203-ab12cd"

LOCAL = "version: 1\nname: here\nscheduler: local\n"
SLURM = """\
version: 1
name: lab
scheduler: slurm
slurm: {partition: main, gpus: gres}
paths: {runs: /shared/runs, hf_home: /shared/hf, node_local: /tmp/js}
"""


def resolve_text(
    spec: str, profile: str = LOCAL, folder: Path = Path("/specs"), env: Mapping[str, str] | None = None
) -> Resolved:
    """A spec and a profile as text (or a shipped profile's name), resolved as if the spec lay in `folder`."""
    loaded = parse_spec(spec, str(folder / "spec.yaml"), env={})
    owner = {"USER": "ann", "HOME": "/home/ann"}
    if "\n" in profile:
        cluster = parse_cluster(profile, Path("lab.yaml"), "--cluster-file", owner)
    else:
        cluster = load_cluster(profile, None, owner)
    return resolve(loaded, cluster, env=owner if env is None else env)


@dataclass(frozen=True)
class Call:
    """One start of a recorded program."""

    argv: tuple[bytes, ...]
    env: Mapping[bytes, bytes]


RECORDER = """\
#!/bin/bash
number=$$
printf '%s\\0' "$0" "$@" > {folder}/$number.argv
/usr/bin/env -0 > {folder}/$number.env
/bin/mv {folder}/$number.argv {folder}/$number.call
{then}
"""


class Stage:
    """A folder with programs that record how they were called, and bash to run a script there.

    The programs are the test's own stand-ins: they take the place of srun, scontrol and an interpreter.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.calls_folder = folder / "calls"
        self.work = folder / "work"
        for made in (self.bin, self.calls_folder, self.work):
            made.mkdir(parents=True)

    def program(self, path: Path | str, then: str = "exit 0") -> Path:
        """A recording program at `path`, relative to the stage's `bin`; `then` is what it does next."""
        target = self.bin / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(RECORDER.format(folder=self.calls_folder, then=then))
        target.chmod(target.stat().st_mode | stat.S_IXUSR)
        return target

    def bash(
        self, script: Path | str, *args: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a script with this stage's programs first on PATH, in a folder where a canary would show."""
        own = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder), **(env or {})}
        return subprocess.run(
            ["/bin/bash", str(script), *args],
            cwd=self.work,
            env=own,
            capture_output=True,
            timeout=60,
            check=False,
        )

    def calls(self) -> list[Call]:
        """Every recorded call, oldest first."""
        found = []
        for path in sorted(self.calls_folder.glob("*.call"), key=lambda path: path.stat().st_mtime_ns):
            env = path.with_suffix(".env").read_bytes().split(b"\0")
            pairs = dict(item.split(b"=", 1) for item in env if b"=" in item)
            found.append(Call(tuple(path.read_bytes().split(b"\0")[:-1]), pairs))
        return found

    def reset(self) -> None:
        for path in self.calls_folder.iterdir():
            path.unlink()

    def canaries(self) -> list[str]:
        """Files that only an executed value could have made."""
        return [path.name for path in self.work.iterdir()]
