"""First cause of a failed run: failure signatures as data, and the matcher over logs.

Knows logs and signatures only; what a cause means for a run is the business of `jobspec.coverage`.
"""

from jobspec.triage.match import Match
from jobspec.triage.scan import scan_files, scan_lines

__all__ = ["Match", "scan_files", "scan_lines"]
