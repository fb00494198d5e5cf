"""Sweeps: which points there are, what is wrong with them, and their common run directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.plan import from_json
from jobspec.planning.resolve import resolve
from jobspec.rendering.script_check import check_scripts
from jobspec.spec.find_site import load_cluster, parse_cluster
from jobspec.spec.load import LoadedSpec, parse_spec
from jobspec.sweeps.points import SweepOutcome, check_sweep, expand, point_key, render_sweep
from tests.kits.checkout_kit import write_checkout
from tests.kits.render_kit import RUN_ID, SLURM, Stage, resolve_text

BASE = """\
version: 1
name: x
framework: command
resources: {nodes: 2, time: "01:00:00"}
train: {command: [echo], seed: 1}
container: {env: {A: "0"}}
"""


def loaded(sweep: str) -> LoadedSpec:
    return parse_spec(BASE + f"sweep: {sweep}\n", "/specs/spec.yaml", env={})


def sets(sweep: str) -> list[dict[str, object]]:
    return [dict(point.sets) for point in expand(loaded(sweep))]


def test_a_grid_is_every_combination_with_the_last_key_fastest() -> None:
    found = sets('{grid: {train.seed: [1, 2], container.env.A: ["a", "b"]}}')
    assert [(one["train.seed"], one["container.env.A"]) for one in found] == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (2, "b"),
    ]


def test_list_points_follow_the_grid_and_exclude_takes_away() -> None:
    grid, more = "grid: {train.seed: [1, 2, 3]}", "list: [{resources.nodes: 2, train.seed: 9}]"
    found = sets(f"{{{grid}, {more}, exclude: [{{train.seed: 2}}]}}")
    assert found == [{"train.seed": 1}, {"train.seed": 3}, {"resources.nodes": 2, "train.seed": 9}]


def test_points_are_numbered_without_gaps_and_hold_their_values() -> None:
    points = expand(loaded("{grid: {train.seed: [1, 2, 3]}, exclude: [{train.seed: 1}]}"))
    assert [(point.index, point.loaded.spec.train.seed) for point in points] == [(0, 2), (1, 3)]
    assert all(point.loaded.spec.sweep is None for point in points)


def test_a_level_asked_for_holds_at_every_point_that_names_none() -> None:
    sweep = "sweep: {list: [{train.seed: 1}, {coverage.level: learning}]}\n"
    points = expand(parse_spec(BASE + sweep, "/specs/spec.yaml", ["--level run"], env={}))
    assert [point.loaded.spec.coverage.level for point in points] == ["run", "learning"]


def test_a_sweep_without_points_is_an_error() -> None:
    with pytest.raises(JobspecError, match="no points"):
        expand(loaded("{grid: {train.seed: [1]}, exclude: [{train.seed: 1}]}"))


def test_an_invalid_point_is_an_error_that_names_it() -> None:
    with pytest.raises(JobspecError) as caught:
        expand(loaded("{grid: {resources.nodes: [1, 0]}}"))
    assert [finding.what for finding in caught.value.findings if "resources.nodes=0" in finding.what]


def test_invalid_points_can_be_skipped_and_are_named() -> None:
    points, _, findings = checked("{grid: {resources.nodes: [2, 0]}, invalid: skip}")
    assert [point.sets for point in points] == [{"resources.nodes": 2}]
    assert [finding.rule for finding in findings if "resources.nodes=0" in finding.what] == ["sweep.skipped"]


def checked(sweep: str, profile: str = SLURM):  # type: ignore[no-untyped-def]
    return check_sweep(loaded(sweep), parse_cluster(profile, Path("lab.yaml"), "--cluster-file", {}))


def test_a_point_that_breaks_a_check_can_be_skipped() -> None:
    points, resolved, findings = checked(
        "{grid: {resources.nodes: [9, 2]}, invalid: skip}", SLURM + "limits: {max_nodes: 4}\n"
    )
    assert [(point.index, point.sets["resources.nodes"]) for point in points] == [(0, 2)]
    assert len(resolved) == 1
    assert [finding.rule for finding in findings if finding.rule.startswith("sweep")] == ["sweep.skipped"]


def test_points_of_one_array_ask_for_the_same_allocation() -> None:
    _, _, findings = checked("{grid: {resources.nodes: [1, 2]}}")
    assert [finding.rule for finding in findings if finding.is_error] == ["sweep.resources"]


def test_a_sweep_within_the_sites_array_limit() -> None:
    _, _, findings = checked("{grid: {train.seed: [1, 2, 3]}}", SLURM + "limits: {max_array: 2}\n")
    assert [finding.rule for finding in findings if finding.is_error] == ["sweep.max-array"]


@pytest.mark.parametrize(
    ("more", "folder", "points"),
    [
        ("checkpoint: {dir: /shared/c}", "/shared/c", 2),
        ("checkpoint: {dir: /shared/c/}", "/shared/c", 2),
        ("train: {command: [python3, /c/t.py, --output_dir, /shared/c]}", "/shared/c", 2),
        (
            "train: {command: ['python3 t.py --save=/shared/c --load /shared/base'], shell: true}",
            "/shared/c",
            2,
        ),
        ("train: {command: [python3, /c/t.py, trainer.ckpt_path=/shared/c]}", "/shared/c", 2),
        ("train: {command: [x], overrides: {checkpointing: {checkpoint_dir: /shared/c}}}", "/shared/c", 2),
        (
            "train: {command: [t.py, 'ckpt_path=/c/$${trainer.name}'], overrides: {trainer.name: n}}",
            "/c/n",
            2,
        ),
        ("container: {env: {CKPT_DIR: /shared/c}}", "/shared/c", 2),
        ("checkpoint: {dir: '/shared/c/${spec:train.seed}'}", "", 0),
        ("train: {command: [t.py, --output_dir, /shared/c/$JOBSPEC_RUN_DIR]}", "", 0),
        ("train: {command: [t.py, --load_checkpoint_path, /shared/base, --data_dir, /shared/data]}", "", 0),
        ("train: {command: [t.py, --ckpt_path, /shared/base/last.ckpt]}", "", 0),
    ],
)
def test_points_that_save_into_one_folder_are_named(more: str, folder: str, points: int) -> None:
    text = "version: 1\nname: x\nframework: command\nresources: {nodes: 1, time: '10'}\n"
    text += "sweep: {grid: {train.seed: [1, 2]}}\n" + more + "\n"
    text += "" if "train:" in more else "train: {command: [x], seed: 0}\n"
    cluster = parse_cluster(SLURM, Path("lab.yaml"), "--cluster-file", {})
    _, _, findings = check_sweep(parse_spec(text, "/specs/spec.yaml", env={}), cluster)
    found = [item for item in findings if item.rule == "sweep.shared-checkpoint"]
    assert [item.is_error for item in found] == [True] * (points > 0)
    for item in found:
        assert item.what.startswith(f"{points} points of the sweep save into one folder, `{folder}`: ")
        assert item.what.endswith("train.seed=1; train.seed=2")


def test_only_the_points_that_share_are_named() -> None:
    points = "[{checkpoint.dir: /c/a}, {checkpoint.dir: /c/b, train.seed: 2}, {checkpoint.dir: /c/b}]"
    _, _, findings = checked(f"{{list: {points}}}")
    (found,) = [item for item in findings if item.rule == "sweep.shared-checkpoint"]
    assert found.what.startswith("2 points of the sweep save into one folder, `/c/b`: ")


def test_many_errors_are_counted_not_listed() -> None:
    seeds = ", ".join(map(str, range(50)))
    _, _, findings = checked(
        f"{{grid: {{train.seed: [{seeds}], resources.nodes: [9]}}}}", SLURM + "limits: {max_nodes: 4}\n"
    )
    errors = [finding for finding in findings if finding.is_error]
    assert len(errors) == 21
    assert errors[-1].what == "30 more errors of other points"


def outcome(run_dir: str) -> SweepOutcome:
    made = render_sweep(
        loaded("{grid: {container.env.A: ['a', 'b', '$(c)']}}"),
        parse_cluster(SLURM, Path("lab.yaml"), "--cluster-file", {}),
        RUN_ID,
        run_dir,
    )
    assert made.files, [finding.text() for finding in made.findings]
    return made


def test_each_point_is_a_run_directory_and_they_share_one_runtime() -> None:
    made = outcome("/shared/runs/x/1")
    for index in range(3):
        names = {
            name.removeprefix(f"points/{index}/")
            for name in made.files
            if name.startswith(f"points/{index}/")
        }
        assert names == {
            "job.sbatch",
            "srun.sh",
            "driver.sh",
            "attach.sh",
            "plan.json",
            "spec.yaml",
            "spec.lock.yaml",
        }
    assert (
        b" /shared/runs/x/1/runtime.pyz node --run-dir /shared/runs/x/1/points/1"
        in made.files["points/1/srun.sh"]
    )
    assert b"#SBATCH --array=0-2\n" in made.files["job.sbatch"]
    assert b"#SBATCH --output=/shared/runs/x/1/points/%a/job-%A_%a.log\n" in made.files["job.sbatch"]
    listed = json.loads(made.files["points.json"])
    assert [row["sets"] for row in listed["points"]] == [
        {"container.env.A": value} for value in ("a", "b", "$(c)")
    ]


def test_a_points_lock_is_that_points_spec() -> None:
    made = outcome("/shared/runs/x/1")
    again = resolve_text(made.files["points/2/spec.lock.yaml"].decode(), SLURM)
    assert again.plan == from_json(made.files["points/2/plan.json"].decode())
    assert again.plan is not None and again.plan.env["A"] == "$(c)"


def test_the_array_script_runs_its_tasks_point(stage: Stage, tmp_path: Path) -> None:
    made = outcome(str(tmp_path))
    for name, text in made.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text)
    stage.program("srun", then="exit 3")
    done = stage.bash(tmp_path / "job.sbatch", env={"SLURM_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "2"})
    assert done.returncode == 3, done.stderr
    (call,) = stage.calls()
    assert call.env[b"A"] == b"$(c)"
    assert call.env[b"JOBSPEC_RUN_DIR"] == f"{tmp_path}/points/2".encode()


def test_points_of_an_interpolated_spec_fill_in_the_profile_again(tmp_path: Path) -> None:
    """`jobspec submit` resolves the spec first and then expands what it resolved."""
    grid = '{container.env.A: ["${cluster:hf_home}", "$${x}"]}'
    text = BASE + 'checkpoint: {dir: "${cluster:runs}/c"}\n' + f"sweep: {{grid: {grid}}}\n"
    resolved = resolve_text(text, SLURM)
    allow = ["sweep.shared-checkpoint"]
    made = render_sweep(resolved.loaded, resolved.cluster, RUN_ID, str(tmp_path), allow=allow)
    assert made.files, [finding.text() for finding in made.findings]
    plans = [from_json(made.files[f"points/{index}/plan.json"].decode()) for index in (0, 1)]
    assert [plan.env["A"] for plan in plans] == ["/shared/hf", "${x}"]
    assert {plan.checkpoint_dir for plan in plans} == {"/shared/runs/c"}


def test_points_in_turn_are_one_job_that_skips_what_has_ended(tmp_path: Path) -> None:
    """`mode: one_allocation`; a requeued job goes on where it was."""
    made = render_sweep(
        loaded("{grid: {container.env.A: ['a', 'b', 'c', 'd']}, mode: one_allocation}"),
        parse_cluster(SLURM + "limits: {max_array: 2}\n", Path("lab.yaml"), "--cluster-file", {}),
        RUN_ID,
        str(tmp_path),
    )
    script = made.files["job.sbatch"].decode()
    assert "--array" not in script
    assert not check_scripts({"job.sbatch": made.files["job.sbatch"]})
    (tmp_path / "job.sbatch").write_text(script)
    for point in range(4):
        folder = tmp_path / "points" / str(point)
        folder.mkdir(parents=True)
        (folder / "job.sbatch").write_text(f"echo {point} >> {tmp_path}/ran; exit {point}\n")
    (tmp_path / "points/1/job-exit").write_text("1\n")  # a Fail is a result
    (tmp_path / "points/2/job-exit").write_text("124\n")  # stopped at the time limit: it is not
    done = subprocess.run(
        ["bash", tmp_path / "job.sbatch"], env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7"}
    )
    assert done.returncode == 3
    assert (tmp_path / "ran").read_text().split() == ["0", "2", "3"]
    assert [(tmp_path / f"points/{k}/job-exit").read_text().strip() for k in range(4)] == ["0", "1", "2", "3"]
    assert (tmp_path / "points/3/job-7.log").is_file()


def two_points(folder: Path, script: str) -> None:
    """A sweep of two points in one allocation; each runs `script`, whose `{up}` is a file of its own."""
    made = render_sweep(
        loaded("{grid: {container.env.A: ['a', 'b']}, mode: one_allocation}"),
        parse_cluster(SLURM, Path("lab.yaml"), "--cluster-file", {}),
        RUN_ID,
        str(folder),
    )
    (folder / "job.sbatch").write_bytes(made.files["job.sbatch"])
    for point in range(2):
        (folder / f"points/{point}").mkdir(parents=True)
        (folder / f"points/{point}/job.sbatch").write_text(script.format(up=folder / f"up{point}"))


def test_signal_ends_the_point_that_runs_and_starts_no_other(tmp_path: Path) -> None:
    two_points(tmp_path, "trap 'exit 124' USR1; echo up > {up}; while true; do sleep 0.05; done\n")
    job = subprocess.Popen(["bash", tmp_path / "job.sbatch"])
    while not (tmp_path / "up0").exists():
        time.sleep(0.02)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(30) == 124
    assert (tmp_path / "points/0/job-exit").read_text() == "124\n"
    assert not (tmp_path / "up1").exists()


def test_signal_that_comes_before_the_point_is_known_ends_it(tmp_path: Path) -> None:
    """bash has started the point, and has not yet noted its number."""
    two_points(tmp_path, "echo up > {up}; for i in $(seq 600); do sleep 0.05; done\n")
    early = tmp_path / "early.sh"
    early.write_text("""trap '[[ $BASH_COMMAND != "child=\\$!" ]] || kill -USR1 $$' DEBUG\n""")
    env = {"PATH": os.environ["PATH"], "BASH_ENV": str(early)}
    done = subprocess.run(["bash", tmp_path / "job.sbatch"], env=env, timeout=30, check=False)
    assert done.returncode == 128 + signal.SIGUSR1
    assert not (tmp_path / "up1").exists()


def test_points_that_have_finished_get_no_folder_and_no_task() -> None:
    made = render_sweep(
        loaded("{grid: {container.env.A: ['a', 'b', 'c', 'd', 'e']}}"),
        parse_cluster(SLURM, Path("lab.yaml"), "--cluster-file", {}),
        RUN_ID,
        "/shared/runs/x/1",
        find_finished=lambda keys: {1: f"../{RUN_ID}/points/1"} if len(set(keys.values())) == 5 else {},
    )
    assert b"#SBATCH --array=0,2-4\n" in made.files["job.sbatch"]
    assert {name.split("/")[1] for name in made.files if name.startswith("points/")} == {"0", "2", "3", "4"}
    listed = json.loads(made.files["points.json"])
    assert [row.get("finished", "") for row in listed["points"]] == ["", f"../{RUN_ID}/points/1", "", "", ""]


def test_a_points_key_is_that_of_its_lock_and_of_nothing_else() -> None:
    first, second = outcome("/shared/runs/x/1"), outcome("/elsewhere/2")
    assert [point_key(found) for found in first.resolved] == [point_key(found) for found in second.resolved]
    again = resolve_text(first.files["points/2/spec.lock.yaml"].decode(), SLURM)
    assert point_key(again) == point_key(first.resolved[2]) != point_key(first.resolved[1])


def test_a_points_key_changes_with_the_code_and_not_with_its_branch(tmp_path: Path) -> None:
    repo = write_checkout(tmp_path / "code", {"mod.py": "x = 1\n"})
    text = (
        "version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n"
        "repos: [{name: code, path: ./code}]\n"
    )

    def key() -> str:
        spec = parse_spec(text, str(tmp_path / "s.yaml"), env={})
        return point_key(resolve(spec, load_cluster("local", env={}), env={"HOME": str(tmp_path)}))

    first = key()
    subprocess.run(["git", "-C", str(repo), "checkout", "-qb", "other"], check=True)
    assert key() == first
    (repo / "mod.py").write_text("x = 2\n")
    assert key() != first
