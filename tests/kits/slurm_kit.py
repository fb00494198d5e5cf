"""Programs named like Slurm's, for what no real controller does on demand: be away, keep an answer back.

They stand on PATH before any real ones and share a folder: `queue` has the rows that squeue prints, `records`
those of sacct, `scripts` what each job runs, `calls` what was asked. While a file `down` is there the
controller is away; while `slow` is there, sbatch takes the job and keeps its answer; while `late` is there,
the job is still on its way; while `tardy` is there, accounting takes 7 s.
"""

from __future__ import annotations

from pathlib import Path

AWAY = "Unable to contact slurm controller (connect failure)"
_HEAD = """#!/bin/bash
cd {home} || exit 1
trap '' XFSZ
echo "${{0##*/}} $*" >>calls
[ -e down ] && {{ echo "slurm_load_jobs error: {away}" >&2; exit 1; }}
"""
_PROGRAMS = {
    "sbatch": """name=$(printf '%s\\n' "$@" | sed -n 's/^--job-name=//p')
while [ -e late ]; do sleep 0.1; done
id=$((41 + $(wc -l <queue)))
echo "$id|${@: -1}" >>scripts
echo "$id|PENDING|$(id -un)|$(date +%FT%T)||N/A|$name|Priority" >>queue
[ -e slow ] && exec sleep 600
echo "$id"
""",
    "squeue": """case "$*" in
  *%o*) sed 's/|.*/|/; s/^/^/' queue | grep -f - scripts || true ;;
  *) cat queue ;;
esac
""",
    "sacct": "[ -e tardy ] && sleep 7\ncat records\n",
    "scancel": 'sed -i "s/^$1|[A-Z]*|/$1|CANCELLED|/" queue\n',
    "scontrol": "",
    "srun": "",
}
SITE = """\
version: 1
name: lab
scheduler: slurm
slurm: {{partition: main, gpus: none}}
container: {{runtime: none}}
paths: {{runs: {runs}, node_local: "/tmp/jobspec-${{user}}"}}
node: {{cpus: 2, memory: 4000M, gpus: 0}}
limits: {{max_nodes: 4}}
"""
SPEC = """\
version: 1
name: away
framework: command
cluster: lab
launch: {mode: srun}
resources: {nodes: 1, time: "00:10:00"}
train: {command: ["true"]}
"""


class Controller:
    """The folder that the programs share. `programs` is to stand on PATH."""

    def __init__(self, home: Path) -> None:
        self.home, self.programs = home, home / "bin"
        self.programs.mkdir(parents=True)
        for name in ("queue", "records", "scripts", "calls"):
            (home / name).touch()
        for name, text in _PROGRAMS.items():
            path = self.programs / name
            path.write_text(_HEAD.format(home=home, away=AWAY) + text)
            path.chmod(0o755)

    def set(self, state: str, on: bool = True) -> None:
        """`down`, `slow`, `late` or `tardy`."""
        if on:
            (self.home / state).touch()
        else:
            (self.home / state).unlink()

    def count(self, program: str) -> int:
        calls = (self.home / "calls").read_text().splitlines()
        return sum(call.split(" ")[0] == program for call in calls)

    def say(self, state: str) -> None:
        """Let every job in the queue have this state."""
        queue = self.home / "queue"
        rows = [row.split("|", 2) for row in queue.read_text().splitlines()]
        queue.write_text("".join(f"{job}|{state}|{rest}\n" for job, _, rest in rows))

    def rename(self, name: str) -> None:
        """Let every job in the queue have this name, as `scontrol update` or a plugin does."""
        queue = self.home / "queue"
        rows = [row.split("|") for row in queue.read_text().splitlines()]
        queue.write_text("".join("|".join((*row[:6], name, *row[7:])) + "\n" for row in rows))

    def forget(self, state: str, code: str = "0:0") -> None:
        """Let every job leave the queue for the records of accounting."""
        queue = self.home / "queue"
        rows = [row.split("|") for row in queue.read_text().splitlines()]
        text = "".join(
            f"{row[0]}|{state}|{code}|n1|2026-11-28T01:00:00|{row[2]}|{row[3]}|{row[6]}\n" for row in rows
        )
        (self.home / "records").write_text(text)
        queue.write_text("")
