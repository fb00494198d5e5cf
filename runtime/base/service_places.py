"""Where the services of a run are, and which GPUs they have. Pure: the head says who runs where."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Sequence

from jobspec.plan import Plan, service_variable


class Place(NamedTuple):
    """One process of a service: the index of its node, the node's address, its port."""

    node: int
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def variables(places: Mapping[str, Sequence[Place]], node: int) -> Dict[str, str]:
    """What every program on `node` reads: the service's own process here where it has one, else its first."""
    found: Dict[str, str] = {}
    for name, all_places in places.items():
        near = next((place for place in all_places if place.node == node), all_places[0])
        begin = service_variable(name)
        found[f"{begin}_HOST"] = near.host
        found[f"{begin}_PORT"] = str(near.port)
        found[f"{begin}_URL"] = near.url
        found[f"{begin}_URLS"] = ",".join(place.url for place in all_places)
    return found


def past_proxies(places: Mapping[str, Sequence[Place]], env: Mapping[str, str]) -> Dict[str, str]:
    """Where `env` names a proxy, the variables by which programs do not send it their requests to services.

    It stands between the cluster and the world, and does not reach the nodes. Libraries read either spelling.
    """
    if not {"http_proxy", "all_proxy"}.intersection(name.lower() for name in env):
        return {}
    hosts = dict.fromkeys(place.host for listed in places.values() for place in listed)
    found = {}
    for name, other in (("no_proxy", "NO_PROXY"), ("NO_PROXY", "no_proxy")):
        already = env.get(name) or env.get(other) or ""
        # `*`, none at all, counts only where it stands alone.
        found[name] = already if already.strip() == "*" else ",".join([already, *hosts]).lstrip(",")
    return found


def visible_gpus(plan: Plan, node: int, env: Mapping[str, str], count: int) -> List[str]:
    """The GPUs of the run on `node`, which has `count`, as CUDA_VISIBLE_DEVICES names them."""
    listed = env.get("CUDA_VISIBLE_DEVICES")
    ids = map(str, range(count)) if listed is None else (part.strip() for part in listed.split(","))
    return [gpu for gpu in ids if gpu][: plan.gpus_of(node)]


def share_gpus(plan: Plan, node: int, visible: Sequence[str]) -> Dict[str, Sequence[str]]:
    """The GPUs of each service on `node`, in order behind those of Ray and the commands."""
    shares: Dict[str, Sequence[str]] = {}
    at = plan.driver_gpus_of(node)
    for service in plan.services:
        if node in service.nodes:
            shares[service.name] = visible[at : at + service.gpus]
            at += service.gpus
    return shares
