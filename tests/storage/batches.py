"""Batches as a broker appends them: with offset and leader epoch."""

from headrace.model import Buffer
from headrace.wire.batch import BatchHeader, NewRecord, build, headers, place, read_header
from headrace.wire.compression import Codec

TOPIC_ID = bytes(range(16))


def batch(
    base_offset: int,
    records: int = 1,
    *,
    epoch: int = 0,
    timestamp: int = 1_000,
    value: bytes = b"a value",
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: Codec = Codec.NONE,
) -> tuple[bytearray, BatchHeader]:
    """`producer` is id, epoch and base sequence."""
    producer_id, producer_epoch, base_sequence = producer
    built = build(
        [NewRecord(timestamp + number, b"key %d" % number, value) for number in range(records)],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    place(built, 0, base_offset, epoch)
    return built, read_header(built)


def offsets_in(data: Buffer) -> list[tuple[int, int]]:
    """First and last offset of every batch; nothing else may be there."""
    found = list(headers(data))
    assert sum(header.size for _, header in found) == len(data)
    return [(header.base_offset, header.last_offset) for _, header in found]
