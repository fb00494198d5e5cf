"""What Tab offers: commands, options, and the names that stand for them here, such as runs and clusters.

The shell runs `jobspec` with argcomplete's variables, its output comes through file descriptor 8, and nothing
else is shown. Only the module of the command on the line is imported.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from jobspec.cli.commands import COMMANDS, command_names

AS_WRITTEN = argparse.RawDescriptionHelpFormatter
OVERRIDES = "train.overrides."
MAX_RUNS = 200  # newest ids; older ones are still found by their names
FRAMEWORK = re.compile(r"^framework: *[\"']?(\w+)", re.MULTILINE)


def complete() -> None:
    """Answer the shell and end this process. It says nothing of its own, whatever happens."""
    with suppress(BaseException):
        import argcomplete

        words = os.environ.get("COMP_LINE", "").split()
        # Without a prefix a word is a run or a file: options only after a dash.
        argcomplete.autocomplete(build(words[1:2]), always_complete_options=False)
    os._exit(1)


def build(wanted: Collection[str]) -> argparse.ArgumentParser:
    """The parser of the whole line; only the wanted commands have their arguments."""
    usage = "jobspec COMMAND [OPTION…]"
    root = argparse.ArgumentParser(prog="jobspec", usage=usage, formatter_class=AS_WRITTEN)
    root.add_argument("--version", action="store_true", help="print the version")
    commands = root.add_subparsers(title="commands", prog="jobspec", metavar="COMMAND")
    for _, group in COMMANDS:
        for name, text in group:
            parser = commands.add_parser(name, help=text, formatter_class=AS_WRITTEN)
            if name in wanted:
                module = import_module(f"jobspec.cli.commands.{name}")
                parser.description = module.__doc__
                module.add_arguments(parser)
                _equip(name, parser)
    commands.add_parser("help", help="the options of a command").add_argument("of", choices=command_names())
    return root


def _equip(command: str, parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in dict.fromkeys(action.choices.values()):
                _equip(command, child)
        elif action.choices is None and (source := _source(command, action)) is not None:
            action.completer = source  # type: ignore[attr-defined]  # what argcomplete looks for


def _source(command: str, action: argparse.Action) -> Any:
    """What completes an argument, by its name or its placeholder; None for files and free text."""
    if action.dest == "name":
        named = {"cluster": clusters, "framework": frameworks, "status": run_names}
        return named.get(command) if action.metavar else None
    by_name = {"cluster": clusters, "framework": frameworks, "framework_wanted": frameworks}
    by_metavar = {
        "SPEC": specs,
        "RUN": runs,
        "RUN|LOCK": runs,
        "LEVEL": levels,
        "RULE": rules,
        "KEY": keys,
        "KEY=VALUE": settings,
    }
    return by_name.get(action.dest) or by_metavar.get(str(action.metavar))


# -- names -------------------------------------------------------------------------------------------


def runs(parsed_args: Any, **_: Any) -> dict[str, str]:
    """`last`, names and ids; where none of them fits, the shell itself offers folders."""
    found = _runs(parsed_args)
    names = {run.root.parent.name: "newest run of this name" for run in found}
    ids = {run.run_id: run.root.parent.name for run in found[:MAX_RUNS]}
    return {"last": "the newest run", **names, **ids}


def specs(prefix: str, **_: Any) -> list[str]:
    """Files, and the variants of the file that is named."""
    from argcomplete.completers import FilesCompleter

    from jobspec.spec.bases import split_variant, variants_of

    file = split_variant(prefix)[0]
    variants = variants_of(file) if Path(file).is_file() else []
    return [*FilesCompleter()(prefix), *(f"{file}:{name}" for name in variants)]


def run_names(parsed_args: Any, **_: Any) -> list[str]:
    return list(dict.fromkeys(run.root.parent.name for run in _runs(parsed_args)))


def _runs(parsed_args: Any) -> list[Any]:
    from jobspec.runs.store import open_store

    return open_store(getattr(parsed_args, "runs", None)).list()


def clusters(**_: Any) -> dict[str, str]:
    from jobspec.spec.find_site import list_clusters

    return {entry.name: entry.origin for entry in list_clusters(os.environ)}


def frameworks(**_: Any) -> list[str]:
    from jobspec import frameworks as registry

    return list(registry.names())


def levels(parsed_args: Any, **_: Any) -> dict[str, str]:
    """Levels of the framework that the line or its spec names, else of all."""
    from jobspec import frameworks as registry

    named = getattr(parsed_args, "framework", None) or _framework_of(getattr(parsed_args, "spec", None))
    asked = [named] if named in registry.names() else registry.names()
    return {level.name: level.proves for name in asked for level in registry.get(name).levels}


def _framework_of(spec: str | list[str] | None) -> str | None:
    """Read without a YAML parser: a spec that is being written need not be one yet."""
    first = next(iter(spec), "") if isinstance(spec, list) else spec
    with suppress(OSError, ValueError):
        from jobspec.spec.bases import split_variant

        found = FRAMEWORK.search(Path(split_variant(first or "")[0]).read_text(encoding="utf-8"))
        return found.group(1) if found else "command"
    return None


def rules(**_: Any) -> list[str]:
    from jobspec.checks.rule_names import RULES

    return [*RULES, *(f"{family}.{name}" for family, names in RULES.items() for name in names)]


def keys(**_: Any) -> dict[str, str]:
    return {key: shape.description for key, shape in _keys()}


def settings(prefix: str, parsed_args: Any, **_: Any) -> Iterable[str]:
    """`KEY=` of each value, and behind the sign the value's choices."""
    key, equals, _value = prefix.partition("=")
    if not equals and key.startswith(OVERRIDES):
        return [f"{OVERRIDES}{name}=" for name in _override_keys(getattr(parsed_args, "spec", None))]
    if not equals:
        return [f"{name}=" for name, shape in _keys() if not (shape.properties or shape.values)]
    shape = dict(_keys()).get(key)
    choices = () if shape is None else _choices(key, shape)
    return [f"{key}={choice}" for choice in choices]


def _override_keys(spec: str | list[str] | None) -> Iterable[str]:
    """What the spec's framework knows of `train.overrides`, by the checkouts and the recipe of the spec."""
    from jobspec import frameworks as registry
    from jobspec.spec.load import load_spec

    file = (next(iter(spec), "") if isinstance(spec, list) else spec) or ""
    loaded = load_spec(file, (), os.environ).spec
    paths = {repo.name: str(Path(file).absolute().parent / repo.path) for repo in loaded.repos if repo.path}
    known = getattr(registry.get(loaded.framework), "override_keys", None)
    recipe = loaded.train.recipe or next((one.config for one in loaded.pipelines), "")
    return known(recipe, paths) if known else ()


def _choices(key: str, shape: Any) -> Iterable[str]:
    if key in ("framework", "cluster"):
        return frameworks() if key == "framework" else clusters()
    if "boolean" in shape.types:
        return ("true", "false")
    return [str(choice) for choice in shape.node.get("enum", ())]


def _keys() -> Iterator[tuple[str, Any]]:
    """Every key of a spec with its shape; an item of a list is its first one."""
    from jobspec.spec.paths import format_path
    from jobspec.spec.schema import root_shape, walk

    for path, shape in walk(root_shape("job")):
        yield format_path(path), shape
