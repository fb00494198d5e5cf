"""Files of a run that somebody made by hand: folders of any shape, and what is claimed from them."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobspec.cli import main
from jobspec.evidence.found_logs import find_logs, is_text
from jobspec.evidence.log_facts import scan_facts
from jobspec.finding import JobspecError
from jobspec.frameworks.base import Level
from jobspec.judging.foreign_run import expected, judge_files
from jobspec.plan import ExpectPlan
from jobspec.report import render_report
from jobspec.verdict import Result, Status, Verdict
from tests.kits.verdict_kit import StandInFramework

STEPS = "".join(f"step:{step} - actor/loss:0.{step} - training/global_step:{step}\n" for step in (1, 2, 3))
DISK = "OSError: [Errno 28] No space left on device\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
ASSERT = "RuntimeError: CUDA error: device-side assert triggered\n"
END = "[NRL_PHASE][2026-08-22T10:31:02+0000][+1731s] ray.sub exiting (exit_code={})\n"


class Framework(StandInFramework):
    """A stand-in that judges by the steps that metric files show."""

    def expect(self, level: Level, variants: tuple[str, ...] = (), steps: int = 0) -> ExpectPlan:
        return ExpectPlan(level=level.name, variants=variants, steps=steps)


def judge(place: Path, *imports: str, steps: int = 3) -> Verdict:
    return judge_files(place, expected(Framework(), "smoke", (), steps, (), "", imports))[1]


def metrics(folder: Path, steps: int = 3) -> None:
    rows = ({"step": step, "loss": 1 / step} for step in range(1, steps + 1))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def status(verdict: Verdict, name: str) -> Status:
    item = verdict.deliverable(name)
    assert item is not None
    return item.status


# -- which files are logs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["a.log", "a.log.1", "slurm-123.out", "x.err", "notes.txt", "stdout", "driver.0", "job.o77", "A.LOG",
     "deep/er/and/deeper/run.log", "a.log.gz", "a.log.2.gz", "slurm-1.out-20260101"],
)  # fmt: skip
def test_log_is_found_by_any_usual_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(OOM.encode()) if name.endswith(".gz") else OOM.encode())
    verdict = judge(tmp_path / "run")
    assert verdict.first_cause is not None
    assert (verdict.first_cause.file, verdict.first_cause.line) == (name, 1)


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "a.py", "a.json", ".git/HEAD", "global_step_3/notes.txt", "x.tar.gz", "LICENSE"],
)
def test_other_files_are_no_logs(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(OOM)
    assert judge(tmp_path).result is Result.NOTHING_RAN


@pytest.mark.parametrize("data", [bytes(range(256)) * 40, os.urandom(20_000), b"\x7fELF" + b"\0" * 9000])
def test_binary_junk_is_no_log(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "core").write_bytes(data)
    assert judge(tmp_path).result is Result.NOTHING_RAN


@pytest.mark.parametrize(
    "text", ["", "\x1b[36m(Worker pid=1)\x1b[0m 50%|█████\r", "héé ✓\n", "\0" * 50 + "x" * 200]
)
def test_what_people_read_is_a_log(text: str) -> None:
    assert is_text(text.encode())


def test_links_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "self.log").symlink_to("self.log")
    (tmp_path / "gone.log").symlink_to("nowhere")
    (tmp_path / "a" / "run.log").write_text(OOM)
    (tmp_path / "same.log").symlink_to("a/run.log")
    os.mkfifo(tmp_path / "pipe.log")  # opening it would wait for ever
    logs, problems = find_logs(tmp_path, tmp_path / "unpacked")
    assert [log.name for log in logs] in (["a/run.log"], ["same.log"])
    assert not problems  # the folder itself is read


def test_link_to_another_folder_is_told(tmp_path: Path) -> None:
    """wandb's `latest-run` leads to a folder that is read anyway."""
    (tmp_path / "run/wandb/run-1").mkdir(parents=True)
    (tmp_path / "run/wandb/latest-run").symlink_to("run-1")
    (tmp_path / "other").mkdir()
    (tmp_path / "run/outside").symlink_to("../other")
    _, problems = find_logs(tmp_path / "run", tmp_path / "unpacked")
    assert [(problem.rule, problem.file) for problem in problems] == [("judge.link", "outside")]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that opens and cannot be read")
