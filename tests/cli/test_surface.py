"""What every command shares: help, JSON, colour, pipes, bugs, and the pages made from the parsers."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from jobspec.cli import boundary, output
from jobspec.cli.commands import command_names
from jobspec.cli.parser import build_parser
from jobspec.cli.site_spec import image
from jobspec.finding import fail
from jobspec.frameworks import BUILT_IN
from jobspec.reference.commands import reference
from jobspec.spec.load import load_spec
from jobspec.spec.site import ClusterProfile, Paths, SiteContainer
from jobspec.units import duration
from tests.kits.project_kit import HELLO, Project

ROOT = Path(__file__).parents[2]
NAMES = command_names()


@pytest.mark.parametrize("name", NAMES)
def test_every_command_explains_itself(project: Project, name: str) -> None:
    done = project.cli(name, "--help")
    assert done.code == 0
    assert done.out.startswith(f"usage: jobspec {name}")
    assert done.out == project.cli("help", name).out


def test_help_lists_every_command_and_code(project: Project) -> None:
    text = project.cli("--help").out
    for name in NAMES:
        assert f"\n  {name} " in text
    for code in ("0 done", "1 Fail", "2 bad spec", "3 Blocked", "4 nothing ran"):
        assert code in text
    assert project.cli().out == text


def test_help_imports_nothing_heavy() -> None:
    """The budget for `--help` is 0.12 s; importing any of these would spend it."""
    script = (
        "import sys\nfrom jobspec.cli import main\nmain(['--help'])\n"
        "heavy = {'yaml', 'msgspec', 'jsonschema', 'jinja2', 'rich', 'submitit', 'paramiko', 'argparse'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("name", ["status", "logs", "cancel", "report"])
def test_watching_loads_no_spec_reader(name: str) -> None:
    """Commands about runs need neither YAML nor the schema; `status` is called in loops."""
    script = (
        f"import sys\nimport jobspec.cli.commands.{name}\n"
        "heavy = {'yaml', 'jsonschema', 'jinja2', 'submitit', 'paramiko'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_version_is_one_line(project: Project) -> None:
    assert project.cli("--version").out.startswith("jobspec ")


def test_reference_is_what_the_parsers_say() -> None:
    written = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert written == reference(), "run: python -m jobspec.reference.commands > docs/cli.md"


def test_every_listing_has_json() -> None:
    without = {"attach", "exec", "completion", "mcp"}  # a program's output, a program, a protocol
    for name in NAMES:
        parser = build_parser(name, import_module(f"jobspec.cli.commands.{name}"))
        texts = [parser.format_help()]
        for action in parser._actions:
            if action.dest == "action" and action.choices:
                texts = [child.format_help() for child in dict(action.choices).values()]  # type: ignore[arg-type]
        assert all("--json" in text for text in texts) is (name not in without), name


def test_bug_is_told_in_words_and_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> int:
        raise RuntimeError("an invariant does not hold")

    assert boundary.guarded(broken) == 70
    err = capsys.readouterr().err
    assert "this is a bug in jobspec" in err
    assert "Traceback" not in err
    saved = Path(err.split("traceback is in ")[1].splitlines()[0])
    assert "an invariant does not hold" in saved.read_text()
    assert "Traceback" in saved.read_text()
    saved.unlink()


def test_interruption_and_finding_have_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    def refused() -> int:
        raise fail("x.y", "something is wrong", "because", "do this")

    assert boundary.guarded(interrupted) == 130
    assert boundary.guarded(refused) == 2
    assert (
        "error[x.y]\n  what: something is wrong\n  why:  because\n  fix:  do this\n"
        in capsys.readouterr().err
    )
    assert boundary.guarded(refused, as_json=True) == 2
    assert json.loads(capsys.readouterr().out)["findings"][0]["rule"] == "x.y"


def test_closed_pipe_is_quiet(project: Project) -> None:
    command = f"exec 9> >(true); wait $!; {sys.executable} -m jobspec.cli schema job >&9; echo $? >&2"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "141", "nothing else is said"


def test_no_colour_without_a_terminal(project: Project) -> None:
    assert "\x1b" not in project.cli("run", "hello.yaml").text
    assert "\x1b" not in project.cli("validate", "nosuch.yaml").text


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_terminal_without_colour_is_respected(project: Project, variable: str) -> None:
    value = {"NO_COLOR": "1", "TERM": "dumb"}[variable]
    command = f"export {variable}={value}; {sys.executable} -m jobspec.cli run hello.yaml"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "\x1b[" not in done.stdout


def test_terminal_shows_phases_live(project: Project) -> None:
    command = f"export TERM=xterm-256color; {sys.executable} -m jobspec.cli run hello.yaml"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "\x1b[" in done.stdout
    assert "preflight" in done.stdout
    assert "PASS" in done.stdout


def test_schema_is_the_committed_one(project: Project) -> None:
    assert project.cli("schema", "job").out == (ROOT / "jobspec" / "spec" / "job.schema.json").read_text()
    assert project.cli("schema", "cluster", "--json").json["$schema"].endswith("2020-12/schema")


def test_frameworks_show_their_levels(project: Project) -> None:
    names = [item["name"] for item in project.cli("framework", "list", "--json").json]
    assert {"command", "trl"} <= set(names)
    text = project.cli("framework", "show", "trl").out
    assert "does not prove" in text
    assert project.cli("framework", "show", "trl", "--json").json["levels"][0]["proves"]


def test_doctor_names_what_is_missing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert project.cli("doctor").code == 0
    items = {item["name"]: item for item in project.cli("doctor", "--json").json}
    assert items["Python 3.11+"]["ok"]
    (project.root / "empty").mkdir()
    monkeypatch.setenv("PATH", str(project.root / "empty"))
    done = project.cli("doctor")
    assert done.code == 1
    assert "MISSING" in done.out
    assert "apt install git" in done.out


@pytest.mark.parametrize(
    ("help_text", "programs", "detail"),
    [
        ("      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]", (), "pyxis (srun --container-image)"),
        ("Usage: srun [OPTIONS]", ("enroot",), "enroot, without Pyxis: srun has no --container-image"),
        ("Usage: srun [OPTIONS]", (), ""),
    ],
)
def test_doctor_asks_srun_for_pyxis(
    project: Project, monkeypatch: pytest.MonkeyPatch, help_text: str, programs: tuple[str, ...], detail: str
) -> None:
    """A login node of a site with Pyxis may lack enroot, and enroot alone runs no job."""
    tools = project.root / "tools"
    tools.mkdir()
    for name, text in {"srun": f"echo '{help_text}'", **dict.fromkeys(programs, "")}.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    items = {item["name"]: item for item in project.cli("doctor", "--json").json}
    assert items["container runtimes"]["detail"] == detail
    assert items["container runtimes"]["ok"] is bool(detail)


def test_shipped_profiles_are_listed_and_shown_whole(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {row["name"]: row for row in project.cli("cluster", "list", "--json").json}
    assert {"local", "slurm-generic", "slurm-pyxis"} <= rows.keys()
    shown = project.cli("cluster", "show", "local", "--json").json
    assert shown["profile"]["scheduler"] == "local"
    assert shown["profile"]["network"]["ray_ports"]["head"] == 6379
    monkeypatch.setenv("JOBSPEC_CLUSTER", "slurm-generic")
    assert "name: slurm-generic" in project.cli("cluster", "show").out


def test_cluster_check_runs_a_job_on_this_machine(project: Project) -> None:
    found = project.cli("cluster", "check", "local", "--json").json
    assert found["ok"], found
    assert found["nodes"][0]["canary"] is True
    profile = "version: 1\nname: bad\nscheduler: local\nnode: {gpus: 64}\npaths: {node_local: /proc/nosuch}\n"
    project.write("bad.yaml", profile)
    done = project.cli("cluster", "check", "--cluster-file", "bad.yaml")
    assert done.code == 2
    assert "check.gpus" in done.err
    assert "check.node-local" in done.err


MISSING = ["repo.missing"]
TO_FILL_IN = {
    "command": [],
    "nemo_rl": MISSING * 2,
    "rlix": MISSING * 2,
    "skyrl": MISSING,
    "trl": [],
    "verl": MISSING * 2,
}


def test_every_shipped_framework_has_a_starting_spec() -> None:
    names = {path.stem for path in (ROOT / "jobspec/cli/starters").iterdir()}
    assert names == set(TO_FILL_IN) == set(BUILT_IN)


@pytest.mark.parametrize("framework", TO_FILL_IN)
def test_starting_spec_is_valid_and_commented(project: Project, framework: str) -> None:
    assert project.cli("init", "--framework", framework, "--name", "mine").code == 0
    text = (project.root / "mine.yaml").read_text()
    assert text.count("#") > 5
    assert f"\nname: mine\nframework: {framework}\n" in text
    done = project.cli("validate", "mine.yaml")
    errors = [line for line in done.err.splitlines() if line.startswith("error[")]
    rules = [line.removeprefix("error[").partition("]")[0] for line in errors]
    assert rules == TO_FILL_IN[framework], "only a checkout that is not there yet is missing"


CHECKOUTS = {
    "Megatron-Bridge": ["src", "3rdparty/Megatron-LM"],
    "RL": [],
    "verl": [],
    "SkyRL": [],
    "rlix": [],
}


@pytest.mark.parametrize("runtime", ["pyxis", "apptainer", "podman", "oci", "none"])
@pytest.mark.parametrize("framework", TO_FILL_IN)
def test_starting_spec_for_a_site_has_its_image_sizes_and_checkouts(
    project: Project, framework: str, runtime: str
) -> None:
    site = project.root / ".config" / "jobspec" / "clusters" / "mine.yaml"
    site.parent.mkdir(parents=True)
    site.write_text(
        "version: 1\nname: mine\nscheduler: slurm\n"
        "paths: {runs: /s/runs, hf_home: /s/hf, node_local: /tmp/n}\n"
        f"container: {{runtime: {runtime}, image_cache: /s/images}}\nnode: {{cpus: 32, gpus: 8}}\n"
    )
    for name, folders in CHECKOUTS.items():
        for folder in (".", *folders):
            (project.root / name / folder).mkdir(parents=True, exist_ok=True)
    done = project.cli("init", framework, "--cluster", "mine", "--name", "x")
    assert done.code == 0, done.text
    spec = load_spec("x.yaml", env={}).spec
    assert (spec.cluster, spec.framework, bool(spec.container.image)) == (
        "mine",
        framework,
        runtime != "none",
    )
    assert spec.resources.time
    assert all(Path(repo.path or "").is_dir() for repo in spec.repos)
    shown = project.cli("validate", "x.yaml").err
    rules = {line.partition("]")[0] for line in shown.splitlines() if line.startswith("error[")}
    # The folders hold no framework, which its own rules say; nothing of the site is wrong.
    of_site = ("error[container", "error[resources", "error[repo", "error[spec")
    assert not {rule for rule in rules if rule.startswith(of_site)}


@pytest.mark.parametrize(
    ("runtime", "framework", "expected"),
    [
        ("pyxis", "nemo_rl", "nvcr.io#nvidia/nemo-rl:v0.4.0"),
        ("pyxis", "verl", "verlai/verl:vllm024.dev2"),
        ("apptainer", "verl", "docker://docker.io/verlai/verl:vllm024.dev2"),
        ("podman", "verl", "docker.io/verlai/verl:vllm024.dev2"),
        ("oci", "verl", "/s/images/verl"),
        ("pyxis", "trl", "/s/images/trl.sqsh"),
    ],
)
def test_a_published_image_has_the_form_of_the_runtime(runtime: str, framework: str, expected: str) -> None:
    site = ClusterProfile(
        version=1, name="x", paths=Paths(node_local="/n"), container=SiteContainer(runtime, "/s/images")
    )
    assert image(framework, site) == expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [("node: {gpus: 0}\n", 0), ("node: {gpus: 1}\n", 1), ("node: {cpus: 4}\n", 2), ("", 2)],
)
def test_a_starting_spec_asks_for_no_more_gpus_than_the_profile_says(
    project: Project, node: str, expected: int
) -> None:
    site = project.root / ".config" / "jobspec" / "clusters" / "mine.yaml"
    site.parent.mkdir(parents=True)
    paths = "paths: {runs: /s/runs, node_local: /tmp/n}\n"
    site.write_text(f"version: 1\nname: mine\nscheduler: slurm\n{paths}{node}")
    assert project.cli("init", "nemo_rl", "--cluster", "mine", "--name", "x").code == 0
    assert load_spec("x.yaml", env={}).spec.resources.gpus_per_node == expected


@pytest.mark.parametrize(
    ("framework", "names", "expected"),
    [
        ("verl", ["overlay.sqsh", "verlag.sqsh"], "verlai/verl:vllm024.dev2"),
        ("verl", ["zz-overlay.sqsh", "verlai+verl+v0.7.sqsh"], "verlai+verl+v0.7.sqsh"),
        ("verl", ["verl0.6.sqsh", "overlay.sqsh"], "verl0.6.sqsh"),
        ("nemo_rl", [f"nemo_rl_v0.{minor}.0.sqsh" for minor in (9, 10, 4)], "nemo_rl_v0.10.0.sqsh"),
    ],
)
def test_an_image_is_named_for_the_framework_by_a_whole_word_and_the_newest_counts(
    tmp_path: Path, framework: str, names: list[str], expected: str
) -> None:
    for name in names:
        (tmp_path / name).touch()
    container = SiteContainer("pyxis", str(tmp_path))
    site = ClusterProfile(version=1, name="x", paths=Paths(node_local="/n"), container=container)
    assert image(framework, site).removeprefix(f"{tmp_path}/") == expected


def test_an_image_file_of_the_site_comes_first(project: Project) -> None:
    images = project.root / "images"
    images.mkdir()
    (images / "nvidia+nemo-rl+v0.4.0.sqsh").touch()
    site = project.root / ".config" / "jobspec" / "clusters" / "mine.yaml"
    site.parent.mkdir(parents=True)
    site.write_text(
        "version: 1\nname: mine\nscheduler: slurm\npaths: {runs: /s/runs, node_local: /tmp/n}\n"
        f"container: {{runtime: pyxis, image_cache: {images}}}\n"
    )
    project.cli("init", "nemo_rl", "--cluster", "mine", "--name", "x")
    assert load_spec("x.yaml", env={}).spec.container.image == f"{images}/nvidia+nemo-rl+v0.4.0.sqsh"
    assert project.cli("init", "verl", "--cluster", "min", "--name", "y").code == 2
    assert "are two frameworks" in project.cli("init", "verl", "--framework", "trl").err


def test_starting_spec_for_commands_runs(project: Project) -> None:
    project.cli("init", "--name", "mine")
    assert project.cli("run", "mine.yaml").code == 0


def test_explain_says_where_values_come_from(project: Project) -> None:
    done = project.cli("explain", "hello.yaml", "--set", "train.seed=7", "--json").json
    assert done["train.seed"]["value"] == 7
    assert done["train.seed"]["origin"].startswith("set ")
    assert done["launch.mode"]["origin"] == "spec hello.yaml:4"
    assert done["resources.nodes"]["origin"] == "default"
    plan = json.loads(project.cli("explain", "hello.yaml", "--plan").out)
    assert plan["name"] == "hello"
    assert set(project.cli("explain", "hello.yaml", "launch.requeue", "--json").json) == {
        "launch.requeue.grace",
        "launch.requeue.max_attempts",
    }


def test_profile_comes_from_option_variable_and_spec_in_this_order(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("named.yaml", HELLO + "cluster: slurm-generic\n")

    def chosen(*more: str) -> str:
        plan = project.cli("explain", "named.yaml", "--plan", "--set", "resources.time=00:10:00", *more)
        name: str = json.loads(plan.out)["cluster"]
        return name

    assert chosen() == "slurm-generic"
    monkeypatch.setenv("JOBSPEC_CLUSTER", "slurm-pyxis")
    assert chosen("--set", "container.image=x.sqsh") == "slurm-pyxis"
    assert chosen("--cluster", "local") == "local"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.44, "0.4 s"),
        (59.97, "1 min 00 s"),
        (125, "2 min 05 s"),
        (7620, "2 h 07 min"),
        (12000, "3 h 20 min"),
        (360000, "4 d 4 h"),
    ],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (1024**4 * 1.1, "1.1 TiB")])
def test_sizes_read_well(count: float, text: str) -> None:
    assert output.size(count) == text


def test_a_variant_is_a_spec_to_every_command(project: Project) -> None:
    project.write(
        "thin.yaml",
        "version: 1\nbase: hello.yaml\nname: thin\n"
        "variants: {low: {metrics: {require: null}}, bad: {naem: x}}\n",
    )
    checked = project.cli("validate", "thin.yaml", "--json")
    assert checked.code == 2
    assert {row["spec"]: row["ok"] for row in checked.json["specs"]} == {
        "thin.yaml": True,
        "thin.yaml:low": True,
        "thin.yaml:bad": False,
    }
    assert project.cli("explain", "thin.yaml:low", "name", "--json").json == {
        "name": {"value": "thin", "origin": "spec thin.yaml:3"}
    }
    done = project.cli("run", "thin.yaml:low")
    assert done.code == 0
    lock = next(project.root.glob("runs/thin/*/spec.lock.yaml")).read_text()
    assert "base:" not in lock and "variants:" not in lock
    assert (
        next(project.root.glob("runs/thin/*/spec.yaml"))
        .read_text()
        .startswith("# Laid together from hello.yaml, thin.yaml:low.")
    )
