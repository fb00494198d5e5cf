"""Quoting: what reaches bash and sbatch is the value itself, and no template can print it unquoted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from jobspec.rendering.quoting import comment, directive, environment, own_folders, quote, words
from tests.kits.programs_kit import needs

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
ONE_LINE = st.text(
    st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs"]), min_size=1, max_size=40
)


@given(st.lists(TEXT, max_size=4))
def test_words_reach_bash_unchanged(values: list[str]) -> None:
    script = f"printf '%s\\0' {words(values)}" if values else "true"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert done.stdout == b"".join(value.encode() + b"\0" for value in values)


@pytest.mark.parametrize("value", [None, True, ["a"], {"a": 1}])
def test_quote_refuses_what_is_no_word(value: object) -> None:
    with pytest.raises(TypeError, match="no shell word"):
        quote(value)


def test_quote_refuses_nul() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quote("a\0b")


def test_a_template_cannot_forget_to_quote() -> None:
    made = environment().from_string("echo {{ value }}").render(value="$(id); `id` 'x'")
    assert (
        subprocess.run(["bash", "-c", made], capture_output=True, check=True).stdout == b"$(id); `id` 'x'\n"
    )


def test_an_unknown_name_in_a_template_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="misspelt"):
        environment().from_string("{{ misspelt }}").render()


@given(TEXT)
def test_a_comment_stays_on_its_line(value: str) -> None:
    assert len(comment(value).splitlines()) <= 1


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b"])
def test_a_directive_refuses_line_breaks(value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        directive(value)


SLURM_CONF = """\
ClusterName=none
SlurmctldHost=localhost(127.0.0.1)
AuthType=auth/none
NodeName=n1 CPUs=1
PartitionName=main Nodes=n1 Default=YES
"""


@needs("sbatch", "slurm-client")
@given(comment_=ONE_LINE.filter(lambda text: text.strip() == text))
def test_sbatch_reads_a_directive_back(comment_: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The real sbatch prints the options it found before it looks for a controller; there is none here."""
    assert _parsed_by_sbatch(tmp_path_factory.mktemp("sbatch"), f"--comment={comment_}") == comment_


@needs("sbatch", "slurm-client")
@pytest.mark.parametrize(
    "value",
    ["hetjob", "my packJOB", 'a "b" c', "a 'b' c", "back\\slash", "a # b", ": x", "$(id) `id`", "é ü"],
)
def test_sbatch_traps(value: str, tmp_path: Path) -> None:
    assert _parsed_by_sbatch(tmp_path, f"--comment={value}") == value


def _parsed_by_sbatch(folder: Path, option: str) -> str:
    conf, script = folder / "slurm.conf", folder / "job.sh"
    conf.write_text(SLURM_CONF)
    script.write_text(f"#!/bin/bash\n#SBATCH {directive(option)}\n#SBATCH --gres=no_such_gres\ntrue\n")
    done = subprocess.run(
        ["sbatch", "-vv", str(script)],
        env={**os.environ, "SLURM_CONF": str(conf)},
        capture_output=True,
        timeout=30,
        check=False,
    )
    said = done.stderr.decode()
    _, _, rest = said.partition("sbatch: comment             : ")
    assert rest, said
    return rest.partition("\nsbatch: gres ")[0]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "plain",
        "${JOBSPEC_METRICS_DIR}/tb",
        "a b/${JOBSPEC_METRICS_DIR}",
        "$HOME",
        "${JOBSPEC_TOKEN}",
        "it's",
    ],
)
def test_only_folders_of_the_run_are_expanded(value: str) -> None:
    env = {
        "JOBSPEC_METRICS_DIR": "/runs/my run",
        "JOBSPEC_TOKEN": "secret",
        "HOME": "/h",
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        ["bash", "-c", f"printf %s {own_folders(value)}"], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == value.replace("${JOBSPEC_METRICS_DIR}", "/runs/my run")
