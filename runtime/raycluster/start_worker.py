"""`ray start` of a worker: loads Ray beforehand, and starts the moment that the head's node is there.

A worker's `ray start` that finds the GCS but not the head's node sleeps 2 s before it looks again, and its
imports take most of a second. This program spends both while the head starts. It runs as
`python -m jobspec.runtime.raycluster.start_worker ADDRESS ARGUMENT...`; the arguments are those of `ray`.
Source: ray 2.60, _private/services.py, `get_node_to_connect_for_driver` and `ray start`'s own retries.
"""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any, List

from jobspec.runtime.raycluster.probe import gcs_client, patiently, wait_for_port

POLL_S = 0.05


def wait_for_head(address: str) -> None:
    """Return when Ray lists a living node, or when this Ray cannot be asked. The parent has the deadline."""
    host, _, port = address.rpartition(":")
    wait_for_port(host, int(port))
    try:
        client = gcs_client(address)
        while not is_any_alive(client):
            time.sleep(POLL_S)
    except Exception as problem:  # noqa: BLE001 - GcsClient is not documented: then `ray start` waits itself
        print(f"not waiting for the head's node: {problem}", file=sys.stderr)


def is_any_alive(client: Any) -> bool:
    infos = patiently(lambda: client.get_all_node_info(timeout=5)).values()
    return any(info.state == 0 for info in infos)  # 0 is ALIVE


def main(argv: List[str]) -> None:
    scripts = importlib.import_module("ray.scripts.scripts")
    wait_for_head(argv[0])
    sys.argv = ["ray", *argv[1:]]
    scripts.main()


if __name__ == "__main__":
    main(sys.argv[1:])