def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.log").symlink_to("/proc/self/mem")
    metrics(tmp_path)
    verdict = judge(tmp_path)
    assert verdict.result is Result.PASS
    assert "`bad.log` cannot be read" in " ".join(finding.what for finding in verdict.findings)


def test_torn_compressed_log_counts_as_far_as_it_goes(tmp_path: Path) -> None:
    data = gzip.compress((OOM + "".join(f"line {i} {i * i}\n" for i in range(50_000))).encode())
    (tmp_path / "run.log.gz").write_bytes(data[: len(data) // 2])
    verdict = judge(tmp_path)
    assert verdict.first_cause is not None and verdict.first_cause.kind == "gpu-memory"
    assert [finding.rule for finding in verdict.findings] == ["judge.unreadable"]


def test_one_file_is_enough(tmp_path: Path) -> None:
    (tmp_path / "other.log").write_text(DISK)
    (tmp_path / "mine.weird-name").write_text(OOM)
    verdict = judge(tmp_path / "mine.weird-name")
    assert verdict.first_cause is not None and verdict.first_cause.file == "mine.weird-name"
    metrics(tmp_path)
    assert judge(tmp_path / "metrics.jsonl").result is Result.PASS


def test_empty_folder_is_nothing(tmp_path: Path) -> None:
    assert (judge(tmp_path).result, judge(tmp_path).exit_code) == (Result.NOTHING_RAN, 4)


def test_place_that_is_not_there_and_a_run_directory_are_told(tmp_path: Path) -> None:
    with pytest.raises(JobspecError, match="there is no file and no folder"):
        judge(tmp_path / "gone")
    (tmp_path / "attempts").mkdir()
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(JobspecError, match="run directory of jobspec"):
        judge(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["a.log", "b", "m.json", "m.jsonl", "c.txt.gz", "e.tfevents.1"]),
        st.binary(max_size=300),
    )
)
def test_any_bytes_give_a_verdict(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name, data in files.items():
        (folder / name).write_bytes(data)
    assert judge(folder).result in Result


# -- what is claimed ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "result"), [(DISK, Result.BLOCKED), (OOM, Result.BLOCKED), (ASSERT, Result.FAIL)]
)
def test_cause_of_a_run_that_stopped_decides(tmp_path: Path, line: str, result: Result) -> None:
    (tmp_path / "run.log").write_text(STEPS.splitlines()[0] + "\n" + line)
    verdict = judge(tmp_path)
    assert verdict.result is result
    assert verdict.first_cause is not None and verdict.first_cause.line == 2


def test_bad_line_of_a_run_that_proves_everything_is_a_finding(tmp_path: Path) -> None:
    metrics(tmp_path)
    (tmp_path / "run.log").write_text(STEPS + DISK)
    verdict = judge(tmp_path)
    assert (verdict.result, verdict.first_cause) == (Result.PASS, None)
    assert [finding.rule for finding in verdict.findings] == ["verdict.suspicious-line"]


def test_line_that_the_run_outlived_is_not_the_cause(tmp_path: Path) -> None:
    """The disk error was survived; what came after the last step stopped the run."""
    metrics(tmp_path, 2)
    (tmp_path / "run.log").write_text(DISK + STEPS + OOM)
    verdict = judge(tmp_path, steps=4)
    assert verdict.result is Result.BLOCKED
    assert verdict.first_cause is not None and verdict.first_cause.kind == "gpu-memory"
    assert any("train steps followed" in finding.what and finding.line == 1 for finding in verdict.findings)


