"""Folders that people judge, each with the guides' value: a healthy run with one thing changed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.cli import main
from jobspec.judging.foreign_run import expected, judge_files
from jobspec.report import render_report
from jobspec.verdict import Result, Verdict

FIXTURES = Path(__file__).parents[1] / "fixtures"
PASS, FAIL, BLOCKED = Result.PASS, Result.FAIL, Result.BLOCKED
ROOT = "/ws/Megatron-Bridge"
FILE = f"{ROOT}/src/megatron/bridge/__init__.py"
WORKER = "(MegatronPolicyWorker[rank=0] pid=40112) "
LINE = f"{WORKER}megatron.bridge.__file__ = {FILE}\n"
NAMED = f"megatron.bridge={ROOT}"
NEMO_LOG = (
    (FIXTURES / "nemo_rl_log_example.txt")
    .read_text("utf-8")
    .partition("### SECTION A:")[2]
    .partition("\n")[2]
    .partition("\n### SECTION ")[0]
)
NEMO_METRICS: Mapping[str, Mapping[str, float]] = json.loads(
    (FIXTURES / "nemo_rl_metrics_example.json").read_text()
)
PEFT = f"{WORKER}Applying PEFT transformation...\n{WORKER}  Trainable parameters: 4,325,376\n"
BUILT = f"\x1b[36m{WORKER.strip()}\x1b[0m Model, optimizer, and learning rate scheduler built"
VERL_LOG = (FIXTURES / "verl_log_example.txt").read_text("utf-8")
STEPS = 24


def given(*overrides: str) -> str:
    """The smoke run's log with further overrides."""
    return NEMO_LOG.replace("Overrides: [", f"Overrides: [{''.join(f'{text!r}, ' for text in overrides)}")


def learning(lora: bool = True, peft: bool = True) -> str:
    """A run of 24 steps; `lora` asks for an adapter and `peft` shows it."""
    log = given("policy.megatron_cfg.peft.enabled=true") if lora else NEMO_LOG
    log = log.replace("max_num_steps=2", f"max_num_steps={STEPS}").partition(
        "\n=========================\u0020Step 1/2"
    )[0]
    assert BUILT in log
    log = log.replace(BUILT, f"{PEFT}{BUILT}") if peft else log
    return log + "".join(
        f"\n========================= Step {step}/{STEPS} =========================\n"
        f"Logged data to /x/exp_001/train_data_step{step}.jsonl\n"
        for step in range(1, STEPS + 1)
    )


def curves(steps: int = STEPS, **changed: Any) -> dict[str, dict[str, float]]:
    """Metrics of a run that learns; `changed` gives a metric's value by step, `__` for a slash."""
    known = {name: rows["1"] for name, rows in NEMO_METRICS.items() if name.startswith("train/")}
    found = {name: {str(step): value for step in range(1, steps + 1)} for name, value in known.items()}
    for step in range(1, steps + 1):
        found["train/reward"][str(step)] = 0.7 - 0.55 * math.exp(-step / 6) + 0.01 * (-1) ** step
        found["train/kl_penalty"][str(step)] = 0.001 * step
    for name, values in changed.items():
        found[name.replace("__", "/")].update(values)
    return found


def bad(metric: str, value: float, step: int = 2) -> dict[str, dict[str, float]]:
    return {**NEMO_METRICS, metric: {**NEMO_METRICS[metric], str(step): value}}  # type: ignore[return-value]


@dataclass(frozen=True)
class Folder:
    """`line` is the import's line; `limits` and `findings` are parts of what the report must say besides."""

    name: str
    result: Result
    part: str = ""
    framework: str = "nemo_rl"
    level: str = "0"
    variants: tuple[str, ...] = ()
    log: str = NEMO_LOG
    metrics: Mapping[str, Any] | None = field(default_factory=lambda: NEMO_METRICS)
    line: str = LINE
    named: str = NAMED
    limits: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()

    def write(self, folder: Path) -> Path:
        (folder / "run.log").write_text(self.line + self.log)
        if self.framework == "verl":
            jsonl = FIXTURES / "verl_file_logger_example.jsonl"
            (folder / "metrics.jsonl").write_bytes(jsonl.read_bytes())
        elif self.metrics is not None:
            (folder / "metrics.json").write_text(json.dumps(self.metrics))
        return folder

    def judge(self, folder: Path) -> Verdict:
        framework, named = frameworks.get(self.framework), (self.named,) if self.named else ()
        return judge_files(folder, expected(framework, self.level, self.variants, 0, (), "", named))[1]


