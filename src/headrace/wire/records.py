"""The records inside a batch, after decompression. Brokers never come here; clients and tools do."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.wire.errors import ProtocolError

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as it was read."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(NamedTuple):
    """A record that has no offset yet."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, two absent fields and an empty header list, a byte each."""

# Worst case of the same fields: length, offset delta, two lengths and a count of 5 bytes each, a time delta of 10.
_OVERHEAD_BYTES_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5
_VARINT_BYTES_MAX = 10
_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1

_ONE_BYTE = tuple(bytes((n,)) for n in range(128))
_UNZIGZAG = tuple((n >> 1) ^ -(n & 1) for n in range(128))


def size_bound(record: NewRecord) -> int:
    """At most this many bytes does the record add to an uncompressed batch."""
    size = _OVERHEAD_BYTES_MAX + len(record.key or b"") + len(record.value or b"")
    for name, content in record.headers:
        size += 10 + 4 * len(name) + len(content or b"")
    return size


def encode_records(records: Sequence[NewRecord], base_timestamp: int) -> bytes:
    """The records one after the other, numbered from 0."""
    parts: list[bytes] = []
    for number, record in enumerate(records):
        key, value = record.key, record.value
        body = b"".join(
            (
                b"\x00",
                varint(record.timestamp - base_timestamp),
                varint(number),
                b"\x01" if key is None else varint(len(key)) + key,
                b"\x01" if value is None else varint(len(value)) + value,
                _encode_headers(record.headers) if record.headers else b"\x00",
            )
        )
        parts.append(varint(len(body)))
        parts.append(body)
    return b"".join(parts)


def _encode_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    parts = [b""]
    for name, content in headers:
        raw = name.encode()
        parts.append(varint(len(raw)) + raw)
        parts.append(b"\x01" if content is None else varint(len(content)) + content)
    parts[0] = varint(len(parts) // 2)
    return b"".join(parts)


def varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    if rest < 128:
        return _ONE_BYTE[rest]
    if rest < 1 << 14:
        return bytes((rest & 127 | 128, rest >> 7))
    out = bytearray()
    while rest >= 128:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def decode_records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, last_offset_delta: int, append_time: int | None
) -> list[Record]:
    """The `count` records that fill `data` exactly. With `append_time` all records have that time.

    ProtocolError for anything else.
    """
    if not 0 <= count <= len(data) // RECORD_BYTES_MIN:
        raise ProtocolError(f"{len(data)} bytes cannot hold {count} records.")
    records = []
    pos = 0
    delta_min = 0
    new = tuple.__new__
    try:
        for _ in range(count):
            delta, pos, timestamp_delta, key, value, headers = _decode_record(data, pos)
            if not delta_min <= delta <= last_offset_delta:
                raise ProtocolError(f"A record has offset delta {delta}, outside {delta_min} to {last_offset_delta}.")
            delta_min = delta + 1
            timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
            if not _INT64_MIN <= timestamp <= _INT64_MAX:
                raise ProtocolError("A record has a timestamp beyond 64 bits.")
            # Cheaper than calling the class.
            records.append(new(Record, (base_offset + delta, timestamp, key, value, headers)))
    except IndexError:
        raise ProtocolError("The records end within a record.") from None
    if pos != len(data):
        raise ProtocolError(f"{len(data) - pos} bytes are left after {count} records.")
    return records


def _decode_record(data: bytes, pos: int) -> tuple[int, int, int, bytes | None, bytes | None, Headers]:
    # Nearly all varints have one byte, and this runs for every record that a client reads: hence the
    # repeated test instead of a call.
    length = data[pos]
    pos += 1
    if length < 128:
        length = _UNZIGZAG[length]
    else:
        length, pos = long_varint(data, pos)
    end = pos + length
    timestamp_delta = data[pos + 1]
    pos += 2
    if timestamp_delta < 128:
        timestamp_delta = _UNZIGZAG[timestamp_delta]
    else:
        timestamp_delta, pos = long_varint(data, pos)
    offset_delta = data[pos]
    pos += 1
    if offset_delta < 128:
        offset_delta = _UNZIGZAG[offset_delta]
    else:
        offset_delta, pos = long_varint(data, pos)
    key, pos = _nullable_bytes(data, pos)
    value, pos = _nullable_bytes(data, pos)
    headers: Headers = ()
    if data[pos]:
        headers, pos = _decode_headers(data, pos, end)
    else:
        pos += 1
    if pos != end or end > len(data):
        raise ProtocolError(f"A record of {length} bytes has contents of another length.")
    return offset_delta, pos, timestamp_delta, key, value, headers


def _nullable_bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    length = data[pos]
    pos += 1
    if length < 128:
        length = _UNZIGZAG[length]
    else:
        length, pos = long_varint(data, pos)
    if length < 0:
        if length != -1:
            raise ProtocolError(f"A field of a record has length {length}.")
        return None, pos
    end = pos + length
    if end > len(data):
        raise ProtocolError("The records end within a record.")
    return data[pos:end], end


def _decode_headers(data: bytes, pos: int, end: int) -> tuple[Headers, int]:
    count = data[pos]
    pos += 1
    if count < 128:
        count = _UNZIGZAG[count]
    else:
        count, pos = long_varint(data, pos)
    # Each has two bytes at least.
    if not 0 <= count <= (end - pos) // 2:
        raise ProtocolError(f"A record has {count} headers.")
    headers = []
    for _ in range(count):
        name, pos = _nullable_bytes(data, pos)
        if name is None:
            raise ProtocolError("A header has no name.")
        content, pos = _nullable_bytes(data, pos)
        # As the Java client does: a strange name must not stop a consumer for ever.
        headers.append((name.decode(errors="replace"), content))
    return tuple(headers), pos


def long_varint(data: bytes, pos: int) -> tuple[int, int]:
    """The varint of several bytes whose first was already taken, so that it begins one byte before `pos`."""
    second = data[pos]
    # Most have two bytes: lengths and numbers up to 8191.
    if second < 128:
        rest = data[pos - 1] & 127 | second << 7
        return (rest >> 1) ^ -(rest & 1), pos + 1
    pos -= 1
    rest = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        byte = data[pos]
        pos += 1
        rest |= (byte & 127) << shift
        if byte < 128:
            return (rest >> 1) ^ -(rest & 1), pos
    raise ProtocolError("A varint has more than 10 bytes.")
