"""Faults of machines, processes and people at several moments of a run, on the test cluster: one table.

Each row starts a run on two nodes, does one thing to it, and looks how it ends: after how many seconds the
run's own files tell of it, after how many the job is out of RUNNING, Slurm's last word, whether the report's
first cause is the right one, whether the head's artifact is there, and what is left on the nodes.

    python benchmarks/faults.py [--only PATTERN] [--jobs 3] [--json FILE [--page docs/faults.md]]

A FILE that is there keeps the rows that are not run again; `--page` puts the table of all into a page.
Needs what the Slurm tests need: root on Debian with the packages of `.ci/debian-packages`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fault_acts import LOCAL, Trial
from benchmarks.fault_containers import container_rows, left_containers, make_images
from benchmarks.fault_rows import Row, await_moment, rows, sections
from benchmarks.fault_submits import submit_rows
from benchmarks.fault_table import Seen, cells, into_page, keep, table, today
from tests.slurm.cluster import Cluster
from tests.slurm.cluster_files import Options
from tests.slurm.lab import Lab, await_true
from tests.slurm.machine import missing

MODEL_BYTES = 1200 << 20
NODE_DISK = "3g"
TOLD = ("text", "why", "node")  # of a first cause


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="regular expression on `FAULT / MOMENT`")
    parser.add_argument("--jobs", type=int, default=3, help="rows at once")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path, help="the page whose table is made anew")
    options = parser.parse_args(argv)
    if reason := missing():
        print(reason, file=sys.stderr)
        return 2
    known = (*rows(), *submit_rows(), *container_rows())
    wanted = [row for row in known if re.search(options.only, row.name)]
    cluster = Cluster(f"faults-{os.getpid()}", Options(nodes=2 * options.jobs + 2), owned=True)
    cluster.start()
    try:
        lab = prepare(cluster)
        runtimes = sorted({"pyxis" if row.name.startswith("container: ") else "none" for row in wanted})
        if "pyxis" in runtimes:
            make_images(lab)
        with ThreadPoolExecutor(options.jobs) as pool:
            seen = list(pool.map(lambda row: tried(lab, row), [row for row in wanted if not row.alone]))
        seen += [tried(lab, row) for row in wanted if row.alone]
        left = after_the_next_job(lab, seen, runtimes)
    finally:
        cluster.stop()
    whole = keep(options.json, seen) if options.json else seen
    lines = list(table(whole, [row.name for row in known], left))
    print("\n".join(lines))
    if options.page:
        into_page(options.page, lines)
    return 0 if all(row.good for row in seen) and not left else 1


def prepare(cluster: Cluster) -> Lab:
    lab = Lab(cluster)
    lab.prepare()
    model = lab.shared / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "x"}')
    with (model / "weights.bin").open("wb") as file:
        for _ in range(MODEL_BYTES >> 20):
            file.write(os.urandom(1 << 20))
    (lab.shared / "empty").mkdir()
    for node in cluster.nodes:
        give_disk(lab, node)
    return lab


def give_disk(lab: Lab, node: str) -> None:
    """A disk that can be filled without filling the machine's memory."""
    mount = f"mkdir -p {LOCAL} && mount -t tmpfs -o size={NODE_DISK} tmpfs {LOCAL}"
    lab.cluster.run(node, ["sh", "-c", mount])


def tried(lab: Lab, row: Row) -> Seen:
    try:
        seen = try_row(lab, row)
    except Exception as problem:  # the other rows are worth their time
        traceback.print_exc()
        seen = Seen(row.name, broken=f"{type(problem).__name__}: {str(problem).splitlines()[0][:80]}")
    print("\t".join(cells(seen)), file=sys.stderr, flush=True)
    return replace(seen, day=today())


def try_row(lab: Lab, row: Row) -> Seen:
    trial = start(lab, row)
    try:
        await_moment(row, trial)
        began = time.time()
        with ThreadPoolExecutor(1) as pool:  # a fault may take longer than the run bears it
            acting = pool.submit(row.act, trial)
            await_true(lambda: is_over(lab, trial.job), "the end", 150)
            ended = time.time() - began
            acting.result()
        undo(trial)
        state = " ".join(lab.await_end(trial.job, 150))
        return judge(lab, row, trial, began, ended, state)
    finally:
        undo(trial)
        lab.cluster.run("ctl", ["scancel", "--signal=KILL", "--full", trial.job])
        for node in trial.nodes:
            if not lab.cluster.alive(node):
                continue
            if row.moment == "staging":  # the next such row would find the model there
                lab.cluster.run(node, ["sh", "-c", f"rm -rf {LOCAL}/hf-*"])
            if lab.cluster.run(node, ["mountpoint", "-q", LOCAL]).returncode != 0:
                give_disk(lab, node)


def undo(trial: Trial) -> None:
    """Once: soon after that the nodes are another row's."""
    while trial.undo:
        trial.undo.pop()()


def spec_name(row: Row) -> str:
    return re.sub(r"[^a-z0-9]+", "-", row.name.lower())[:40].strip("-")


def jobs_of(lab: Lab, row: Row) -> set[str]:
    """All jobs of runs of this spec, whoever submitted them."""
    rows = [line.split() for line in lab.slurm("squeue", "-h", "-t", "all", "-o", "%A %j").splitlines()]
    return {job for job, name in rows if re.match(rf"{spec_name(row)}-\d{{8}}-", name)}