UNPROVED = "which Bridge ran is not proved"
MASK = given(
    "grpo.seq_logprob_error_threshold=2.0", "++loss_fn.force_on_policy_ratio=true",
    "+policy.generation.backend=megatron",
)  # fmt: skip
PLANE = given(
    "policy.megatron_cfg.tensor_model_parallel_size=2", "data_plane.enabled=true", "data_plane.backend=simple"
).replace("GRPO training (legacy)", "GRPO training (TransferQueue)")
UPDATE = "timing/train/prepare_for_generation/transfer_and_update_weights"
REFIT = given("policy.generation.colocated.enabled=false")
CUT = NEMO_LOG.partition("\n========================= Step 2/2")[0]
NOISE = (
    "/usr/lib/python3.13/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There "
    "appear to be 1 leaked shared_memory objects to clean up at shutdown\n"
    "[rank0]:[W822 10:20:11.113 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not "
    "called before program exit, which can leak resources.\n"
)
MISMATCH = "WARNING:root:__init__.py:213: \nWARNING: Container/Code Version Mismatch Detected!\n"
WHEEL = "/usr/lib/python3.12/site-packages/megatron/bridge/__init__.py"
VERL = {"framework": "verl", "log": VERL_LOG}
EAGER = VERL_LOG.replace("reward.reward_model.enable=False", "++actor_rollout_ref.rollout.enforce_eager=True")
DUMMY = "+ USE_DUMMY_MODEL=True\nRandom model initialized and saved to /root/dummy_models/Qwen/x\n"
FOLDERS = (
    Folder("healthy", PASS, limits=("which `megatron.core` was imported is not proved",)),
    Folder("nothing-named", BLOCKED, "--expect-import megatron.bridge=/ws/Megatron-Bridge/src", named=""),
    Folder("nothing-shown", BLOCKED, "jobspec found no line that says where", line=""),
    Folder("nothing-at-all", BLOCKED, "that it ran is not proved", line="", named=""),
    Folder("wheel", BLOCKED, "the run is void", line=f"{WORKER}{WHEEL}\n", named=""),
    Folder("wheel-and-failure", BLOCKED, "the run is void", line=f"{WORKER}{WHEEL}\n", named="",
           log=f"{CUT}torch.OutOfMemoryError: CUDA out of memory\n"),
    Folder("fingerprint", PASS, log=f"{MISMATCH}{NEMO_LOG}{NOISE}",
           findings=("Version Mismatch", "resource_tracker", "destroy_process_group")),
    Folder("masked", PASS, log=MASK, limits=("are masked", "every ratio 1", "not from vLLM")),
    Folder("masked-sequences", BLOCKED, "were masked", log=MASK,
           metrics=bad("train/num_masked_seqs_by_logprob_error", 3.0)),
    Folder("not-vllm-at-refit", FAIL, "not from vLLM", level="2", variants=("non-colocated",),
           log=given("policy.generation.colocated.enabled=false", "policy.generation.backend=megatron")),
    Folder("vlm", PASS, log=NEMO_LOG.replace("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-VL-3B-Instruct"),
           limits=("takes images or sound",)),
    Folder("nan-kl", FAIL, "`train/kl_penalty` of step 2", metrics=bad("train/kl_penalty", math.inf)),
    Folder("nan-entropy", FAIL, "`train/approx_entropy`", metrics=bad("train/approx_entropy", math.nan)),
    Folder("ratio", FAIL, "does not hold", metrics=bad("train/token_mult_prob_error", 1.4)),
    Folder("cut", FAIL, "step 2 of 2", log=CUT,
           metrics={name: {"1": rows["1"]} for name, rows in NEMO_METRICS.items() if "1" in rows}),
    Folder("zero-gradient", FAIL, "every gradient was zero",
           metrics={**NEMO_METRICS, "train/grad_norm": {"1": 0.0, "2": 0.0}}),
    Folder("refit", PASS, "transfer_and_update_weights 0.60 s", level="2", log=REFIT),
    Folder("refit-bottleneck", PASS, "such as offloading and waking the engine, 0.71 s (54%)", level="2",
           log=REFIT),
    Folder("refit-transfer", PASS, "most of it is transfer_and_update_weights, 1.20 s (91%)", level="2",
           log=REFIT, metrics={**NEMO_METRICS, UPDATE: {"1": 1.2, "2": 1.2}}),
    Folder("data-plane", PASS, level="4", variants=("tp2",), log=PLANE),
    Folder("unmapped", FAIL, "left weights out",
           log=NEMO_LOG.replace(BUILT, f"WARNING: No mapping found for megatron_param: a.b\n{BUILT}")),
    Folder("learning", PASS, level="6", log=learning(), metrics=curves(),
           limits=("only an adapter was trained",)),
    Folder("learning-few", BLOCKED, "the metrics end at step 20", level="6", log=learning(),
           metrics=curves(20)),
    Folder("learning-frozen", FAIL, "exactly 0", level="6", log=learning(),
           metrics=curves(train__kl_penalty={str(step): 0.0 for step in range(1, 25)})),
    Folder("learning-nan-entropy", FAIL, "`train/approx_entropy` of step 10", level="6", log=learning(),
           metrics=curves(train__approx_entropy={"10": math.nan})),
    Folder("learning-nan-divergence", FAIL, "`train/js_divergence_error`", level="6", log=learning(),
           metrics=curves(train__js_divergence_error={"10": math.nan})),
    Folder("learning-without-adapter", PASS, level="6", log=learning(lora=False, peft=False),
           metrics=curves()),
    Folder("learning-adapter-asked-for", BLOCKED, "LoRA adapter", level="6", log=learning(peft=False),
           metrics=curves()),
    Folder("learning-adapter-not-shown", BLOCKED, "LoRA adapter", level="6", variants=("lora-learning",),
           log=learning(peft=False), metrics=curves()),
    Folder("verl", PASS, **VERL, line=f"(WorkerDict pid=1) {FILE}\n",
           limits=("tp = 1", "LoRA adapter", "reward model was off", "read no setting for images")),
    Folder("verl-driver", PASS, **VERL, line=f"{FILE}\n", limits=("no line of a Ray worker",)),
    Folder("verl-unnamed", BLOCKED, UNPROVED, **VERL, line=f"{FILE}\n", named=""),
    Folder("verl-dummy", PASS, framework="verl", log=DUMMY + EAGER,
           limits=("random weights", "without CUDA graphs", "reward model was off")),
    Folder("verl-noise", PASS, framework="verl", findings=("DataLoader worker", "resource_tracker"),
           log=f"{VERL_LOG}RuntimeError: DataLoader worker (pid 4123) is killed by signal: Terminated.\n"),
    Folder("verl-venv", BLOCKED, "the run is void", **VERL,
           line=f"{ROOT}/.venv/lib/python3.12/site-packages/megatron/bridge/__init__.py\n"),
    Folder("verl-wheel", BLOCKED, "the run is void", **VERL, line=f"{WHEEL}\n", named=""),
    Folder("verl-unmapped", FAIL, "left weights out", framework="verl",
           log=f"{VERL_LOG}(WorkerDict pid=1) WARNING: Can't find a.weight in hf_keys\n"),
    Folder("rlix", BLOCKED, "Training: Blocked not shown", framework="rlix", level="1", metrics=None,
           named="", line="",
           log=(FIXTURES / "rlix_log_made.txt").read_text("utf-8")),
)  # fmt: skip


