"""Producer state on disk: a snapshot at every roll and at a clean stop, and the batches after it."""

from collections.abc import Iterable, Sequence

from headrace.core.producers import Producer, ProducerTable
from headrace.model import Buffer
from headrace.storage import aborts
from headrace.storage.files import File, Files
from headrace.storage.segment import Segment, file_name, offsets_of
from headrace.storage.segments import Segments
from headrace.storage.snapshots import CorruptSnapshot, decode_snapshot, encode_snapshot
from headrace.wire.errors import ProtocolError
from headrace.wire.markers import Marker, read_marker

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
    was_open = table.open_at(offset)
    if all(
        _last_offset(producer) < offset and producer.transaction_first_offset == was_open.get(producer_id, -1)
        for producer_id, producer in table.items()
    ):
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
        kept.transaction_first_offset = was_open.get(producer_id, -1)
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


def load(
    files: Files,
    directory: str,
    offsets: Iterable[int],
    segments: Segments,
    end_offset: int,
    *,
    reindex: Sequence[Segment] = (),
) -> ProducerTable:
    """The state at `end_offset`: the newest snapshot that can be used, and every batch after it.

    A snapshot older than the log is of no use: with batches missing after it, it would refuse what comes next, where
    a producer that is not known at all may go on. `reindex` are segments, in their order, whose indexes of aborted
    transactions are written anew.
    """
    table = ProducerTable()
    replay_from = segments[0].base_offset if len(segments) else end_offset
    newest = min(end_offset, reindex[0].base_offset) if reindex else end_offset
    for offset in sorted(offsets, reverse=True):
        if not replay_from <= offset <= newest:
            continue
        path = f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        try:
            table = decode_snapshot(files.read(path), files.modified_ms(path))
        except CorruptSnapshot:
            continue
        replay_from = offset
        break
    for segment in reindex:
        segment.aborted.reset()
    if replay_from < end_offset:
        _replay(table, files, segments, replay_from, end_offset, frozenset(reindex))
    return table


def _replay(
    table: ProducerTable,
    files: Files,
    segments: Segments,
    offset: int,
    end_offset: int,
    reindex: frozenset[Segment],
) -> None:
    alive_ms: dict[int, int] = {}
    for segment, position, header in segments.batches_from(offset):
        if header.base_offset >= end_offset:
            break
        if header.producer_id < 0 or header.base_offset < offset:
            continue
        if segment.base_offset not in alive_ms:
            alive_ms[segment.base_offset] = files.modified_ms(segment.log.path)
        marker = marker_of(segment.log.read(position, header.size)) if header.is_control else None
        table.record(header, header.base_offset, alive_ms[segment.base_offset], marker=marker)
        if table.unindexed:
            for aborted in aborts.taken(table, segment):
                if segment in reindex:
                    segment.aborted.append(aborted)


def marker_of(batch: Buffer) -> Marker | None:
    """What a control batch of a log says; one that nobody can read ends nothing."""
    try:
        return read_marker(batch)
    except ProtocolError:
        return None


def superfluous(offsets: Iterable[int], segments: Segments, end_offset: int) -> list[int]:
    """Snapshots that nothing needs: all but the newest two and those of live segments, and all above the log's end."""
    usable = [offset for offset in sorted(offsets) if offset <= end_offset]
    keep = {segment.base_offset for segment in segments} | set(usable[-SPARE_SNAPSHOTS:])
    return [offset for offset in offsets if offset not in keep or offset > end_offset]
