"""Argument parsers: argparse with findings instead of its own error texts, and shared options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from jobspec.finding import fail

if TYPE_CHECKING:
    from jobspec.pipeline import Request


class Parser(argparse.ArgumentParser):
    """Raises usage mistakes as findings, with the nearest option that exists."""

    takes_rest = False

    def read(self, words: list[str]) -> argparse.Namespace:
        """The parsed arguments; options may stand between positionals, as in `explain SPEC --set K=V KEY`.

        argparse's `parse_args` counts an optional positional as absent once an option follows.
        """
        mixed = any(action.nargs in ("?", "+") and not action.option_strings for action in self._actions)
        return self.parse_intermixed_args(words) if mixed else self.parse_args(words)

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """As argparse; after `add_rest` the words behind `--` go unread into `rest`.

        argparse's own REMAINDER starts at the first positional and swallows options before `--`.
        """
        words = list(args or [])
        cut = words.index("--") if self.takes_rest and "--" in words else len(words)
        parsed, unknown = super().parse_known_args(words[:cut], namespace)
        if self.takes_rest:
            parsed.rest = words[cut + 1 :]
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuses a word outside the choices and names the nearest one; argparse only lists them."""
        if action.choices is None or value in action.choices:
            return
        from jobspec.words import did_you_mean, one_of

        name = "/".join(action.option_strings) or str(action.metavar or action.dest)
        known = [str(choice) for choice in action.choices]
        raise fail(
            "usage.arguments",
            f"argument {name}: invalid choice: '{value}'",
            why=f"choices: {', '.join(known)}",
            fix=did_you_mean(str(value), known) or f"use {one_of(known)}",
        )

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuses an empty text: often it is an unset shell variable, as in `cancel "$RUN"`."""
        if "" in arg_strings:
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            raise fail(
                "usage.arguments",
                f"argument {name}: the value is empty",
                why="it may be a shell variable that is not set",
                fix=f"give a value{', or leave the option out' if action.option_strings else ''}",
            )
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        why = self._suggestion(message)
        raise fail("usage.arguments", message, why=why, fix=f"`{self.prog} --help` lists the arguments")

    def _suggestion(self, message: str) -> str:
        from difflib import get_close_matches

        options = [option for action in self._actions for option in action.option_strings]
        pairs = []
        for word in re.findall(r"(?<!\S)--?[A-Za-z][\w-]*", message.partition("unrecognized arguments:")[2]):
            close = get_close_matches(word, options, n=1)
            if close:
                pairs.append(f"`{close[0]}` instead of `{word}`")
        return "did you mean " + ", ".join(pairs) + "?" if pairs else " ".join(self.format_usage().split())


def whole_number(least: int) -> Callable[[str], int]:
    """The type of an option that counts: a whole number of at least `least`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= least):
            raise argparse.ArgumentTypeError(f"`{text}` is not a whole number of at least {least}")
        return int(text)

    return read


def build_parser(name: str, module: ModuleType) -> Parser:
    """The parser of one command. Its description is the module's docstring, which `docs/cli.md` shows too."""
    parser = Parser(
        prog=f"jobspec {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def add_rest(parser: argparse.ArgumentParser, metavar: str, text: str) -> None:
    """Arguments after `--`, as `args.rest`; a plain ArgumentParser (for the manual) shows them alike."""
    if isinstance(parser, Parser):
        parser.takes_rest = True
    parser.usage = f"%(prog)s [OPTION…] RUN -- {metavar}…"
    parser.epilog = f"{metavar}  {text}"


def add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        help="site profile; else JOBSPEC_CLUSTER, the spec's `cluster`, or `local`",
    )
    parser.add_argument("--cluster-file", metavar="FILE", help="site profile from a file")


def add_spec(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """A spec, and the options that change its resolved values."""
    parser.add_argument("spec", metavar="SPEC", nargs=nargs, help="job spec (YAML), or SPEC:VARIANT")
    add_cluster(parser)
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override a value, e.g. train.steps=10; ~KEY removes the value",
    )
    parser.add_argument("--level", metavar="LEVEL", help="coverage level, by name or the framework's number")
    parser.add_argument(
        "--allow",
        metavar="RULE",
        action="append",
        default=[],
        help="turn errors of this rule, or of a whole family such as `repo`, into warnings",
    )


def request(args: argparse.Namespace, spec: str = "") -> Request:
    """The request that the options of `add_spec` describe; `spec` replaces the named spec."""
    from jobspec.pipeline import Request

    level = getattr(args, "level", None)
    return Request(
        spec or args.spec,
        cluster=args.cluster,
        cluster_file=args.cluster_file,
        sets=(*getattr(args, "set", ()), *([] if level is None else [f"--level {level}"])),
        allow=args.allow,
        rerun=getattr(args, "rerun", False),
    )


def add_rerun(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rerun",
        action="store_true",
        help="run all points of a sweep, even those with a Pass or Fail in an earlier run",
    )


def add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs",
        metavar="DIR",
        help="folder of runs (default: JOBSPEC_RUNS, else every folder that received a run)",
    )


def add_baseline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--baseline",
        metavar="PATH",
        help="known-good run, folder or file: the learnt metric must end no worse than there",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        default="last",
        help="run id, prefix, name, directory, or last (default)",
    )
    add_runs(parser)