@pytest.mark.parametrize("case", FOLDERS, ids=lambda case: case.name)
def test_folder_has_its_value(case: Folder, tmp_path: Path) -> None:
    verdict = case.judge(case.write(tmp_path))
    told = " ".join(f"{item.name}: {item.status} {item.reason}" for item in verdict.deliverables)
    assert verdict.result is case.result, told
    assert case.part in told
    for part in case.limits:
        assert any(part in sentence for sentence in verdict.limitations), (part, verdict.limitations)
    for part in case.findings:
        assert any(part in finding.what for finding in verdict.findings), (part, verdict.findings)
    if verdict.result is Result.BLOCKED:
        assert verdict.first_cause is not None and verdict.first_cause.verdict is Result.BLOCKED


# -- one line of an import, in the forms that people print -------------------------------------------

MORE = f"{ROOT}/3rdparty/Megatron-LM/megatron/core/__init__.py"
FORMS = (
    f"megatron.bridge.__file__ = {FILE}",
    f"megatron.bridge.__file__={FILE}",
    f"megatron.bridge: {FILE}",
    f"megatron.bridge -> {FILE}",
    f"<module 'megatron.bridge' from '{FILE}'>",
    f'<module "megatron.bridge" from "{FILE}">',
    FILE,
    f"'{FILE}'",
    f'{{"megatron.bridge": "{FILE}", "megatron.core": "{MORE}"}}',
    f'    "__file__": "{FILE}",',
    f"INFO:root:{FILE}",
    f"2026-08-22 14:01:11,402 INFO check.py:3 -- megatron.bridge from {FILE}",
    f"[2026-08-22 14:01:11][INFO] bridge={FILE}",
    f"\x1b[32mOK\x1b[0m /x/nemo_rl/__init__.py {FILE} {MORE}",
    f"2.9.0 NVIDIA B200 {FILE}",
    f"megatron.bridge.__path__ = _NamespacePath(['{ROOT}/src/megatron/bridge'])",
    f'  File "{ROOT}/src/megatron/bridge/models/a.py", line 3, in f',
    f"{ROOT}/src/megatron/bridge/models/a.py:9: UserWarning: y",
    "driver /ws/other/../Megatron-Bridge/src/megatron/bridge/__init__.py",
    f"3: megatron.bridge {FILE}",  # srun --label
    f"Found no wheel. megatron.bridge: {FILE}",
    f"megatron.bridge from {FILE} (not {WHEEL})",
)
PREFIXES = ("", "(WorkerDict pid=9, ip=10.0.0.2) ", "\x1b[36m(WorkerDict pid=9)\x1b[0m ", "[rank3]: ")


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("form", FORMS)
def test_form_proves_the_checkout(prefix: str, form: str, tmp_path: Path) -> None:
    verdict = Folder("", PASS, **VERL, line=f"{prefix}{form}\n").judge(
        Folder("", PASS, **VERL, line=f"{prefix}{form}\n").write(tmp_path)
    )
    assert verdict.result is Result.PASS, verdict.reason
    driver_only = any("no line of a Ray worker" in sentence for sentence in verdict.limitations)
    assert driver_only is (not prefix)


