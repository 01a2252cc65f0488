"""Record batches, format v2.

A broker looks at headers only: `read_header`, `headers`, `crc_of`, `place` and `stamp_append_time` work in place
on the caller's buffer and decode nothing but 61 bytes. Offset and leader epoch lie outside the checksum, so that
a broker can assign them without reading the rest. `build` and `read_records` are for clients and tools.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from headrace.model import Buffer
from headrace.wire.compression import Codec, compress, decompress
from headrace.wire.errors import ProtocolError
from headrace.wire.records import NewRecord as NewRecord
from headrace.wire.records import Record as Record
from headrace.wire.records import decode_records, encode_records

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
LENGTH_AT = 8
MAGIC_AT = 16
MAGIC = 2
CRC_AT = 17
CRC_FROM = 21
"""The checksum covers everything from here to the end of the batch."""

# `batch_length` does not count the base offset and itself.
SIZE_AHEAD_OF_LENGTH = 12
SIZE_MIN = HEADER_BYTES

CODEC_BITS = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
SEQUENCE_MASK = 0x7FFFFFFF

DECOMPRESSED_BYTES_MAX = 128 << 20
"""What one batch may hold when a client opens it, unless it says otherwise."""

_CODECS = tuple(Codec)
_OFFSET = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_PLACE_IN_LOG = struct.Struct(">qi11xi")  # base offset, length, last offset delta
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_LEADER_EPOCH_AT = 12


class BatchHeader(NamedTuple):
    """The header of a batch, field by field as it lies on the wire and on disk."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + SIZE_AHEAD_OF_LENGTH

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Codec:
        number = self.attributes & CODEC_BITS
        if number >= len(_CODECS):
            raise ProtocolError(f"There is no compression {number}.")
        return _CODECS[number]

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def last_sequence(self) -> int:
        """Sequences count to 2^31 - 1 and then begin at 0 again."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MASK


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`, unchecked. ProtocolError if fewer than 61 bytes are left."""
    try:
        # Twice as fast as calling the class, and on the path of every batch.
        return tuple.__new__(BatchHeader, HEADER.unpack_from(buf, pos))
    except struct.error:
        raise ProtocolError(f"A record batch needs {HEADER_BYTES} bytes, {len(buf) - pos} are left.") from None


def crc_of(buf: Buffer, pos: int, size: int) -> int:
    """CRC-32C of the batch of `size` bytes at `pos`, as its header ought to say."""
    return crc32c(memoryview(buf)[pos + CRC_FROM : pos + size])


def place(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at `pos` its offset and leader epoch, in place; the checksum does not cover them."""
    _OFFSET.pack_into(buf, pos, base_offset)
    _INT32.pack_into(buf, pos + _LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(buf: bytearray | memoryview, pos: int, size: int, now_ms: int) -> None:
    """Make `now_ms` the time of every record of the batch, in place (LogAppendTime)."""
    (attributes,) = _INT16.unpack_from(buf, pos + _ATTRIBUTES_AT)
    _INT16.pack_into(buf, pos + _ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    _OFFSET.pack_into(buf, pos + _MAX_TIMESTAMP_AT, now_ms)
    _UINT32.pack_into(buf, pos + CRC_AT, crc_of(buf, pos, size))


def headers(buf: Buffer, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch from `pos` on; stops at an incomplete last one.

    Only lengths are checked: magic and checksum are the caller's. ProtocolError for a length that no batch has.
    """
    end = len(buf) if end is None else end
    while pos + HEADER_BYTES <= end:
        header = read_header(buf, pos)
        size = header.batch_length + SIZE_AHEAD_OF_LENGTH
        if size < SIZE_MIN:
            raise ProtocolError(f"A record batch claims a length of {header.batch_length} bytes.")
        if pos + size > end:
            return
        yield pos, header
        pos += size


def end_of(buf: Buffer) -> int:
    """The offset after the last of whole batches, of which there is at least one."""
    pos = end = 0
    while pos < len(buf):
        base_offset, length, last_offset_delta = _PLACE_IN_LOG.unpack_from(buf, pos)
        end = base_offset + last_offset_delta + 1
        pos += length + SIZE_AHEAD_OF_LENGTH
    return end


def build(
    records: Sequence[NewRecord],
    *,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    append_time_ms: int | None = None,
) -> bytearray:
    """One batch of at least one record, offsets counted from `base_offset`."""
    assert records, "a batch holds at least one record"
    encoded = encoded_records(records, codec)
    if append_time_ms is not None:
        encoded = encoded._replace(max_timestamp=append_time_ms)
    return seal(
        encoded,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        attributes=(TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (LOG_APPEND_TIME if append_time_ms is not None else 0),
        leader_epoch=leader_epoch,
    )


class EncodedRecords(NamedTuple):
    """The records of one batch, numbered from 0, that has no header yet: there is room for it ahead of them."""

    data: bytearray
    codec: Codec
    record_count: int
    base_timestamp: int
    max_timestamp: int


def encoded_records(records: Sequence[NewRecord], codec: Codec) -> EncodedRecords:
    base_timestamp = records[0].timestamp
    payload = encode_records(records, base_timestamp)
    if codec is not Codec.NONE:
        payload = compress(codec, payload)
    data = bytearray(HEADER_BYTES)
    data += payload
    return EncodedRecords(data, codec, len(records), base_timestamp, max(record.timestamp for record in records))


def seal(
    records: EncodedRecords,
    *,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    attributes: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The batch: its header is written ahead of the records, in place. `attributes` are those besides the codec."""
    batch = records.data
    fields = (attributes | records.codec, records.record_count - 1, records.base_timestamp, records.max_timestamp)
    producer = (producer_id, producer_epoch, base_sequence)
    length = len(batch) - SIZE_AHEAD_OF_LENGTH
    HEADER.pack_into(batch, 0, base_offset, length, leader_epoch, MAGIC, 0, *fields, *producer, records.record_count)
    _UINT32.pack_into(batch, CRC_AT, crc_of(batch, 0, len(batch)))
    return batch


def read_records(
    batch: Buffer, pos: int = 0, *, bytes_max: int = DECOMPRESSED_BYTES_MAX, check_crc: bool = True
) -> list[Record]:
    """The records of the batch at `pos`, decompressed. ProtocolError for anything that is not a valid batch.

    A compressed batch that would grow beyond `bytes_max` is refused before it does.
    """
    header = read_header(batch, pos)
    size = header.batch_length + SIZE_AHEAD_OF_LENGTH
    if header.magic != MAGIC:
        raise ProtocolError(f"A record batch has magic {header.magic}; only {MAGIC} is supported.")
    if not SIZE_MIN <= size <= len(batch) - pos:
        raise ProtocolError(f"A record batch claims {size} bytes, {len(batch) - pos} are there.")
    if check_crc and crc_of(batch, pos, size) != header.crc:
        raise ProtocolError(f"The record batch at offset {header.base_offset} fails its checksum.")
    payload = memoryview(batch)[pos + HEADER_BYTES : pos + size]
    codec = header.codec
    if codec is Codec.NONE or not header.record_count:
        data = bytes(payload)
    else:
        data = decompress(codec, payload, bytes_max)
    return decode_records(
        data,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.last_offset_delta,
        header.max_timestamp if header.is_log_append_time else None,
    )
