"""Which row goes into which partition: as Kafka's Java client decides, for whole Arrow batches at a time."""

import numpy as np

from headrace.spark.decode.compiled import address_of, byte_at, compiled
from headrace.spark.encode.writing_records import Field, Ints, Longs, Number

NOT_GIVEN = -1
"""For a row whose partition is not said."""


@compiled
def murmur2(data: Number, begin: Number, length: Number) -> Number:
    """The 32-bit hash of what lies behind an address, unsigned; see `headrace.core.murmur2`."""
    mask = np.uint64(0xFFFFFFFF)
    multiplier = np.uint64(0x5BD1E995)
    hashed = np.uint64(0x9747B28C) ^ np.uint64(length)
    at = begin
    end = begin + (length & ~3)
    while at < end:
        word = np.uint64(byte_at(data, at)) | np.uint64(byte_at(data, at + 1)) << np.uint64(8)
        word |= np.uint64(byte_at(data, at + 2)) << np.uint64(16) | np.uint64(byte_at(data, at + 3)) << np.uint64(24)
        word = (word * multiplier) & mask
        word = ((word ^ (word >> np.uint64(24))) * multiplier) & mask
        hashed = ((hashed * multiplier) & mask) ^ word
        at += 4
    if length & 3:
        rest = np.uint64(0)
        for step in range(length & 3):
            rest |= np.uint64(byte_at(data, at + step)) << np.uint64(8 * step)
        hashed = ((hashed ^ rest) * multiplier) & mask
    hashed = ((hashed ^ (hashed >> np.uint64(13))) * multiplier) & mask
    return hashed ^ (hashed >> np.uint64(15))


@compiled
def place_rows(keys: Field, given: Ints, topic_of: Ints, counts: Ints, turns: Ints, targets: Longs) -> Number:
    """Fills `targets`: partitions of all topics, numbered through. The first row whose given partition there is not;
    -1 when all is well.

    `given` and `topic_of` are empty where nothing is given, and where all rows go to one topic. Rows without a key go
    to the partition of their topic whose turn it is.
    """
    bases = np.zeros(len(counts), np.int64)
    for at in range(1, len(counts)):
        bases[at] = bases[at - 1] + counts[at - 1]
    ends, valid, content = keys.ends, keys.valid, address_of(keys.content)
    for row in range(len(targets)):
        topic = np.int64(topic_of[row]) if len(topic_of) else np.int64(0)
        count = np.int64(counts[topic])
        partition = np.int64(given[row]) if len(given) else np.int64(NOT_GIVEN)
        if partition == NOT_GIVEN:
            if len(valid) and not valid[row]:
                partition = np.int64(turns[topic])
            else:
                begin = np.int64(ends[row])
                hashed = murmur2(content, begin, np.int64(ends[row + 1]) - begin)
                partition = np.int64(hashed & np.uint64(0x7FFFFFFF)) % count
        elif partition < 0 or partition >= count:
            return np.int64(row)
        targets[row] = bases[topic] + partition
    return np.int64(-1)


@compiled
def sort_rows(targets: Longs, ends: Longs, order: Longs) -> None:
    """Fills `order` with the rows of target after target, each in their own order; `ends[t + 1]` is where t's end."""
    ends[:] = 0
    for row in range(len(targets)):
        ends[targets[row] + 1] += 1
    for target in range(1, len(ends)):
        ends[target] += ends[target - 1]
    at = ends[:-1].copy()
    for row in range(len(targets)):
        target = targets[row]
        order[at[target]] = row
        at[target] += 1