@pytest.mark.parametrize(("code", "result"), [(-6, Result.FAIL), (-15, Result.BLOCKED)])
def test_signal_that_a_launcher_states_counts(tmp_path: Path, code: int, result: Result) -> None:
    metrics(tmp_path)
    launcher = "[2024-04-29 12:21:14,002] [ERROR] [launch.py:322:sigkill_handler] ['python', 'a.py']"
    (tmp_path / "train.log").write_text(f"{STEPS}{launcher} exits with return code = {code}\n")
    verdict = judge(tmp_path)
    run = verdict.deliverable("Run")
    assert verdict.result is result
    assert run is not None and run.reason.startswith(f"the last exit code that a log states is {code}")


@pytest.mark.parametrize(("code", "result"), [(0, Result.PASS), (1, Result.FAIL), (143, Result.BLOCKED)])
def test_stated_exit_code_counts(tmp_path: Path, code: int, result: Result) -> None:
    metrics(tmp_path)
    (tmp_path / "slurm-1.out").write_text(STEPS + END.format(code))
    verdict = judge(tmp_path)
    assert verdict.result is result
    assert "jobspec read no exit code of the run" not in verdict.limitations
    run = verdict.deliverable("Run")
    assert run is not None
    assert run.reason.partition(" (")[0] == (
        f"the run ended with exit code {code}" if code else "exit code 0, which alone proves nothing"
    )


def test_job_that_ended_last_decides(tmp_path: Path) -> None:
    metrics(tmp_path)
    (tmp_path / "slurm-10.out").write_text(STEPS + END.format(0))
    (tmp_path / "slurm-9.out").write_text(END.format(1).replace("T10", "T09"))
    assert judge(tmp_path).result is Result.PASS
    (tmp_path / "slurm-9.out").write_text(END.format(1).replace("T10", "T11"))
    assert judge(tmp_path).result is Result.FAIL


def test_codes_of_several_logs_are_told_where_none_is_known_as_the_last(tmp_path: Path) -> None:
    metrics(tmp_path)
    (tmp_path / "first.log").write_text("job done, exit code 0\n")
    (tmp_path / "second.log").write_text("exit code 1\n")
    run = judge(tmp_path).deliverable("Run")
    assert run is not None and run.status is Status.SKIPPED
    assert "0 in `first.log`, 1 in `second.log`" in run.reason


def test_exit_code_zero_alone_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "slurm-1.out").write_text(END.format(0))
    verdict = judge(tmp_path)
    assert verdict.result is Result.FAIL
    assert status(verdict, "Run") is Status.PASS


def test_task_that_failed_counts_where_nothing_is_proved(tmp_path: Path) -> None:
    line = "srun: error: n2: task 3: Exited with exit code 9\n"
    (tmp_path / "slurm-1.out").write_text(line)
    assert "a task of the job ended with exit code 9" in judge(tmp_path).reason
    metrics(tmp_path)  # a worker that is ended after the driver leaves such a line, too
    verdict = judge(tmp_path)
    assert verdict.result is Result.PASS
    run = verdict.deliverable("Run")
    assert run is not None and not run.required
    assert run.reason == "a task of the job ended with exit code 9"


ROOT = "/src/Megatron-Bridge"
GOOD = f"{ROOT}/src/megatron/bridge/__init__.py"


