"""What is dangerous in a batch script, told with its line."""

from __future__ import annotations

import re

from jobspec.cli.from_sbatch.notes import Notes
from jobspec.cli.from_sbatch.options import Draft
from jobspec.cli.from_sbatch.steps import Script, Step

# Pattern of a line -> what is wrong with it.
_LINES = (
    (r"^\s*sleep\s+\d", "`sleep` instead of readiness: slow nodes are not waited for"),
    (r"ray stop\b.*(-f|--force)|\bpkill\b|\bkillall\b", "it ends other runs' processes on a shared node"),
    (r"\bpip3? install\b", "packages are installed while the job runs: another run may get others"),
    (r"shuf -i \d+|\bRANDOM\b", "a port that is drawn by chance may be taken"),
    (r"kill-on-bad-exit=0", "a node that fails is not noticed"),
    (r"\brm\s+-[a-z]*r[a-z]*f?\b", "it removes folders"),
    (r"\bcurl\b.*\|\s*(ba)?sh", "it runs what a server sends"),
    (r"chmod\s+(-R\s+)?777", "everybody may change the files"),
    (r"trust_remote_code|trust-remote-code", "code of the model's repository runs"),
)  # fmt: skip
_PORT = re.compile(r"(?:port\w*[=\s]+|\bPORT\w*=)\D{0,12}(\d{5})\b|shuf -i (\d{5})", re.I)
_NODES = re.compile(
    r"(?:trainer\.nnodes|cluster\.num_nodes|--nnodes|--num_machines|trainer\.num_nodes)[= ](\d+)\b"
)


def look_for(text: str, script: Script, driver: Step, spec: Draft, notes: Notes) -> None:
    """Add a note for each danger."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#"):
            if re.match(r"##+\s*SBATCH", line):
                notes.add("told", f"`{line.strip()}` is a comment: the option was never asked for", number)
            continue
        for pattern, what in _LINES:
            if re.search(pattern, line):
                notes.add("danger", what, number)
        if (found := _PORT.search(line)) and 32768 <= int(found[1] or found[2]) <= 60999:
            notes.add(
                "danger",
                f"port {found[1] or found[2]} lies in the range that the kernel gives to clients",
                number,
            )
    piped = driver.end == "|"
    if piped and not re.search(r"set\s+-\w*o?\s*\w*pipefail|-o pipefail", text):
        notes.add("danger", "a pipe without `pipefail` hides the driver's exit code", driver.line)
    ends = [step for step in script.steps if step.line > driver.line and step.program not in ("tee", "wait")]
    if ends and not piped and not re.search(r"^\s*set\s+-[a-z]*e", text, re.M):
        notes.add(
            "danger",
            f"the script goes on after the driver (`{ends[0].program}`): a failed driver ends as COMPLETED",
            ends[-1].line,
        )
    if driver.end == "||":
        notes.add("danger", "`||` behind the driver makes a failure end as COMPLETED", driver.line)
    first = next((n for n, row in enumerate(lines, 1) if row.strip() and not row.lstrip().startswith("#")), 0)
    for number, row in enumerate(lines, 1):
        if number > first and row.startswith("#SBATCH"):
            notes.add("told", f"`{row.strip()}` stands behind the first command, so Slurm ignores it", number)
    for number, line in enumerate(lines, 1):
        if re.match(r"\s*exit 0\b", line) and "trap" in text:
            notes.add(
                "danger", "a trap ends with `exit 0`: a run that did not finish ends as COMPLETED", number
            )
        if re.match(r"\s*set -[a-z]*x", line):
            notes.add("danger", "`set -x` prints arguments and `export` lines, secrets included", number)
    if any(re.search(rf"^export {name}\b", text, re.M) for name in notes.secrets.values()):
        notes.add("danger", "an exported secret is in the environment of every process on all nodes")
    nodes = spec.get("resources", {}).get("nodes", 1)
    wanted = _NODES.search(" ".join(driver.words))
    if wanted and int(wanted[1]) != nodes:
        notes.add(
            "danger", f"{nodes} nodes are asked for, and `{wanted[0]}` trains on {wanted[1]}", driver.line
        )
