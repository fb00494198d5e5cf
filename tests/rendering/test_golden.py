"""The exact files of every example and every container runtime (`pytest tests/rendering --update-golden`)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobspec.finding import Finding
from jobspec.rendering.files import PACKAGE, render
from jobspec.rendering.script_check import check_scripts
from jobspec.runtime.checkouts.git import git_state
from jobspec.spec.load import parse_spec
from jobspec.sweeps.points import render_sweep
from tests.kits.render_kit import RUN_ID, resolve_text

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
GOLDEN = HERE / "golden"
# Without those that need a checkout of SkyRL to render at all.
EXAMPLES = [p for p in sorted((ROOT / "examples").glob("*.yaml")) if "framework: skyrl" not in p.read_text()]
SPECS = HERE / "specs"

CASES = [(path, cluster) for path in EXAMPLES for cluster in ("local", "slurm-generic")]
CASES.remove((ROOT / "examples/groups.yaml", "local"))  # it has several nodes
CASES += [(SPECS / name, "slurm-pyxis") for name in ("every-key.yaml", "groups.yaml", "upstream.yaml")]
CASES += [(SPECS / "all-nodes.yaml", str(path)) for path in sorted(SPECS.glob("*.cluster.yaml"))]
WITH_CONTAINERS = [
    path for path in sorted(SPECS.glob("*.cluster.yaml")) if "runtime: none" not in path.read_text()
]
CASES += [(SPECS / "served.yaml", cluster) for cluster in ("slurm-pyxis", *map(str, WITH_CONTAINERS))]


def case_id(case: tuple[Path, str]) -> str:
    return f"{case[0].stem}@{Path(case[1]).name.removesuffix('.cluster.yaml')}"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean checkout that holds the examples, as a user has it; this one may have uncommitted changes."""
    root = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "examples", root / "examples", ignore=shutil.ignore_patterns(".*", "__pycache__"))
    shutil.copytree(SPECS, root / "specs")
    who = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    for step in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-qm", "examples"]):
        subprocess.run(["git", "-C", str(root), *step], check=True)
    return root


def profile_of(cluster: str) -> str:
    return Path(cluster).read_text() if cluster.endswith(".yaml") else cluster


def rendered(path: Path, cluster: str, source: Path) -> tuple[dict[str, bytes], tuple[Finding, ...]]:
    folder = source / path.parent.name
    resolved = resolve_text(path.read_text(), profile_of(cluster), folder)
    assert resolved.plan is not None, "\n".join(finding.text() for finding in resolved.findings)
    run_dir = f"{resolved.plan.runs}/{resolved.plan.name}/{RUN_ID}"
    if resolved.spec.sweep is None:
        return render(resolved, RUN_ID, run_dir), resolved.findings
    outcome = render_sweep(resolved.loaded, resolved.cluster, RUN_ID, run_dir)
    first = {name: text for name, text in outcome.files.items() if not name.startswith("points/")}
    first |= {name: text for name, text in outcome.files.items() if name.startswith("points/0/")}
    return first, outcome.findings


def as_text(files: dict[str, bytes], source: Path) -> str:
    """All files one after the other; what depends on the machine or the day has a fixed name."""
    commit = git_state(source).commit
    known = [
        (str(source), "/src"),
        (sys.executable, "/venv/bin/python"),
        (PACKAGE, "/venv/lib/jobspec"),
        (str(Path.cwd()), "/cwd"),
        (commit, "COMMIT"),
    ]
    text = "".join(f"==> {name} <==\n{files[name].decode()}\n" for name in sorted(files))
    for real, fixed in known:
        text = text.replace(real, fixed)
    # YAML quotes a commit that could be read as a number, such as 12e34567.
    text = re.sub(r'"key": "[0-9a-f]{64}"', '"key": "KEY"', text)  # of a plan with this machine's paths
    return re.sub(r'^( +(?:ref|commit): )"COMMIT"$', r"\1COMMIT", text, flags=re.MULTILINE)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_rendered_files_are_the_golden_ones(
    case: tuple[Path, str], source: Path, update_golden: bool
) -> None:
    text = as_text(rendered(*case, source)[0], source)
    golden = GOLDEN / f"{case_id(case)}.txt"
    if update_golden:
        golden.write_text(text)
    assert golden.is_file(), f"no {golden}: run `pytest tests/rendering --update-golden`, and read them"
    assert text == golden.read_text()


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_rendered_scripts_pass_bash_and_shellcheck(case: tuple[Path, str], source: Path) -> None:
    assert check_scripts(rendered(*case, source)[0]) == ()


def test_every_golden_file_has_a_case() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.txt")) == sorted(map(case_id, CASES))


def test_rendering_twice_gives_the_same_bytes(source: Path) -> None:
    case = (SPECS / "every-key.yaml", "slurm-pyxis", source)
    assert rendered(*case)[0] == rendered(*case)[0]


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_lock_renders_to_the_same_run(case: tuple[Path, str], source: Path) -> None:
    """Only spec.yaml differs: the user's text on one side, the lock on the other."""
    files = rendered(*case, source)[0]
    lock = files["spec.lock.yaml"].decode()
    assert parse_spec(lock, env={}).spec.name
    again = resolve_text(lock, profile_of(case[1]), Path("/elsewhere"))
    assert again.plan is not None, [finding.text() for finding in again.findings]
    run_dir = f"{again.plan.runs}/{again.plan.name}/{RUN_ID}"
    if again.spec.sweep is not None:
        more = dict(render_sweep(again.loaded, again.cluster, RUN_ID, run_dir).files)
    else:
        more = render(again, RUN_ID, run_dir)
    differ = [name for name in files if not name.endswith("spec.yaml") and files[name] != more[name]]
    assert differ == []