@pytest.mark.parametrize("form", FORMS)
def test_form_of_a_wheel_voids(form: str, tmp_path: Path) -> None:
    wheel = form.replace(f"{ROOT}/src", "/opt/venv/lib/python3.12/dist-packages").replace(
        "/ws/other/../Megatron-Bridge/src", "/opt/venv/lib/python3.12/dist-packages"
    )
    case = Folder("", BLOCKED, **VERL, line=f"{wheel}\n", named="")
    verdict = case.judge(case.write(tmp_path))
    assert verdict.result is Result.BLOCKED and "the run is void" in verdict.reason


@pytest.mark.parametrize(
    "line",
    [
        "megatron.bridge -> ../Megatron-Bridge/src/megatron/bridge/__init__.py",
        "megatron.bridge: src/megatron/bridge/__init__.py",
        "megatron.bridge: $BRIDGE_REPO/src/megatron/bridge/__init__.py",
        "megatron.bridge: ~/Megatron-Bridge/src/megatron/bridge/__init__.py",
        f"+ cat {FILE}",
        f"cp {FILE} /tmp",
        f"expected megatron.bridge from {FILE}",
        f"megatron.bridge should come from {FILE}",
        f"sed: can't read {FILE}: No such file or directory",
        f"export PYTHONPATH={ROOT}/src:/ws/verl",
        f"Editable project location: {ROOT}",
        "/opt/venv/lib/python3.12/site-packages/__editable___megatron_bridge_0_5_0_finder.py",
        "ModuleNotFoundError: No module named 'megatron.bridge'",
        f"{WHEEL} is shadowed by another folder",
        f"megatron.bridge hides {WHEEL}",
        f"# {ROOT}/src/megatron/bridge/__pycache__/__init__.cpython-312.pyc matches {FILE}",
    ],
)
def test_line_that_shows_no_import_proves_and_voids_nothing(line: str, tmp_path: Path) -> None:
    case = Folder("", BLOCKED, **VERL, line=f"{line}\n")
    verdict = case.judge(case.write(tmp_path))
    assert verdict.result is Result.BLOCKED
    assert "jobspec found no line that says where" in verdict.reason and "void" not in verdict.reason


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        # A checkout may hold other copies: only the folder of its sources is the tested code.
        ((f"{ROOT}/build/lib/megatron/bridge/__init__.py",), BLOCKED),
        ((f"{ROOT}/3rdparty/old/src/megatron/bridge/__init__.py",), BLOCKED),
        (("/opt/Megatron-Bridge/src/megatron/bridge/__init__.py",), BLOCKED),
        (("megatron.bridge: /ws/build/megatron/bridge.cpython-312-x86_64-linux-gnu.so",), BLOCKED),
        (("/ws/Megatron-Bridge-2/src/megatron/bridge/__init__.py",), BLOCKED),
        # One worker of several is enough, in any order.
        ((FILE, f"(WorkerDict pid=1) {FILE}", f"(WorkerDict pid=2) {WHEEL}"), BLOCKED),
        ((f"(WorkerDict pid=2) {WHEEL}", f"(WorkerDict pid=1) {FILE}"), BLOCKED),
        ((FILE, "(WorkerDict pid=2) /opt/b/src/megatron/bridge/__init__.py"), BLOCKED),
        ((f"got {WHEEL}, expected {FILE}",), BLOCKED),
        ((FILE, f"(WorkerDict pid=1) {FILE}"), PASS),
    ],
)
def test_every_line_counts(lines: tuple[str, ...], result: Result, tmp_path: Path) -> None:
    case = Folder("", result, **VERL, line="".join(f"{line}\n" for line in lines))
    verdict = case.judge(case.write(tmp_path))
    assert verdict.result is result
    assert ("the run is void" in verdict.reason) is (result is BLOCKED)