def start(lab: Lab, row: Row) -> Trial:
    script, more = sections(row, lab)
    name = spec_name(row)
    argv = ["bash", "-c", script]
    undo = [row.before(lab)] if row.before else []
    spec = lab.command_spec(name, argv, nodes=2, **more)
    run = row.submit(lab, spec) if row.submit else lab.submit(spec, cluster=row.cluster, user=row.user)
    job = run["job_id"]
    await_true(lambda: nodes_of(lab, job) != [], "the job's nodes", 90)
    return Trial(lab, run["run_id"], Path(run["run_dir"]), job, nodes_of(lab, job), undo, row.user)


def is_over(lab: Lab, job: str) -> bool:
    """Whether the job has left RUNNING; a controller that is down says nothing."""
    asked = lab.cluster.run("ctl", ["timeout", "5", "squeue", "-h", "-j", job, "-o", "%T"])
    return asked.returncode == 0 and asked.stdout.strip() not in ("RUNNING", "SUSPENDED")


def nodes_of(lab: Lab, job: str) -> list[str]:
    listed = lab.slurm("squeue", "-h", "-t", "all", "-j", job, "-o", "%N").strip()
    return lab.slurm("scontrol", "show", "hostnames", listed).split() if listed else []


def judge(lab: Lab, row: Row, trial: Trial, began: float, ended: float, state: str) -> Seen:
    attempts = sorted(int(path.name) for path in (trial.run_dir / "attempts").glob("*")) or [1]
    digests = tuple(
        hashlib.sha256(f"{trial.job}|{trial.run_dir}|{n}".encode()).hexdigest()[:8] for n in attempts
    )
    left = list(left_overs(lab, trial.nodes, digests, trial.run_id))
    _, report = lab.report(trial.run_id, user=trial.user)
    first = report["first_cause"] or {}
    passed = report["result"] == "Pass"
    cause = "" if passed else f"{report['reason']}"
    text = "" if passed else " ".join([cause, *(str(first.get(key, "")) for key in TOLD)])
    wanted = row.cause.format(head=trial.head, worker=trial.worker) if "{" in row.cause else row.cause
    right = bool(re.search(row.state, state)) and bool(re.search(wanted, text))
    return Seen(
        row.name,
        noticed(lab, trial, began),
        round(ended, 1),
        state,
        f"{report['result']}: {cause}".strip(": "),
        right,
        kept(row, trial),
        ", ".join(left) or "none",
        len(attempts),
        digests,
        jobs=len(jobs_of(lab, row)),
    )


def noticed(lab: Lab, trial: Trial, began: float) -> float | None:
    """Seconds until the run's own files told of it."""
    for event in lab.events(str(trial.run_dir)):
        bad = event.get("finding", {}).get("severity") == "error" or event.get("outcome") in (
            "failed",
            "cancelled",
            "timeout",
            "blocked",
        )
        quiet = event.get("finding", {}).get("rule") in ("node.quiet", "run.signal")
        if event["t"] >= began and (bad or quiet):
            return round(float(event["t"]) - began, 1)
    return None


def kept(row: Row, trial: Trial) -> str:
    """Whether the head's artifact is there and listed."""
    folder = trial.run_dir / "artifacts"
    there = (folder / "saved.txt").is_file()
    try:
        listed = "saved.txt" in (folder / "manifest.json").read_text()
    except OSError:
        listed = False
    if there and listed:
        return "yes"
    return "no" if row.kept and row.moment not in ("staging", "ray bring-up") else "-"


def left_overs(lab: Lab, nodes: Sequence[str], digests: Sequence[str], run_id: str) -> Iterator[str]:
    """What the run has left on its nodes: processes, and names with its digests."""
    for node in nodes:
        if not lab.cluster.alive(node):
            continue
        look = f"grep -laz {run_id} /proc/[0-9]*/environ 2>/dev/null | wc -l"
        count = int(lab.cluster.run(node, ["sh", "-c", look]).stdout or 0)
        if count:
            yield f"{count} processes on {node}"
        names = lab.cluster.run(node, ["find", LOCAL, "-maxdepth", "2"]).stdout
        if any(digest in line.rsplit("/", 1)[-1] for line in names.splitlines() for digest in digests):
            yield f"folders on {node}"
    yield from left_containers(lab, nodes, run_id)


def after_the_next_job(lab: Lab, seen: Sequence[Seen], runtimes: Sequence[str]) -> list[str]:
    """The left-overs of all rows once a further run of the same user has been on every node."""
    nodes = lab.cluster.options.nodes
    for runtime in runtimes:
        spec = lab.command_spec(f"next-{runtime}", ["true"], nodes=nodes, runtime=runtime)
        lab.await_end(lab.submit(spec, cluster="lab" if runtime == "none" else f"lab-{runtime}")["job_id"])
    digests = [digest for row in seen for digest in row.digests]
    return [
        *left_overs(lab, lab.cluster.nodes, digests, "no-such-run"),
        *left_containers(lab, lab.cluster.nodes),
    ]


if __name__ == "__main__":
    sys.exit(main())
