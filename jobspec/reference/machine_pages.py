"""The site for machines: each page's Markdown beside its HTML, and `llms.txt` that lists them.

`python -m jobspec.reference.machine_pages` runs after the site is built (`make site`).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

SITE = Path(".cache/site")


def llms_txt(config: dict[str, Any], docs: Path) -> str:
    """The list of pages in the form of https://llmstxt.org: title, summary, sections with links."""
    loose, sections = [], []
    for item in config["nav"]:
        ((title, target),) = item.items()
        if isinstance(target, str):
            loose.append(_line(title, target, docs))
        else:
            lines = [_line(name, page, docs) for pages in target for name, page in pages.items()]
            sections.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    head = f"# {config['site_name']}\n\n> {config['site_description']}\n\n"
    return head + "\n".join(loose) + "\n\n" + "\n".join(sections)


def _line(title: str, page: str, docs: Path) -> str:
    return f"- [{title}]({page}): {_first_sentence((docs / page).read_text('utf-8'))}"


def _first_sentence(text: str) -> str:
    """The first sentence of a page's first paragraph."""
    paragraph = next(_paragraphs(text), "")
    return re.split(r"(?<=[.:])\s", paragraph, maxsplit=1)[0].rstrip(":")


def _paragraphs(text: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n", text):
        if block[:1] not in ("#", "|", "`", "<", "!", "[", "-", " ", ""):
            yield " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block).split())


def main(root: Path = Path()) -> None:
    """Write the files into the built site."""
    docs, site = root / "docs", root / SITE
    text = (root / "mkdocs.yml").read_text("utf-8")
    (site / "llms.txt").write_text(llms_txt(yaml.safe_load(text), docs), "utf-8")
    for page in docs.glob("*.md"):
        shutil.copyfile(page, site / page.name)


if __name__ == "__main__":
    main()
