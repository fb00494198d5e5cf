"""The report as JUnit XML, for continuous integration: one test case per deliverable.

`Fail` is a failure, `Blocked` an error: CI systems count both as red and show them apart. Order and
attributes are those of the schema for Apache Ant (windyroad/JUnit-Schema, JUnit.xsd); Jenkins reads them too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree

from jobspec.report.content import Report
from jobspec.report.lines import evidence_text, where
from jobspec.units import is_date
from jobspec.verdict import RESIDUAL_NOISE, Deliverable, Result, Status

# Characters that XML 1.0 cannot hold, not even escaped. Source: w3.org/TR/xml, production 2.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
PROBLEMS = ("failure", "error", "skipped")
# The phase of the runtime that a deliverable is about: its time is the phase's.
_PHASES = {
    "Preflight": "preflight", "Code that ran": "code", "Staging": "stage", "Dataset helpers": "helpers",
    "Import proof": "imports", "Ray cluster": "ray", "Run": "driver", "Artifacts": "collect",
}  # fmt: skip


def render_junit(report: Report) -> str:
    """One `testsuite` for the run; a run that never started is one test case with an error."""
    verdict = report.verdict
    cases = [_case(report, item) for item in verdict.deliverables]
    if verdict.result is Result.NOTHING_RAN:
        cases.append(_case(report, Deliverable("Verdict", Status.BLOCKED, reason=verdict.reason)))
    log = report.driver_log
    return junit_text(
        name=f"{report.name} {verdict.level}",
        package=f"jobspec.{report.framework}",
        host=report.nodes[0].name if report.nodes else "",
        start=report.start,
        seconds=report.seconds,
        properties=_properties(report),
        cases=cases,
        out=f"{verdict.result}: {verdict.reason}\n{where(report)}\n{report.folder}",
        err="\n".join((log.file, *log.lines)) if log is not None else "",
    )


def junit_text(
    *,
    name: str,
    package: str,
    host: str,
    start: float,
    seconds: float,
    properties: Iterable[tuple[str, str]],
    cases: Sequence[ElementTree.Element],
    out: str = "",
    err: str = "",
) -> str:
    """A document of one suite. What is not known is what the schema asks for then: `localhost`, 1970."""
    counts = {tag: sum(case.find(tag) is not None for case in cases) for tag in PROBLEMS}
    attributes = {
        "name": " ".join(xml_text(name).split()) or "run",
        "package": " ".join(xml_text(package).split()),
        "id": "0",
        "hostname": " ".join(xml_text(host).split()) or "localhost",
        "timestamp": datetime.fromtimestamp(start if is_date(start) else 0, UTC).strftime(
            "%Y-%m-%dT%H:%M:%S"
        ),
        "time": f"{seconds:.3f}",
        "tests": str(len(cases)),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
    }
    suite = ElementTree.Element("testsuite", attributes)
    listed = ElementTree.SubElement(suite, "properties")
    for key, value in properties:
        ElementTree.SubElement(listed, "property", {"name": key, "value": xml_text(value)})
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    for tag, text in (("system-out", out), ("system-err", err)):
        ElementTree.SubElement(suite, tag).text = xml_text(text)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def junit_case(
    package: str, name: str, seconds: float, tag: str = "", message: str = "", text: str = ""
) -> ElementTree.Element:
    """One test case; `tag` is one of `PROBLEMS`, or empty for a pass."""
    attributes = {"classname": " ".join(xml_text(package).split()), "name": " ".join(xml_text(name).split())}
    case = ElementTree.Element("testcase", {**attributes, "time": f"{max(0.0, seconds):.3f}"})
    if tag:
        kind = {} if tag == "skipped" else {"type": tag}
        ElementTree.SubElement(case, tag, {"message": xml_text(message), **kind}).text = (
            xml_text(text) or None
        )
    return case


def _properties(report: Report) -> list[tuple[str, str]]:
    verdict = report.verdict
    rows = [("result", str(verdict.result)), ("level", verdict.level), ("run", report.run_id)]
    rows += [("not proved", item) for item in verdict.limitations]
    noise = (finding for finding in verdict.findings if finding.rule == RESIDUAL_NOISE)
    return rows + [("note", f"{finding.what} ({finding.file}:{finding.line})") for finding in noise]


def _case(report: Report, item: Deliverable) -> ElementTree.Element:
    phase = _PHASES.get(item.name, "")
    seconds = sum(bar.end - bar.start for bar in report.bars if bar.phase == phase and not bar.node)
    tag = {Status.FAIL: "failure", Status.BLOCKED: "error", Status.PASS: ""}.get(item.status, "skipped")
    reason = item.reason if tag != "skipped" else f"{item.status}: {item.reason}".rstrip(": ")
    evidence = "\n".join(evidence_text(part) for part in item.evidence) if tag in ("failure", "error") else ""
    package = f"{report.framework}.{report.verdict.level}"
    return junit_case(package, item.name, seconds, tag, reason, evidence)


def xml_text(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)
