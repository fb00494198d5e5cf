"""The table of commands. Each command has a module: its arguments, one call, its output, its exit code.

The layers below the command line make all decisions.
"""

from __future__ import annotations

# (name, one line); the module of a command has its name. The order is that of work, as in `--help`.
COMMANDS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Write and check",
        (
            ("init", "a commented spec to start from"),
            ("validate", "every mistake in a spec, without a cluster"),
            ("explain", "every resolved value and where it came from"),
            ("render", "the exact files of a run, nothing submitted"),
            ("schema", "the JSON Schema of specs, site profiles and what --json prints"),
        ),
    ),
    (
        "Run",
        (
            ("submit", "render a spec and start it"),
            ("run", "submit, follow, report; the exit code is the verdict"),
            ("stage", "put a spec's model and data on shared storage beforehand"),
            ("status", "where runs are"),
            ("logs", "what a run has printed"),
            ("attach", "a shell in a running job"),
            ("exec", "a command in a running job's container"),
            ("dump", "the stacks of all processes of a running job, and who differs"),
            ("cancel", "end runs"),
        ),
    ),
    (
        "Judge",
        (
            ("report", "the verdict of a run, from its evidence files"),
            ("judge", "the same verdict over files of a run that jobspec did not launch"),
            ("compare", "what differed between runs, and what it did to the metrics"),
            ("reproduce", "submit a run's lock again; say what cannot be the same"),
            ("triage", "first cause, class and fix out of logs"),
        ),
    ),
    (
        "Set up",
        (
            ("cluster", "list, show, detect and check site profiles"),
            ("nodes", "list, add and remove nodes to keep away from"),
            ("framework", "list and show RL frameworks and their coverage levels"),
            ("doctor", "what this machine has and lacks"),
            ("skill", "an instruction file for coding assistants"),
            ("mcp", "a server for assistants that only reads (Model Context Protocol)"),
            ("completion", "a completion script for bash, zsh or fish"),
        ),
    ),
)


def command_names() -> list[str]:
    return [name for _, commands in COMMANDS for name, _ in commands]
