"""One pass over the records of a group of batches: what is wanted of them goes straight into Arrow's buffers.

The judgement is that of `headrace.wire.records`: whatever it takes is taken, whatever it refuses is refused.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.spark.decode.compiled import compiled, copy_bytes

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Number = Any
"""An int to who calls; within compiled code one of 64 bits."""

# Columns of the table of batches.
BEGIN, END, COUNT, BASE_OFFSET, LAST_DELTA, TIME, IS_APPEND_TIME = range(7)
TABLE_WIDTH = 7

WANTS_KEY, WANTS_VALUE, WANTS_TIME, WANTS_HEADERS = 1, 2, 4, 8

FINE, CUT, BAD_LENGTH, BAD_DELTA, BAD_TIME, BAD_HEADERS, SURPLUS, TIME_BEYOND = range(8)
REASONS = {
    CUT: "its records end within a record",
    BAD_LENGTH: "a field or a record has another length than it says",
    BAD_DELTA: "the offsets of its records are not in order",
    BAD_TIME: "a record has a timestamp beyond 64 bits",
    BAD_HEADERS: "the headers of a record are not well formed",
    SURPLUS: "bytes are left after its last record",
    TIME_BEYOND: "a record has a timestamp that Spark cannot hold; leave the column timestamp out to read the others",
}
MS_MAX = (1 << 63) // 1000 - 1
"""In microseconds it still has 64 bits."""


class Binary(NamedTuple):
    """An Arrow column of bytes in the making: where each ends, which are there, and the bytes."""

    ends: Ints
    valid: Bytes
    content: Bytes


class Rows(NamedTuple):
    """Arrow columns in the making, by row. Those that are not wanted have no room."""

    offsets: Longs
    times_us: Longs
    kinds: Ints
    keys: Binary
    values: Binary
    header_ends: Ints
    headers_at: Longs
    """Where the first header of each row lies in the data."""


@compiled
def varint(data: Bytes, pos: int, end: int) -> tuple[Number, Number]:
    """The number at `pos`, and where it ends; -1 for that if it does not end before `end`."""
    if pos >= end:
        return 0, -1
    byte = np.int64(data[pos])
    pos += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), pos
    rest = np.uint64(byte & 127)
    shift = 7
    while pos < end and shift < 70:
        byte = np.int64(data[pos])
        pos += 1
        if shift == 63 and byte > 1:
            return 0, -1
        rest |= np.uint64(byte & 127) << np.uint64(shift)
        if byte < 128:
            return np.int64(rest >> np.uint64(1)) ^ -np.int64(rest & np.uint64(1)), pos
        shift += 7
    return 0, -1


@compiled
def field(data: Bytes, pos: int, end: int) -> tuple[Number, Number, Number]:
    """Where a field lies, its length (-1: there is none), and where it ends; -1 for that if it is not well formed."""
    length, pos = varint(data, pos, end)
    if pos < 0 or length < -1 or length > end - pos:
        return 0, 0, -1
    return pos, length, pos + max(length, 0)


@compiled
def _header_count(data: Bytes, pos: int, end: int) -> tuple[Number, Number, Number]:
    """Where the first header lies, how many there are, and where they end; -1 for that if not well formed."""
    count, pos = varint(data, pos, end)
    begin = pos
    if pos < 0 or count < 0 or count > (end - pos) // 2:
        return 0, 0, -1
    for _ in range(count):
        _, length, pos = field(data, pos, end)
        if pos < 0 or length < 0:
            return 0, 0, -1
        _, _, pos = field(data, pos, end)
        if pos < 0:
            return 0, 0, -1
    return begin, count, pos


@compiled
def add(column: Binary, row: int, data: Bytes, pos: int, length: int) -> None:
    at = column.ends[row]
    if length >= 0:
        column.valid[row >> 3] |= np.uint8(1 << (row & 7))
        copy_bytes(column.content, np.int64(at), data, pos, length)
        at += length
    column.ends[row + 1] = at


@compiled
def _time_of(batch: Longs, delta: int) -> tuple[Number, Number]:
    """In milliseconds, and whether 64 bits hold it."""
    if batch[IS_APPEND_TIME]:
        return batch[TIME], True
    base = batch[TIME]
    time = base + delta
    return time, ((base ^ time) & (delta ^ time)) >= 0


@compiled
def _scan_batch(  # noqa: C901  # a call costs as much as a record
    data: Bytes, batch: Longs, row: int, start: int, end_offset: int, wants: int, rows: Rows
) -> tuple[Number, Number]:
    pos, payload_end = batch[BEGIN], batch[END]
    delta_min = np.int64(0)
    for _ in range(batch[COUNT]):
        length, pos = varint(data, pos, payload_end)
        if pos < 0 or length > payload_end - pos:
            return row, CUT
        end = pos + length
        if length < 6:
            return row, BAD_LENGTH
        time_delta, pos = varint(data, pos + 1, end)
        if pos < 0:
            return row, BAD_LENGTH
        delta, pos = varint(data, pos, end)
        if pos < 0:
            return row, BAD_LENGTH
        key_at, key_length, pos = field(data, pos, end)
        if pos < 0:
            return row, BAD_LENGTH
        value_at, value_length, pos = field(data, pos, end)
        if pos < 0 or pos >= end:
            return row, BAD_LENGTH
        headers_at: Number = np.int64(0)
        headers: Number = np.int64(0)
        if data[pos] != 0:
            headers_at, headers, pos = _header_count(data, pos, end)
        else:
            pos += 1
        if pos != end:
            return row, BAD_LENGTH if pos >= 0 else BAD_HEADERS
        if delta < delta_min or delta > batch[LAST_DELTA]:
            return row, BAD_DELTA
        delta_min = delta + 1
        time_ms, is_time = _time_of(batch, time_delta)
        if not is_time:
            return row, BAD_TIME
        offset = batch[BASE_OFFSET] + delta
        if offset < start or offset >= end_offset:
            continue
        rows.offsets[row] = offset
        rows.kinds[row] = batch[IS_APPEND_TIME]
        if wants & WANTS_TIME:
            if time_ms > MS_MAX or time_ms < -MS_MAX:
                return row, TIME_BEYOND
            rows.times_us[row] = time_ms * 1000
        if wants & WANTS_KEY:
            add(rows.keys, row, data, key_at, key_length)
        if wants & WANTS_VALUE:
            add(rows.values, row, data, value_at, value_length)
        if wants & WANTS_HEADERS:
            rows.headers_at[row] = headers_at
            rows.header_ends[row + 1] = rows.header_ends[row] + headers
        row += 1
    return row, FINE if pos == payload_end else SURPLUS


@compiled
def scan(data: Bytes, table: Longs, start: int, end: int, wants: int, rows: Rows) -> tuple[Number, Number, Number]:
    """How many rows came of it. If one batch is not well formed: how many before it, what is wrong, and which."""
    row = 0
    for at in range(len(table)):
        row, status = _scan_batch(data, table[at], row, start, end, wants, rows)
        if status != FINE:
            return row, status, at
    return row, FINE, 0


@compiled
def gather_headers(data: Bytes, rows: Rows, count: int, names: Binary, contents: Binary) -> Number:
    """The headers of so many rows that a scan found to be well formed. Whether all names are plain ASCII."""
    at = 0
    size = len(data)
    bits = np.uint8(0)
    for row in range(count):
        pos = rows.headers_at[row]
        for _ in range(rows.header_ends[row + 1] - rows.header_ends[row]):
            name_at, length, pos = field(data, pos, size)
            add(names, at, data, name_at, length)
            for i in range(name_at, name_at + length):
                bits |= data[i]
            content_at, length, pos = field(data, pos, size)
            add(contents, at, data, content_at, length)
            at += 1
    return bits < 128
