"""What stands in the SQLite file of a metadata store, and the statements on it. Synchronous; runs off the loop."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from headrace.metadata.store import KV, Cmp, MetadataStoreError, Put, Snapshot, TxnResult, prefix_end

FORMAT = 1
LOG_REVISIONS = 2_000
"""How many revisions the log keeps for those who watch; older ones are trimmed."""
BUSY_MS = 10_000
"""How long a commit waits for other processes."""

_TABLES = (
    "create table meta(id integer primary key check(id = 0), format int not null, rev int not null,"
    " trimmed int not null)",
    "create table kv(k blob primary key, v blob not null, create_rev int not null, mod_rev int not null) without rowid",
    "create table log(rev int, k blob, v blob, primary key(rev, k)) without rowid",
)


class Busy(Exception):
    """Somebody else holds the file; try again."""


def connect(path: Path) -> sqlite3.Connection:
    """Opens or creates the file; refuses what it is not sure to understand."""
    if not path.parent.is_dir():
        raise MetadataStoreError(f"Cannot use {path} as metadata store: directory {path.parent} does not exist")
    if path.is_dir():
        raise MetadataStoreError(f"Cannot use {path} as metadata store: it is a directory")
    try:
        # Jobs of the lane run one at a time, if in different threads.
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000)
    except sqlite3.Error as error:
        raise MetadataStoreError(f"Cannot use {path} as metadata store: {error}") from error
    try:
        _check_and_prepare(connection, path)
    except MetadataStoreError:
        connection.close()
        raise
    except sqlite3.Error as error:
        connection.close()
        if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise Busy from error
        raise MetadataStoreError(f"Cannot use {path} as metadata store: {error}") from error
    return connection


def _check_and_prepare(connection: sqlite3.Connection, path: Path) -> None:
    # Before anything is changed: the file may be somebody else's, or a newer program's.
    tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    if tables and not {"meta", "kv", "log"} <= tables:
        raise MetadataStoreError(f"Cannot use {path} as metadata store: it is another program's SQLite file")
    if tables:
        _check_format(connection, path)
    (mode,) = connection.execute("pragma journal_mode=wal").fetchone()
    if mode != "wal":
        raise MetadataStoreError(f"Cannot use {path} as metadata store: its file system has no shared memory for WAL")
    connection.execute("pragma synchronous=full")
    connection.execute("begin immediate")
    if not connection.execute("select 1 from sqlite_master where name = 'meta'").fetchone():
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute("insert into meta values(0, ?, 0, 0)", (FORMAT,))
    _check_format(connection, path)
    connection.execute("update meta set rev = rev")  # a file that cannot be written is better refused now
    connection.execute("commit")


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    (found,) = connection.execute("select format from meta").fetchone()
    if found > FORMAT:
        raise MetadataStoreError(f"{path} has metadata format {found}; this program reads up to format {FORMAT}")


def load(connection: sqlite3.Connection, prefix: bytes) -> Snapshot:
    end = prefix_end(prefix)
    bounds: tuple[bytes, ...] = (prefix,) if end is None else (prefix, end)
    rows = connection.execute(
        f"select k, v, create_rev, mod_rev from kv where k >= ? {'' if end is None else 'and k < ?'} order by k", bounds
    )
    return Snapshot([KV._make(row) for row in rows], _rev(connection))


def txn(
    connection: sqlite3.Connection, when: Sequence[Cmp], puts: Sequence[Put], deletes: Sequence[bytes]
) -> TxnResult:
    for compare in when:
        row = connection.execute("select mod_rev, create_rev from kv where k = ?", (compare.key,)).fetchone()
        found = 0 if row is None else row[0] if compare.field == "mod" else row[1]
        if found != compare.rev:
            return TxnResult(False, _rev(connection))
    if not puts and not deletes:
        return TxnResult(True, _rev(connection))
    (rev,) = connection.execute("update meta set rev = rev + 1 returning rev").fetchone()
    connection.executemany(
        "insert into kv values(?, ?, ?, ?) on conflict(k) do update set v = excluded.v, mod_rev = excluded.mod_rev",
        [(put.key, put.value, rev, rev) for put in puts],
    )
    connection.executemany("insert into log values(?, ?, ?)", [(rev, put.key, put.value) for put in puts])
    for key in deletes:
        if connection.execute("delete from kv where k = ?", (key,)).rowcount:
            connection.execute("insert into log values(?, ?, null)", (rev, key))
    return TxnResult(True, rev)


def trim_log(connection: sqlite3.Connection) -> None:
    trimmed = _rev(connection) - LOG_REVISIONS
    if trimmed > 0:
        connection.execute("delete from log where rev <= ?", (trimmed,))
        connection.execute("update meta set trimmed = ?", (trimmed,))


def _rev(connection: sqlite3.Connection) -> int:
    rev: int = connection.execute("select rev from meta").fetchone()[0]
    return rev
