"""The five forms of a report: what they state, that they are well-formed, and that nothing breaks out."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.evidence.evidence import Evidence
from jobspec.evidence.read import read_evidence
from jobspec.judging.judge import judge
from jobspec.plan import ContainerPlan, GroupPlan, ServicePlan
from jobspec.report import FORMATS, build_report, render_report, write_reports
from jobspec.report.lines import counted, number, where
from jobspec.report.pictures import LINE_WIDTH, draw_plot, draw_time_line
from jobspec.report.plots import Line, Plot
from jobspec.report.text import fit
from jobspec.verdict import Cause, Deliverable, EvidenceItem, Result, Status, Verdict
from tests.kits.junit_kit import junit_problems
from tests.kits.verdict_kit import PHASES, PLAN, T0, RunFolder, StandInFramework, learning_rows, passing_run

SCHEMA = json.loads(files("jobspec.report").joinpath("report.schema.json").read_text())
DISK = "OSError: [Errno 28] No space left on device: '<b>/data</b>'"


def judged(run: RunFolder) -> tuple[Verdict, Evidence]:
    evidence = read_evidence(run.root)
    return judge(evidence, StandInFramework()), evidence


@pytest.fixture
def passed(tmp_path: Path) -> tuple[Verdict, Evidence]:
    return judged(passing_run(tmp_path))


@pytest.fixture
def blocked(tmp_path: Path) -> tuple[Verdict, Evidence]:
    run = RunFolder(tmp_path, replace(PLAN, nodes=2))
    for phase in PHASES:
        run.phase(phase, outcome="failed" if phase == "driver" else "ok", nodes=("n1", "n2"))
    run.log(f"start\n{DISK}\nend\n")
    run.metrics(learning_rows(20))
    run.write()
    run.results("failed", 1)
    return judged(run)


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ((), "3 nodes, 8 GPUs each"),
        (
            (GroupPlan("trainer", 0, 2, 8), GroupPlan("envs", 2, 1, 0)),
            "3 nodes (trainer: 2 with 8 GPUs each, envs: 1 with no GPU)",
        ),
    ],
)
def test_nodes_are_told_with_their_gpus(
    passed: tuple[Verdict, Evidence], groups: tuple[GroupPlan, ...], said: str
) -> None:
    report = replace(build_report(*passed), nodes_planned=3, gpus_per_node=8, groups=groups)
    assert f", {said}" in where(report)


def test_image_of_a_service_is_told_beside_the_run_s(tmp_path: Path) -> None:
    own = ContainerPlan("pyxis", "reg.example#rl/judge:1", digest="sha256:" + "a" * 64)
    judge_service = ServicePlan("judge", ("true",), container=own)
    run = passing_run(
        tmp_path, replace(PLAN, container=replace(own, image="/rl.sqsh"), services=(judge_service,))
    )
    data = json.loads(render_report(*judged(run), "json"))
    jsonschema.validate(data, SCHEMA)
    assert data["provenance"]["service_images"]["judge"]["image"] == own.image
    for form in ("md", "html"):
        text = render_report(*judged(run), form)
        assert "/rl.sqsh" in text and "mage of service judge" in text and "rl/judge:1" in text


def test_text_states_everything_that_a_summary_must(passed: tuple[Verdict, Evidence]) -> None:
    text = render_report(*passed, "text")
    assert text.startswith("PASS  learning  quickstart")
    for part in ("Staging", "reward", "-> 0.84", "not proved", "no GPU took part"):
        assert part in text
    assert "first cause" not in text


def test_text_states_the_first_cause_and_its_fix(blocked: tuple[Verdict, Evidence]) -> None:
    text = render_report(*blocked, "text")
    assert "Blocked [disk] n1 attempts/1/logs/n1/train.log:2" in text
    assert DISK in text
    assert "fix:  " in text


TOKEN = "hf_" + "aB3" * 12
KEY = "WANDB_API_KEY=" + "0123456789abcdef"


@pytest.mark.parametrize("last", ["end", f"RuntimeError: no access with {TOKEN}"])
def test_no_form_repeats_a_secret_of_the_log(tmp_path: Path, last: str) -> None:
    """Neither as a line of the log's end, nor in the first cause, its context and its advice."""
    run = RunFolder(tmp_path)
    for phase in PHASES:
        run.phase(phase, outcome="failed" if phase == "driver" else "ok")
    trace = (
        f'Traceback (most recent call last):\n  File "/x/train.py", line 3, in main\n    login("{TOKEN}")\n'
    )
    run.log(f"+ export {KEY}\nlogin with {TOKEN}\n{trace}{last}\n")
    run.write()
    run.results("failed", 1)
    verdict, evidence = judged(run)
    assert "verdict.secret" in {finding.rule for finding in verdict.findings}
    written = write_reports(run.root, verdict, evidence)
    for path in written.values():
        text = path.read_text()
        assert TOKEN not in text and "0123456789abcdef" not in text, path.name
    assert "login with [secret]" in (run.root / "report.txt").read_text()
    assert TOKEN not in render_report(verdict, evidence, "summary")


