"""Rounds of compaction as a broker drives them, at once and in the caller's thread; and what a log holds then."""

from collections.abc import Callable, Iterator
from functools import partial

from headrace.model import Buffer
from headrace.storage.cleanable import Dirt, dirt_of
from headrace.storage.cleaning import Mapped, Rewritten, Step, clean
from headrace.storage.log import Log
from headrace.storage.log_cleaning import LogCleaning
from headrace.storage.log_config import NEVER
from headrace.wire.batch import BatchHeader, NewRecord, Record, build, headers, place, read_header, read_records
from headrace.wire.compression import Codec

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def keyed(
    log: Log,
    *records: tuple[bytes | None, bytes | None],
    epoch: int = 0,
    timestamp: int = NOW_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: Codec = Codec.NONE,
    transactional: bool = False,
    at: int | None = None,
) -> BatchHeader:
    """Appends one batch of (key, value), at the log's end unless told where."""
    producer_id, producer_epoch, base_sequence = producer
    raw = build(
        [NewRecord(timestamp + number, key, value) for number, (key, value) in enumerate(records)],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    return appended(log, raw, epoch, at)


def appended(log: Log, raw: bytearray, epoch: int = 0, at: int | None = None) -> BatchHeader:
    place(raw, 0, log.log_end_offset if at is None else at, epoch)
    header = read_header(raw)
    log.append([(raw, header)], NOW_MS, is_fetched=True)
    return header


def roll(log: Log) -> None:
    """All of it can be compacted then: the active segment is empty, and what was written is on the disk."""
    active = log.segments.active
    if active is not None and active.size:
        log._roll(log.log_end_offset, NOW_MS)
    job = log.flush_job()
    job.run()
    log.flushed(job)


def dirt(log: Log, limit_offset: int = NEVER, now_ms: int = NOW_MS, lag_min: int = 0, lag_max: int = NEVER) -> Dirt:
    return dirt_of(log, limit_offset, now_ms, lag_min, lag_max)


def begun(
    log: Log, *, now_ms: int = NOW_MS, limit_offset: int = NEVER, keys_max: int = 1 << 20, chunk_bytes: int = 1 << 16
) -> LogCleaning:
    return LogCleaning(
        log,
        dirt(log, limit_offset, now_ms),
        now_ms,
        delete_retention_ms=DAY_MS,
        keys_max=keys_max,
        chunk_bytes=chunk_bytes,
    )


def run(
    log: Log,
    cleaning: LogCleaning,
    between: Callable[[Step], None] = lambda _: None,
    take: Callable[[Callable[[], Iterator[Step]]], Iterator[Step]] = lambda work: work(),
) -> int:
    """The whole round; `between` is called after each step that was taken apart from the loop."""
    end_offset = cleaning.plan.first_dirty_offset
    for step in take(partial(clean, log.shared.files.apart(), cleaning.plan)):
        between(step)
        if not cleaning.is_wanted:
            if isinstance(step, Rewritten):
                cleaning.discard(step)
            return end_offset
        if isinstance(step, Mapped):
            end_offset = step.end_offset
        elif isinstance(step, Rewritten):
            cleaning.begin_swap(step)
            while cleaning.is_swapping:
                cleaning.sync()
                cleaning.move()
    cleaning.finished(end_offset)
    return end_offset


def compact(log: Log, **how: int) -> int:
    return run(log, begun(log, **how))


def batches_in(log: Log) -> list[tuple[BatchHeader, list[Record]]]:
    return [(header, records) for raw in raw_batches(log) for header, records in [opened(raw)]]


def opened(raw: Buffer) -> tuple[BatchHeader, list[Record]]:
    return read_header(raw), read_records(raw)


def raw_batches(log: Log, offset: int | None = None) -> Iterator[bytes]:
    """As a consumer reads them, a small piece at a time."""
    offset = log.log_start_offset if offset is None else offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 500, log.log_end_offset, True))
        if not data:
            return
        for position, header in headers(data):
            yield data[position : position + header.size]
            offset = header.last_offset + 1


def records_in(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of everything that is no control record."""
    return [
        (record.offset, record.key, record.value)
        for header, records in batches_in(log)
        for record in records
        if not header.is_control
    ]
