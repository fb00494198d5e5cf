"""The number of rows of a parquet file, from its footer, by pyarrow: an extra that may not be installed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any


def row_count(path: Path) -> int | None:
    """None when the file cannot be read or is no parquet file. Raises: ImportError without pyarrow."""
    parquet: Any = import_module("pyarrow.parquet")  # it has no types
    try:
        return int(parquet.read_metadata(path).num_rows)
    except (OSError, ValueError, NotImplementedError):  # of the last two kinds are pyarrow's own errors
        return None
