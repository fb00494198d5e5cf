"""The table of signatures against recorded lines of public failures, and healthy logs against it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from re import _parser as parser  # what the hints have to agree with; no public module shows it
from typing import Any

import pytest

from jobspec.triage import first_cause, load_signatures, scan_lines
from jobspec.triage.own_advice import ASKS

FIXTURES = Path(__file__).parents[1] / "fixtures"
SAMPLES: list[dict[str, Any]] = json.loads((FIXTURES / "failure_samples.json").read_text())
HEALTHY = {
    "verl": (FIXTURES / "verl_log_example.txt").read_text(),
    "verl, older": (FIXTURES / "verl_log_example_legacy.txt").read_text(),
    "NeMo-RL": (FIXTURES / "nemo_rl_log_example.txt").read_text().split("### SECTION D3")[0],
}


def expected(sample: dict[str, Any]) -> set[str]:
    """What our verdict may be for the recorded one; a fault of spec or launcher is outside what is tested."""
    verdict = sample["verdict"]
    if verdict.startswith("Fail"):
        return {"Fail"}
    if verdict.startswith("depends on"):
        return {"generic"}
    if verdict in ("n/a", "warning", "no verdict change") or verdict.startswith("Pass"):
        return {"Note", "generic", "none"}
    if verdict in ("warning / Reject", "Reject if literal secret"):
        return {"Note"}
    return {"Blocked"}


def found(text: str) -> set[str]:
    matches = scan_lines(text.splitlines())
    if not matches:
        return {"none"}
    return {matches[0].verdict, "generic"} if matches[0].generic else {matches[0].verdict}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["id"])
def test_sample_gets_its_verdict(sample: dict[str, Any]) -> None:
    assert found(sample["sample"]) & expected(sample), f"{sample['title']}: {found(sample['sample'])}"


@pytest.mark.parametrize("log", HEALTHY.values(), ids=HEALTHY)
def test_healthy_log_has_notes_at_most(log: str) -> None:
    assert [match for match in scan_lines(log.splitlines()) if match.verdict != "Note"] == []


def sections(text: str) -> list[tuple[str, str]]:
    parts = re.split(r"^### (.*)$", text, flags=re.M)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


VERL_SECTIONS = sections((FIXTURES / "verl_log_example_failures.txt").read_text())
VERL_FAILURES = ["gpu.visible-devices", "ray.gpus-missing", "config.hydra-key", "image.bridge-missing",
                 "provider.traceback", "config.world-size"]  # fmt: skip


@pytest.mark.parametrize(
    ("section", "signature"),
    list(zip(VERL_SECTIONS, VERL_FAILURES, strict=True)),
    ids=VERL_FAILURES,
)
def test_verl_failure_gets_its_first_cause(section: tuple[str, str], signature: str) -> None:
    cause = first_cause(scan_lines(section[1].splitlines()))
    assert cause is not None and cause.signature == signature


NEMO_FAILURES = {
    "SECTION D3": "slurm.gpus-not-claimed",
    "SECTION E1": "config.tp-accuracy",
    "SECTION E2": "config.hydra-key",
    "SECTION E3": "gpu.illegal-access-graph",
    "SECTION E4": "hub.rate-limit",
    "SECTION E5": "disk.full",
    "SECTION E6": "disk.read-only",
    "SECTION E8": "image.bridge-missing",
    "SECTION E9": "ray.gpus-missing",
    "SECTION E10": "gpu.out-of-memory",
    "SECTION E12": "gpu.visible-devices",
}


@pytest.mark.parametrize(("name", "signature"), NEMO_FAILURES.items())
def test_nemo_rl_failure_gets_its_first_cause(name: str, signature: str) -> None:
    found = sections((FIXTURES / "nemo_rl_log_example.txt").read_text())
    text = next(body for head, body in found if head.startswith(f"{name}:"))
    cause = first_cause(scan_lines(text.splitlines()))
    assert cause is not None and cause.signature == signature


def test_ids_are_unique() -> None:
    ids = [signature.id for signature in load_signatures()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("signature", load_signatures(), ids=lambda signature: signature.id)
def test_entry_is_complete(signature: Any) -> None:
    assert re.fullmatch(r"[a-z0-9]+\.[a-z0-9-]+", signature.id)
    assert signature.verdict in ("Blocked", "Fail", "Note")
    assert signature.title and signature.fix and signature.kind
    # A hint is searched without its digits: too short a rest would be in every line.
    assert all(len(re.sub(r"\d", "", hint)) >= 3 for hint in signature.hints)
    assert not signature.source or signature.source.startswith("https://")


# -- hints ---------------------------------------------------------------------------------------------

GAP = "\0"  # stands for whatever no literal of the pattern says


def texts(tree: Any) -> list[str]:
    """What a parsed pattern can match: its literals, with gaps between them, one text for each way."""
    found = [""]
    for operation, argument in tree:
        found = [start + end for start in found for end in ways(str(operation), argument)]
        assert len(found) < 20_000, "the pattern has too many ways: write it in fewer"
    return found


def ways(operation: str, argument: Any) -> list[str]:
    if operation == "LITERAL":
        return [chr(argument)]
    if operation == "IN" and len(argument) <= 4 and all(str(kind) == "LITERAL" for kind, _ in argument):
        return [chr(code) for _, code in argument]
    if operation == "BRANCH":
        return [text for branch in argument[1] for text in texts(branch)]
    if operation == "SUBPATTERN":
        return texts(argument[3])
    if operation.endswith("_REPEAT"):
        least, most, inner = argument
        repeated = texts(inner) if most == 1 else [text + GAP for text in texts(inner)] if least else [GAP]
        return repeated if least else ["", *repeated]
    return [""] if operation == "AT" or operation.startswith("ASSERT") else [GAP]


@pytest.mark.parametrize("signature", load_signatures(), ids=lambda signature: signature.id)
def test_whatever_a_pattern_matches_holds_a_hint(signature: Any) -> None:
    """Lines without a hint are never looked at. `"loss": inf` was lost, and `RayActorError`."""
    tree = parser.parse(signature.pattern.pattern)
    assert not tree.state.flags & re.IGNORECASE, "hints are searched as they are"
    assert [text for text in texts(tree) if not any(hint in text for hint in signature.hints)] == []


@pytest.mark.parametrize(
    ("line", "signature"),
    [
        ("{'loss': inf, 'step': 3}", "provider.nan"),
        ("slurmstepd: error: Some of the step tasks have been OOM Killed; killed by the cgroup",
         "slurm.said"),
        ("srun: error: Some of your processes may have been killed by the cgroup out-of-memory handler.",
         "slurm.oom-kill"),
        ("OSError: [Errno 107] Transport endpoint is not connected: '/scratch/x'", "disk.stale"),
        ("ray.exceptions.RayActorError: The actor died because its node is gone", "effect.actor-died"),
        ("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
         "model.checkpoint-file"),
        ("srun: error: n1: task 0: Exited with exit code 137", "effect.killed"),
    ],
)  # fmt: skip
def test_line_that_lacked_a_hint_is_found(line: str, signature: str | None) -> None:
    assert [match.signature for match in scan_lines([line])] == ([signature] if signature else [])


SAMPLES = [(line, signature.id) for signature in load_signatures() for line in signature.samples]


@pytest.mark.parametrize(
    ("line", "signature"), SAMPLES, ids=[f"{name}-{i}" for i, (_, name) in enumerate(SAMPLES)]
)
def test_sample_line_is_known(line: str, signature: str) -> None:
    assert [match.signature for match in scan_lines(line.splitlines())][:1] == [signature]


@pytest.mark.parametrize(
    "signature",
    [signature for signature in load_signatures() if len(signature.fix.steps) > 1],
    ids=lambda signature: signature.id,
)
def test_each_step_is_told_for_a_sample(signature: Any) -> None:
    """A step that no line asks for is dead, or hidden behind one before it."""
    told = [scan_lines(sample.splitlines())[0].fix for sample in signature.samples]
    for _, step in signature.fix.steps:
        whole = re.compile(re.sub(r"\\{\w+\\}", ".*", re.escape(step)))
        quoted = step.startswith(ASKS) and any(fix.startswith("its own words") for fix in told)
        assert quoted or any(whole.fullmatch(fix) for fix in told), step
    assert signature.fix.steps[-1][0].pattern == ""


REFIT = """\
Traceback (most recent call last):
  File "{file}", line 812, in update_weights_from_tensor
    named_tensors = self.unpack(handles)
