"""For every folder of tests: how they are spread over processes, what only runs at night, Hypothesis."""

from __future__ import annotations

import json
import signal
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A loaded machine is no failure. The rest is as Hypothesis chooses: on CI the same examples each time.
PARENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", PARENT, max_examples=30)
settings.register_profile("nightly", PARENT, max_examples=300, derandomize=False, print_blob=True)

# With pytest-xdist one process does all tests that need a cluster, since a cluster takes long to start and is
# to be idle; those with Ray take half of that time and have a cluster of their own. All other tests go by
# module. What takes longest comes first: by these marks, the last one without any.
ORDER = (("slurm", "ray"), ("slurm",), ("ray",), ())
TOLD = "jobspec_groups"
FOLDER = pytest.StashKey[TemporaryDirectory[str]]()

# Below nohup(1) the runtime leaves SIGHUP ignored, by design; tests begin as from a terminal. A handler, not
# the default: what is run below nohup wants to outlive the terminal.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="also tests marked `nightly`; 300 examples each")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("nightly" if config.getoption("--nightly") else "ci")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--nightly"):
        late = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=late)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: ORDER.index(_marks(item)))


@pytest.hookimpl(tryfirst=True)  # before xdist says that this process is ready
def pytest_collection_finish(session: pytest.Session) -> None:
    given = getattr(session.config, "workerinput", {})
    if given.get("workerid") == "gw0":
        groups = {item.nodeid: "-".join(_marks(item)) for item in session.items if "slurm" in _marks(item)}
        Path(given[TOLD]).write_text(json.dumps(groups))


def _marks(item: pytest.Item) -> tuple[str, ...]:
    return tuple(name for name in ("slurm", "ray") if item.get_closest_marker(name))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """The process that hands out tests collects none: a file tells it their groups.

    xdist's own way, a suffix of a test's id, does not work with pytest 9.2, and ids with it cannot be run.
    """
    node.workerinput[TOLD] = str(_told(node.config))


def _told(config: pytest.Config) -> Path:
    if FOLDER not in config.stash:
        config.stash[FOLDER] = TemporaryDirectory()
        config.add_cleanup(config.stash[FOLDER].cleanup)
    return Path(config.stash[FOLDER].name, "groups.json")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands out groups, and modules of tests without one, whose fixtures are then made once."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):  # type: ignore[misc]
        @cached_property
        def groups(self) -> dict[str, str]:
            return dict(json.loads(_told(config).read_text()))

        def _split_scope(self, nodeid: str) -> str:
            return self.groups.get(nodeid) or str(super()._split_scope(nodeid))

    return Scheduler(config, log) if config.getoption("dist") == "loadscope" else None
