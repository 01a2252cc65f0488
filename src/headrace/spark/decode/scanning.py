"""One pass over the records of a group of batches: what is wanted of them goes straight into Arrow's buffers.

The judgement is that of `headrace.wire.records`: whatever it takes is taken, whatever it refuses is refused.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.spark.decode.compiled import address_of, byte_at, compiled, copy_bytes, put_byte

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Number = Any
"""An int to who calls; within compiled code one of 64 bits."""

# Columns of the table of batches.
BEGIN, END, COUNT, BASE_OFFSET, LAST_DELTA, TIME, IS_APPEND_TIME, LEADER_EPOCH, PRODUCER_ID = range(9)
TABLE_WIDTH = 9

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
def varint(data: Number, pos: int, end: int) -> tuple[Number, Number]:
    """The number at `pos` behind address `data`, and where it ends; -1 for that if it does not end before `end`."""
    if pos >= end:
        return np.int64(0), np.int64(-1)
    byte = byte_at(data, pos)
    pos += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), pos
    rest = np.uint64(byte & 127)
    shift = 7
    while pos < end and shift < 70:
        byte = byte_at(data, pos)
        pos += 1
        if shift == 63 and byte > 1:
            return np.int64(0), np.int64(-1)
        rest |= np.uint64(byte & 127) << np.uint64(shift)
        if byte < 128:
            return np.int64(rest >> np.uint64(1)) ^ -np.int64(rest & np.uint64(1)), pos
        shift += 7
    return np.int64(0), np.int64(-1)


@compiled
def field(data: Number, pos: int, end: int) -> tuple[Number, Number, Number]:
    """Where a field lies, its length (-1: there is none), and where it ends; -1 for that if it is not well formed."""
    length, pos = varint(data, pos, end)
    if pos < 0 or length < -1 or length > end - pos:
        return np.int64(0), np.int64(0), np.int64(-1)
    return pos, length, pos + max(length, 0)


@compiled
def _header_count(data: Number, pos: int, end: int) -> tuple[Number, Number, Number]:
    """Where the first header lies, how many there are, and where they end; -1 for that if not well formed."""
    count, pos = varint(data, pos, end)
    begin = pos
    if pos < 0 or count < 0 or count > (end - pos) // 2:
        return np.int64(0), np.int64(0), np.int64(-1)
    for _ in range(count):
        _, length, pos = field(data, pos, end)
        if pos < 0 or length < 0:
            return np.int64(0), np.int64(0), np.int64(-1)
        _, _, pos = field(data, pos, end)
        if pos < 0:
            return np.int64(0), np.int64(0), np.int64(-1)
    return begin, count, pos


@compiled
def add(content: Number, at: Number, data: Number, pos: int, length: int) -> Number:
    """Copies a field, if there is one, to `at` behind address `content`. Where it ends there."""
    return copy_bytes(content, at, data, pos, length) if length > 0 else at


@compiled
def mark(valid: Number, row: int, length: int) -> None:
    """In the bitmap at an address: whether a row is there."""
    put_byte(valid, row >> 3, byte_at(valid, row >> 3) | (np.int64(length >= 0) << (row & 7)))


@compiled
def _time_of(base: int, delta: int, is_append_time: int) -> tuple[Number, Number]:
    """In milliseconds, and whether 64 bits hold it."""
    if is_append_time:
        return base, True
    time = base + delta
    return time, ((base ^ time) & (delta ^ time)) >= 0


class Record(NamedTuple):
    """Where its parts lie. If `status` is not FINE, they are anything."""

    status: Number
    end: Number
    time_delta: Number
    delta: Number
    key_at: Number
    key_length: Number
    value_at: Number
    value_length: Number
    headers_at: Number
    headers: Number


@compiled
def _bad(status: int) -> Record:
    none = np.int64(0)
    return Record(np.int64(status), none, none, none, none, none, none, none, none, none)


@compiled
def _record_at(data: Number, pos: int, payload_end: int) -> Record:
    """The record at `pos` behind address `data`."""
    length, pos = varint(data, pos, payload_end)
    if pos < 0 or length > payload_end - pos:
        return _bad(CUT)
    end = pos + length
    if length < 6:
        return _bad(BAD_LENGTH)
    time_delta, pos = varint(data, pos + 1, end)
    if pos < 0:
        return _bad(BAD_LENGTH)
    delta, pos = varint(data, pos, end)
    if pos < 0:
        return _bad(BAD_LENGTH)
    key_at, key_length, pos = field(data, pos, end)
    if pos < 0:
        return _bad(BAD_LENGTH)
    value_at, value_length, pos = field(data, pos, end)
    if pos < 0 or pos >= end:
        return _bad(BAD_LENGTH)
    headers_at, headers = np.int64(0), np.int64(0)
    if byte_at(data, pos) != 0:
        headers_at, headers, pos = _header_count(data, pos, end)
    else:
        pos += 1
    if pos != end:
        return _bad(BAD_LENGTH if pos >= 0 else BAD_HEADERS)
    status = np.int64(FINE)
    return Record(status, end, time_delta, delta, key_at, key_length, value_at, value_length, headers_at, headers)


@compiled
def _scan_batch(
    data: Bytes, batch: Longs, row: int, start: int, end_offset: int, wants: int, rows: Rows
) -> tuple[Number, Number]:
    # Taken out of their tuples once, not for each record: that counts references, too.
    bytes_at = address_of(data)
    offsets, times_us, kinds = rows.offsets, rows.times_us, rows.kinds
    key_ends, key_valid, keys = rows.keys.ends, address_of(rows.keys.valid), address_of(rows.keys.content)
    value_ends, value_valid, values = rows.values.ends, address_of(rows.values.valid), address_of(rows.values.content)
    header_ends, headers_at = rows.header_ends, rows.headers_at
    pos, payload_end = batch[BEGIN], batch[END]
    base_offset, last_delta = batch[BASE_OFFSET], batch[LAST_DELTA]
    base_time, is_append_time = batch[TIME], batch[IS_APPEND_TIME]
    delta_min = np.int64(0)
    for _ in range(batch[COUNT]):
        one = _record_at(bytes_at, pos, payload_end)
        if one.status != FINE:
            return row, one.status
        if one.delta < delta_min or one.delta > last_delta:
            return row, np.int64(BAD_DELTA)
        time_ms, is_time = _time_of(base_time, one.time_delta, is_append_time)
        if not is_time:
            return row, np.int64(BAD_TIME)
        pos, delta_min = one.end, one.delta + 1
        offset = base_offset + one.delta
        if offset < start or offset >= end_offset:
            continue
        offsets[row] = offset
        kinds[row] = is_append_time
        if wants & WANTS_TIME:
            if time_ms > MS_MAX or time_ms < -MS_MAX:
                return row, np.int64(TIME_BEYOND)
            times_us[row] = time_ms * 1000
        if wants & WANTS_KEY:
            mark(key_valid, row, one.key_length)
            key_ends[row + 1] = add(keys, np.int64(key_ends[row]), bytes_at, one.key_at, one.key_length)
        if wants & WANTS_VALUE:
            mark(value_valid, row, one.value_length)
            value_ends[row + 1] = add(values, np.int64(value_ends[row]), bytes_at, one.value_at, one.value_length)
        if wants & WANTS_HEADERS:
            headers_at[row] = one.headers_at
            header_ends[row + 1] = header_ends[row] + one.headers
        row += 1
    return row, np.int64(FINE if pos == payload_end else SURPLUS)


@compiled
def scan(
    data: Bytes, table: Longs, start: int, end: int, wants: int, rows: Rows, row_ends: Longs
) -> tuple[Number, Number, Number]:
    """How many rows came of it. If one batch is not well formed: how many before it, what is wrong, and which.

    `row_ends` is told where the rows of each batch end."""
    row = 0
    for at in range(len(table)):
        row, status = _scan_batch(data, table[at], row, start, end, wants, rows)
        row_ends[at] = row
        if status != FINE:
            row_ends[at:] = row
            return row, status, at
    return row, FINE, 0


@compiled
def gather_headers(data: Bytes, rows: Rows, count: int, names: Binary, contents: Binary) -> Number:
    """The headers of so many rows that a scan found to be well formed. Whether all names are plain ASCII."""
    bytes_at, size = address_of(data), len(data)
    headers_at, header_ends = rows.headers_at, rows.header_ends
    name_ends, name_valid, all_names = names.ends, address_of(names.valid), address_of(names.content)
    content_ends, content_valid, all_contents = contents.ends, address_of(contents.valid), address_of(contents.content)
    at = 0
    bits = np.int64(0)
    for row in range(count):
        pos = headers_at[row]
        for _ in range(header_ends[row + 1] - header_ends[row]):
            name_at, length, pos = field(bytes_at, pos, size)
            mark(name_valid, at, length)
            name_ends[at + 1] = add(all_names, np.int64(name_ends[at]), bytes_at, name_at, length)
            for i in range(name_at, name_at + length):
                bits |= byte_at(bytes_at, i)
            content_at, length, pos = field(bytes_at, pos, size)
            mark(content_valid, at, length)
            content_ends[at + 1] = add(all_contents, np.int64(content_ends[at]), bytes_at, content_at, length)
            at += 1
    return bits < 128
