"""`jobspec stage SPEC --job`: a CPU job of the cluster brings a model to shared storage, through submitit."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.slurm.cluster_files import ALICE
from tests.slurm.lab import Lab, await_true

pytestmark = [pytest.mark.slurm]
COMMIT = "c" * 40
CONFIG = b'{"model_type": "x"}'


def mirror_of(folder: Path) -> Path:
    """A mirror that holds one small model in cache layout."""
    repo = folder / "mirror" / "models--org--small"
    blob = repo / "blobs" / hashlib.sha1(b"blob %d\0" % len(CONFIG) + CONFIG).hexdigest()
    snapshot = repo / "snapshots" / COMMIT
    for made in (blob.parent, snapshot, repo / "refs"):
        made.mkdir(parents=True)
    blob.write_bytes(CONFIG)
    (snapshot / "config.json").symlink_to(f"../../blobs/{blob.name}")
    (repo / "refs" / "main").write_text(COMMIT)
    return repo.parent


def jobs(lab: Lab) -> list[str]:
    """State and nodes of each job that brings the model, ended ones too."""
    rows = lab.slurm("squeue", "-h", "-t", "all", "-u", "alice", "-n", "stage-model", "-o", "%T %D")
    return rows.splitlines()


def test_job_brings_a_model_and_says_what_it_could_not(lab: Lab, tmp_shared: Path) -> None:
    home = tmp_shared / "hf"
    home.mkdir()
    os.chown(home, ALICE, ALICE)
    sections = {"model": {"id": "org/small", "revision": COMMIT}, "hf_cache": {"home": str(home)}}
    spec = lab.command_spec("stage-small", ["true"], **sections)
    asked = ("stage", spec, "--job", "--json", "--timeout", "0.1")

    refused = lab.jobspec(*asked, user="alice")
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "stage.download" in refused.stdout + refused.stderr  # the nodes have no network
    assert "--from DIR" in refused.stdout + refused.stderr

    done = lab.jobspec(*asked, "--from", mirror_of(tmp_shared), user="alice")
    assert done.returncode == 0, done.stdout + done.stderr
    (item,) = json.loads(done.stdout)
    assert (item["present"], item["bytes"], item["files"]) == (True, len(CONFIG), 1)
    staged = home / "hub" / "models--org--small" / "snapshots" / COMMIT / "config.json"
    assert staged.read_bytes() == CONFIG and staged.stat().st_uid == ALICE

    # Both ended well: what the first found out it told as a value.
    wanted = ["COMPLETED 1"] * 2
    await_true(lambda: jobs(lab) == wanted, "two jobs to complete", 30, lambda: str(jobs(lab)))

    again = lab.jobspec(*asked, user="alice")  # nothing is missing: no job, no network
    assert again.returncode == 0, again.stdout + again.stderr
    assert jobs(lab) == wanted
