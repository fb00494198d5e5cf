"""`cluster check --image` on this machine, with a real container of bubblewrap."""

from __future__ import annotations

import json
import subprocess

from tests.kits.programs_kit import needs, skip_or_fail
from tests.kits.project_kit import Project

SITE = "version: 1\nname: boxes\nscheduler: local\ncontainer: {runtime: bubblewrap}\n"


@needs("bwrap", "bubblewrap")
def test_real_container(project: Project) -> None:
    if subprocess.run(["bwrap", "--dev-bind", "/", "/", "true"], check=False).returncode:
        skip_or_fail("bubblewrap cannot start a container here")
    project.write("boxes.yaml", SITE)
    argv = ["cluster", "check", "--cluster-file", "boxes.yaml"]
    done = project.process(*argv, "--image", "/", "--json")
    assert done.code == 0, done.text
    (node,) = json.loads(done.out)["nodes"]
    assert node["started"]["python"].startswith("3.")
    done = project.process(*argv, "--image", "/nosuch", "--timeout", "60")
    assert done.code == 2
    assert "error[check.container]" in done.err and "/nosuch" in done.err
    done = project.process(*argv)
    assert done.code == 0, done.text
    assert "warning[check.container]" in done.err, "nothing is claimed of what was not tried"


def test_image_without_a_runtime_is_refused(project: Project) -> None:
    done = project.cli("cluster", "check", "local", "--image", "x.sif")
    assert done.code == 2
    assert "`local` has none" in done.err
