"""Every mistake a user can make: exit code 2, what, why and fix in words, and never a traceback."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.kits.project_kit import HELLO, Project

NO_RUN = [
    ["logs", "nosuch"],
    ["attach", "nosuch"],
    ["exec", "nosuch", "--", "true"],
    ["cancel", "nosuch"],
    ["report", "nosuch"],
    ["status", "nosuch"],
    ["compare", "nosuch", "other"],
    ["reproduce", "nosuch"],
]
NO_SPEC = [[name, "nosuch.yaml"] for name in ("validate", "explain", "render", "submit", "run", "stage")]
USAGE = [
    ["nosuch"],
    ["--verbose"],
    ["valdate", "hello.yaml"],
    ["validate"],
    ["validate", "hello.yaml", "--sett", "a=b"],
    ["submit", "hello.yaml", "--set"],
    ["render"],
    ["exec", "last"],
    ["compare", "last"],
    ["schema"],
    ["schema", "nosuch"],
    ["cluster"],
    ["cluster", "nosuch"],
    ["cluster", "show", "nosuch"],
    ["cluster", "check", "nosuch"],
    ["framework"],
    ["framework", "show", "nosuch"],
    ["report", "--format", "nosuch"],
    ["judge", ".", "--level", "sft"],
    ["judge", ".", "--framework", "nosuch"],
    ["judge", "nosuch", "--framework", "command"],
    ["judge", ".", "--framework", "command", "--level", "nosuch"],
    ["judge", ".", "--framework", "command", "--expect-import", "nopair"],
    ["judge", ".", "--framework", "command", "--require", "max(reward >"],
    ["triage"],
    ["triage", "nosuch.log"],
    ["triage", "/dev/zero"],
    ["triage", "-", "hello.yaml"],
    ["init", "--framework", "nosuch"],
    ["init", "--name", "bad name"],
    ["init", "--out", "nosuch-folder/x.yaml"],
    ["completion", "tcsh"],
    ["status", "--limit", "many"],
    ["stage", "hello.yaml", "--cluster", "nosuch"],
    ["run", "hello.yaml", "--cluster-file", "nosuch.yaml"],
    ["validate", "hello.yaml", "--level", "nosuch"],
    ["validate", "hello.yaml", "--set", "train.stepz=3"],
    ["validate", "hello.yaml", "--set", "train.steps=many"],
    ["validate", "hello.yaml", "--set", "novalue"],
    ["explain", "hello.yaml", "train.stepz"],
    ["reproduce", "hello.yaml", "--check"],
]


@pytest.mark.parametrize("argv", NO_RUN + NO_SPEC + USAGE, ids=" ".join)
def test_mistake_is_told_in_words(project: Project, argv: list[str]) -> None:
    done = project.cli(*argv)
    assert done.code == 2, done.text
    assert done.err.startswith(("error[", "warning[")), done.text
    assert "\n  what: " in done.err
    assert "\n  fix: " in done.err, done.err
    assert "never" not in done.err or "bug" not in done.err


@pytest.mark.parametrize("argv", NO_RUN[4:6] + NO_SPEC + USAGE[3:6], ids=" ".join)
def test_mistake_is_json_on_stdout_when_asked_for(project: Project, argv: list[str]) -> None:
    if argv[0] == "exec":
        pytest.skip("exec passes its output on")
    done = project.cli(*argv, "--json")
    assert done.code == 2
    found = done.json
    assert found["ok"] is False
    findings = found.get("findings") or found["specs"][0]["findings"]
    assert {"rule", "severity", "what"} <= findings[0].keys()


def test_near_command_and_option_are_suggested(project: Project) -> None:
    assert "did you mean `status`?" in project.cli("statsu").err
    assert "`--json` instead of `--jsn`" in project.cli("status", "--jsn").err


def test_every_mistake_of_a_spec_comes_at_once_with_its_place(project: Project) -> None:
    bad = HELLO.replace("version: 1", "version: 2").replace("launch:", "lunch:")
    project.write("bad.yaml", bad + "train2: {}\n")
    done = project.cli("validate", "bad.yaml")
    assert done.code == 2
    for place in ("bad.yaml:1:", "bad.yaml:4:", f"bad.yaml:{len(bad.splitlines()) + 1}:"):
        assert place in done.err, done.err
    assert "launch" in done.err


def test_one_bad_spec_among_good_ones_fails_alone(project: Project) -> None:
    project.write("bad.yaml", "version: 1\n")
    done = project.cli("validate", "hello.yaml", "bad.yaml", "--json")
    assert done.code == 2
    assert [spec["ok"] for spec in done.json["specs"]] == [True, False]


def test_a_spec_in_a_pipe_is_read_once(project: Project) -> None:
    """`validate <(command)`: a look for variants before would leave nothing."""
    there, into = os.pipe()
    os.write(into, HELLO.encode())
    os.close(into)
    done = project.cli("validate", f"/dev/fd/{there}")
    os.close(there)
    assert (done.code, done.out) == (0, f"/dev/fd/{there}: ok\n"), done.err


def test_allow_turns_a_named_error_into_a_warning(project: Project) -> None:
    text = HELLO + "repos: [{name: gone, path: ./nosuch}]\n"
    project.write("repo.yaml", text)
    refused = project.cli("validate", "repo.yaml")
    assert refused.code == 2
    assert "error[repo.missing]" in refused.err
    allowed = project.cli("validate", "repo.yaml", "--allow", "repo.missing")
    assert "warning[repo.missing]" in allowed.err
    assert "error[repo.missing]" not in allowed.err


def test_missing_secret_stops_before_anything_is_started(project: Project) -> None:
    project.write("secret.yaml", HELLO + "secrets: [NO_SUCH_TOKEN]\n")
    done = project.cli("submit", "secret.yaml")
    assert done.code == 2
    assert "NO_SUCH_TOKEN" in done.err
    assert "export NO_SUCH_TOKEN" in done.err


def test_existing_file_is_not_overwritten(project: Project) -> None:
    before = project.spec.read_text()
    assert project.cli("init", "--name", "hello").code == 2
    assert project.spec.read_text() == before


def test_existing_folder_is_not_rendered_into(project: Project) -> None:
    (project.root / "out").mkdir()
    done = project.cli("render", "hello.yaml", "--out", "out")
    assert done.code == 2
    assert list((project.root / "out").iterdir()) == []


def test_ambiguous_prefix_names_the_candidates(project: Project) -> None:
    ids = ("20261128-010203-aaaaaa", "20261128-010203-bbbbbb")
    for run_id in ids:
        (project.root / "runs" / "x" / run_id).mkdir(parents=True)
    done = project.cli("report", "20261128-0102")
    assert done.code == 2
    assert all(run_id in done.err for run_id in ids)


def test_damaged_run_is_told_and_hides_no_other(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    good = project.last().run_id
    root = project.root / "runs" / "x" / "20261128-010203-aaaaaa"
    root.mkdir(parents=True)
    (root / "launch.json").write_text("[1]")
    done = project.cli("status")
    assert done.code == 0
    assert "launch.json" in done.err
    assert "damaged" in done.out
    assert good in done.out
    assert project.cli("status", "20261128-010203-aaaaaa").code == 2
    (root / "launch.json").write_text(json.dumps({"version": 99}))
    assert "version 99" in project.cli("status").err


def test_spec_that_is_no_yaml_is_a_finding(project: Project) -> None:
    project.write("bad.yaml", "a: [\n")
    project.write("binary.yaml", "")
    (project.root / "binary.yaml").write_bytes(b"\x00\xff\xfe")
    for name in ("bad.yaml", "binary.yaml"):
        done = project.cli("validate", name)
        assert done.code == 2
        assert name in done.err


def test_folder_of_runs_that_cannot_be_written_is_a_finding(project: Project) -> None:
    project.write("runs", "a file where the folder should be")
    done = project.cli("submit", "hello.yaml")
    assert done.code == 2
    assert "runs" in done.err


def test_slurm_that_is_not_there_is_a_finding(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = project.root / "tools"
    tools.mkdir()
    for name in ("bash", "git", "env", "sh"):
        (tools / name).symlink_to(Path("/usr/bin") / name)
    monkeypatch.setenv("PATH", str(tools))
    profile = "version: 1\nname: site\nscheduler: slurm\npaths: {runs: RUNS}\n"
    project.write("site.yaml", profile.replace("RUNS", str(project.root / "shared")))
    done = project.cli(
        "submit", "hello.yaml", "--cluster-file", "site.yaml", "--set", "resources.time=00:10:00"
    )
    assert done.code == 2, done.text
    assert "`sbatch` was not found" in done.err


BROKEN = """\
version: 1
name: broken
framework: trl
repos: [{name: code, path: ./nothere}]
train: {stesp: 1, seed: no, overrides: {num_generatons: 4}}
resources: {gpus_per_node: many}
coverage: {level: lerning}
"""


def test_what_keeps_a_spec_from_being_read_hides_no_mistake_of_other_sections(project: Project) -> None:
    """But one that may follow from it: `train` and `resources` are told of only as they stand."""
    project.write("broken.yaml", BROKEN)
    done = project.cli("validate", "broken.yaml")
    told = re.findall(r"^error\[(.+)\] \S+ (\S+)$", done.err, re.MULTILINE)
    assert told == [
        ("spec.unknown-key", "train.stesp"),
        ("spec.type", "train.seed"),
        ("spec.type", "resources.gpus_per_node"),
        ("coverage.level-unknown", "coverage.level"),
        ("repo.missing", "repos[0].path"),
    ]
    assert (done.code, "6 errors" in done.out, "5 errors" in done.out) == (2, False, True)


def test_a_section_of_a_mistyped_name_is_told_once(project: Project) -> None:
    """Without `data` framework `trl` would ask for one."""
    project.write("torn.yaml", "version: 1\nname: x\nframework: trl\ndatta: [{name: d, source: /d}]\n")
    done = project.cli("validate", "torn.yaml")
    assert re.findall(r"^error\[(.+)\]", done.err, re.MULTILINE) == ["spec.unknown-key"], done.err


def test_a_rule_that_planning_counts_on_is_told_without_a_traceback(project: Project) -> None:
    project.write("torn.yaml", HELLO + "mcore_helpers: {}\n")
    for words in ([], ["--allow", "spec.helpers"]):
        done = project.cli("validate", "torn.yaml", *words)
        assert re.findall(r"^\w+\[(spec.helpers|jobspec.bug)\]", done.err, re.MULTILINE) == ["spec.helpers"]
