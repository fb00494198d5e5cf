"""`container` of a job spec, and of one of its services."""

from __future__ import annotations

from typing import Annotated

from jobspec.spec.fields import Base, EnvName, doc


class Mount(Base, frozen=True):
    """A host directory made visible in the container."""

    source: Annotated[str, doc("Absolute path on the node.", "${cluster:scratch}")]
    target: Annotated[str, doc("Absolute path in the container.", "/scratch")]
    read_only: Annotated[bool, doc("Refuse writes from inside the container.")] = False


class Container(Base, frozen=True):
    """A container: the one that the run lives in, or that of one of its services."""

    image: Annotated[
        str | None,
        doc(
            "Image as the site's runtime names it. Optional where the profile's runtime is `none`.",
            "registry.example.com/nvidia/nemo-rl:v0.4.0",
            "/images/nemo-rl.sqsh",
        ),
    ] = None
    source_tag: Annotated[
        str | None,
        doc(
            "Registry tag that an image file was made from: for the lock and the report.",
            "nvcr.io/nvidia/nemo-rl:v0.4.0",
        ),
    ] = None
    python: Annotated[
        str | None,
        doc("Interpreter for jobspec's runtime, 3.9 or newer. Default: `python3`.", "/opt/venv/bin/python"),
    ] = None
    mounts: Annotated[tuple[Mount, ...], doc("Directories of the node to make visible, in order.")] = ()
    env: Annotated[
        dict[EnvName, str],
        doc(
            "Environment of every process in it. Values are text: quote them. Never secrets.",
            {"NCCL_DEBUG": "WARN"},
        ),
    ] = {}
    workdir: Annotated[
        str | None, doc("Working directory of the commands in the container.", "/workspace")
    ] = None