@pytest.mark.parametrize(
    ("line", "result"),
    [
        (f"megatron.bridge from {GOOD}", Result.PASS),
        (GOOD, Result.PASS),
        (f'(Worker pid=3)   File "{ROOT}/src/megatron/bridge/models/a.py", line 3, in f', Result.PASS),
        ("megatron.bridge: /opt/venv/lib/megatron/bridge/__init__.py", Result.BLOCKED),
        ("megatron.bridge reads its configuration from /etc/bridge.py", Result.BLOCKED),
        (f"cp {ROOT}/src/megatron/bridge/a.py /tmp", Result.BLOCKED),
        (f"megatron.bridge_extra from {GOOD.replace('bridge/__', 'bridge_extra/__')}", Result.BLOCKED),
    ],
)
def test_import_path_is_proved_or_voids(tmp_path: Path, line: str, result: Result) -> None:
    metrics(tmp_path)
    (tmp_path / "run.log").write_text(f"start\n\x1b[36m{line}\x1b[0m\n")
    verdict = judge(tmp_path, f"megatron.bridge={ROOT}")
    assert verdict.result is result
    assert ("void" in verdict.reason) is ("/opt/" in line)


def test_other_checkout_voids_whatever_else_a_log_says(tmp_path: Path) -> None:
    metrics(tmp_path)
    (tmp_path / "run.log").write_text(f"{GOOD}\n{OOM}megatron.bridge from /opt/megatron/bridge/__init__.py\n")
    assert judge(tmp_path, f"megatron.bridge={ROOT}").result is Result.BLOCKED


def test_nothing_about_size_is_made_up(tmp_path: Path) -> None:
    metrics(tmp_path)
    limits = " ".join(judge(tmp_path).limitations)
    assert (
        "how many nodes and GPUs took part is not judged" in limits
        and "no GPU took part" not in limits
        and "one node" not in limits
    )
    (tmp_path / "run.log").write_text(
        "Config(cluster={'gpus_per_node': 2, 'num_nodes': 1}, 'expert_model_parallel_size': 1)\n"
    )
    limits = " ".join(judge(tmp_path).limitations)
    assert "a setting asks for one node" in limits and "ep = 1: no expert parallelism" in limits
    assert "no GPU took part" not in limits


# -- facts of a log ----------------------------------------------------------------------------------


def test_facts_are_found_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobspec.log_search.BLOCK_BYTES", 64)
    lines = [f"noise {i}" for i in range(500)]
    lines[321] = END.format(7).strip()
    (tmp_path / "a.log").write_text("\n".join(lines))
    ((_, code, item),) = scan_facts([(tmp_path / "a.log", "a.log")]).ended
    assert (code, item.line) == (7, 322)


def test_endless_line_is_searched_around_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x" * 9_000_000 + " 'num_nodes': 4 " + "y" * 200_000)
    assert scan_facts([(tmp_path / "a.log", "a.log")]).sizes == {"nodes": 4}


PROBES = (
    "python3 -c 'import torch'",
    "HF_HOME=/h python -u -c 'import vllm'",
    "python3.11 -m pip list",
    "python -m pytest tests",
    "uv run pytest tests/unit",
    "uv run pip install trl",
    "python3 -m venv /tmp/v",
)


@pytest.mark.parametrize(
    ("line", "model", "command"),
    [
        ("Overrides: ['policy.model_name=Qwen/Qwen2.5-0.5B', 'x=1']", "Qwen/Qwen2.5-0.5B", ""),
        ("MasterConfig(policy={'model_name': '/models/x y', 'a': 1})", "/models/x y", ""),
        ("+ python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=/m a=1", "/m",
         "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=/m a=1"),
        ("++ uv run coverage run examples/run_grpo.py", "", "uv run coverage run examples/run_grpo.py"),
        ("+ echo MODEL_PATH=$HOME", "", ""),
        *((f"+ {probe}\n+ torchrun train.py", "", "torchrun train.py") for probe in PROBES),
        ("+ python3 -u -m trainer --config c.yaml", "", "python3 -u -m trainer --config c.yaml"),
    ],
)  # fmt: skip
def test_model_and_command_are_what_a_log_names(tmp_path: Path, line: str, model: str, command: str) -> None:
    (tmp_path / "a.log").write_text(f"start\n{line}\n")
    facts = scan_facts([(tmp_path / "a.log", "a.log")])
    assert (facts.model, facts.command) == (model, command)


