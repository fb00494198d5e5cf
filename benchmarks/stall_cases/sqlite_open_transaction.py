"""Rank 1 sleeps in an upload with a transaction of SQLite open; rank 0 tries to write to the same database.
---
ranks: 2
expect: {kind: [file-lock, sleep], ranks: [1], frame: upload}
"""

import os
import sqlite3
import time
from pathlib import Path

import _kit

FOLDER = Path(os.environ["JOBSPEC_ATTEMPT_DIR"])


def connect() -> sqlite3.Connection:
    return sqlite3.connect(FOLDER / "metrics.db", timeout=7200, isolation_level=None)


def upload() -> None:
    time.sleep(3600)


def log_and_upload() -> None:
    database = connect()
    database.execute("CREATE TABLE IF NOT EXISTS metrics (step INTEGER, reward REAL)")
    database.execute("BEGIN IMMEDIATE")
    database.execute("INSERT INTO metrics VALUES (1, 0.5)")
    (FOLDER / "began").touch()
    upload()
    database.execute("COMMIT")


def log_metrics() -> None:
    while not (FOLDER / "began").exists():
        time.sleep(0.1)
    database = connect()
    _kit.here()
    database.execute("INSERT INTO metrics VALUES (1, 0.7)")


_kit.steps()
log_and_upload() if _kit.RANK == 1 else log_metrics()