@pytest.mark.parametrize(
    ("prefix", "worker"),
    [
        ("(WorkerDict pid=1) ", True),
        ("(pid=123) ", True),
        ("(pid=123, ip=10.0.0.2) ", True),
        ("(bridge_path pid=5) ", True),
        ("worker 3: ", True),
        ("[default7]:", True),
        ("(MegatronPolicyWorker[rank=1] pid=2) ", True),
        ("(TaskRunner pid=1) ", False),
        ("(TaskRunnerV1 pid=1) ", False),
        ("(main_task pid=1) ", False),
        ("(VllmGenerationWorker pid=1) ", False),
        ("(vLLMHttpServer pid=1) ", False),
        ("driver: ", False),
        ("", False),
    ],
)
def test_only_a_worker_that_trains_is_one(prefix: str, worker: bool, tmp_path: Path) -> None:
    case = Folder("", PASS, **VERL, line=f"{prefix}{FILE}\n")
    verdict = case.judge(case.write(tmp_path))
    assert verdict.result is Result.PASS
    assert any("no line of a Ray worker" in sentence for sentence in verdict.limitations) is not worker


def test_folder_beside_the_named_one_is_another(tmp_path: Path) -> None:
    """A package may be called like its checkout."""
    verl = frameworks.get("verl")
    for place, part in (("/ws/verl/verl", ""), ("/ws/other/verl", "the run is void")):
        (tmp_path / "run.log").write_text(f"{LINE}verl: {place}/__init__.py\n{VERL_LOG}")
        verdict = judge_files(tmp_path, expected(verl, "0", (), 0, (), "", (NAMED, "verl=/ws/verl")))[1]
        assert part in verdict.reason and (verdict.result is BLOCKED) is bool(part)


def test_link_to_the_checkout_is_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "files").mkdir()
    file = f"{tmp_path}/real/src/megatron/bridge/__init__.py"
    case = Folder("", PASS, **VERL, line=f"{file}\n", named=f"megatron.bridge={tmp_path}/link")
    assert case.judge(case.write(tmp_path / "files")).result is Result.PASS


@pytest.mark.parametrize("named", [ROOT, f"{ROOT}/", f"{ROOT}/src", f"{ROOT}/src/megatron/bridge"])
def test_checkout_may_be_named_by_any_of_its_folders(named: str, tmp_path: Path) -> None:
    case = Folder("", PASS, **VERL, named=f"megatron.bridge={named}")
    assert case.judge(case.write(tmp_path)).result is Result.PASS


def test_bridge_inside_a_nemo_rl_checkout_may_be_the_tested_one(tmp_path: Path) -> None:
    vendored = "/opt/RL/3rdparty/Megatron-Bridge-workspace/Megatron-Bridge/src/megatron/bridge/__init__.py"
    case = Folder("", PASS, line=f"{WORKER}{vendored}\n", named="megatron.bridge=/opt/RL")
    assert case.judge(case.write(tmp_path)).result is Result.PASS
    other = Folder("", BLOCKED, line=f"{WORKER}{vendored}\n")
    assert "the run is void" in other.judge(tmp_path).reason


