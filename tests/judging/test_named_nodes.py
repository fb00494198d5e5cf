"""What a report says of nodes that the run's files name as broken, and which go on the user's list."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec.evidence.read import read_evidence
from jobspec.finding import Finding
from jobspec.judging.judge import judge
from jobspec.judging.named_nodes import named_nodes
from jobspec.plan import CommandPlan, SlurmPlan
from jobspec.report import render_report
from jobspec.units import utc
from tests.kits.verdict_kit import PHASES, PLAN, RunFolder, StandInFramework

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
PORT = "n2:815:864 [0] transport/net_ib.cc:80 NCCL WARN NET/IB : mlx5_2:1 Got async event : port error"
ON_ALL = replace(
    PLAN,
    cluster="lab",
    scheduler="slurm",
    mode="srun",
    ray=None,
    nodes=3,
    commands=(CommandPlan("train", ("x",), on="all"),),
)
NODES = [{"name": f"n{n}", "index": n - 1, "ip": f"10.0.0.{n}", "gpus": 8, "cpus": 4} for n in (1, 2, 3)]


def failed(root: Path, text: str, plan: Any = ON_ALL, node: str = "n2", outcome: str = "failed") -> RunFolder:
    run = RunFolder(root / "20261128-010203-ab12cd", plan)
    for phase in PHASES[:5]:
        run.phase(phase)
    run.event("driver", "start")
    run.clock += 60
    run.event("driver", "end", outcome=outcome)
    run.log("starting\n", node="n1")
    run.log(text, node=node)
    run.write()
    run.results(outcome, 1, nodes=NODES)
    run.scheduler("FAILED")
    return run


def told(run: RunFolder) -> list[Finding]:
    verdict = judge(read_evidence(run.root), StandInFramework())
    return [finding for finding in verdict.findings if finding.rule == "node.named"]


def test_hardware_is_avoided_for_a_day_and_the_report_says_so(tmp_path: Path) -> None:
    run = failed(tmp_path, f"step 1\n{ECC}\n")
    (finding,) = told(run)
    assert (finding.node, finding.file, finding.line) == ("n2", "attempts/1/logs/n2/train.log", 2)
    assert (finding.what, finding.why) == ("attempt 1 names `n2` for a GPU", ECC)
    until = run.clock + 86_400
    assert f"your runs on `lab` keep off it until {utc(until)}" in finding.fix
    assert "`jobspec nodes remove n2 --cluster lab` ends that" in finding.fix
    evidence = read_evidence(run.root)
    (found,) = named_nodes(evidence)
    entry = found.entry(evidence)
    assert found.automatic
    assert (entry.node, entry.cluster, entry.until, entry.run) == ("n2", "lab", until, run.root.name)
    assert entry.evidence == f"{run.root.name}, attempt 1, attempts/1/logs/n2/train.log:2"
    summary = render_report(judge(evidence, StandInFramework()), evidence, "summary")
    assert f"- node: {finding.fix}" in summary


@pytest.mark.parametrize("form", ["text", "md", "json", "html"])
def test_every_form_of_the_report_names_the_node_and_its_line(form: str, tmp_path: Path) -> None:
    evidence = read_evidence(failed(tmp_path, f"{ECC}\n").root)
    text = render_report(judge(evidence, StandInFramework()), evidence, form)
    assert "attempt 1 names `n2` for a GPU" in text.replace("<code>n2</code>", "`n2`")
    assert "attempts/1/logs/n2/train.log" in text


def test_a_port_is_a_command_for_the_user(tmp_path: Path) -> None:
    """A cable, a switch or the set-up may be the cause."""
    run = failed(tmp_path, f"{PORT}\n", node="n1")
    (finding,) = told(run)
    assert (finding.node, finding.what) == ("n2", "attempt 1 names `n2` for a port to the fabric")
    assert f"`jobspec nodes add n2 --run {run.root.name}` keeps your runs off it" in finding.fix
    assert not named_nodes(read_evidence(run.root))[0].automatic


def test_where_the_list_is_left_out_a_report_only_proposes(tmp_path: Path) -> None:
    run = failed(tmp_path, f"{ECC}\n", replace(ON_ALL, slurm=SlurmPlan(avoid_listed=False)))
    assert "jobspec nodes add n2" in told(run)[0].fix
    assert not named_nodes(read_evidence(run.root))[0].automatic


def test_what_one_node_lacks_among_others_is_the_nodes(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "20261128-010203-ab12cd", ON_ALL)
    run.event("preflight", "start")
    run.finding("preflight", "preflight.gpus", "the node has 7 GPUs, the plan needs 8", node="n3")
    run.event("preflight", "end", outcome="blocked")
    run.write()
    run.results("blocked", 3, nodes=[], commands=[])
    (finding,) = told(run)
    assert (finding.node, finding.why) == ("n3", "the node has 7 GPUs, the plan needs 8")
    assert "jobspec nodes add n3" in finding.fix


def test_what_all_nodes_lack_is_nobodys_fault(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "20261128-010203-ab12cd", ON_ALL)
    for node in ("n1", "n2", "n3"):
        run.finding("preflight", "preflight.gpus", "the node has 0 GPUs, the plan needs 8", node=node)
    run.write()
    run.results("blocked", 3, nodes=[], commands=[])
    assert told(run) == []


@pytest.mark.parametrize(
    ("plan", "outcome"),
    [
        (replace(ON_ALL, mode="ray"), "failed"),  # Ray brings the exceptions of other nodes into a log
        (replace(ON_ALL, commands=(CommandPlan("train", ("x",)),)), "failed"),  # as ssh may
        (replace(ON_ALL, scheduler="local"), "failed"),
        (ON_ALL, "ok"),
        (ON_ALL, "cancelled"),
    ],
)
def test_no_node_is_named_by_a_line_of_unknown_origin_or_of_a_run_that_did_not_fail(
    plan: Any, outcome: str, tmp_path: Path
) -> None:
    assert told(failed(tmp_path, f"{ECC}\n", plan, outcome=outcome)) == []


def test_a_line_that_train_steps_followed_names_nobody(tmp_path: Path) -> None:
    steps = "".join(f"step:{n} - actor/loss:0.5 - training/global_step:{n}\n" for n in range(1, 4))
    assert told(failed(tmp_path, f"{ECC}\n{steps}ValueError: bad\n")) == []


def test_an_attempt_before_the_last_is_told_with_what_became_of_it(tmp_path: Path) -> None:
    first = failed(tmp_path, f"{ECC}\n")
    first.finding("collect", "requeue.without", "x", node="n2", severity="warning")
    first.write()
    assert told(first)[0].why == ECC, "no other attempt came"
    again = first.next_attempt()
    again.phase("preflight")
    again.write()
    again.results("failed", 1, nodes=NODES)
    (finding,) = told(again)
    assert (finding.node, finding.file) == ("n2", "attempts/1/logs/n2/train.log")
    assert finding.why == f"{ECC}; the next attempt was asked for without it"
    assert named_nodes(read_evidence(again.root))[0].until == first.clock + 86_400
