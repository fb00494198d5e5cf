"""Links that wait in a run folder under the names of partial files: what they lead to keeps its content."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.kits.project_kit import Project

NAMES = (
    "report.txt",
    "report.html",
    "report.json",
    "report.md",
    "junit.xml",
    "scheduler.json",
    "launch.json",
)
# The shell makes the links with its own process id, which the command then has.
PLANT = f"""
for name in {" ".join(NAMES)}; do
  for tail in $$ $$.tmp $(uname -n).$$; do ln -s "$VICTIM" "$RUN/.$name.$tail"; done
done
exec "$PYTHON" -m jobspec.cli report "$RUN"
"""


def test_report_through_planted_links(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    run, victim = project.last().root, project.root / "victim"
    victim.write_text("mine")
    (run / "scheduler.json").unlink()
    env = {**os.environ, "RUN": str(run), "VICTIM": str(victim), "PYTHON": sys.executable}
    done = subprocess.run(["bash", "-c", PLANT], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert victim.read_text() == "mine"
    assert (run / "scheduler.json").is_file()
    assert len([path for path in run.iterdir() if path.is_symlink()]) == 3 * len(NAMES)
