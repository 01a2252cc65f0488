"""A batch that has lost records keeps its offsets, its producer's fields and its leader epoch."""

import struct

from headrace.wire.batch import (
    CODEC_BITS,
    CRC_AT,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    SIZE_AHEAD_OF_LENGTH,
    BatchHeader,
    crc_of,
)
from headrace.wire.compression import Codec, compress
from headrace.wire.record_scan import moved_in_time, newest_delta

INT64_MAX = 2**63 - 1
NO_TIMESTAMP = -1
_CRC = struct.Struct(">I")


def emptied(header: BatchHeader) -> bytes:
    """All that is left is what it says of its producer, and that its offsets were given out."""
    attributes = header.attributes & ~(CODEC_BITS | DELETE_HORIZON)
    return _packed(header, b"", attributes, NO_TIMESTAMP, header.max_timestamp, 0)


def repacked(header: BatchHeader, records: bytes, count: int, horizon_ms: int | None = None) -> bytes:
    """With these of its records, compressed as before. With `horizon_ms` that is when its tombstones may go.

    The horizon takes the place of the base timestamp, and the records' own are counted from there.
    """
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon_ms is not None:
        horizon_ms = min(horizon_ms, INT64_MAX)
        records = moved_in_time(records, base_timestamp - horizon_ms)
        attributes, base_timestamp = attributes | DELETE_HORIZON, horizon_ms
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = base_timestamp + newest_delta(records)
    codec = header.codec
    packed = records if codec is Codec.NONE else compress(codec, records)
    return _packed(header, packed, attributes, base_timestamp, max_timestamp, count)


def horizon_of(header: BatchHeader) -> int | None:
    """When the tombstones of the batch, or the marker in it, may go; None if compaction has not met them yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def _packed(
    header: BatchHeader, packed: bytes, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytes:
    batch = bytearray(HEADER_BYTES)
    batch += packed
    HEADER.pack_into(
        batch,
        0,
        *header._replace(
            batch_length=len(batch) - SIZE_AHEAD_OF_LENGTH,
            crc=0,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=count,
        ),
    )
    _CRC.pack_into(batch, CRC_AT, crc_of(batch, 0, len(batch)))
    return bytes(batch)
