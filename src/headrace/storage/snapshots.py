"""Kafka's producer snapshot, version 1: the bytes of `<offset>.snapshot`.

Kafka writes only the last batch of each producer, so that after a restart it takes the retry of an earlier batch for
a gap. We write the rest of each window behind Kafka's entries, where Kafka's reader, which checks nothing there but
the checksum, does not look. Without such batches the file is Kafka's to the byte.
"""

import struct
from collections.abc import Iterator

from crc32c import crc32c

from headrace.core.producers import Producer, ProducerTable
from headrace.model import Buffer

VERSION = 1

_HEAD = struct.Struct(">hIi")
"""Version, checksum of what follows it, number of entries."""
_CRC_FROM = 6
_ENTRY = struct.Struct(">qhiqiqiq")
"""Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction start."""

_WINDOWS_MAGIC = b"HRPW"
_WINDOWS_VERSION = 1
_WINDOWS_HEAD = struct.Struct(">4sHi")
"""Magic, version, number of batches; then the batches, those of a producer oldest first."""
_OLDER_BATCH = struct.Struct(">qiqiq")
"""Producer id, last sequence, last offset, offset delta, timestamp."""


class CorruptSnapshot(ValueError):
    """Bytes that are no producer snapshot. The text is one sentence that says what is wrong."""


def encode_snapshot(table: ProducerTable) -> bytes:
    """All producers of `table`, in the order of their ids."""
    out = bytearray(_HEAD.size)
    older = bytearray()
    for producer_id, producer in table.items():
        out += _entry(producer_id, producer)
        for batch in producer.batches[:-1]:
            older += _OLDER_BATCH.pack(producer_id, *batch)
    if older:
        out += _WINDOWS_HEAD.pack(_WINDOWS_MAGIC, _WINDOWS_VERSION, len(older) // _OLDER_BATCH.size)
        out += older
    _HEAD.pack_into(out, 0, VERSION, 0, len(table))
    _HEAD.pack_into(out, 0, VERSION, crc32c(memoryview(out)[_CRC_FROM:]), len(table))
    return bytes(out)


def decode_snapshot(data: Buffer, alive_ms: int) -> ProducerTable:
    """The table that was written. Its producers count as alive at `alive_ms`, or later if a timestamp says so."""
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise CorruptSnapshot(f"A producer snapshot of {len(view)} bytes is too short.")
    version, crc, count = _HEAD.unpack_from(view)
    if version != VERSION:
        raise CorruptSnapshot(f"The producer snapshot has version {version}, only {VERSION} is known.")
    if crc != crc32c(view[_CRC_FROM:]):
        raise CorruptSnapshot("The producer snapshot fails its checksum.")
    entries_end = _HEAD.size + count * _ENTRY.size
    if count < 0 or entries_end > len(view):
        raise CorruptSnapshot(f"The producer snapshot claims {count} entries in {len(view)} bytes.")
    older: dict[int, list[list[int]]] = {}
    for producer_id, *batch in _older_batches(view[entries_end:]):
        older.setdefault(producer_id, []).append(batch)
    producers: dict[int, Producer] = {}
    entries = _ENTRY.iter_unpack(view[_HEAD.size : entries_end])
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first in entries:
        producer = producers[producer_id] = Producer(epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_first_offset = first
        producer.last_timestamp = timestamp
        producer.alive_ms = max(timestamp, alive_ms)
        for batch in older.pop(producer_id, ()):
            producer.remember(*batch)
        # Kafka writes the time of the last marker, if that came last, in the place of the batch's.
        if offset >= 0:
            producer.remember(sequence, offset, delta, timestamp)
    if older:
        raise CorruptSnapshot(
            f"The producer snapshot has older batches of producers without an entry: {sorted(older)}."
        )
    table = ProducerTable()
    table.restore(producers)
    return table


def _entry(producer_id: int, producer: Producer) -> bytes:
    batches = producer.batches
    sequence, offset, delta = batches[-1][:3] if batches else (-1, -1, 0)
    return _ENTRY.pack(
        producer_id,
        producer.epoch,
        sequence,
        offset,
        delta,
        producer.last_timestamp,
        producer.coordinator_epoch,
        producer.transaction_first_offset,
    )


def _older_batches(view: memoryview) -> Iterator[tuple[int, ...]]:
    if not view:
        return iter(())
    if len(view) < _WINDOWS_HEAD.size:
        raise CorruptSnapshot(f"{len(view)} unknown bytes follow the entries of the producer snapshot.")
    magic, version, count = _WINDOWS_HEAD.unpack_from(view)
    if magic != _WINDOWS_MAGIC:
        raise CorruptSnapshot(f"{len(view)} unknown bytes follow the entries of the producer snapshot.")
    if version != _WINDOWS_VERSION:
        raise CorruptSnapshot(f"The windows of the snapshot have version {version}, only {_WINDOWS_VERSION} is known.")
    if len(view) != _WINDOWS_HEAD.size + count * _OLDER_BATCH.size:
        raise CorruptSnapshot(f"The producer snapshot claims {count} older batches in {len(view)} bytes.")
    return _OLDER_BATCH.iter_unpack(view[_WINDOWS_HEAD.size :])
