"""Hostile inputs are given to the command line in a project of their own, as in `tests/cli`."""

from tests.cli.conftest import interruptible, project

__all__ = ["interruptible", "project"]
