"""`services` of a job spec: programs that run beside the driver."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from jobspec.spec.containers import Container
from jobspec.spec.fields import Base, Gpus, Nodes, PositiveInt, ServiceName, doc

Port = Annotated[int, Meta(ge=1024, le=65535)]
HttpStatus = Annotated[int, Meta(ge=100, le=599)]


class Ready(Base, frozen=True):
    """How a service shows that it is ready: one of `tcp`, `http` and `log`."""

    tcp: Annotated[
        bool | None, doc("Its port accepts connections: what counts where none of the three is given.", True)
    ] = None
    http: Annotated[str | None, doc("Path that a GET of its port must answer with `status`.", "/health")] = (
        None
    )
    status: Annotated[HttpStatus, doc("Status that `http` waits for.", 204)] = 200
    log: Annotated[
        str | None, doc("Regular expression that a line of its log must match.", "startup complete")
    ] = None
    timeout: Annotated[PositiveInt, doc("Seconds until it must be ready.", 900)] = 300


class Service(Base, frozen=True):
    """A program beside the driver, such as a reward or judge server, a sandbox or a gym."""

    name: Annotated[
        ServiceName,
        doc("Name, as in DNS; programs find it by JOBSPEC_SERVICE_<NAME>_URL and the like.", "judge"),
    ]
    command: Annotated[
        tuple[str, ...],
        doc(
            "Argument vector, or one bash text with `shell: true`. It listens on $PORT and stays in the "
            "foreground. A relative script is looked for beside the spec, then in `repos`.",
            ["python3", "reward_server.py"],
        ),
    ]
    shell: Annotated[bool, doc("Run `command`'s only item as a bash script with `-eo pipefail`.")] = False
    on: Annotated[
        ServiceName | None,
        doc(
            "Where it runs: `head`, beside the driver, `all` nodes, or those of a group of `groups`. "
            "Default: `head`; excludes `nodes`.",
            "all",
        ),
    ] = None
    nodes: Annotated[
        Nodes | None, doc("It runs on so many nodes, the last of the run's. Excludes `on`.", 2)
    ] = None
    gpus: Annotated[
        Gpus,
        doc("GPUs of each of its nodes that it has for itself, out of `resources.gpus_per_node`.", 2),
    ] = 0
    container: Annotated[
        Container | None,
        doc("The container that it lives in, where it is not the run's; the site's runtime starts it."),
    ] = None
    port: Annotated[
        Port | Literal["auto"], doc("Port that it listens on; `auto`: a free one. It finds it in PORT.", 8000)
    ] = "auto"
    ready: Annotated[
        Ready, doc("How it shows that it is ready; only then the next service starts, or the driver.")
    ] = Ready()
    required: Annotated[
        bool,
        doc("The run ends as Blocked where it is not ready or dies; `false`: that is a limitation."),
    ] = True
