"""Metrics of a run in one table, whatever the program that wrote them.

Readers only: what a metric means is the business of frameworks, requirements and signals.
"""

from jobspec.metrics.console import parse_console, read_console
from jobspec.metrics.readers import read_events, read_file, read_json, read_jsonl, read_metrics
from jobspec.metrics.table import Table, concat, continue_tables, grouped, only
from jobspec.runtime.base.metric_files import Row

__all__ = [
    "Row",
    "Table",
    "concat",
    "continue_tables",
    "grouped",
    "only",
    "parse_console",
    "read_console",
    "read_events",
    "read_file",
    "read_json",
    "read_jsonl",
    "read_metrics",
]
