"""The headers of many record batches at once, in one compiled pass. Nothing within a batch is looked at."""

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.spark.decode.compiled import compiled
from headrace.wire.batch import HEADER_BYTES

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

# Columns of the table.
POSITION, SIZE, BASE_OFFSET, LAST_OFFSET, EPOCH, MAGIC_NUMBER = 0, 1, 2, 3, 4, 5
CRC, ATTRIBUTES, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, RECORD_COUNT = 6, 7, 8, 9, 10, 11
WIDTH = 12


@compiled
def _number(data: Bytes, pos: int, width: int) -> Any:
    """Big-endian, with its sign."""
    value = np.int64(data[pos])
    if value > 127:
        value -= 256
    for at in range(pos + 1, pos + width):
        value = (value << 8) | np.int64(data[at])
    return value


@compiled
def _scan(data: Bytes, table: Longs) -> tuple[int, int, bool]:
    """How many batches, how many bytes they are, and whether what follows can be no batch."""
    pos = 0
    count = 0
    while pos + 61 <= len(data) and count < len(table):
        length = _number(data, pos + 8, 4)
        if length < 49:
            return count, pos, True
        if pos + 12 + length > len(data):
            break
        row = table[count]
        row[POSITION] = pos
        row[SIZE] = length + 12
        row[BASE_OFFSET] = _number(data, pos, 8)
        row[LAST_OFFSET] = row[BASE_OFFSET] + _number(data, pos + 23, 4)
        row[EPOCH] = _number(data, pos + 12, 4)
        row[MAGIC_NUMBER] = _number(data, pos + 16, 1)
        row[CRC] = _number(data, pos + 17, 4) & 0xFFFFFFFF
        row[ATTRIBUTES] = _number(data, pos + 21, 2)
        row[PRODUCER_ID] = _number(data, pos + 43, 8)
        row[PRODUCER_EPOCH] = _number(data, pos + 51, 2)
        row[BASE_SEQUENCE] = _number(data, pos + 53, 4)
        row[RECORD_COUNT] = _number(data, pos + 57, 4)
        count += 1
        pos += 12 + length
    return count, pos, False


def table_of(data: memoryview) -> tuple[Longs, int, bool]:
    """One row for each whole batch, how many bytes they are together, and whether no batch can follow."""
    table = np.empty((len(data) // HEADER_BYTES + 1, WIDTH), np.int64)
    if not len(data):
        return table[:0], 0, False
    count, end, is_lost = _scan(np.frombuffer(data, np.uint8), table)
    return table[:count], end, is_lost


def header_bytes(data: memoryview, table: Longs) -> bytes:
    """The headers of these batches, one behind the other."""
    if not len(table):
        return b""
    at = table[:, POSITION, None] + np.arange(HEADER_BYTES)
    found: bytes = np.frombuffer(data, np.uint8)[at].tobytes()
    return found
