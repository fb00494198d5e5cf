"""A starting spec for one site: its profile, an image in the form of its runtime, checkouts found here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from jobspec.disk import is_folder
from jobspec.spec.find_site import LoadedCluster
from jobspec.spec.site import ClusterProfile

# What each framework's makers publish; tags of the versions that docs/frameworks.md names.
PUBLISHED: Mapping[str, str] = {
    "command": "docker.io/library/python:3.12-slim",
    "nemo_rl": "nvcr.io/nvidia/nemo-rl:v0.4.0",
    "skyrl": "docker.io/novaskyai/skyrl-train-ray-2.57.0-py3.12-cu13.0-megatron:latest",
    "verl": "docker.io/verlai/verl:vllm024.dev2",
}
IMAGE_FILES = (".sqsh", ".sqfs", ".squashfs", ".sif")
_CHECKOUT = re.compile(r"path: ~/src/([\w-]+)")


def for_site(text: str, framework: str, cluster: LoadedCluster, folders: Iterable[Path]) -> str:
    """The starting spec with what the site decides. Of `folders`, the first that holds a checkout counts."""
    profile = cluster.profile
    text = re.sub(r"(?m)^# cluster: .*$", f"cluster: {profile.name}", text, count=1)
    text = _sized(text, profile, 0 if cluster.no_gpus else profile.node.gpus or None)
    if profile.container.runtime != "none":
        text = _with_image(text, image(framework, profile))
    places = tuple(folders)

    def found(match: re.Match[str]) -> str:
        place = next((folder / match[1] for folder in places if is_folder(folder / match[1])), None)
        return f"path: {quoted(str(place))}" if place else match[0]

    return _CHECKOUT.sub(found, text)


def image(framework: str, profile: ClusterProfile) -> str:
    """An image file of the site's cache that is named for the framework, else the published image.

    A framework without a published image, and a runtime that starts folders alone, get the place for one.
    """
    site = profile.container
    cache, word = Path(site.image_cache or "/images"), framework.replace("_", "-")
    try:
        files = [path for path in cache.iterdir() if path.suffix in IMAGE_FILES]
    except OSError:
        files = []
    whole = re.compile(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z])")  # `overlay` is no image of verl
    own = [path for path in files if whole.search(path.name.replace("_", "-").lower())]
    if own:
        return str(max(own, key=_natural))
    published = PUBLISHED.get(framework, "")
    if not published or site.runtime in ("bubblewrap", "oci", "charliecloud"):
        suffix = {"pyxis": ".sqsh", "apptainer": ".sif"}.get(site.runtime, "")
        return str(cache / f"{word}{suffix}")
    host, _, rest = published.partition("/")
    # Enroot takes a name without a registry for one of Docker Hub, whose host serves no images by itself.
    of_enroot = rest if host == "docker.io" else f"{host}#{rest}"
    return {"pyxis": of_enroot, "apptainer": f"docker://{published}"}.get(site.runtime, published)


def _natural(path: Path) -> list[tuple[int, str]]:
    """A key that sorts `v0.10` behind `v0.9`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", path.name)]


def _with_image(text: str, name: str) -> str:
    """The image in place of the starting spec's commented one, else in a section of its own."""
    line = f"  image: {quoted(name)}   # pin it: a file, or a digest (`@sha256:...`)\n"
    if re.search(r"(?m)^container:", text):
        text = re.sub(r"(?m)^  # image: .*\n", "", text, count=1)
        return re.sub(r"(?m)^container:[^\n]*\n", lambda match: match[0] + line, text, count=1)
    return re.sub(r"(?m)^(?=resources:)", lambda _: f"container:\n{line}\n", text, count=1)


def _sized(text: str, profile: ClusterProfile, gpus: int | None) -> str:
    """No more GPUs and processors than a node has, and a time limit, without which no queue takes a job."""
    for key, most in (("gpus_per_node", gpus), ("cpus_per_node", profile.node.cpus)):

        def capped(match: re.Match[str], most: int | None = most) -> str:
            return match[1] + str(match[2] if most is None else min(int(match[2]), most))

        text = re.sub(rf"(?m)^(  {key}: )(\d+)", capped, text)
    return re.sub(r"(?m)^  # (?=time: )", "  ", text, count=1) if profile.scheduler == "slurm" else text


def quoted(text: str) -> str:
    """A path or an image as YAML takes it."""
    return text if re.fullmatch(r"[\w./@+:-]+(?<!:)", text) else json.dumps(text)
