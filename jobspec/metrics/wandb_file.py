"""wandb's own file of a run, `run-ID.wandb`: an offline run has its history nowhere else.

Blocks of 32 KiB, the first behind a head of 7 bytes, hold pieces: checksum (4 bytes), size (2), kind (1),
data. A record is one whole piece, or a first, some middle and a last one; zeros fill a block. Sources: wandb
`sdk/internal/datastore.py`, `proto/wandb_internal.proto`; LevelDB `doc/log_format.md`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobspec.metrics.table import Table
from jobspec.runtime.base.event_files import DamagedError, fields
from jobspec.runtime.base.metric_files import Row, record_rows
from jobspec.runtime.base.run_files import open_file

HEAD, BLOCK_BYTES, PIECE_HEAD = b":W&B", 32 * 1024, 7
WHOLE, FIRST, LAST = 1, 2, 4
MAX_RECORD_BYTES = 16 * 1024**2
# Numbers of fields in the messages of wandb.
HISTORY, ITEM, HISTORY_STEP, STEP_NUMBER, KEY, NESTED_KEY, VALUE = 2, 1, 2, 1, 1, 2, 16


def read_wandb(path: Path, source: str) -> Table:
    """The history in a `.wandb` file; what is torn or damaged is left out."""
    rows: list[Row] = []
    try:
        for record in _records(path):
            rows.extend(_history(record, source))
    except OSError:
        pass
    return Table(tuple(rows))


def _records(path: Path) -> Iterator[bytes]:
    record = b""
    with open_file(path) as file:
        block, at = file.read(BLOCK_BYTES), PIECE_HEAD  # the head of the file is as long as that of a piece
        while block and (at == 0 or block.startswith(HEAD)):
            while at + PIECE_HEAD <= len(block):
                size, kind = struct.unpack_from("<HB", block, at + 4)
                if not kind:
                    break
                piece = block[at + PIECE_HEAD : at + PIECE_HEAD + size]
                at += PIECE_HEAD + size
                record = piece if kind in (WHOLE, FIRST) else record + piece
                if kind in (WHOLE, LAST):
                    yield record
                    record = b""
                elif len(record) > MAX_RECORD_BYTES:
                    record = b""
            block, at = file.read(BLOCK_BYTES), 0


def _history(record: bytes, source: str) -> Iterator[Row]:
    """The values of a record of the history; of any other record nothing. Keys with `_` are wandb's own."""
    try:
        for number, message in fields(record):
            if number == HISTORY and isinstance(message, bytes):
                rows = list(record_rows(_values(message), source))
                yield from (row for row in rows if not row.metric.startswith("_"))
    except (DamagedError, ValueError, RecursionError):
        return


def _values(message: bytes) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for number, part in fields(message):
        if not isinstance(part, bytes):
            continue
        if number == HISTORY_STEP:
            values.setdefault("_step", dict(fields(part)).get(STEP_NUMBER, 0))
        elif number == ITEM:
            texts = [(key, text.decode()) for key, text in fields(part) if isinstance(text, bytes)]
            name = "/".join(text for key, text in texts if key in (KEY, NESTED_KEY) and text)
            values[name] = json.loads(next((text for key, text in texts if key == VALUE), "{}"))
    return values
