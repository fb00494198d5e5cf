"""The test cluster as a fixture, and the proof after each test that nothing was left on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kits.programs_kit import skip_or_fail
from tests.slurm import cluster as harness
from tests.slurm import rootfs
from tests.slurm.cluster_files import Options
from tests.slurm.lab import Lab
from tests.slurm.machine import CHECKOUT, missing

REQUIRED = "JOBSPEC_REQUIRE_SLURM"
FAKE_GPUS = CHECKOUT / "tests/kits/fake_gpus.sh"
PACKAGE_OF = {
    "charliecloud": ("ch-run", "charliecloud"),
    "bubblewrap": ("bwrap", "bubblewrap"),
    "oci": ("crun", "crun"),
    "podman": ("podman", "podman"),
    "pyxis": ("mksquashfs", "squashfs-tools"),
}


@pytest.fixture(scope="session")
def cluster() -> Iterator[harness.Cluster]:
    """Four nodes and a login node, up for the whole session."""
    if reason := missing():
        skip_or_fail(reason, REQUIRED)
    harness.Cluster.sweep()
    found = harness.Cluster(f"test-{os.getpid()}", Options(), owned=True)
    found.start()
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="session")
def prepared(cluster: harness.Cluster) -> Lab:
    lab = Lab(cluster)
    lab.prepare()
    return lab


@pytest.fixture
def lab(prepared: Lab) -> Iterator[Lab]:
    """The cluster, idle and clean before and after the test."""
    yield prepared
    prepared.settle()


def add_gpus(cluster: harness.Cluster) -> None:
    """Two device files named like GPUs on each node; the bare nodes have none."""
    for node in cluster.nodes:
        made = cluster.run(node, ["bash", str(FAKE_GPUS), "2"])
        assert made.returncode == 0, made.stderr


@pytest.fixture
def counted_gpus(lab: Lab) -> Iterator[None]:
    add_gpus(lab.cluster)
    yield
    for node in lab.cluster.nodes:
        lab.cluster.run(node, ["umount", "-l", "/dev"])


@pytest.fixture
def need_runtime() -> Iterator[object]:
    """Call with a container runtime's name: skips where its package is missing."""
    from shutil import which

    def need(runtime: str) -> None:
        program, package = PACKAGE_OF[runtime]
        absent = [name for name in (rootfs.missing(), "" if which(program) else package) if name]
        if absent:
            skip_or_fail(f"Debian packages not installed: {' '.join(absent)}", REQUIRED)

    yield need


@pytest.fixture
def tmp_shared(lab: Lab, request: pytest.FixtureRequest) -> Path:
    """An empty folder on the shared file system."""
    # The session's lab is shared by all modules, and tests of two may have one name.
    name = "".join(c if c.isalnum() else "-" for c in f"{request.node.path.stem}-{request.node.name}")
    folder = lab.shared / "scratch" / name
    folder.mkdir()
    folder.chmod(0o1777)
    return folder
