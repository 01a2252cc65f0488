"""The metadata store in an SQLite file, which several processes of one machine may share.

Operations that wait while a commit runs are committed together by the next one: one fsync for all of them.
Everything that touches the file runs off the loop, in the lane "metadata". Any process that commits or watches lets
leases run out, its own and others'.
"""

import asyncio
import contextlib
import sqlite3
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from headrace.metadata import sqlite_file
from headrace.metadata.keeping import Keepers
from headrace.metadata.sqlite_commit import Operation, commit_together
from headrace.metadata.store import (
    Cmp,
    Lease,
    MetadataStoreError,
    OutcomeUnknown,
    Put,
    Revision,
    Snapshot,
    TxnResult,
    check_txn,
)
from headrace.metadata.written import Written
from headrace.runtime import Clock, Offload

T = TypeVar("T")

LANE = "metadata"
BATCH_MAX = 256
"""Operations in one commit."""
WAITING_MAX = 10_000
"""Operations that wait for a commit; more are refused."""
QUESTION_MS = 300
"""How often a process that watches asks SQLite, also when it has heard of no write. Leases run out at this pace."""
SYNC_MS = 4
"""When it asks again after a write, and then less and less often: a commit ends with a sync."""
AGAIN_MS = 15
"""After a read that failed."""
_OPEN_ATTEMPTS = 100


