"""A partition with segments in an object store in memory, as tests of reads need it."""

import asyncio
import struct

from headrace.broker.tier_loads import RemotePartition, Want
from headrace.broker.tier_metrics import Counts
from headrace.broker.tier_reads import TierReads
from headrace.core.tier_lineage import RemoteLog
from headrace.core.tier_rows import COPY_FINISHED, SegmentRow
from headrace.errors import ErrorCode
from headrace.storage.index import OFFSET_ENTRY, TIME_ENTRY
from headrace.storage.memory_files import MemoryFiles
from headrace.system import SystemClock
from headrace.tier.memory import MemoryBucket, MemoryStore
from headrace.tier.segment_object import segment_object
from headrace.wire.batch import NewRecord, build, headers

RECORDS = 3
"""In a batch."""


class Tiered:
    """`segments` of `batches` each, and everything from `local_log_start_offset` on is local too."""

    def __init__(self, segments: int = 3, batches: int = 20, value_bytes: int = 100, index_every: int = 2) -> None:
        self.local_log_start_offset = segments * batches * RECORDS
        self.log_end_offset = self.local_log_start_offset
        self.rows: list[SegmentRow] = []
        self.bucket = MemoryBucket()
        self.log = b""
        self.told = 0
        self.near_bytes = 0
        """So much of every object is in memory on this machine."""
        self.near_steps: list[int] = []
        """Of what was read there."""
        self.looks = 0
        self.forgotten: list[str] = []
        self.counts = Counts()
        for n in range(segments):
            self._add(n, batches, value_bytes, index_every)

    def _add(self, number: int, batches: int, value_bytes: int, index_every: int) -> None:
        base = number * batches * RECORDS
        log, index, times = b"", b"", b""
        for n in range(batches):
            first = base + n * RECORDS
            if n and not n % index_every:
                index += OFFSET_ENTRY.pack(first + RECORDS - 1 - base, len(log))
                times += TIME_ENTRY.pack(first + RECORDS - 1, first + RECORDS - 1 - base)
            records = [NewRecord(first + r, b"k", b"v" * value_bytes) for r in range(RECORDS)]
            log += build(records, base_offset=first, leader_epoch=0)
        end = base + batches * RECORDS - 1
        made = segment_object(log, index, times, None, None, b"0\n1\n0 0\n")
        row = SegmentRow(
            f"{number:032x}", base, end, made.bytes, end, ((0, base),), COPY_FINISHED, 1_000, made.sections
        )
        self.store(row, made.parts)  # type: ignore[arg-type]  # all of them are bytes here
        self.log += log

    def store(self, row: SegmentRow, parts: list[bytes]) -> None:
        self.rows.append(row)
        self.bucket.objects[self.key_of(self, row)] = b"".join(parts)

    @staticmethod
    def key_of(_: RemotePartition, row: SegmentRow) -> str:
        return f"c/t/0/{row.id}.segment"

    def remote_log_of(self, _: RemotePartition) -> RemoteLog | None:
        return RemoteLog(self.rows, [(0, 0)], self.log_end_offset)

    def loaded(self, _: RemotePartition) -> None:
        self.told += 1

    async def get_and_keep(self, key: str, start: int, end: int) -> bytes:
        return await MemoryStore(self.bucket, MemoryFiles()).get(key, start, end)

    def read_at_once(self, key: str, start: int, into: memoryview) -> bool:
        """Of what is in memory here, as a store on this machine would."""
        self.looks += 1
        if self.near_bytes < start + len(into):
            return False
        into[:] = self.bucket.objects[key][start : start + len(into)]
        self.near_steps.append(len(into))
        return True

    def forget(self, key: str) -> None:
        self.forgotten.append(key)

    def reads(self, cache_bytes: int = 1 << 20, running_max: int = 10, waiting_max: int = 100) -> TierReads:
        return TierReads(
            loop=asyncio.get_running_loop(),
            clock=SystemClock(),
            store=MemoryStore(self.bucket, MemoryFiles()),
            near=self if self.near_bytes else None,
            remote_log_of=self.remote_log_of,
            key_of=self.key_of,
            loaded=self.loaded,
            counts_of=lambda _: self.counts,
            cache_bytes=cache_bytes,
            running_max=running_max,
            waiting_max=waiting_max,
        )


async def quiet(reads: TierReads) -> None:
    """Until nothing is being loaded."""
    async with asyncio.timeout(20):
        while reads.loads.running or reads.loads.waiting:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.001)


async def read(
    reads: TierReads, partition: Tiered, offset: int, bytes_max: int = 1 << 20, *, is_committed: bool = False
) -> bytes | ErrorCode:
    """As a patient consumer would."""
    want = Want(partition, offset, is_committed)
    async with asyncio.timeout(20):
        while True:
            if reads.is_at_hand(*want):
                found = reads.read(want, bytes_max, partition.log_end_offset, True)
                return found if isinstance(found, ErrorCode) else bytes(found)
            assert reads.read(want, bytes_max, partition.log_end_offset, True) == b""
            assert reads.ask(want)
            await asyncio.sleep(0.001)


async def read_all(reads: TierReads, partition: Tiered, offset: int = 0, bytes_max: int = 1 << 20) -> bytes:
    """Up to where local segments begin."""
    found = b""
    while offset < partition.local_log_start_offset:
        more = await read(reads, partition, offset, bytes_max)
        assert isinstance(more, bytes) and more
        assert reads.cache.bytes <= reads.cache.bytes_max
        found += more
        offset = [header.last_offset + 1 for _, header in headers(more)][-1]
    return found


def aborted(producer_id: int, first: int, last: int, stable: int) -> bytes:
    """An entry of a transaction index."""
    return struct.pack(">hqqqq", 0, producer_id, first, last, stable)
