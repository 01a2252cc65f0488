"""The metadata store in memory: the model that other stores are tested against, and one that fails on demand."""

import asyncio
from collections import deque
from collections.abc import Sequence
from enum import Enum

from headrace.metadata.store import (
    KV,
    Cmp,
    MetadataStoreError,
    OutcomeUnknown,
    Put,
    Snapshot,
    TxnResult,
    check_txn,
)


class Fault(Enum):
    """What the next transaction meets instead of an answer."""

    UNAVAILABLE = "nothing is written, and the caller is told so"
    UNKNOWN_DROPPED = "nothing is written, and the caller cannot know"
    UNKNOWN_APPLIED = "it is written, and the caller cannot know"
    UNKNOWN_LATE = "it is tried at the next apply_late(), and the caller cannot know"


class MemoryData:
    """What several stores may share, as processes share a file."""

    def __init__(self) -> None:
        self.rev = 0
        self.kvs: dict[bytes, KV] = {}

    def load(self, prefix: bytes) -> Snapshot:
        return Snapshot([self.kvs[key] for key in sorted(self.kvs) if key.startswith(prefix)], self.rev)

    def txn(self, when: Sequence[Cmp], puts: Sequence[Put], deletes: Sequence[bytes]) -> TxnResult:
        if not all(self._holds(compare) for compare in when):
            return TxnResult(False, self.rev)
        if puts or deletes:
            self.rev += 1
        for put in puts:
            known = self.kvs.get(put.key)
            create_rev = self.rev if known is None else known.create_rev
            self.kvs[put.key] = KV(put.key, put.value, create_rev, self.rev)
        for key in deletes:
            self.kvs.pop(key, None)
        return TxnResult(True, self.rev)

    def _holds(self, compare: Cmp) -> bool:
        known = self.kvs.get(compare.key)
        if known is None:
            return compare.rev == 0
        return compare.rev == (known.mod_rev if compare.field == "mod" else known.create_rev)


class MemoryStore:
    def __init__(self, data: MemoryData | None = None) -> None:
        self.data = MemoryData() if data is None else data
        self.faults: deque[Fault | None] = deque()
        """One is taken by each transaction; None lets it pass."""
        self.unavailable = False
        self._late: list[tuple[Sequence[Cmp], Sequence[Put], Sequence[bytes]]] = []
        self._closed = False

    async def load(self, prefix: bytes) -> Snapshot:
        await self._reach()
        return self.data.load(prefix)

    async def txn(self, when: Sequence[Cmp], puts: Sequence[Put] = (), deletes: Sequence[bytes] = ()) -> TxnResult:
        check_txn(when, puts, deletes)
        await self._reach()
        match self.faults.popleft() if self.faults else None:
            case None:
                return self.data.txn(when, puts, deletes)
            case Fault.UNAVAILABLE:
                raise MetadataStoreError("The metadata store is not available")
            case Fault.UNKNOWN_APPLIED:
                self.data.txn(when, puts, deletes)
            case Fault.UNKNOWN_LATE:
                self._late.append((when, puts, deletes))
            case Fault.UNKNOWN_DROPPED:
                pass
        raise OutcomeUnknown("The metadata store did not say whether it wrote")

    def apply_late(self) -> list[bool]:
        """Whether each late transaction was still possible, in order."""
        late, self._late = self._late, []
        return [self.data.txn(*txn).ok for txn in late]

    async def close(self) -> None:
        self._closed = True

    async def _reach(self) -> None:
        # Every real store lets other tasks run here; so does its model, or tests would miss what they do meanwhile.
        await asyncio.sleep(0)
        if self._closed:
            raise MetadataStoreError("The metadata store is closed")
        if self.unavailable:
            raise MetadataStoreError("The metadata store is not available")
