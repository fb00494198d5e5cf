"""The rules of Ant's JUnit schema (windyroad/JUnit-Schema, JUnit.xsd) that a document can break."""

from __future__ import annotations

import re
from xml.etree import ElementTree

SUITE = {"name", "package", "id", "hostname", "timestamp", "time", "tests", "failures", "errors"}
ORDER = ["properties", "testcase", "system-out", "system-err"]
DECIMAL = re.compile(r"\d+(\.\d+)?")


def junit_problems(text: str) -> list[str]:
    """What breaks the schema; empty for a valid document."""
    found: list[str] = []
    for number, suite in enumerate(ElementTree.fromstring(text)):
        found += [f"testsuite lacks {name}" for name in SUITE - {*suite.attrib}]
        found += [f"{name} of testsuite" for name in {*suite.attrib} - SUITE - {"skipped"}]
        found += ["id"] if suite.get("id") != str(number) else []
        found += [
            f"{name} is no token"
            for name in ("name", "package", "hostname")
            if not _token(suite.get(name, ""))
        ]
        if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", "")):
            found.append("timestamp")
        tags = [child.tag for child in suite]
        once = [tag for at, tag in enumerate(tags) if tag != "testcase" or tags[at - 1] != "testcase"]
        found += (
            []
            if [tag for tag in ORDER if tag in once] == once and {*ORDER} - {"testcase"} <= {*tags}
            else [str(once)]
        )
        for case in suite.iter("testcase"):
            found += ["testcase"] if {*case.attrib} != {"name", "classname", "time"} else []
            found += ["time"] if not DECIMAL.fullmatch(case.get("time", "")) else []
            found += ["name"] if not _token(case.get("name", "")) else []
            found += ["several"] if len(case) > 1 else []
            found += (
                ["type"] if any(item.tag != "skipped" and "type" not in item.attrib for item in case) else []
            )
    return found


def _token(text: str) -> bool:
    return bool(text) and " ".join(text.split()) == text