class SqliteStore:
    def __init__(self, connection: sqlite3.Connection, path: Path, offload: Offload, clock: Clock) -> None:
        self._connection = connection
        self._log_path = path.with_name(path.name + "-wal")
        self._offload = offload
        self._clock = clock
        self._boot_id = clock.boot_id()
        self._waiting: deque[Operation[Any]] = deque()
        self._commit: asyncio.Future[bool] | None = None
        self._keepers = Keepers(clock, self._beat)
        self._watches: set[asyncio.Event] = set()
        self._poller: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def open(cls, path: Path, offload: Offload, clock: Clock) -> "SqliteStore":
        """Creates the file if there is none. Raises MetadataStoreError with one sentence."""
        for _ in range(_OPEN_ATTEMPTS):
            try:
                connection = await offload.run(LANE, lambda: sqlite_file.connect(path))
            except sqlite_file.Busy:
                # Another process switches the new file to its write-ahead log just now; SQLite does not wait there.
                await asyncio.sleep(0.02)
            else:
                return cls(connection, path, offload, clock)
        raise MetadataStoreError(f"Cannot use {path} as metadata store: another process holds it locked")

    async def load(self, prefix: bytes) -> Snapshot:
        return await self._run(lambda connection: sqlite_file.load(connection, prefix), writes=False)

    async def txn(self, when: Sequence[Cmp], puts: Sequence[Put] = (), deletes: Sequence[bytes] = ()) -> TxnResult:
        check_txn(when, puts, deletes)
        return await self._run(
            lambda connection: sqlite_file.txn(connection, when, puts, deletes), writes=bool(puts or deletes)
        )

    async def watch(self, prefix: bytes, after_rev: int) -> AsyncGenerator[Revision, None]:
        woken, position = asyncio.Event(), after_rev
        self._watches.add(woken)
        if self._poller is None and not self._closed:
            self._poller = asyncio.create_task(self._poll())
        try:
            while not self._closed:
                woken.clear()
                read = await self._read_log(prefix, position)
                for revision in read.revisions:
                    if self._closed:
                        return
                    yield revision
                if read.position == position and not self._closed:
                    await woken.wait()
                position = read.position
        finally:
            self._watches.discard(woken)
            if not self._watches and self._poller is not None:
                self._poller.cancel()
                self._poller = None

    async def grant(self, ttl_ms: int, beat_ms: int) -> Lease:
        sent_ms = self._clock.boot_ms()
        try:
            lease_id = await self._run(
                lambda connection: sqlite_file.grant(connection, ttl_ms, self._boot_time()), writes=True
            )
        except OutcomeUnknown as error:  # a lease that nobody knows of runs out
            raise MetadataStoreError(str(error)) from error
        lease = Lease(lease_id, ttl_ms, sent_ms)
        self._keepers.keep(lease, beat_ms)
        return lease

    async def revoke(self, lease_id: int) -> None:
        given_up = await self._keepers.give_up(lease_id)
        await self._run(lambda connection: sqlite_file.revoke(connection, lease_id), writes=True)
        if given_up is not None:
            given_up.lost.set()

    async def compact(self, rev: int) -> None:
        await self._run(lambda connection: sqlite_file.compact(connection, rev), writes=True)

    async def close(self) -> None:
        self._closed = True
        self._wake_watches()
        await self._keepers.close()
        if self._poller is not None:
            self._poller.cancel()
        while self._commit is not None:
            await asyncio.wait([self._commit])
        await self._offload.run(LANE, self._connection.close)

    async def _run(self, run: Callable[[sqlite3.Connection], T], writes: bool) -> T:
        if self._closed:
            raise MetadataStoreError("The metadata store is closed")
        if len(self._waiting) >= WAITING_MAX:
            raise MetadataStoreError(f"{WAITING_MAX} operations wait for the metadata store already")
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(Operation(run, result, writes))
        if self._commit is None:
            self._start_commit()
        return await result

    def _start_commit(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
        self._commit = self._offload.run(LANE, lambda: commit_together(self._connection, batch, self._boot_time))
        self._commit.add_done_callback(lambda done: self._finish_commit(batch, done))

    def _finish_commit(self, batch: Sequence[Operation[Any]], done: "asyncio.Future[bool]") -> None:
        self._commit = None
        failure = asyncio.CancelledError() if done.cancelled() else done.exception()
        for operation in batch:
            if failure is not None:
                operation.error = OutcomeUnknown(f"The metadata store's thread failed: {failure!r}")
            operation.settle()
        if failure is not None or done.result():
            self._wake_watches()
        if self._waiting:
            self._start_commit()

    async def _beat(self, lease_id: int) -> bool:
        try:
            return await self._run(
                lambda connection: sqlite_file.beat(connection, lease_id, self._boot_time()), writes=True
            )
        except OutcomeUnknown as error:
            raise MetadataStoreError(str(error)) from error

    async def _read_log(self, prefix: bytes, position: int) -> sqlite_file.LogRead:
        while not self._closed:
            try:
                return await self._offload.run(LANE, lambda: sqlite_file.read_log(self._connection, prefix, position))
            except sqlite3.Error:  # busy, or the disk fails: whoever writes is told so; a watch tries again
                await asyncio.sleep(AGAIN_MS / 1000)
        return sqlite_file.LogRead([], position)

    async def _poll(self) -> None:
        """Wakes watches when another process has committed, and lets leases run out while nobody commits."""
        version, asked_ms, wait_ms = -1, 0, QUESTION_MS
        written = Written(self._log_path)
        try:
            while True:
                # What was heard is written, but counts only when it is synced: nothing tells of that.
                heard = await written.wait(wait_ms)
                wait_ms = SYNC_MS if heard else min(3 * wait_ms, QUESTION_MS)
                with contextlib.suppress(sqlite3.Error):
                    found = await self._offload.run(LANE, lambda: sqlite_file.data_version(self._connection))
                    if found != version:
                        version = found
                        self._wake_watches()
                now_ms = self._clock.boot_ms()
                if now_ms - asked_ms >= QUESTION_MS:
                    asked_ms = now_ms
                    await self._expire()
        finally:
            written.close()

    async def _expire(self) -> None:
        with contextlib.suppress(sqlite3.Error, MetadataStoreError, OutcomeUnknown):  # tried again soon
            if await self._offload.run(LANE, lambda: sqlite_file.has_expired(self._connection, self._boot_time())):
                await self._run(lambda _: True, writes=False)  # every commit begins with letting leases run out

    def _wake_watches(self) -> None:
        for woken in self._watches:
            woken.set()

    def _boot_time(self) -> sqlite_file.BootTime:
        return sqlite_file.BootTime(self._clock.boot_ms(), self._boot_id)
