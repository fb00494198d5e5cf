#!/usr/bin/env python3
"""A stand-in for `enroot import`, `enroot digest` and `apptainer pull`, by the name that it is called by.

It fetches manifest and layers from the registry over HTTP as they do; its file begins as theirs. Kept of
them: an image is written to its place while it comes, one that is there is refused, and what they print of a
refusal. Sources: enroot 4.1.2 `src/docker.sh`, `src/common.sh`; apptainer 1.3. Not kept: nothing can be
started from the file. `STAND_IN_PAUSE_S` lets it take so long.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

KINDS = (
    "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
)
SAID = {401: "Unauthorized", 404: "Not Found"}
WORDS = {
    401: "reading manifest: unauthorized: authentication required",
    404: "reading manifest: manifest unknown",
}


def main() -> int:
    name, words = Path(sys.argv[0]).name, [word for word in sys.argv[1:] if word != "--no-https"]
    enroot = name == "enroot"
    uri = words[-1]
    pattern = r"docker://([^/#]+)[/#]([^:@]+)(?::([^@]+))?(?:@(sha256:[0-9a-f]+))?"
    host, image, tag, digest = re.fullmatch(pattern, uri).groups()
    target = Path(words[2] if enroot and words[0] == "import" else words[1])
    try:
        answer = urllib.request.urlopen(
            urllib.request.Request(
                f"http://{host}/v2/{image}/manifests/{digest or tag or 'latest'}", headers={"Accept": KINDS}
            )
        )
        if words[0] == "digest":
            print(answer.headers["Docker-Content-Digest"])
            return 0
        if target.exists():
            print(f"[ERROR] File already exists: {target}", file=sys.stderr)
            return 1
        manifest = json.load(answer)
        if "manifests" in manifest:
            found = next(m for m in manifest["manifests"] if m["platform"]["architecture"] == "amd64")
            url = f"http://{host}/v2/{image}/manifests/{found['digest']}"
            manifest = json.load(
                urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": KINDS}))
            )
        layers = manifest["layers"]
        with target.open("wb") as file:
            file.write(b"hsqs".ljust(4096, b"\0") if enroot else b"\0" * 32 + b"SIF_MAGIC\0")
            for layer in layers:
                with urllib.request.urlopen(f"http://{host}/v2/{image}/blobs/{layer['digest']}") as blob:
                    file.write(blob.read())
            file.flush()
            time.sleep(float(os.environ.get("STAND_IN_PAUSE_S", "0")))
            size = file.tell()
            if enroot:  # mksquashfs writes its superblock last
                file.seek(40)
                file.write(size.to_bytes(8, "little"))
    except urllib.error.HTTPError as problem:
        if enroot:
            print(f"[ERROR] URL {problem.url} returned error code: {problem.code} {SAID.get(problem.code)}")
        else:
            print(
                f"FATAL:   While making image from oci registry: {WORDS.get(problem.code)}", file=sys.stderr
            )
        return 1 if enroot else 255
    except OSError as problem:
        print(f"FATAL ERROR: Failed to write to output filesystem: {problem.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
