"""The metadata store in an SQLite file, which several processes of one machine may share.

Operations that wait while a commit runs are committed together by the next one: one fsync for all of them.
Everything that touches the file runs off the loop, in the lane "metadata".
"""

import asyncio
import contextlib
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from headrace.metadata import sqlite_file
from headrace.metadata.store import (
    Cmp,
    MetadataStoreError,
    OutcomeUnknown,
    Put,
    Snapshot,
    TxnResult,
    check_txn,
)
from headrace.runtime import Offload

T = TypeVar("T")

LANE = "metadata"
BATCH_MAX = 256
"""Operations in one commit."""
WAITING_MAX = 10_000
"""Operations that wait for a commit; more are refused."""
_OPEN_ATTEMPTS = 100


class _Operation(Generic[T]):
    """Something to do inside a commit, and what came of it. The lane writes the outcome, then the loop reads it."""

    __slots__ = ("error", "outcome", "result", "run", "writes")

    def __init__(self, run: Callable[[sqlite3.Connection], T], result: "asyncio.Future[T]", writes: bool) -> None:
        self.run = run
        self.result = result
        self.writes = writes
        self.outcome: T | None = None
        self.error: Exception | None = None

    def attempt(self, connection: sqlite3.Connection) -> None:
        connection.execute("savepoint operation")
        try:
            self.outcome = self.run(connection)
        except sqlite3.Error as error:
            self.error = MetadataStoreError(f"The metadata store failed: {error}")
            if connection.in_transaction:
                connection.execute("rollback to operation")
        if connection.in_transaction:
            connection.execute("release operation")

    def wrote(self) -> bool:
        return self.writes and isinstance(self.outcome, TxnResult) and self.outcome.ok

    def settle(self) -> None:
        if self.result.done():  # its caller was cancelled
            return
        if self.error is not None:
            self.result.set_exception(self.error)
        else:
            assert self.outcome is not None
            self.result.set_result(self.outcome)


class SqliteStore:
    def __init__(self, connection: sqlite3.Connection, path: Path, offload: Offload) -> None:
        self._connection = connection
        self._path = path
        self._offload = offload
        self._waiting: deque[_Operation[Snapshot] | _Operation[TxnResult]] = deque()
        self._commit: asyncio.Future[None] | None = None
        self._closed = False

    @classmethod
    async def open(cls, path: Path, offload: Offload) -> "SqliteStore":
        """Creates the file if there is none. Raises MetadataStoreError with one sentence."""
        for _ in range(_OPEN_ATTEMPTS):
            try:
                connection = await offload.run(LANE, lambda: sqlite_file.connect(path))
            except sqlite_file.Busy:
                # Another process switches the new file to its write-ahead log just now; SQLite does not wait there.
                await asyncio.sleep(0.02)
            else:
                return cls(connection, path, offload)
        raise MetadataStoreError(f"Cannot use {path} as metadata store: another process holds it locked")

    async def load(self, prefix: bytes) -> Snapshot:
        result: asyncio.Future[Snapshot] = asyncio.get_running_loop().create_future()
        self._add(_Operation(lambda connection: sqlite_file.load(connection, prefix), result, writes=False))
        return await result

    async def txn(self, when: Sequence[Cmp], puts: Sequence[Put] = (), deletes: Sequence[bytes] = ()) -> TxnResult:
        check_txn(when, puts, deletes)
        result: asyncio.Future[TxnResult] = asyncio.get_running_loop().create_future()
        writes = bool(puts or deletes)
        self._add(
            _Operation(lambda connection: sqlite_file.txn(connection, when, puts, deletes), result, writes=writes)
        )
        return await result

    async def close(self) -> None:
        self._closed = True
        while self._commit is not None:
            await asyncio.wait([self._commit])
        await self._offload.run(LANE, self._connection.close)

    def _add(self, operation: _Operation[Snapshot] | _Operation[TxnResult]) -> None:
        if self._closed:
            raise MetadataStoreError("The metadata store is closed")
        if len(self._waiting) >= WAITING_MAX:
            raise MetadataStoreError(f"{WAITING_MAX} operations wait for the metadata store already")
        self._waiting.append(operation)
        if self._commit is None:
            self._start_commit()

    def _start_commit(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
        self._commit = self._offload.run(LANE, lambda: _commit_together(self._connection, batch))
        self._commit.add_done_callback(lambda done: self._finish_commit(batch, done))

    def _finish_commit(
        self, batch: "Sequence[_Operation[Snapshot] | _Operation[TxnResult]]", done: "asyncio.Future[None]"
    ) -> None:
        self._commit = None
        failure = asyncio.CancelledError() if done.cancelled() else done.exception()
        for operation in batch:
            if failure is not None:
                operation.error = OutcomeUnknown(f"The metadata store's thread failed: {failure!r}")
            operation.settle()
        if self._waiting:
            self._start_commit()


def _commit_together(
    connection: sqlite3.Connection, batch: "Sequence[_Operation[Snapshot] | _Operation[TxnResult]]"
) -> None:
    try:
        connection.execute("begin immediate")
        for operation in batch:
            operation.attempt(connection)
            if not connection.in_transaction:  # a full disk or an I/O error made SQLite undo all of it
                raise sqlite3.OperationalError(str(operation.error))
        if any(operation.wrote() for operation in batch):
            sqlite_file.trim_log(connection)
    except sqlite3.Error as error:
        _fail(batch, MetadataStoreError(f"The metadata store failed: {error}"))
        _undo(connection)
        return
    try:
        connection.execute("commit")
    except sqlite3.Error as error:
        _fail(
            [operation for operation in batch if operation.wrote()],
            OutcomeUnknown(f"The metadata store may have written: {error}"),
        )
        _fail(batch, MetadataStoreError(f"The metadata store failed: {error}"))
        _undo(connection)


def _fail(batch: "Sequence[_Operation[Snapshot] | _Operation[TxnResult]]", error: Exception) -> None:
    for operation in batch:
        if operation.error is None:
            operation.error = error


def _undo(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):  # the connection says so again at the next begin
            connection.execute("rollback")
