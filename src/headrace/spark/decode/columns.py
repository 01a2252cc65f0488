"""The columns of a read: Arrow's schema as Spark demands it, and Arrow arrays of what was scanned."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.spark.decode.scanning import (
    LEADER_EPOCH,
    PRODUCER_ID,
    WANTS_HEADERS,
    WANTS_KEY,
    WANTS_TIME,
    WANTS_VALUE,
    Binary,
    Bytes,
    Longs,
    Rows,
    gather_headers,
)

_WANTS = {"key": WANTS_KEY, "value": WANTS_VALUE, "timestamp": WANTS_TIME, "headers": WANTS_HEADERS}


class Columns:
    """Of one partition of a topic: the fields of `schema`, in its order and with its types. Spark refuses others."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self.schema = schema
        self.wants = sum(_WANTS.get(name, 0) for name in schema.names)
        self._topic = topic
        self._partition = partition
        self._constants: dict[str, Any] = {}

    def room(self, rows: int, content_bytes: int) -> Rows:
        wants = self.wants
        return Rows(
            offsets=np.empty(rows, np.int64),
            times_us=np.empty(rows if wants & WANTS_TIME else 0, np.int64),
            kinds=np.empty(rows, np.int32),
            keys=_room(rows, content_bytes, bool(wants & WANTS_KEY)),
            values=_room(rows, content_bytes, bool(wants & WANTS_VALUE)),
            header_ends=np.zeros(rows + 1 if wants & WANTS_HEADERS else 0, np.int32),
            headers_at=np.empty(rows if wants & WANTS_HEADERS else 0, np.int64),
        )

    def batch(self, data: Bytes, rows: Rows, count: int, table: Longs, row_ends: Longs) -> pa.RecordBatch:
        """The first `count` rows. `data` is where the scan found them, `table` its batches, and `row_ends` where the
        rows of each of these end."""
        make: dict[str, Callable[[], Any]] = {
            "key": lambda: _binary(rows.keys, count, pa.binary()),
            "value": lambda: _binary(rows.values, count, pa.binary()),
            "topic": lambda: self._constant("topic", count, lambda n: _repeated(self._topic, n)),
            "partition": lambda: self._constant(
                "partition", count, lambda n: _fixed(np.full(n, self._partition, np.int32), n, pa.int32())
            ),
            "offset": lambda: _fixed(rows.offsets, count, pa.int64()),
            "timestamp": lambda: _fixed(rows.times_us, count, pa.timestamp("us", "UTC")),
            "timestampType": lambda: _fixed(rows.kinds, count, pa.int32()),
            "headers": lambda: _headers(data, rows, count, self.schema.field("headers").type),
            "leaderEpoch": lambda: _fixed(_spread(table[:, LEADER_EPOCH], row_ends, np.int32), count, pa.int32()),
            "producerId": lambda: _fixed(_spread(table[:, PRODUCER_ID], row_ends, np.int64), count, pa.int64()),
        }
        return pa.RecordBatch.from_arrays([make[name]() for name in self.schema.names], schema=self.schema)

    def _constant(self, name: str, count: int, make: Callable[[int], Any]) -> Any:
        """Made once for the longest batch so far, and cut for the others."""
        if name not in self._constants or len(self._constants[name]) < count:
            self._constants[name] = make(count)
        return self._constants[name][:count]


def _room(rows: int, content_bytes: int, wanted: bool) -> Binary:
    rows, content_bytes = (rows, content_bytes) if wanted else (0, 0)
    ends = np.empty(rows + 1, np.int32)
    ends[0] = 0
    return Binary(ends, np.zeros((rows + 7) // 8, np.uint8), np.empty(content_bytes, np.uint8))


# Arrays are made of buffers: what pyarrow does with numpy's arrays loads pandas, for half a second in every worker.


def _repeated(text: str, count: int) -> pa.Array:
    raw = text.encode()
    ends = np.arange(0, len(raw) * (count + 1), len(raw), dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(raw * count)])


def _fixed(values: Any, count: int, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values)])


def _spread(of_batches: Longs, row_ends: Longs, kind: type[np.signedinteger[Any]]) -> Any:
    """What all records of a batch have in common, row by row."""
    return np.repeat(of_batches.astype(kind), np.diff(row_ends, prepend=0))


def _binary(column: Binary, count: int, kind: pa.DataType) -> pa.Array:
    content = column.content[: column.ends[count]]
    buffers = [pa.py_buffer(column.valid), pa.py_buffer(column.ends), pa.py_buffer(content)]
    array = pa.Array.from_buffers(kind, count, buffers)
    # Spark copies a bitmap row by row; nearly all columns need none.
    return array if array.null_count else pa.Array.from_buffers(kind, count, [None, *buffers[1:]], null_count=0)


def _headers(data: Bytes, rows: Rows, count: int, kind: pa.DataType) -> pa.Array:
    """Null where a record has none, as Spark's own connector has it."""
    total = int(rows.header_ends[count])
    size = len(data) if total else 0
    names, contents = _room(total, size, True), _room(total, size, True)
    plain = gather_headers(data, rows, count, names, contents)
    if plain:
        keys = _binary(names, total, pa.string())
    else:  # as the Java client does: a strange name must not stop a reader for ever
        raw = _binary(names, total, pa.binary())
        keys = pa.array([name.as_py().decode(errors="replace") for name in raw], pa.string())
    pairs = pa.StructArray.from_arrays([keys, _binary(contents, total, pa.binary())], fields=list(kind.value_type))
    valid = np.packbits(np.diff(rows.header_ends[: count + 1]) > 0, bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(rows.header_ends[: count + 1])]
    return pa.Array.from_buffers(kind, count, buffers, children=[pairs])
