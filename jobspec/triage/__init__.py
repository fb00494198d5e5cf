"""First cause of a failed run: failure signatures as data, and the matcher over logs.

Knows logs and signatures only; `jobspec.judging.judge` decides what a cause means for a run.
"""

from jobspec.triage.match import Match
from jobspec.triage.ranking import first_cause, rank
from jobspec.triage.scan import LogSource, scan_files, scan_lines, scan_stream
from jobspec.triage.signatures import Signature, load_signatures

__all__ = [
    "LogSource",
    "Match",
    "Signature",
    "first_cause",
    "load_signatures",
    "rank",
    "scan_files",
    "scan_lines",
    "scan_stream",
]
