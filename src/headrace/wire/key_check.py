"""Whether every record of a batch has a key, as a compacted topic demands it of what it is sent."""

from headrace.model import Buffer
from headrace.wire.batch import BatchHeader
from headrace.wire.errors import ProtocolError
from headrace.wire.record_scan import payload
from headrace.wire.records import long_varint

_NO_KEY = 1
"""The varint of -1."""


def have_keys(batch: Buffer, header: BatchHeader) -> bool:
    """False also for records that nobody can read: they could never be compacted."""
    try:
        return _have_keys(payload(batch, header), header.record_count)
    except (ProtocolError, IndexError):
        return False


def _have_keys(data: bytes, count: int) -> bool:
    pos = 0
    size = len(data)
    for _ in range(count):
        length = data[pos]
        pos += 1
        if length < 128:
            length >>= 1
        else:
            length, pos = long_varint(data, pos)
        end = pos + length
        pos += 1  # attributes
        while data[pos] > 127:  # the timestamp
            pos += 1
        pos += 1
        while data[pos] > 127:  # the offset
            pos += 1
        pos += 1
        if data[pos] == _NO_KEY or not pos < end <= size:
            return False
        pos = end
    return pos == size