# -- the command -------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    metrics(tmp_path)
    yield tmp_path


def test_json_contract(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.log").write_text(DISK)
    words = ["judge", str(folder), "--framework", "command", "--require", "max(loss) > 5", "--json"]
    assert main(words) == 3
    data = json.loads(capsys.readouterr().out)
    assert {"result", "level", "deliverables", "first_cause", "limitations"} <= data.keys()
    assert data["result"] == "Blocked"
    assert {"file", "line", "class", "text"} <= data["first_cause"].keys()
    assert data["deliverables"]["Required metrics"]["status"] == "Skipped"


def test_unmet_requirement_is_the_cause_where_no_line_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["judge", str(folder), "--framework", "command", "--require", "max(loss) > 5", "--json"]
    assert main(words) == 1
    cause = json.loads(capsys.readouterr().out)["first_cause"]
    assert (cause["file"], cause["class"]) == ("metrics.jsonl", "Required metrics")


def test_short_form_of_a_foreign_run(folder: Path) -> None:
    evidence, verdict = judge_files(folder, expected(Framework(), "smoke", (), 3, (), "", ()))
    text = render_report(verdict, evidence, "summary")
    assert "Command: jobspec found no line that names it" in text
    assert "Requested coverage: Level 0 (smoke), no variants" in text


@pytest.mark.parametrize(
    ("line", "said"),
    [("", ""), ("nnodes=2", "; the files ask for 2 nodes"),
     ("n_gpus_per_node=8", "; the files ask for 8 GPUs a node"),
     ("nnodes=2 n_gpus_per_node=8", "; the files ask for 2 nodes, 8 GPUs each"),
     ("torchrun --nproc_per_node=8 --nnodes=1 a.py", "; a launch in the files asks for 8 processes"),
     ("+ torchrun --nnodes 2 --nproc-per-node 4 a.py",
      "; a launch in the files asks for 4 processes on each of 2 nodes"),
     ("$ accelerate launch --num_processes 3 a.py", "; a launch in the files asks for 3 processes"),
     ("deepspeed --num_gpus 8 a.py", "; a launch in the files asks for 8 processes a node"),
     ("torchrun --nnodes $N --nproc_per_node 8 a.py", "; a launch in the files asks for 8 processes a node")],
)  # fmt: skip
def test_size_of_a_foreign_run_is_what_its_files_say(folder: Path, line: str, said: str) -> None:
    (folder / "run.log").write_text(f"{line}\n")
    evidence, verdict = judge_files(folder, expected(Framework(), "smoke", (), 3, (), "", ()))
    assert f"judged as {evidence.plan.framework}{said}\n" in render_report(verdict, evidence, "text")


@pytest.mark.parametrize("fmt", ["text", "summary", "md", "json", "html", "junit"])
def test_every_form_of_the_report_takes_a_foreign_run(folder: Path, fmt: str) -> None:
    (folder / "run.log").write_text(STEPS + OOM)
    wanted = expected(Framework(), "smoke", (), 9, (), "", ())
    evidence, verdict = judge_files(folder, wanted)
    text = render_report(verdict, evidence, fmt)
    assert "CUDA out of memory" in text
    if fmt == "json":
        schema = json.loads(files("jobspec.report").joinpath("report.schema.json").read_text())
        jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize(("slope", "code"), [(0.03, 0), (0.0, 1)])
def test_level_brings_its_own_learning_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], slope: float, code: int
) -> None:
    ripple = (0.01, -0.02, 0.015, 0.0, -0.005)
    rows = (
        {"step": step, "reward": 0.1 + slope * step + ripple[step % 5], "loss": 1.0, "grad_norm": 0.5}
        for step in range(1, 25)
    )
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["judge", str(tmp_path), "--framework", "trl", "--level", "learning"]) == code
    assert "`reward`" in capsys.readouterr().out
