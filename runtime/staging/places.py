"""Where a stage item lies on the node's disk, and how much of it is there.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Tuple

from jobspec.plan import StagePlan
from jobspec.runtime.staging.disk_space import occupied


def repo_folder(item: StagePlan) -> str:
    """The name of the cache folder of an item from the hub."""
    return "--".join([item.kind + "s", *item.repo_id.split("/")])


def place(item: StagePlan) -> Tuple[str, str]:
    """The item's folder below the user's HF_HOME on the node: of a repo, or of a plain source with a key."""
    name = os.path.basename(os.path.normpath(item.source))
    if item.from_hub or item.layout == "hf":
        return "hub", repo_folder(item) if item.from_hub else name
    readable = re.sub(r"[^\w.-]+", "_", name)[:60] or "data"
    text = "\0".join([os.path.realpath(item.source), *item.allow, "\1", *item.ignore])
    return "plain", f"{readable}-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:10]}"


def staged_bytes(item: StagePlan, node_local: str) -> int:
    """Bytes of the disk that the item's files take already, whole or begun."""
    home = os.path.join(os.path.realpath(node_local), f"hf-{os.geteuid()}")
    kind, folder = place(item)
    tops = (os.path.join(home, kind, folder), os.path.join(home, "stage", folder + ".parts"))
    return sum(
        occupied(os.path.join(at, name)) for top in tops for at, _, names in os.walk(top) for name in names
    )