def test_imports_of_the_bridge_s_own_tests_are_not_the_run_s(tmp_path: Path) -> None:
    session = (
        "============================= test session starts =============================\n"
        f"rootdir: {ROOT}\n{FILE}\n"
        "=============================== warnings summary ===============================\n"
        f"{ROOT}/src/megatron/bridge/a.py:9: UserWarning: y\n"
        "======================== 41 passed, 1 warning in 12.30s ========================\n"
    )
    case = Folder("", BLOCKED, **VERL, line=session)
    assert "jobspec found no line that says where" in case.judge(case.write(tmp_path)).reason
    after = Folder("", PASS, **VERL, line=f"{session}{FILE}\n")
    assert after.judge(after.write(tmp_path)).result is Result.PASS


IMAGES = "/workspace/Megatron-LM/megatron/core/__init__.py"


@pytest.mark.parametrize(
    ("core", "result", "reason"),
    [
        (MORE, PASS, ""),
        (IMAGES, BLOCKED, f"{IMAGES}, not from the Bridge's own {ROOT}/3rdparty/Megatron-LM: which Core"),
        ("/usr/lib/python3/dist-packages/megatron/core/__init__.py", BLOCKED, "Megatron-LM: the run is void"),
    ],
)
def test_core_of_another_place_is_blocked(tmp_path: Path, core: str, result: Result, reason: str) -> None:
    line = f"(W pid=1) megatron.bridge {FILE}\n(W pid=1) megatron.core {core}\n"
    case = Folder("", result, **VERL, line=line)
    verdict = case.judge(case.write(tmp_path))
    assert verdict.result is result
    assert reason in verdict.reason
    if result is BLOCKED:
        told = next(item for item in verdict.deliverables if item.name == "Local Bridge import in verl")
        assert (
            f"`--expect-import megatron.core={core.removesuffix('/megatron/core/__init__.py')}`" in told.fix
        )


def test_core_that_is_named_counts(tmp_path: Path) -> None:
    """The guides' copy on the disk of a node is named, and then it alone counts."""
    case = Folder(
        "", PASS, **VERL, line=f"(W pid=1) megatron.bridge {FILE}\n(W pid=1) megatron.core {IMAGES}\n"
    )
    verl = frameworks.get("verl")

    def named(root: str) -> Verdict:
        both = (NAMED, f"megatron.core={root}")
        return judge_files(case.write(tmp_path), expected(verl, "0", (), 0, (), "", both))[1]

    assert named("/workspace/Megatron-LM").result is PASS
    other = named(f"{ROOT}/3rdparty/Megatron-LM")
    assert other.result is BLOCKED
    assert "`megatron.core` comes from" in other.reason


@pytest.mark.parametrize("form", ["text", "md", "json", "html", "junit", "summary"])
def test_noise_is_told_in_every_form(form: str, tmp_path: Path) -> None:
    case = Folder("", PASS, log=f"{MISMATCH}{NEMO_LOG}{NOISE}")
    framework = frameworks.get("nemo_rl")
    evidence, verdict = judge_files(case.write(tmp_path), expected(framework, "0", (), 0, (), "", (NAMED,)))
    text = render_report(verdict, evidence, form)
    assert "residual log noise" in text and "Version Mismatch" in text


def test_triage_of_everything_prints_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.log").write_text(f"{MISMATCH}{NEMO_LOG}{NOISE}")
    assert main(["triage", str(tmp_path)]) == 0
    assert "Version Mismatch" not in capsys.readouterr().out
    assert main(["triage", "--all", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "Version Mismatch" in told and "resource_tracker" in told


def test_triage_marks_the_line_of_an_exception_whose_words_are_below(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "LlamaConverter requires the protobuf library but it was not found in your environment."
    (tmp_path / "run.log").write_text(f"before\nImportError: \n{words}\n")
    main(["triage", str(tmp_path)])
    assert "  > ImportError:\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "part"), [("ratio", "sequence_parallel=false"), ("nothing-at-all", "in a worker")]
)
def test_next_step_is_told(name: str, part: str, tmp_path: Path) -> None:
    case = next(case for case in FOLDERS if case.name == name)
    verdict = case.judge(case.write(tmp_path))
    assert verdict.first_cause is not None and part in verdict.first_cause.fix


def test_endless_line_is_read_around_its_path(tmp_path: Path) -> None:
    """As of a configuration printed in one line; and a line of paths alone takes no time."""
    long = "'x': 1, " * 20_000
    case = Folder(
        "", PASS, **VERL, line=f"{'/megatron/bridge' * 9000}\n{long}'megatron.bridge': '{FILE}', {long}\n"
    )
    assert case.judge(case.write(tmp_path)).result is Result.PASS
