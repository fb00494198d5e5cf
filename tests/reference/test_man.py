"""The manual page: whole, and troff that a formatter takes."""

from __future__ import annotations

import re
import subprocess

from jobspec.cli.commands import command_names
from jobspec.reference.man import page
from tests.kits.programs_kit import needs


def test_the_page_has_every_command_with_its_options() -> None:
    text = page().replace("\\-", "-")
    assert text.startswith('.TH JOBSPEC "1"')
    assert [name for name in command_names() if f"COMMAND \\fI\\,'jobspec {name}'" not in text] == []
    for option in ("--dry-run", "--cluster-file", "--allow", "--watch"):
        assert option in text


@needs("groff", "groff-base")
def test_a_formatter_takes_the_page() -> None:
    command = ["groff", "-man", "-Tutf8", "-Kutf8", "-P-c", "-wmac", "-Wbreak"]
    done = subprocess.run(command, input=page(), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    shown = re.sub(r".\x08", "", done.stdout)
    assert "jobspec COMMAND [OPTION…]" in shown
    assert re.search(r"^ +jobspec validate\n +every mistake in a spec", shown, re.MULTILINE)
