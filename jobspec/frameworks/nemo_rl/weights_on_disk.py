"""What a run did with weights on disk: the import from Hugging Face, checkpoints, and a resume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobspec.evidence.evidence import Checkpoint
from jobspec.frameworks.nemo_rl.log_lines import Line, numbers
from jobspec.frameworks.nemo_rl.variant_run import STEP_LINES, VariantRun, unfinished_checkpoints
from jobspec.frameworks.shared.answer import Answer, combine
from jobspec.frameworks.shared.metric_deliverables import CHECKPOINT, RESUME
from jobspec.frameworks.shared.unmapped_weights import HF_IMPORT
from jobspec.verdict import Deliverable, EvidenceItem, Status

OWN_FOLDER = "/hf-import"  # of each attempt; see `commands.FOLDERS`
QUANTISED = ("quant-", "qa-")  # these convert into a folder of ModelOpt's
INFO, WEIGHTS = "training_info.json", "policy/weights/"


# -- import from Hugging Face ------------------------------------------------------------------------


def judge_hf_import(runs: Sequence[VariantRun]) -> Iterator[Deliverable]:
    """`Pass` when this run converted the weights: NeMo-RL skips the import where a conversion exists."""
    unmapped = [line for run in runs for line in run.lines.get("unmapped", ())]
    if unmapped:
        reason = f"Megatron-Bridge left weights out: {unmapped[0].item.text}"
        yield Deliverable(HF_IMPORT, Status.FAIL, tuple(line.item for line in unmapped[:5]), reason)
        return
    importing = [run for run in runs if not run.skipped and not run.name.startswith(QUANTISED)]
    fresh = [run for run in importing if not (run.foreign and run.loaded)]
    if not fresh:
        reason = "the weights came from a checkpoint" if importing else "no variant imports weights"
        yield Deliverable(HF_IMPORT, Status.NOT_REQUESTED, reason=reason, required=False)
        return
    yield combine(HF_IMPORT, [_hf_import(run) for run in fresh], "weights were converted anew")


def _hf_import(run: VariantRun) -> Answer:
    used, built = run.lines.get("conversion", ()), run.lines.get("built", ())
    used = used or (run.lines.get("imported", ()) if run.foreign else ())
    if not used or not built:
        return run.unseen("jobspec did not read that Megatron-Bridge imported weights")
    if not run.foreign and not any(line.groups[0].endswith(OWN_FOLDER) for line in used):
        return run.failed(
            f"the import went to {used[0].groups[0]}, not to this attempt's folder", [used[0].item]
        )
    skips = run.lines.get("skipped-import", ())
    if all(_skip_before(line, skips) for line in _first_of_each_log(built)):
        reason = "NeMo-RL skipped the import, since a conversion was already there: the import is not proved"
        return run.unseen(reason, [skip.item for skip in skips[:1]])
    return run.passed(f"converted into {used[0].groups[0]}", [used[0].item])


def _first_of_each_log(lines: Sequence[Line]) -> list[Line]:
    return list({line.file: line for line in reversed(lines)}.values())


def _skip_before(built: Line, skips: Sequence[Line]) -> bool:
    return any(skip.file == built.file and skip.number < built.number for skip in skips)


# -- checkpoints -------------------------------------------------------------------------------------


def judge_checkpoint(runs: Sequence[VariantRun]) -> Iterator[Deliverable]:
    saving = [run for run in runs if run.variant.saves and not run.skipped]
    if saving:
        yield combine(CHECKPOINT, [_checkpoint(run) for run in saving], "complete")


def _checkpoint(run: VariantRun) -> Answer:
    """`Pass` with a complete folder of the last step: lines of a save prove only its begin or hand-over."""
    complete = complete_checkpoints(run)
    if run.planned in complete:
        return run.passed(f"step {run.planned} is complete", [complete[run.planned]])
    torn = numbers(run.lines, "unfinished")
    for path in unfinished_checkpoints(run.evidence) if run.foreign else ():
        torn.setdefault(int(path.name.rpartition("_")[2]), EvidenceItem(str(path)))
    if torn:
        step = max(torn)
        return run.failed(f"the save of step {step} never ended: `tmp_step_{step}` is left", [torn[step]])
    saved = [line.item for line in run.lines.get("saved", ())[:1]]
    return run.unseen(f"no complete checkpoint of step {run.planned} was found", saved)


def complete_checkpoints(run: VariantRun) -> dict[int, EvidenceItem]:
    """Steps with a complete checkpoint: noted right after a script of ours, or a folder that is there now."""
    complete = numbers(run.lines, "complete", 1)
    for checkpoint in run.evidence.checkpoints if run.foreign else ():
        if _is_complete(checkpoint):
            complete.setdefault(checkpoint.step, EvidenceItem(checkpoint.path))
    return complete


def _is_complete(checkpoint: Checkpoint) -> bool:
    weights = any(file.startswith(WEIGHTS) for file in checkpoint.files)
    return INFO in checkpoint.files and weights and checkpoint.bytes > 0


# -- resume ------------------------------------------------------------------------------------------


def judge_resume(runs: Sequence[VariantRun]) -> Iterator[Deliverable]:
    """The deliverable of a requested resume; a resume in other people's files is listed and not required."""
    requested = [run for run in runs if run.variant.resumes and not run.skipped]
    if requested:
        yield combine(RESUME, [_resume(run) for run in requested], "saved, loaded, went on")
        return
    shown = [run for run in runs if run.foreign and run.loaded]
    if shown:
        verdict = combine(RESUME, [_resume(run) for run in shown], "saved, loaded, went on")
        yield Deliverable(RESUME, verdict.status, verdict.evidence, verdict.reason, required=False)


def _resume(run: VariantRun) -> Answer:
    """`Pass` with a save, its load by another process, and a later train step."""
    load = last_load(run)
    if load is None:
        return run.unseen("jobspec did not read that Megatron-Bridge loaded a checkpoint")
    step = int(load.groups[1])
    problem = resume_problem(run, load)
    if problem is not None:
        return problem
    after = next(line.item for line in run.own_steps(load) if int(line.groups[0]) > step)
    saves = (line for line in run.lines.get("saved", ()) if line.groups[1] == load.groups[1])
    first = (line.item for line in saves if line.file != load.file or line.number < load.number)
    saved = next(first, None) or complete_checkpoints(run).get(step)
    if saved is None:
        return run.unseen(f"step {step} was loaded; jobspec found no line of its save", [load.item, after])
    return run.passed(f"step {step} was saved, loaded, and training went on", [saved, load.item, after])


def last_load(run: VariantRun) -> Line | None:
    """The load of the highest step: where several processes went on, the last one decides."""
    return max(run.lines.get("loaded", ()), key=lambda line: int(line.groups[1]), default=None)


def resume_problem(run: VariantRun, load: Line) -> Answer | None:
    """What is wrong with the process that loaded a checkpoint, by its own steps; None where it went on."""
    step = int(load.groups[1])
    steps = [int(line.groups[0]) for line in run.own_steps(load)]
    if any(number > step for number in steps) and min(steps) > step:
        return None
    if any(number <= step for number in steps):
        return run.failed(
            f"step {step} was loaded, and training began again at step {min(steps)}", [load.item]
        )
    if any(run.lines.get(name) for name in STEP_LINES) or max(run.logged, default=0) <= step:
        return run.failed(f"step {step} was loaded, and the process trained no later step", [load.item])
    return run.unseen(
        f"step {step} was loaded, and jobspec found no line that shows a later train step", [load.item]
    )
