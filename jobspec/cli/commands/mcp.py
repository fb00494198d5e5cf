"""A server for assistants on standard input and output (Model Context Protocol) that only reads.

Its tools are `validate`, `explain`, `status`, `report`, `triage` and `logs`, like the commands of these
names, with bounded answers. It starts, cancels and writes nothing. Needs `pip install 'jobspec-rl[mcp]'`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec

from jobspec.cli.output import version
from jobspec.finding import fail
from jobspec.words import install_command

P = ParamSpec("P")


def add_arguments(into: argparse.ArgumentParser) -> None:
    """It has no options."""


def run(args: argparse.Namespace) -> int:
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp_types import ToolAnnotations
    except ImportError as problem:
        what = "the package `mcp` is not installed, or older than 2.0"
        raise fail("usage.no-mcp", what, str(problem), f"run `{install_command('mcp')}`") from None
    from jobspec.cli.commands import mcp_tools

    def saying(tool: Callable[P, str]) -> Callable[P, str]:
        @wraps(tool)
        def call(*args: P.args, **kwargs: P.kwargs) -> str:
            try:
                return tool(*args, **kwargs)
            except mcp_tools.Refused as problem:
                raise ToolError(str(problem)) from None

        return call

    folder = str(Path.cwd())
    server = MCPServer(
        "jobspec",
        version=version(),
        instructions=mcp_tools.INSTRUCTIONS.format(folder=folder),
        log_level="WARNING",
    )
    reads = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
    for tool in mcp_tools.TOOLS:
        server.tool(annotations=reads, structured_output=False)(saying(tool))
    server.run("stdio")
    return 0
