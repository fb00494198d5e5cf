"""Log text as programs meant it: no colours, no Ray prefixes, plain numbers."""

from __future__ import annotations

import re

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Ray's log deduplication and prefix. Source: ray 2.5x `ray/_private/ray_logging`, RAY_DEDUP_LOGS.
ACTOR = r"[^()]{1,120}?(?:\([^()]{0,80}\))?"  # its name may have brackets
RAY_PREFIX = re.compile(
    rf"^\s*\((?:(?P<task>{ACTOR})\s+)?pid=(?P<pid>\d+)(?:,\s*ip=(?P<ip>[0-9a-fA-F.:]+))?\)\s?"
)
RAY_REPEATED = re.compile(r"\s*\[repeated (?P<times>\d{1,9})x across cluster\].*$")
NUMPY_SCALAR = re.compile(r"\b(?:np|numpy)\.(?:float|int|uint|bool)\w*\(([^()]*)\)")
TENSOR = re.compile(r"\btensor\(([^(),\[\]]*)(?:,[^()]*)?\)")


def clean(line: str) -> str:
    """`line` without colours, line ends and Ray's prefix."""
    return without_ray(strip_ansi(line))


def strip_ansi(line: str) -> str:
    """`line` without escape sequences and line ends."""
    return (ANSI.sub("", line) if "\x1b" in line else line).rstrip("\r\n")


def without_ray(line: str) -> str:
    """`line` without Ray's worker prefix and its remark about repeated lines."""
    if line.lstrip()[:1] == "(":
        line = RAY_PREFIX.sub("", line)
    return RAY_REPEATED.sub("", line) if "[repeated " in line else line


def unwrap_scalars(text: str) -> str:
    """`np.float64(1.5)` and `tensor(1.5, device='cuda:0')` as `1.5`."""
    if "(" not in text:
        return text
    return TENSOR.sub(r"\1", NUMPY_SCALAR.sub(r"\1", text))


def to_number(text: str) -> float | None:
    """A number, NaN for `nan`, `null` and `None`, or None when `text` is no number at all."""
    word = text.strip().strip("'\"")
    if word in ("null", "None"):
        return float("nan")
    if word in ("True", "False", "true", "false") or "_" in word:
        return None
    try:
        return float(word)
    except ValueError:
        return None


# Heads of lines by launchers and loggers: `srun --label`, torchrun's rank, mpirun's `--tag-output`, a time, a
# logger's level.
LINE_HEAD = re.compile(
    r"^(?:\ufeff|\s*\d{1,5}: |\[(?:rank|default)\d+\]: ?|\[\d+,\d+\]<std(?:out|err)>: ?"
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?(?: [A-Z]P\d+)*\]?:? "
    r"(?:std(?:out|err) [FP] )?(?=\s*\S)"  # containerd's
    r"|(?:ERROR|CRITICAL|WARNING|INFO) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[\w./]+:\d+\]|[\w./]+\.py:\d+\]) ?"
    r"|(?:ERROR|CRITICAL):[\w.]+:(?=\S)"
    # kubectl with --prefix, docker compose, the journal
    r"|\[pod/[\w.-]+/[\w.-]+\] |[a-z][\w.-]*-\d+ +\| "
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w./-]+\[\d+\]: "
    r"|(?: {2})+\| (?=\S| {2})"  # Python's, of an exception group
    # pdsh, with which DeepSpeed starts nodes
    r"|[a-z][\w-]*\d[\w.-]*: (?=Traceback \(most| {2,}\S|(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b))"
)


def bare(line: str) -> str:
    """`line` as the program printed it: `clean`, and without the heads of launchers and loggers."""
    text = clean(line)
    for _ in range(6):  # each may hold another: a label, a rank, a time, a process of vLLM's below Ray's
        shorter = without_ray(LINE_HEAD.sub("", text, count=1))
        if len(shorter) == len(text):
            break
        text = shorter
    return text
