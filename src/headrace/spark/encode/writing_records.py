"""One pass over rows of Arrow buffers: each becomes a record, as `headrace.wire.records` would write it."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.spark.decode.compiled import address_of, compiled, copy_bytes, put_byte

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
def length_of(field: Field, row: Number) -> Number:
    """-1 for null."""
    if len(field.valid) and not field.valid[row]:
        return np.int64(-1)
    return np.int64(field.ends[row + 1]) - np.int64(field.ends[row])


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
def put_varint(into: Number, at: Number, number: Number) -> Number:
    """At `at` behind an address. Where it ends."""
    rest = np.uint64((number << 1) ^ (number >> 63))
    while rest >= np.uint64(128):
        put_byte(into, at, np.int64(rest | np.uint64(128)))
        rest >>= np.uint64(7)
        at += 1
    put_byte(into, at, np.int64(rest))
    return at + 1


@compiled
def _headers_bytes(rows: Rows, row: Number) -> Number:
    begin, end = np.int64(rows.header_ends[row]), np.int64(rows.header_ends[row + 1])
    size = varint_bytes(end - begin)
    for header in range(begin, end):
        for field in (rows.names, rows.contents):
            length = length_of(field, header)
            size += varint_bytes(length) + max(length, 0)
    return size


@compiled
def _put_headers(into: Number, at: Number, rows: Rows, row: Number) -> Number:
    """Where they end, behind an address."""
    begin, end = np.int64(rows.header_ends[row]), np.int64(rows.header_ends[row + 1])
    at = put_varint(into, at, end - begin)
    for header in range(begin, end):
        for field in (rows.names, rows.contents):
            length = length_of(field, header)
            at = put_varint(into, at, length)
            if length > 0:
                at = copy_bytes(into, at, address_of(field.content), np.int64(field.ends[header]), length)
    return at


@compiled
def put_records(  # in one: a call with so many arrays costs more than a record
    into: Bytes, begin: Number, rows: Rows, order: Longs, first: Number, end: Number, bytes_max: Number
) -> tuple[Number, Number, Number, Number]:
    """Rows `order[first:end]` from `begin` on, as many as are one batch: at most so many bytes, but one row at least.

    How many, where they end, the latest of their times, and if there was no room for even one: how much it needs.
    """
    times_ms = rows.times_ms
    key_ends, key_valid, keys = rows.keys.ends, rows.keys.valid, address_of(rows.keys.content)
    value_ends, value_valid, values = rows.values.ends, rows.values.valid, address_of(rows.values.content)
    out = address_of(into)
    all_keys, all_values = len(key_valid) == 0, len(value_valid) == 0
    has_headers = len(rows.header_ends) > 0
    room_end = len(into)
    base_ms = times_ms[order[first]]
    latest_ms = base_ms
    at = begin
    number = np.int64(0)
    for place in range(first, end):
        row = order[place]
        time_ms = times_ms[row]
        key_at, value_at = np.int64(key_ends[row]), np.int64(value_ends[row])
        key_length = value_length = np.int64(-1)
        if all_keys or key_valid[row]:
            key_length = np.int64(key_ends[row + 1]) - key_at
        if all_values or value_valid[row]:
            value_length = np.int64(value_ends[row + 1]) - value_at
        size = 1 + varint_bytes(time_ms - base_ms) + varint_bytes(number)
        size += varint_bytes(key_length) + max(key_length, 0) + varint_bytes(value_length) + max(value_length, 0)
        size += _headers_bytes(rows, row) if has_headers else 1
        whole = varint_bytes(size) + size
        if number and at - begin + whole > bytes_max:
            break
        if whole > room_end - at:
            return number, at, latest_ms, (np.int64(0) if number else whole)
        at = put_varint(out, at, size)
        put_byte(out, at, 0)
        at = put_varint(out, at + 1, time_ms - base_ms)
        at = put_varint(out, at, number)
        at = put_varint(out, at, key_length)
        if key_length > 0:
            at = copy_bytes(out, at, keys, key_at, key_length)
        at = put_varint(out, at, value_length)
        if value_length > 0:
            at = copy_bytes(out, at, values, value_at, value_length)
        if has_headers:
            at = _put_headers(out, at, rows, row)
        else:
            put_byte(out, at, 0)
            at += 1
        latest_ms = max(latest_ms, time_ms)
        number += 1
    return number, at, latest_ms, np.int64(0)