def test_no_form_repeats_a_secret_of_the_spec(tmp_path: Path) -> None:
    """A command may hold one, and a variable whose name no check knows."""
    command = replace(PLAN.commands[0], argv=("python3", "train.py", f"--token={TOKEN}"))
    env = {"HUB": TOKEN, "WANDB_API_KEY": "0123456789abcdef", "MODE": "fast"}
    found = judged(passing_run(tmp_path, replace(PLAN, commands=(command,), env=env)))
    for form in (*FORMATS, "summary"):
        text = render_report(*found, form)
        assert TOKEN not in text and "0123456789abcdef" not in text, form
    assert "train.py --token=[secret]" in render_report(*found, "summary")
    shown = dict.fromkeys(("HUB", "WANDB_API_KEY"), "[secret]") | {"MODE": "fast"}
    variables = json.loads(render_report(*found, "json"))["environment"]["variables"]
    assert {name: variables[name] for name in env} == shown


def test_json_follows_its_schema(passed: tuple[Verdict, Evidence], blocked: tuple[Verdict, Evidence]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for verdict, evidence in (passed, blocked):
        jsonschema.validate(json.loads(render_report(verdict, evidence, "json")), SCHEMA)


def test_offline_runs_of_trackers_come_with_the_line_that_sends_them(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    assert "sync" not in render_report(*judged(run), "text")
    offline = run.folder / "wandb" / "offline-run-20261129_1-ab"
    offline.mkdir(parents=True)
    assert "sync" not in render_report(*judged(run), "text")  # nothing was written
    (offline / "run-ab.wandb").write_bytes(b"x")
    (run.folder / "mlruns/0/abc/metrics").mkdir(parents=True)
    both = judged(run)
    for form in ("text", "md", "html"):
        text = render_report(*both, form)
        assert f"wandb sync {offline}" in text.replace("\\_", "_"), form
        assert f"mlflow ui --backend-store-uri {run.folder}/mlruns" in text, form
    data = json.loads(render_report(*both, "json"))
    jsonschema.validate(data, SCHEMA)
    assert [item["tracker"] for item in data["trackers"]] == ["MLflow", "W&B"]
    assert data["trackers"][1]["folder"] == "attempts/1/wandb/offline-run-20261129_1-ab"


def test_what_a_command_tracks_where_it_runs_is_found(tmp_path: Path) -> None:
    passing_run(tmp_path)
    for name in ("wandb/offline-run-20261129_1-ab", "mlruns/0"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "wandb/offline-run-20261129_1-ab/run-ab.wandb").write_bytes(b"x")
    text = render_report(*judged(RunFolder(tmp_path)), "text")
    assert f"wandb sync {tmp_path}/wandb/offline-run-20261129_1-ab" in text
    assert f"--backend-store-uri {tmp_path}/mlruns" in text


def test_a_page_of_wandb_that_a_log_names_is_a_link(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    log = next((run.folder / "logs").rglob("*.log"))
    address = "https://wandb.example.org/team/grpo/runs/k2h8v0xq"
    said = (
        "\x1b[36m(main_task pid=7)\x1b[0m \x1b[34m\x1b[1mwandb\x1b[0m: 🚀 View run at "
        f"\x1b[34m\x1b[4m{address}\x1b[0m\n"
        "swanlab: 🚀 View run at https://swanlab.example.org/@team/grpo/runs/other\n"
        "wandb: ⭐️ View project at https://wandb.example.org/team/grpo\n"
        "print: View run at https://elsewhere.example.org/team/grpo/runs/none\n"
        "wandb: View run <b> at: javascript:alert(1)/a/b/runs/c\n"
    )
    log.write_text(log.read_text() + said + "x" * 9 * 2**20 + f"\nwandb: View run lucky-1 at: {address}\n")
    both = judged(run)
    data = json.loads(render_report(*both, "json"))
    jsonschema.validate(data, SCHEMA)
    name = str(log.relative_to(tmp_path))
    assert data["trackers"] == [{"tracker": "W&B", "folder": name, "command": "", "url": address}]
    assert f'<a href="{address}">' in render_report(*both, "html")
    assert f"W&B: {address} [{name}]" in render_report(*both, "text")
    log.write_text("x" * 9 * 2**20 + f"\nwandb: View run lucky-1 at: {address}\n")
    assert [item.url for item in judged(run)[1].trackers] == [address], "at the end of a long log, too"


def test_json_of_nothing_follows_its_schema(tmp_path: Path) -> None:
    verdict, evidence = judged(RunFolder(tmp_path))
    data = json.loads(render_report(verdict, evidence, "json"))
    jsonschema.validate(data, SCHEMA)
    assert (data["result"], data["exit_code"]) == ("Nothing ran", 4)


def test_json_answers_by_deliverable_name(blocked: tuple[Verdict, Evidence]) -> None:
    data = json.loads(render_report(*blocked, "json"))
    assert data["result"] == "Blocked"
    assert data["deliverables"]["Run"]["status"] == "Blocked"
    assert data["deliverables"]["Run"]["evidence"][0]["line"] == 2
    assert (data["first_cause"]["class"], data["first_cause"]["line"]) == ("disk", 2)


def test_json_has_null_for_a_number_that_is_none(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    run.metrics([{**row, "loss": None} for row in learning_rows()])
    text = render_report(*judged(run), "json")
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_junit_counts_deliverables(
    passed: tuple[Verdict, Evidence], blocked: tuple[Verdict, Evidence]
) -> None:
    suite = ElementTree.fromstring(render_report(*passed, "junit")).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("9", "0", "0")
    suite = ElementTree.fromstring(render_report(*blocked, "junit")).find("testsuite")
    assert suite is not None and suite.get("errors") == "2"
    errors = [case.get("name") for case in suite.iter("testcase") if case.find("error") is not None]
    assert errors == ["Import proof", "Run"]


def test_junit_of_nothing_is_an_error(tmp_path: Path) -> None:
    text = render_report(*judged(RunFolder(tmp_path)), "junit")
    assert ElementTree.fromstring(text).find(".//error") is not None
    assert junit_problems(text) == []


def test_junit_follows_the_schema_and_has_the_times_of_phases(
    passed: tuple[Verdict, Evidence], blocked: tuple[Verdict, Evidence]
) -> None:
    for found in (passed, blocked):
        text = render_report(*found, "junit")
        assert junit_problems(text) == []
        suite = ElementTree.fromstring(text)[0]
        times = {case.get("name"): float(case.get("time", "")) for case in suite.iter("testcase")}
        driver = [bar for bar in build_report(*found).bars if bar.phase == "driver" and not bar.node]
        assert times["Run"] == pytest.approx(sum(bar.end - bar.start for bar in driver), abs=1e-3) != 0
        assert suite.findtext("system-out", "").startswith(str(found[0].result))


class Page(HTMLParser):
    """Collects tags and what they load, and holds the nesting of a page to account."""

    VOID = frozenset({"meta", "br", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag


def parse(html: str) -> Page:
    page = Page()
    page.feed(html)
    page.close()
    assert page.open == []
    return page


@pytest.mark.parametrize("name", ["passed", "blocked"])
def test_html_is_whole_and_loads_nothing(request: pytest.FixtureRequest, name: str) -> None:
    html = render_report(*request.getfixturevalue(name), "html")
    page = parse(html)
    assert page.loads == []
    assert not page.tags & {"img", "link", "iframe", "b/data"}
    assert "url(" not in html and "@import" not in html
    assert html.count("MIT License") == 1  # of uPlot, whose code is in the page


def test_html_shows_curves_phases_and_evidence(passed: tuple[Verdict, Evidence]) -> None:
    html = render_report(*passed, "html")
    assert html.count("<figure>") == 4
    assert html.count("<figure data-left") == 1  # tokens/s, below the phases
    assert html.count('<script type="application/json">') == 5
    for part in (
        "attempts/1/metrics/metrics.jsonl:46",
        "1a2b3c4d5e",
        "uncommitted changes",
        "no GPU took part",
    ):
        assert part in html
    assert {phase for phase in PHASES if f">{phase}</text>" in html} == set(PHASES)


def test_html_escapes_a_hostile_log_line(blocked: tuple[Verdict, Evidence]) -> None:
    html = render_report(*blocked, "html")
    assert "&lt;b&gt;/data&lt;/b&gt;" in html and "<b>/data" not in html


HOSTILE = st.text(st.characters(exclude_categories=("Cs",)), max_size=30) | st.sampled_from(
    [
        "</script><script>alert(1)</script>",
        "`|`\n# x",
        "]]>",
        "\x00\x1b[31m",
        "{{ 7*7 }}",
        "a`b",
        "--",
        "'\"><i>",
    ]
)


@given(text=HOSTILE, more=HOSTILE)
def test_hostile_text_breaks_no_form(text: str, more: str) -> None:
    cause = Cause(
        text, more, Result.FAIL, file=text, line=3, node=more, why=text, fix=more, context=(text, more)
    )
    item = Deliverable(f"X{text}", Status.FAIL, (EvidenceItem(more, 1, text, more, 1.5),), more)
    verdict = Verdict(Result.FAIL, text, (item,), cause, (text, more), reason=more)
    evidence = Evidence(Path("/runs/x"), replace(PLAN, name=text, env={"A": more}))
    page = parse(render_report(verdict, evidence, "html"))
    assert not page.tags & {"script", "i"}
    ElementTree.fromstring(render_report(verdict, evidence, "junit"))
    jsonschema.validate(json.loads(render_report(verdict, evidence, "json")), SCHEMA)
    rows = [line for line in render_report(verdict, evidence, "md").split("\n") if line.startswith("| X")]
    assert len(rows) == 1 and len(re.findall(r"(?<!\\)\|", rows[0])) >= 5


def test_unknown_form_is_refused(passed: tuple[Verdict, Evidence]) -> None:
    with pytest.raises(KeyError, match="is not a form of the report"):
        render_report(*passed, "pdf")


def test_reports_are_written_whole_and_alike(passed: tuple[Verdict, Evidence], tmp_path: Path) -> None:
    verdict, evidence = passed
    written = write_reports(tmp_path, verdict, evidence)
    assert {path.name for path in written.values()} == {
        "report.txt", "report.md", "report.json", "report.html", "junit.xml"
    }  # fmt: skip
    before = {path: path.read_bytes() for path in written.values()}
    write_reports(tmp_path, verdict, evidence)
    assert {path: path.read_bytes() for path in written.values()} == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_reports_judge_by_themselves(tmp_path: Path) -> None:
    passing_run(tmp_path, replace(PLAN, framework="command"))
    assert set(write_reports(tmp_path)) == set(FORMATS)


def test_long_curves_are_thinned_and_keep_their_spike(tmp_path: Path) -> None:
    """Means of blocks hid what had ended a run."""
    run, rows = passing_run(tmp_path), learning_rows(5000)
    rows[4321]["reward"] = 99.0
    run.metrics(rows)
    data = json.loads(render_report(*judged(run), "json"))
    points = data["curves"][0]["points"]
    assert len(points) <= 400 and points[-1][0] == 5000
    assert [4322, 99.0] in points


def test_constant_and_single_values_can_be_drawn(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    run.metrics([{"step": 1, "reward": 0.0, "loss": 5.0}])
    report = build_report(*judged(run))
    assert all(
        draw_plot(Plot(curve.name, (Line(curve.name, curve.points),))).alone for curve in report.curves
    )


def test_phase_that_never_ended_is_drawn_as_such(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.phase("preflight")
    run.event("stage", "start")
    run.clock = T0 + 60
    run.finding("stage", "stage.stuck", "no progress")
    run.write()
    bars = {bar.phase: bar for bar in build_report(*judged(run)).bars}
    assert (bars["stage"].outcome, bars["stage"].end) == ("unfinished", T0 + 60)


def test_no_events_are_no_time_line(tmp_path: Path) -> None:
    assert draw_time_line(build_report(*judged(RunFolder(tmp_path)))) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.8412, "0.841"),
        (3.0, "3"),
        (18233.4, "18233"),
        (1e-5, "1e-05"),
        (-0.5, "-0.5"),
        (1e9, "1e+09"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],  # a report of such a run was a traceback
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps")])
def test_one_step_is_no_steps(value: int, text: str) -> None:
    assert counted(value, "step") == text


def test_trend_of_a_line_is_the_line() -> None:
    """A mean over one side at the ends would show every rise as levelling off."""
    points = tuple((float(step), 3.0 * step) for step in range(60))
    line = draw_plot(Plot("reward", (Line("reward", points),))).lines[0]
    assert line.trend == line.path


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("  Pass           Run   it rose beyond its noise, and far",
         ["  Pass           Run   it rose beyond its", " " * 23 + "noise, and far"]),
        ("  - one node took part: nothing is proved by it",
         ["  - one node took part: nothing is proved", "    by it"]),
        ("    why:  a disk or a quota is full, and none is free",
         ["    why:  a disk or a quota is full, and", "          none is free"]),
        ("- Command: python3 -m x.main --config-name=ppo_megatron_trainer.yaml",
         ["- Command: python3 -m x.main", "  --config-name=ppo_megatron_trainer.yaml"]),
        ("short", ["short"]),
    ],
)  # fmt: skip
def test_long_lines_go_on_under_their_column(line: str, shown: list[str]) -> None:
    assert fit(line, 42).split("\n") == shown


@given(st.text(st.characters(codec="utf-8"), max_size=300), st.integers(20, 120))
def test_no_word_is_lost_or_cut_by_a_narrow_screen(text: str, columns: int) -> None:
    assert fit(text, columns).split() == text.split()


@pytest.mark.parametrize("span", [0.1, 1.0, 18.0, 302.0, 7300.0, 86400.0, 1e7])
def test_time_line_has_few_ticks_within_it(tmp_path: Path, span: float) -> None:
    run = RunFolder(tmp_path)
    run.phase("preflight", seconds=span)
    run.write()
    line = draw_time_line(build_report(*judged(run)))
    assert line is not None and 2 <= len(line.ticks) <= 8
    assert line.ticks[-1].at <= LINE_WIDTH
    assert len({tick.label for tick in line.ticks}) == len(line.ticks)


def test_one_of_several_that_did_not_pass_is_not_called_all_of_them() -> None:
    items = tuple(Deliverable(name, Status.FAIL, reason=f"no {name}") for name in ("Training", "Learning"))
    first = Cause("no Training", "Training", Result.FAIL)
    alone, both = (Verdict(Result.FAIL, "learning", some, first) for some in (items[:1], items))
    assert (alone.cause_title, both.cause_title) == ("what did not pass", "one that did not pass")
