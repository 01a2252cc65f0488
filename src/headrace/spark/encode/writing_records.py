"""One pass over rows of Arrow buffers: each becomes a record, as `headrace.wire.records` would write it."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.spark.decode.compiled import compiled, copy_bytes

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Number = Any
"""An int to who calls; within compiled code one of 64 bits."""


class Field(NamedTuple):
    """An Arrow column of bytes."""

    ends: Ints
    """Of all rows, after where the first one begins."""
    valid: Bytes
    """One for each row that is not null; empty if none is."""
    content: Bytes


class Rows(NamedTuple):
    """The columns of an Arrow batch that become records."""

    times_ms: Longs
    keys: Field
    values: Field
    header_ends: Ints
    """Of the headers of all rows, after where those of the first one begin; empty if no row has any."""
    names: Field
    contents: Field


@compiled
def varint_bytes(number: Number) -> Number:
    """How many bytes the number has."""
    rest = np.uint64((number << 1) ^ (number >> 63))
    count = 1
    while rest >= np.uint64(128):
        rest >>= np.uint64(7)
        count += 1
    return count


@compiled
def put_varint(into: Bytes, at: Number, number: Number) -> Number:
    """Where it ends."""
    rest = np.uint64((number << 1) ^ (number >> 63))
    while rest >= np.uint64(128):
        into[at] = np.uint8(rest & np.uint64(127)) | np.uint8(128)
        rest >>= np.uint64(7)
        at += 1
    into[at] = np.uint8(rest)
    return at + 1


@compiled
def length_of(field: Field, row: Number) -> Number:
    """-1 for null."""
    if len(field.valid) and not field.valid[row]:
        return np.int64(-1)
    return np.int64(field.ends[row + 1]) - np.int64(field.ends[row])


@compiled
def field_bytes(field: Field, row: Number) -> Number:
    length = length_of(field, row)
    return varint_bytes(length) + max(length, 0)


@compiled
def put_field(into: Bytes, at: Number, field: Field, row: Number) -> Number:
    """Where it ends."""
    length = length_of(field, row)
    at = put_varint(into, at, length)
    if length > 0:
        copy_bytes(into, np.int64(at), field.content, np.int64(field.ends[row]), length)
        at += length
    return at


@compiled
def body_bytes(rows: Rows, row: Number, time_delta: Number, number: Number) -> Number:
    """Of the record, without its length."""
    size = 1 + varint_bytes(time_delta) + varint_bytes(number) + field_bytes(rows.keys, row)
    size += field_bytes(rows.values, row)
    if not len(rows.header_ends):
        return size + 1
    begin, end = np.int64(rows.header_ends[row]), np.int64(rows.header_ends[row + 1])
    size += varint_bytes(end - begin)
    for header in range(begin, end):
        size += field_bytes(rows.names, header) + field_bytes(rows.contents, header)
    return size


@compiled
def put_record(
    into: Bytes, at: Number, rows: Rows, row: Number, time_delta: Number, number: Number, size: Number
) -> Number:
    """Where it ends. `size` is that of its body."""
    at = put_varint(into, at, size)
    into[at] = np.uint8(0)
    at = put_varint(into, at + 1, time_delta)
    at = put_varint(into, at, number)
    at = put_field(into, at, rows.keys, row)
    at = put_field(into, at, rows.values, row)
    if not len(rows.header_ends):
        into[at] = np.uint8(0)
        return at + 1
    begin, end = np.int64(rows.header_ends[row]), np.int64(rows.header_ends[row + 1])
    at = put_varint(into, at, end - begin)
    for header in range(begin, end):
        at = put_field(into, at, rows.names, header)
        at = put_field(into, at, rows.contents, header)
    return at


@compiled
def put_records(
    into: Bytes, begin: Number, rows: Rows, order: Longs, first: Number, end: Number, bytes_max: int
) -> tuple[Number, Number, Number, Number]:
    """Rows `order[first:end]` from `begin` on, as many as are one batch: at most so many bytes, but one row at least.

    How many, where they end, the latest of their times, and if there was no room for even one: how much it needs.
    """
    base_ms = rows.times_ms[order[first]]
    latest_ms = base_ms
    at = begin
    number = np.int64(0)
    for place in range(first, end):
        row = order[place]
        time_ms = rows.times_ms[row]
        size = body_bytes(rows, row, time_ms - base_ms, number)
        whole = varint_bytes(size) + size
        if number and at - begin + whole > bytes_max:
            break
        if whole > len(into) - at:
            return number, at, latest_ms, (np.int64(0) if number else whole)
        at = put_record(into, at, rows, row, time_ms - base_ms, number, size)
        latest_ms = max(latest_ms, time_ms)
        number += 1
    return number, at, latest_ms, np.int64(0)
