"""Rules of engines that SkyRL does not start: its own kind of server, as services on nodes without a trainer.

Source: SkyRL at a9564572 (2026-08-21): `_validate_new_inference_cfg`, `build_new_inference_client`, the
standalone entrypoint of `vllm_server_actor.py` and the vLLM settings of `build_vllm_cli_args`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.shared.dotted_keys import flat
from jobspec.frameworks.skyrl.settings import ADDRESSES, ENGINE, LOCAL, URLS, has_remote_engines, setting
from jobspec.plan import service_variable
from jobspec.spec.services import Service
from jobspec.words import did_you_mean

SERVER = "skyrl.backends.skyrl_train.inference_servers.vllm_server_actor"
OTHER_SERVERS = re.compile(r"\bvllm serve\b|\bvllm\.entrypoints\b")
# Without the first no worker has SkyRL's way to take weights, without the second vLLM's.
NEEDED_FLAGS = {
    "--worker-extension-cls": "skyrl.backends.skyrl_train.inference_servers.new_inference_worker_wrap."
    "NewInferenceWorkerWrap",
    "--weight-transfer-config": """'{"backend": "nccl"}'""",
}
COLOCATED = "trainer.placement.colocate_all"
_VARIABLE = re.compile(r"\$\{oc\.env:\s*(JOBSPEC_SERVICE_\w+)")


def check_remote(context: Context) -> Iterator[Finding]:
    if not has_remote_engines(context):
        yield from _unused(context)
        return
    named = [key for key in ADDRESSES if setting(context, key) is not None]
    if not named:
        what, why = f"`{LOCAL}` is false, and no setting names the servers", "SkyRL refuses to start"
        yield error("skyrl.remote", what, why, _name_them(context), path=_override(URLS))
    if setting(context, COLOCATED):
        what = f"the engines are servers of their own, and `{COLOCATED}` is true"
        why = "SkyRL refuses to start: it shares the trainer's GPUs with engines that it starts alone"
        yield error("skyrl.remote", what, why, "set it to false", path=_override(COLOCATED))
    if setting(context, LOCAL):
        what = f"`{named[0]}` names servers, and `{LOCAL}` is true"
        why = "a second process, such as that of a resume, does not take over their transfer of weights"
        yield warning("skyrl.remote", what, why, "set it to false", path=_override(LOCAL))
    for key in named:
        yield from _check_addresses(context, key)
    yield from _check_servers(context)
    yield from _without_effect(context)


def _unused(context: Context) -> Iterator[Finding]:
    for index, service in enumerate(context.spec.services):
        if SERVER in " ".join(service.command):
            what = f"service `{service.name}` starts engines, and no setting names their address"
            why = "SkyRL starts engines of its own on the trainer's GPUs"
            yield warning("skyrl.remote", what, why, _name_them(context), path=f"services[{index}]")


def _check_addresses(context: Context, key: str) -> Iterator[Finding]:
    """Texts that SkyRL takes as they are: a wrong one is known only when the allocation is there."""
    value, path = setting(context, key), _override(key)
    if key == URLS and not isinstance(value, list) and not str(value).startswith("${"):
        what = f"`{key}` is one text"
        why = "SkyRL takes each of its characters for a server"
        yield error("skyrl.remote", what, why, "write a list", path=path)
    prefixes = {service_variable(service.name): service for service in context.spec.services}
    known = {f"{prefix}_{end}": prefix for prefix in prefixes for end in ("URL", "URLS", "HOST", "PORT")}
    for text in _texts(value):
        for variable in _VARIABLE.findall(text):
            if variable not in known:
                what, why = f"no service has the variable `{variable}`", "SkyRL cannot read its settings"
                fix = did_you_mean(variable, known) or "name a service of `services`"
                yield error("skyrl.remote", what, why, fix, path=path)
                continue
            service = prefixes[known[variable]]
            count = _servers(context, service)
            several = _all_of(service)
            if key == URLS and variable.endswith("_URLS") and isinstance(value, list):
                what = f"`{variable}` holds all addresses of `{service.name}`, and is one item of a list"
                why = "SkyRL takes the item for one server"
                yield error("skyrl.remote", what, why, f"write `{several}` in place of the list", path=path)
            elif key == URLS and not variable.endswith("_URLS") and count > 1:
                what = f"`{variable}` is the address of one of the {count} servers of `{service.name}`"
                why = "the others get no prompts, and their GPUs idle"
                yield warning("skyrl.remote", what, why, f"write `{several}` in place of the list", path=path)


def _check_servers(context: Context) -> Iterator[Finding]:
    """Services that the settings name: with the endpoints and the workers that take SkyRL's weights."""
    named = {
        name
        for key in ADDRESSES
        for text in _texts(setting(context, key))
        for name in _VARIABLE.findall(text)
    }
    for index, service in enumerate(context.spec.services):
        text, path = " ".join(service.command), f"services[{index}].command"
        if not any(variable.startswith(f"{service_variable(service.name)}_") for variable in named):
            continue
        if OTHER_SERVERS.search(text):
            what = f"service `{service.name}` starts vLLM's own server"
            why = "SkyRL sends weights and prompts to endpoints that its own one adds"
            yield error("skyrl.remote", what, why, f"start `-m {SERVER}`: it takes the same flags", path=path)
        elif (
            SERVER in text
            and "--config" not in text
            and not setting(context, "trainer.policy.model.lora.rank")
        ):
            for flag, value in NEEDED_FLAGS.items():
                if flag not in text.replace("_", "-"):
                    what, why = f"the engines have no `{flag}`", "the first transfer of weights fails"
                    yield error("skyrl.remote", what, why, f"add `{flag} {value}`", path=path)


def _without_effect(context: Context) -> Iterator[Finding]:
    paths = {}
    if context.spec.train.rollout.engines is not None:
        paths["train.rollout.engines"] = "the services are as many as there are"
    key = f"{ENGINE}.gpu_memory_utilization"
    if key in flat(context.spec.train.overrides):
        paths[_override(key)] = "give it to the servers: `--gpu-memory-utilization`"
    for path, fix in paths.items():
        what, why = f"`{path}` does nothing here", "SkyRL gives it to engines that it starts itself"
        yield warning("skyrl.remote", what, why, f"remove it; {fix}", path=path)


def _name_them(context: Context) -> str:
    service = next((item for item in context.spec.services if SERVER in " ".join(item.command)), None)
    value = _all_of(service) if service else '["http://HOST:PORT"]'
    return f"set `{LOCAL}: false` and `{URLS}: {value}`"


def _all_of(service: Service) -> str:
    """A setting with the addresses of all servers of a service, as a spec has it."""
    return f"\"$${{oc.decode:'[$${{oc.env:{service_variable(service.name)}_URLS}}]'}}\""


def _servers(context: Context, service: Service) -> int:
    if service.on == "all":
        return context.spec.resources.nodes
    return sum(group.nodes for group in context.spec.groups if group.name == service.on) or service.nodes or 1


def _texts(value: Any) -> list[str]:
    return [str(item) for item in (value if isinstance(value, list) else [value])]


def _override(key: str) -> str:
    return f"train.overrides.{key}"