LookupError: {words}"""


@pytest.mark.parametrize(
    ("file", "words", "compares"),
    [
        ("/x/engine/model_runner.py", "no such handle", False),
        ("/data/shape/engine/resize_runner.py", "no such handle", False),
        ("/x/engine/model_runner.py", "no such handle in /lustre/batch_size/model", False),
        ("/x/engine/model_runner.py", "no such handle in out/size.bin", False),
        ("/x/engine/model_runner.py", "the size of q_proj differs", True),
        ("/x/engine/model_runner.py", "another dtype/shape", True),
    ],
)
def test_words_within_a_path_ask_for_no_step(file: str, words: str, compares: bool) -> None:
    (match,) = scan_lines(REFIT.format(file=file, words=words).splitlines())
    assert match.signature == "provider.weight-sync"
    assert match.fix.startswith("compare the two shapes") == compares


@pytest.mark.parametrize(
    ("host", "fetches"),
    [("github.com", True), ("my-gitlab.corp.example", True), ("altssh.bitbucket.org", True),
     ("gpu-a04", False), ("digits-01", False)],
)  # fmt: skip
def test_ssh_to_a_server_of_git_is_no_launch_of_ranks(host: str, fetches: bool) -> None:
    (match,) = scan_lines([f"ssh: connect to host {host} port 22: Connection timed out"])
    assert match.fix.startswith("fetch by https") is fetches
