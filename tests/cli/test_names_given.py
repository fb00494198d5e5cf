"""Every option that takes a name out of a known set says when it is none, with the nearest that is."""

from __future__ import annotations

import pytest

from tests.kits.project_kit import HELLO, Project

BAD_KEY = HELLO + "lunch: 1\n"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["validate", "hello.yaml", "--allow", "repo.mising"], "did you mean `repo.missing`?"),
        (["submit", "hello.yaml", "--allow", "repo.mising"], "did you mean `repo.missing`?"),
        (["stage", "hello.yaml", "--allow", "repo.mising"], "did you mean `repo.missing`?"),
        (["explain", "hello.yaml", "--allow", "repo.mising"], "did you mean `repo.missing`?"),
        (["validate", "hello.yaml", "--level", "rum"], "did you mean `run`?"),
        (["validate", "hello.yaml", "--cluster", "locl"], "did you mean `local`?"),
        (["validate", "hello.yaml", "--set", "framework=comand"], "framework: command"),
        (["report", "--format", "jsn"], "did you mean `json`?"),
        (["judge", ".", "--framework", "tlr"], "did you mean `trl`?"),
        (["judge", ".", "--framework", "verl", "--level", "smok"], "did you mean `smoke`?"),
        (["judge", ".", "--framework", "verl", "--format", "jnit"], "did you mean `junit`?"),
        (["judge", ".", "--framework", "command", "--variant", "x"], "leave `--variant` out"),
        (["judge", ".", "--framework", "trl", "--require", "mx(reward) > 0"], "did you mean `max`?"),
        (["framework", "show", "skyrll"], "did you mean `skyrl`?"),
        (["framework", "lst"], "did you mean `list`?"),
        (["cluster", "shw"], "did you mean `show`?"),
        (["cluster", "show", "locl"], "did you mean `local`?"),
        (["cluster", "check", "locl"], "did you mean `local`?"),
        (["schema", "jb"], "did you mean `job`?"),
        (["completion", "zhs"], "did you mean `zsh`?"),
        (["init", "--framework", "skyrll"], "did you mean `skyrl`?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistyped_name_is_told(project: Project, argv: list[str], told: str) -> None:
    done = project.cli(*argv)
    assert done.code == 2, done.text
    assert told in done.err


@pytest.mark.parametrize(
    "argv",
    [
        ["status", "--limit", "0"],
        ["status", "--limit", "-3"],
        ["logs", "-n", "-1"],
        ["judge", ".", "--framework", "command", "--steps", "-5"],
        ["cluster", "check", "--nodes", "0"],
        ["cluster", "check", "--timeout", "0"],
        ["cluster", "check", "--nodes", "9" * 5000],
        ["attach", "--point", "-1"],
        ["stage", "hello.yaml", "--job", "--timeout", "0"],
        ["stage", "hello.yaml", "--job", "--timeout", "nan"],
    ],
    ids=lambda argv: " ".join(argv)[:40],
)
def test_a_number_out_of_range_is_told(project: Project, argv: list[str]) -> None:
    done = project.cli(*argv)
    assert done.code == 2, done.text
    assert done.err.startswith("error[usage.arguments]\n  what: argument ")


@pytest.mark.parametrize(
    "argv",
    [
        ["cancel", ""],
        ["report", ""],
        ["validate", ""],
        ["explain", "hello.yaml", ""],
        ["validate", "hello.yaml", "--cluster", ""],
        ["validate", "hello.yaml", "--cluster-file="],
        ["validate", "hello.yaml", "--level", ""],
        ["render", "hello.yaml", "--out", ""],
        ["status", "--runs", ""],
        ["judge", "", "--framework", "trl"],
        ["cluster", "show", ""],
        ["exec", "", "--", "true"],
        ["triage", ""],
    ],
    ids=" ".join,
)
def test_an_empty_argument_is_no_default(project: Project, argv: list[str]) -> None:
    """It is a shell variable that is not set; as a prefix it would fit every run."""
    done = project.cli(*argv)
    assert done.code == 2, done.text
    assert ": the value is empty\n" in done.err


def test_known_metrics_and_logs_are_suggested(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    for argv in (["logs", "--name", "comand"], ["logs", "-f", "--name", "comand"]):
        done = project.cli(*argv)
        assert done.code == 2
        assert "did you mean `command-0`?" in done.err
    judged = project.cli(
        "judge", project.last().attempt(1), "--framework", "command", "--require", "max(scre) > 0"
    )
    assert "`scre` was not found" in judged.out and "did you mean `score`?" in judged.out
    for argv in (["compare", "last", "last"], ["compare", "last", "last", "--json"]):
        done = project.cli(*argv, "--metric", "scor")
        assert done.code == 2
        assert "did you mean `score`?" in done.text
    found = project.cli("compare", "last", "last", "--metric", "score", "--json").json
    assert list(found["metrics"]) == ["score"]


def test_a_spec_that_cannot_be_read_is_never_ok(project: Project) -> None:
    project.write("bad.yaml", BAD_KEY)
    for argv in (["--allow", "spec.unknown-key"], ["--allow", "spec"]):
        done = project.cli("validate", "bad.yaml", *argv)
        assert (done.code, done.out) == (2, "1 error in bad.yaml\n")
        assert "--allow cannot help" in done.err


@pytest.mark.parametrize("rule", ["coverage", "coverage.level-unknown"])
def test_a_level_that_is_none_is_never_ok(project: Project, rule: str) -> None:
    done = project.cli("validate", "hello.yaml", "--level", "nosuch", "--allow", rule)
    assert done.code == 2
    assert "error[coverage.level-unknown]" in done.err


def test_a_family_of_rules_is_allowed_at_submission_too(project: Project) -> None:
    project.write("secret.yaml", HELLO + "secrets: [NO_SUCH_TOKEN]\n")
    done = project.cli("submit", "secret.yaml", "--allow", "secrets")
    assert "error[secrets.unset]" not in done.err


def test_a_rendered_folder_is_not_changed_silently(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert project.cli("render", "hello.yaml", "--out", "out").code == 0
    for argv in (["--set", "name=x"], ["--level", "run"], ["--allow", "repo"], ["--rerun"]):
        done = project.cli("submit", "out", *argv)
        assert done.code == 2
        assert f"`{argv[0]}` cannot change a rendered folder" in done.err
    other = project.cli("submit", "out", "--cluster", "slurm-generic")
    assert "rendered for `local`, not for `slurm-generic`" in other.err
    monkeypatch.setenv("JOBSPEC_CLUSTER", "slurm-generic")
    assert project.cli("submit", "out").code == 0


def test_what_is_allowed_is_allowed_at_every_point_of_a_sweep(project: Project) -> None:
    mounts = "container: {mounts: [{source: /tmp, target: /x}, {source: /var, target: /x}]}\n"
    project.write("sweep.yaml", HELLO + mounts + "sweep: {grid: {name: [a, b]}}\n")
    assert "error[spec.mount]" in project.cli("validate", "sweep.yaml").err
    allowed = project.cli("validate", "sweep.yaml", "--allow", "spec.mount")
    assert allowed.code == 0, allowed.err
    assert project.cli("render", "sweep.yaml", "--allow", "spec.mount", "--out", "out").code == 0
    beside = "checkpoint.dir=${cluster:runs}/${spec:name}"
    filled = project.cli("validate", "sweep.yaml", "--allow", "spec.mount", "--set", beside)
    assert filled.code == 0, filled.err
