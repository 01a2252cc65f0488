"""Many operations on the SQLite file in one commit. Synchronous; runs off the loop."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from headrace.metadata import sqlite_file
from headrace.metadata.store import MetadataStoreError, OutcomeUnknown, TxnResult

T = TypeVar("T")


class Operation(Generic[T]):
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
        except MetadataStoreError as error:
            self.error = error
        if self.error is not None and connection.in_transaction:
            connection.execute("rollback to operation")
        if connection.in_transaction:
            connection.execute("release operation")

    def wrote(self) -> bool:
        if not self.writes or self.outcome is None:
            return False
        return self.outcome.ok if isinstance(self.outcome, TxnResult) else True

    def settle(self) -> None:
        if self.result.done():  # its caller was cancelled
            return
        if self.error is not None:
            self.result.set_exception(self.error)
        else:
            assert self.outcome is not None
            self.result.set_result(self.outcome)


def commit_together(
    connection: sqlite3.Connection, batch: Sequence[Operation[Any]], boot: Callable[[], sqlite_file.BootTime]
) -> bool:
    """Whether anything changed, be it only that leases ran out."""
    before = connection.total_changes
    try:
        connection.execute("begin immediate")
        sqlite_file.expire_leases(connection, boot())
        for operation in batch:
            operation.attempt(connection)
            if not connection.in_transaction:  # a full disk or an I/O error made SQLite undo all of it
                raise sqlite3.OperationalError(str(operation.error))
        if any(operation.wrote() for operation in batch):
            sqlite_file.trim_log(connection)
    except sqlite3.Error as error:
        _fail(batch, MetadataStoreError(f"The metadata store failed: {error}"))
        _undo(connection)
        return False
    try:
        connection.execute("commit")
    except sqlite3.Error as error:
        _fail(
            [operation for operation in batch if operation.wrote()],
            OutcomeUnknown(f"The metadata store may have written: {error}"),
        )
        _fail(batch, MetadataStoreError(f"The metadata store failed: {error}"))
        _undo(connection)
    return connection.total_changes != before


def _fail(batch: Sequence[Operation[Any]], error: Exception) -> None:
    for operation in batch:
        if operation.error is None:
            operation.error = error


def _undo(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):  # the connection says so again at the next begin
            connection.execute("rollback")
