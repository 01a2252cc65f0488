"""What stands in the SQLite file of a metadata store, and the statements on it. Synchronous; runs off the loop."""

import sqlite3
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from headrace.metadata.store import (
    KV,
    Cmp,
    Compacted,
    Event,
    MetadataStoreError,
    Put,
    Revision,
    Snapshot,
    TxnResult,
    prefix_end,
)

FORMAT = 2
LOG_REVISIONS = 2_000
"""How many revisions the log keeps for those who watch; older ones are trimmed."""
BUSY_MS = 10_000
"""How long a commit waits for other processes."""
READ_REVISIONS = 500
"""How many revisions a watch reads at one time."""

_TABLES = (
    "create table meta(id integer primary key check(id = 0), format int not null, rev int not null,"
    " trimmed int not null)",
    "create table kv(k blob primary key, v blob not null, create_rev int not null, mod_rev int not null,"
    " lease int not null default 0) without rowid",
    "create table log(rev int, k blob, v blob, create_rev int not null default 0, primary key(rev, k)) without rowid",
)
_LEASE_TABLES = (
    "create table lease(id integer primary key autoincrement, ttl_ms int not null, expires_ms int not null,"
    " boot_id text not null)",
    "create index kv_of_lease on kv(lease) where lease <> 0",
)
_FROM_FORMAT_1 = (
    "alter table kv add column lease int not null default 0",
    "alter table log add column create_rev int not null default 0",
    *_LEASE_TABLES,
    # Its log does not say when keys were created: nobody watches from before.
    "delete from log",
    f"update meta set trimmed = rev, format = {FORMAT}",
)


class BootTime(NamedTuple):
    """Now, for leases: one of another boot has run out."""

    boot_ms: int
    boot_id: str


class LogRead(NamedTuple):
    revisions: list[Revision]
    position: int
    """The last revision that was looked at; what touches other prefixes is skipped."""


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
        create_tables(connection)
    if _check_format(connection, path) == 1:
        for statement in _FROM_FORMAT_1:
            connection.execute(statement)
    connection.execute("update meta set rev = rev")  # a file that cannot be written is better refused now
    connection.execute("commit")


def create_tables(connection: sqlite3.Connection) -> None:
    for statement in (*_TABLES, *_LEASE_TABLES):
        connection.execute(statement)
    connection.execute("insert into meta values(0, ?, 0, 0)", (FORMAT,))


def _check_format(connection: sqlite3.Connection, path: Path) -> int:
    found: int = connection.execute("select format from meta").fetchone()[0]
    if found > FORMAT:
        raise MetadataStoreError(f"{path} has metadata format {found}; this program reads up to format {FORMAT}")
    return found


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
    for lease_id in {put.lease for put in puts if put.lease}:
        if not connection.execute("select 1 from lease where id = ?", (lease_id,)).fetchone():
            raise MetadataStoreError("The lease of a key to write is gone")
    _write(connection, puts, deletes)
    return TxnResult(True, _rev(connection))


def _write(connection: sqlite3.Connection, puts: Sequence[Put], deletes: Sequence[bytes]) -> None:
    deleted = [key for key in deletes if connection.execute("delete from kv where k = ?", (key,)).rowcount]
    if not puts and not deleted:
        return
    (rev,) = connection.execute("update meta set rev = rev + 1 returning rev").fetchone()
    connection.executemany("insert into log(rev, k, v) values(?, ?, null)", [(rev, key) for key in deleted])
    connection.executemany(
        "insert into kv values(?, ?, ?, ?, ?) on conflict(k)"
        " do update set v = excluded.v, mod_rev = excluded.mod_rev, lease = excluded.lease",
        [(put.key, put.value, rev, rev, put.lease) for put in puts],
    )
    connection.executemany(
        "insert into log select ?, k, v, create_rev from kv where k = ?", [(rev, put.key) for put in puts]
    )


def read_log(connection: sqlite3.Connection, prefix: bytes, after_rev: int) -> LogRead:
    """Some of what follows a revision; raises Compacted."""
    connection.execute("begin")
    try:
        rev, trimmed = connection.execute("select rev, trimmed from meta").fetchone()
        if after_rev < trimmed:
            raise Compacted(f"The metadata store forgot what was before revision {trimmed}")
        position = max(after_rev, min(rev, after_rev + READ_REVISIONS))
        rows = connection.execute(
            "select rev, k, v, create_rev from log where rev > ? and rev <= ? order by rev, k", (after_rev, position)
        )
        events = [Event(k, v, rev, create_rev) for rev, k, v, create_rev in rows if k.startswith(prefix)]
    finally:
        if connection.in_transaction:
            connection.execute("rollback")
    revisions = [Revision(rev, tuple(of_rev)) for rev, of_rev in groupby(events, lambda event: event.mod_rev)]
    return LogRead(revisions, position)


def data_version(connection: sqlite3.Connection) -> int:
    """Another number after each commit of another connection."""
    found: int = connection.execute("pragma data_version").fetchone()[0]
    return found


def grant(connection: sqlite3.Connection, ttl_ms: int, now: BootTime) -> int:
    row = (ttl_ms, now.boot_ms + ttl_ms, now.boot_id)
    cursor = connection.execute("insert into lease(ttl_ms, expires_ms, boot_id) values(?, ?, ?)", row)
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def beat(connection: sqlite3.Connection, lease_id: int, now: BootTime) -> bool:
    """Whether there still is such a lease."""
    moved = connection.execute("update lease set expires_ms = ? + ttl_ms where id = ?", (now.boot_ms, lease_id))
    return moved.rowcount > 0


def revoke(connection: sqlite3.Connection, lease_id: int) -> bool:
    if connection.execute("select 1 from lease where id = ?", (lease_id,)).fetchone() is None:
        return False
    keys = [key for (key,) in connection.execute("select k from kv where lease = ? and lease <> 0", (lease_id,))]
    connection.execute("delete from lease where id = ?", (lease_id,))
    _write(connection, (), keys)
    return True


def has_expired(connection: sqlite3.Connection, now: BootTime) -> bool:
    return bool(_expired(connection, now))


def expire_leases(connection: sqlite3.Connection, now: BootTime) -> None:
    for lease_id in _expired(connection, now):
        revoke(connection, lease_id)


def _expired(connection: sqlite3.Connection, now: BootTime) -> list[int]:
    rows = connection.execute("select id from lease where expires_ms <= ? or boot_id <> ? order by id", now)
    return [lease_id for (lease_id,) in rows]


def trim_log(connection: sqlite3.Connection) -> None:
    compact(connection, _rev(connection) - LOG_REVISIONS)


def compact(connection: sqlite3.Connection, rev: int) -> bool:
    (trimmed,) = connection.execute("select trimmed from meta").fetchone()
    rev = min(rev, _rev(connection))
    if rev <= trimmed:
        return False
    connection.execute("delete from log where rev <= ?", (rev,))
    connection.execute("update meta set trimmed = ?", (rev,))
    return True


def _rev(connection: sqlite3.Connection) -> int:
    rev: int = connection.execute("select rev from meta").fetchone()[0]
    return rev
