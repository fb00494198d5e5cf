"""The report as JUnit XML, for continuous integration: one test case per deliverable.

`Fail` is a failure, `Blocked` an error: CI systems count both as red and show them apart.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from xml.etree import ElementTree

from jobspec.report.content import Report
from jobspec.report.lines import evidence_text
from jobspec.verdict import RESIDUAL_NOISE, Deliverable, Result, Status

# Characters that XML 1.0 cannot hold, not even escaped. Source: w3.org/TR/xml, production 2.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: Report) -> str:
    """One `testsuite` for the run; a run that never started is one test case with an error."""
    verdict = report.verdict
    cases = [_case(report, item) for item in verdict.deliverables]
    if verdict.result is Result.NOTHING_RAN:
        cases.append(_case(report, Deliverable("Verdict", Status.BLOCKED, reason=verdict.reason)))
    counts = {
        tag: sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error", "skipped")
    }
    attributes = {
        "name": xml_text(f"{report.name} {verdict.level}"),
        "tests": str(len(cases)),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
        "time": f"{report.seconds:.3f}",
    }
    if report.start:
        attributes["timestamp"] = datetime.fromtimestamp(report.start, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    suite = ElementTree.Element("testsuite", attributes)
    _properties(suite, report)
    suite.extend(cases)
    if report.driver_log is not None:
        lines = "\n".join(report.driver_log.lines)
        ElementTree.SubElement(suite, "system-err").text = xml_text(f"{report.driver_log.file}\n{lines}")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _properties(suite: ElementTree.Element, report: Report) -> None:
    verdict = report.verdict
    properties = ElementTree.SubElement(suite, "properties")
    rows = [("result", str(verdict.result)), ("level", verdict.level), ("run", report.run_id)]
    rows += [("not proved", item) for item in verdict.limitations]
    noise = (finding for finding in verdict.findings if finding.rule == RESIDUAL_NOISE)
    rows += [("note", f"{finding.what} ({finding.file}:{finding.line})") for finding in noise]
    for name, value in rows:
        ElementTree.SubElement(properties, "property", {"name": name, "value": xml_text(value)})


def _case(report: Report, item: Deliverable) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", {"classname": xml_text(f"{report.framework}.{report.verdict.level}")}
    )
    case.set("name", xml_text(item.name))
    case.set("time", "0")
    tag = {Status.FAIL: "failure", Status.BLOCKED: "error"}.get(item.status)
    if tag is not None:
        problem = ElementTree.SubElement(
            case, tag, {"message": xml_text(item.reason), "type": str(item.status)}
        )
        problem.text = xml_text("\n".join(evidence_text(part) for part in item.evidence))
    elif item.status is not Status.PASS:
        ElementTree.SubElement(
            case, "skipped", {"message": xml_text(f"{item.status}: {item.reason}".rstrip(": "))}
        )
    return case


def xml_text(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)
