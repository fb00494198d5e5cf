"""The container of a step: image, mounts and options as spec and profile have them."""

from __future__ import annotations

import re

from jobspec.cli.from_sbatch.bash import CLOSE, OPEN
from jobspec.cli.from_sbatch.driver import MARKED, SHELL_NAME
from jobspec.cli.from_sbatch.notes import Notes
from jobspec.cli.from_sbatch.options import Draft, put
from jobspec.cli.from_sbatch.steps import CONTAINERS, Step


def add_container(step: Step, spec: Draft, site: Draft, notes: Notes) -> None:
    of = {option.name: option.value for option in step.srun}
    if not step.image:
        put(site, "container/runtime", "none")
    else:
        pyxis = "container-image" in of or (
            not step.flags
            and not any(c in step.image for c in CONTAINERS)
            and not step.image.endswith(".sif")
        )
        put(site, "container/runtime", "pyxis" if pyxis else "apptainer")
        image = step.image.removeprefix("docker://") if pyxis else step.image
        if image != step.image:
            notes.add("told", "Pyxis takes the image without `docker://`", step.line)
        put(spec, "container/image", image)
    if "mpi" in of:
        put(site, "slurm/mpi", of["mpi"])
    if "no-container-mount-home" in of:
        put(site, "container/mount_home", False)
    if "container-remap-root" in of:
        put(site, "container/remap_root", True)
    if folder := step.workdir or of.get("chdir", step.folder if not step.image else ""):
        if folder.startswith("/"):
            put(spec, "container/workdir", folder)
        else:
            notes.add("told", f"the command began in `{folder}`, which only the job knows", step.line)
    mounts = [_mount(mount, step, notes) for mount in step.mounts if mount]
    if kept := [mount for mount in mounts if mount]:
        put(spec, "container/mounts", kept)
    for option in step.srun:
        if option.name == "container-name":
            notes.add(
                "danger",
                "`--container-name` survives a requeue: the next attempt meets the old folder",
                step.line,
            )
    tell_options(step, notes)
    for flag in step.flags:
        notes.add("replaced" if flag == "--nv" else "listed", f"container option `{flag}`", step.line)
    if {"--cleanenv", "--containall", "-e"} & set(step.flags):
        notes.add(
            "told",
            "the container began without the script's exports; the spec passes them, as was meant",
            step.line,
        )


def tell_options(step: Step, notes: Notes) -> None:
    """The options of a step's `srun` that are not about its container: jobspec starts its own steps."""
    keys = (
        "container-image",
        "container-mounts",
        "container-workdir",
        "container-remap-root",
        "no-container-mount-home",
    )
    if others := [str(option) for option in step.srun if option.name not in keys]:
        notes.add("replaced", f"`srun {' '.join(others)}`", step.line)


def _mount(text: str, step: Step, notes: Notes) -> Draft | None:
    source, target, mode = (*_unmarked_split(text), "", "")[:3]
    source = own_home(source)
    if OPEN in source or OPEN in target or not source.startswith(("/", "${env:")):
        notes.add(
            "told", f"mount `{text}`: only the job knows its source; add it to `container.mounts`", step.line
        )
        return None
    mount: Draft = {"source": source, "target": target or source}
    if mode in ("ro", "r"):
        mount["read_only"] = True
    elif mode not in ("", "rw"):
        notes.add("listed", f"option `{mode}` of mount `{text}`", step.line)
    return mount


def _unmarked_split(text: str) -> list[str]:
    return re.split(f":(?![^{OPEN}]*{CLOSE})", text)


def own_home(text: str) -> str:
    """`$HOME` is the same where one submits."""
    return MARKED.sub(
        lambda m: f"${{env:{n[1]}}}" if (n := SHELL_NAME.match(m[1])) and n[1] == "HOME" else m[0], text
    )
