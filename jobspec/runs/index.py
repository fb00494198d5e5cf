"""What is known of ended runs, kept for one user, so that `status` need not read thousands of folders.

The index is a copy: the run folders decide. A row counts as long as the files of `STAMPED` are the same. The
steps and figures of a row come from logs and metrics, which an ended run does not write again. A lost or
damaged index is made anew, and where none can be kept everything still works, slower. It lies in the user's
own state folder, so no two users write it; a locked one is passed over, not waited for.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from typing import Any

from jobspec.runs.store import state_folder

FORMAT = 2  # of a row's data: another one empties the index
NAME = "index.sqlite"
_NEEDED = ("launch.json", "scheduler.json", "report.json")
STAMPED = (*_NEEDED, "plan.json")
AT_ONCE = 500  # values of one query; SQLite took 999 at most before 3.32
WAIT_S = 0.2  # for another `status` of the same user
_MAYBE = (int, float, type(None))
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("run_id", "name", "run_dir", "framework", "level", "cluster", "job_id", "state"), str),
    **dict.fromkeys(("verdict", "verdict_reason"), str),
    **dict.fromkeys(("submit_time", "intent_time", "step", "steps"), _MAYBE),
    "final": bool,
    "points": int,
    "figures": dict,
    "damaged": list,
    "scheduler": (dict, type(None)),
}
_TABLE = "CREATE TABLE IF NOT EXISTS runs (root TEXT PRIMARY KEY, stamp TEXT NOT NULL, data TEXT NOT NULL)"


def stamp(root: str) -> str:
    """What changes with the files of `STAMPED`; empty for a run without launch record, final state or report.

    Times alone may be equal on a file system that counts seconds: sizes and inode numbers count as well. Take
    it before the files are read: one that changes meanwhile then makes the row invalid.
    """
    marks = []
    for name in STAMPED:
        try:
            found = os.stat(f"{root}/{name}")  # noqa: PTH116
        except OSError:
            if name in _NEEDED:
                return ""
            continue
        marks.append(f"{name} {found.st_mtime_ns}.{found.st_size}.{found.st_ino}")
    return " ".join(marks)


def _row(text: object) -> dict[str, Any] | None:
    """A row's data; None for one that no `status` has written."""
    try:
        data = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not all(map(isinstance, map(data.get, _KINDS), _KINDS.values())):
        return None
    values = (data.get("value"), *data["figures"].values())
    return data if all(value is None or isinstance(value, int | float) for value in values) else None


def _is_text(root: str) -> bool:
    """SQLite keeps no name that is not Unicode: such a run has no row, and is read each time."""
    return not any("\ud800" <= char <= "\udfff" for char in root)


def _format(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


class RunIndex:
    """The rows by run folder. No method raises: without an index there are no rows."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._file = (state_folder(env) / NAME).absolute()

    def roots(self) -> list[str]:
        """The run folders that have a row."""
        try:
            with closing(self._open()) as db:
                return [root for (root,) in db.execute("SELECT root FROM runs")]
        except (sqlite3.Error, OSError, ValueError):
            return []

    def read(self, roots: Iterable[str]) -> dict[str, tuple[str, dict[str, Any]]]:
        """Stamp and data of these runs by their folder. The caller compares the stamp."""
        wanted, rows = [root for root in roots if _is_text(root)], list[tuple[str, str, object]]()
        try:
            with closing(self._open()) as db:
                if _format(db) != FORMAT:
                    return {}
                for at in range(0, len(wanted), AT_ONCE):
                    some = wanted[at : at + AT_ONCE]
                    marks = ", ".join("?" * len(some))
                    rows += db.execute(f"SELECT root, stamp, data FROM runs WHERE root IN ({marks})", some)
        except (sqlite3.Error, OSError, ValueError):
            return {}
        read = {root: (mark, _row(data)) for root, mark, data in rows}
        return {root: (mark, data) for root, (mark, data) in read.items() if data is not None}

    def write(self, rows: Mapping[str, tuple[str, Mapping[str, Any]]], gone: Iterable[str] = ()) -> None:
        """Add or replace rows, and drop those of runs that are gone."""
        put = [(root, mark, json.dumps(data)) for root, (mark, data) in rows.items() if _is_text(root)]
        drop = [(root,) for root in gone]
        if not put and not drop:
            return
        with suppress(sqlite3.Error, OSError, ValueError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._store(put, drop)
            except sqlite3.OperationalError:  # locked, or a disk that is full
                return
            except sqlite3.DatabaseError:  # damaged: it holds nothing that the folders do not
                self._file.unlink(missing_ok=True)
                self._store(put, drop)

    def _store(self, put: list[tuple[str, str, str]], drop: list[tuple[str]]) -> None:
        with closing(self._open(create=True)) as db, db:
            db.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", put)
            db.executemany("DELETE FROM runs WHERE root = ?", drop)

    def _open(self, create: bool = False) -> sqlite3.Connection:
        """The database. Its journal is a plain file: the faster one needs memory shared between machines."""
        uri = f"{self._file.as_uri()}?mode={'rwc' if create else 'rw'}"
        db = sqlite3.connect(uri, uri=True, timeout=WAIT_S)
        try:
            if create:
                if _format(db) != FORMAT:
                    db.execute("DROP TABLE IF EXISTS runs")
                    db.execute(f"PRAGMA user_version = {FORMAT}")
                db.execute(_TABLE)
        except sqlite3.Error:
            db.close()
            raise
        return db
