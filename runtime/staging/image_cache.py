"""Images of registries that lie as files in a folder of the site, and the records that say which they are.

Each import that changes what a reference names adds a record, `<reference>.<number>.json`, and nobody writes
to an old one: the folder belongs to several users. The newest record counts. Standard library only.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Tuple

from jobspec.plan import CachedImage, build
from jobspec.runtime.base.safe_write import replacing

SUFFIXES = {"pyxis": ".sqsh", "apptainer": ".sif"}  # of the runtimes that start from a file


@dataclass(frozen=True)
class Record:
    """One import: `by` is the user, `at` the time in UTC, `tool` what made the file."""

    reference: str
    digest: str
    file: str  # its name in the folder, which may be seen under another path later
    sha256: str
    bytes: int
    by: str = ""
    at: str = ""
    tool: str = ""


def file_name(name: str, digest: str, suffix: str) -> str:
    """The file of repository `name` at a digest: `rl+trainer+sha256-....sqsh`."""
    return f"{_plain(name)}+{digest.replace(':', '-')}{suffix}"


def records(folder: str, reference: str) -> List[Record]:
    """The imports of `reference`, oldest first. What is no record is left out: others write here, too."""
    found = []
    for _, name in _numbered(folder, reference):
        try:
            record = build(Record, json.loads(Path(folder, name).read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            continue
        if record.reference == reference and record.file == os.path.basename(record.file):
            found.append(record)
    return found


def images(folder: str, reference: str, suffix: str) -> List[CachedImage]:
    """What the records of `reference` name, newest first, as far as the files are there with their sizes."""
    known = [image_of(folder, record) for record in records(folder, reference)]
    return [image for image in reversed(known) if image is not None and image.file.endswith(suffix)]


def image_of(folder: str, record: Record) -> Optional[CachedImage]:
    """The image of a record; None where its file is gone or has another size."""
    path = os.path.join(folder, record.file)
    try:
        whole = os.stat(path).st_size == record.bytes
    except OSError:
        whole = False
    return CachedImage(record.reference, record.digest, path, record.sha256, record.bytes) if whole else None


def add(folder: str, record: Record, mode: int) -> None:
    """Write a record behind those there are. Call it with the lock of the reference. Raises: OSError."""
    number = 1 + max((number for number, _ in _numbered(folder, record.reference)), default=0)
    kept = {key: value for key, value in dataclasses.asdict(record).items() if value != ""}
    with replacing(Path(folder, f"{_plain(record.reference)}.{number}.json")) as file:
        os.fchmod(file.fileno(), mode)  # whatever the umask is
        file.write(json.dumps(kept, indent=2).encode() + b"\n")


def lock_name(name: str) -> str:
    """The lock of a reference or of an image's file."""
    return f".{_plain(name)}.lock"


def _numbered(folder: str, reference: str) -> List[Tuple[int, str]]:
    """Number and name of each record of a reference, in their order."""
    pattern = re.compile(re.escape(_plain(reference)) + r"\.(\d{1,6})\.json")
    try:
        matches = [pattern.fullmatch(name) for name in os.listdir(folder)]
    except OSError:
        return []
    return sorted((int(match[1]), match[0]) for match in matches if match)


def _plain(text: str) -> str:
    return re.sub(r"[^\w.-]", "+", text, flags=re.ASCII)
