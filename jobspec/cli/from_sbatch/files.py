"""The two files of an imported script, and what is printed about it."""

from __future__ import annotations

import argparse
from pathlib import Path

from jobspec.cli import output
from jobspec.cli.from_sbatch.convert import Imported, convert
from jobspec.cli.from_sbatch.notes import KINDS
from jobspec.cli.new_file import refuse_existing, write_new
from jobspec.finding import visible
from jobspec.spec.yaml.document import read_text
from jobspec.spec.yaml.dump import dump_spec


def imported(args: argparse.Namespace, default_name: str) -> int:
    """Import the script of `--from-sbatch`: write both files, or with `--out -` print them."""
    source = Path(args.from_sbatch)
    result = convert(read_text(source, "job"), str(source))
    if args.name != default_name:
        result.spec["name"], result.site["name"] = args.name, f"{args.name}-site"
    spec, site = Path(args.out or f"{result.spec['name']}.yaml"), Path(f"{result.site['name']}.yaml")
    if args.out and args.out != "-":
        site = spec.with_name(f"{spec.stem}-site.yaml")
        result.site["name"] = site.stem
    texts = {spec: _text(result, source), site: dump_spec(result.site)}
    if args.cluster:
        del texts[site]  # the site has a profile
    if args.out == "-":
        print("---\n".join(texts.values()), end="")
        return 0
    for path in texts:
        refuse_existing(path)  # before the first is written
    for path, text in texts.items():
        write_new(path, text)
    if args.json:
        notes = [{"kind": note.kind, "text": note.text, "line": note.line} for note in result.notes]
        output.print_json({"files": list(map(str, texts)), "notes": notes})
        return 0
    _print(result, source)
    option = f"--cluster {args.cluster}" if args.cluster else f"--cluster-file {site}"
    print(f"{', '.join(map(str, texts))}: read them, then `jobspec validate {spec} {option}`")
    return 0


def _text(result: Imported, source: Path) -> str:
    """The spec; above it what has to be looked at before the first run."""
    open_points = [note for note in result.notes if note.kind in ("danger", "told", "listed")]
    head = [f"Imported from {source.name}. Lines of the script:"]
    head += [f"{note.line or '-'}: {note.text} ({KINDS[note.kind]})" for note in open_points]
    return "".join(f"# {' '.join(visible(line).split())}\n" for line in head) + dump_spec(result.spec)


def _print(result: Imported, source: Path) -> None:
    for kind, title in KINDS.items():
        notes = [note for note in result.notes if note.kind == kind]
        if notes:
            print(f"{title}:")
        for note in notes:
            where = f"{source}:{note.line}" if note.line else str(source)
            print(visible(f"  {where}: {note.text}"))
