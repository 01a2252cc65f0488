"""Producer state on disk: a snapshot at every roll and at a clean stop, and the batches after it."""

from collections.abc import Iterable

from headrace.core.producers import Producer, ProducerTable
from headrace.storage.files import File, Files
from headrace.storage.segment import file_name, offsets_of
from headrace.storage.segments import Segments
from headrace.storage.snapshots import CorruptSnapshot, decode_snapshot, encode_snapshot

SNAPSHOT_SUFFIX = ".snapshot"
SPARE_SNAPSHOTS = 2


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """Ascending."""
    return offsets_of(names, SNAPSHOT_SUFFIX)


def write_snapshot(files: Files, directory: str, offset: int, table: ProducerTable) -> File:
    """The state of all batches below `offset`. Not synced: a torn one fails its checksum, and an older one serves."""
    file = files.create(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")
    file.write(0, [encode_snapshot(below(table, offset))])
    return file


def below(table: ProducerTable, offset: int) -> ProducerTable:
    """The table as it was when the log ended at `offset`, as far as the producers' windows reach back.

    Producer state runs ahead of the log by what is accepted but not written. Of a producer whose whole window lies at
    or after `offset` the one batch before stays: it was answered, since no more than a window is in flight.
    """
    if all(_last_offset(producer) < offset for _, producer in table.items()):
        return table
    producers: dict[int, Producer] = {}
    for producer_id, producer in table.items():
        epoch, batches = producer.epoch, [batch for batch in producer.held if batch.last_offset < offset]
        if not batches and producer.held:
            if producer.former is None or producer.former[1].last_offset >= offset:
                continue  # it was not known then
            epoch, batches = producer.former[0], [producer.former[1]]
        kept = producers[producer_id] = Producer(epoch)
        kept.coordinator_epoch = producer.coordinator_epoch
        if producer.transaction_first_offset < offset:
            kept.transaction_first_offset = producer.transaction_first_offset
        for batch in batches:
            kept.remember(batch.last_sequence, batch.last_offset, batch.offset_delta, batch.timestamp)
        kept.last_timestamp = batches[-1].timestamp if batches else producer.last_timestamp
        kept.alive_ms = producer.alive_ms
    earlier = ProducerTable()
    earlier.restore(producers)
    return earlier


def _last_offset(producer: Producer) -> int:
    batches = producer.batches
    return batches[-1].last_offset if batches else -1


def load(files: Files, directory: str, offsets: Iterable[int], segments: Segments, end_offset: int) -> ProducerTable:
    """The state at `end_offset`: the newest snapshot that can be used, and every batch after it.

    A snapshot older than the log is of no use: with batches missing after it, it would refuse what comes next, where
    a producer that is not known at all may go on.
    """
    table = ProducerTable()
    replay_from = segments[0].base_offset if len(segments) else end_offset
    for offset in sorted(offsets, reverse=True):
        if not replay_from <= offset <= end_offset:
            continue
        path = f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        try:
            table = decode_snapshot(files.read(path), files.modified_ms(path))
        except CorruptSnapshot:
            continue
        replay_from = offset
        break
    if replay_from >= end_offset:
        return table
    alive_ms: dict[int, int] = {}
    for segment, header in segments.headers_from(replay_from):
        if header.producer_id >= 0 and header.base_offset >= replay_from:
            if segment.base_offset not in alive_ms:
                alive_ms[segment.base_offset] = files.modified_ms(segment.log.path)
            table.record(header, header.base_offset, alive_ms[segment.base_offset])
    return table


def superfluous(offsets: Iterable[int], segments: Segments, end_offset: int) -> list[int]:
    """Snapshots that nothing needs: all but the newest two and those of live segments, and all above the log's end."""
    usable = [offset for offset in sorted(offsets) if offset <= end_offset]
    keep = {segment.base_offset for segment in segments} | set(usable[-SPARE_SNAPSHOTS:])
    return [offset for offset in offsets if offset not in keep or offset > end_offset]
