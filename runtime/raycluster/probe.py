"""A child of the head agent: waits until Ray's nodes have joined, then imports modules on each of them.

The probe imports Ray while Ray starts, and asks the GCS itself: an open GCS port is not readiness. It runs as
`python -m jobspec.runtime.raycluster.probe` with `[address, {name: GPUs}]` as argument, and prints one JSON
object a line: `{"alive": {name: {resource: amount}}}` on every change, then `{"ready": true}` once all are
there. Then it reads the modules to import as one JSON list from stdin (they are known later than Ray
starts), and prints `{"imports": [report of probe_module, with "node"]}`. `{"error": text}` may come at any
time. With the address `auto` the Ray of this node is somebody else's, and host names identify its nodes.
Every undocumented name of Ray's has a documented way beside it, for other versions.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Sequence

POLL_S = 0.1
SLOW = (4, 14)  # of gRPC: the deadline was exceeded, or nobody answers for now
Alive = Dict[str, Dict[str, float]]


def say(message: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _ray() -> Any:
    """Ray's module. Not an import statement: the type checker must not need a Ray."""
    return importlib.import_module("ray")


def wait_for_port(host: str, port: int) -> None:
    """Return when something listens. The parent has the deadline."""
    while True:
        try:
            socket.create_connection((host, port), timeout=2.0).close()
            return
        except OSError:
            time.sleep(0.05)


def patiently(ask: Callable[[], Any]) -> Any:
    """What a GCS on a busy machine answers, however late. The parent has the deadline."""
    while True:
        try:
            return ask()
        except Exception as problem:
            if getattr(problem, "rpc_code", None) not in SLOW:
                raise
            time.sleep(POLL_S)


def gcs_client(address: str) -> Any:
    """A client that has had an answer. Raises: whatever a Ray whose client is another one makes of this."""
    client = patiently(lambda: importlib.import_module("ray._raylet").GcsClient(address=address))
    patiently(lambda: client.get_all_node_info(timeout=5))
    return client


def node_reader(address: str) -> Callable[[], Alive]:
    """A function that lists the nodes that are alive, by the name that `ray start --node-name` gave."""
    try:
        client = gcs_client(address)
        return lambda: _from_gcs(client)
    except Exception as problem:  # noqa: BLE001 - GcsClient is not documented: any failure means the other way
        say({"note": f"asking by ray.nodes(): {problem}"})
        _connect(address)
        return _from_ray


def _from_gcs(client: Any) -> Alive:
    infos = patiently(lambda: client.get_all_node_info(timeout=5)).values()
    return {info.node_name: dict(info.resources_total) for info in infos if info.state == 0}  # 0 is ALIVE


def _from_ray() -> Alive:
    return {
        str(node.get("NodeName") or node["NodeManagerAddress"]): dict(node["Resources"])
        for node in _ray().nodes()
        if node["Alive"]
    }


def host_reader(names: Sequence[str]) -> Callable[[], Alive]:
    """A function that lists the nodes that are alive in this node's Ray, by their names in `names`."""
    known = {name.split(".")[0]: name for name in names}
    _connect("auto")
    return lambda: {
        known.get(_host(node), _host(node)): dict(node["Resources"])
        for node in _ray().nodes()
        if node["Alive"]
    }


def _host(node: Mapping[str, Any]) -> str:
    return str(node["NodeManagerHostname"]).split(".")[0]


def _connect(address: str) -> None:
    """`runtime_env`: tasks get the driver's search path, as frameworks that start on a foreign Ray do it."""
    path = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    more = {"runtime_env": {"env_vars": path}} if address == "auto" else {}
    _ray().init(address=address, log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True, **more)


def wait_for_nodes(read: Callable[[], Alive], gpus: Mapping[str, int]) -> None:
    """Return when every node is alive with its GPUs. The parent has the deadline."""
    announced: Alive = {}
    while True:
        alive = read()
        if set(alive) != set(announced):
            say({"alive": alive})
            announced = alive
        if all(name in alive and alive[name].get("GPU", 0) >= count for name, count in gpus.items()):
            return
        time.sleep(POLL_S)


def prove_imports(address: str, names: Sequence[str], modules: Sequence[str]) -> List[Dict[str, Any]]:
    """Import the modules in a Ray task on each node; the reports, in the order of `names`."""
    from jobspec.runtime.checkouts.import_probe import probe_module

    ray, scheduling = _ray(), importlib.import_module("ray.util.scheduling_strategies")
    _connect(address)
    living = [node for node in ray.nodes() if node["Alive"]]
    ids = {
        (_host(node) if address == "auto" else str(node.get("NodeName"))): node["NodeID"] for node in living
    }
    if address == "auto":
        ids = {name: ids[name.split(".")[0]] for name in names}
    task = ray.remote(num_cpus=0, max_retries=0)(probe_module)
    tasks = [
        task.options(
            scheduling_strategy=scheduling.NodeAffinitySchedulingStrategy(ids[name], soft=False)
        ).remote(list(modules))
        for name in names
    ]
    return [{**report, "node": name} for name, report in zip(names, ray.get(tasks))]  # noqa: B905 - Python 3.9


def _reader(address: str, names: Sequence[str]) -> Callable[[], Alive]:
    if address == "auto":
        return host_reader(names)
    host, _, port = address.rpartition(":")
    wait_for_port(host, int(port))
    return node_reader(address)


def main(argument: str) -> int:
    address, gpus = json.loads(argument)
    names = list(gpus)
    try:
        _ray()  # takes the time that Ray needs to start
        wait_for_nodes(_reader(address, names), gpus)
        say({"ready": True})
        modules = json.loads(sys.stdin.readline() or "[]")
        if modules:
            say({"imports": prove_imports(address, names, modules)})
    except Exception as problem:  # noqa: BLE001 - reported to the parent, which makes a finding of it
        say({"error": f"{type(problem).__name__}: {problem}"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
