"""The columns of an Arrow batch, as the compiled loops take them: buffers of Arrow, not copied where it can be."""

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ErrorCode, KafkaError
from headrace.spark.encode.placing import NOT_GIVEN
from headrace.spark.encode.writing_records import Bytes, Field, Ints, Longs, Rows

N = TypeVar("N", bound=np.generic)

NO_SUCH_PARTITION = -2
"""In the place of a negative number: no partition has one."""

_US_PER_MS = 1_000


class Columns(NamedTuple):
    rows: Rows
    given: Ints
    """Partitions; empty where the batch has no such column."""
    topics: list[str]
    topic_of: Ints
    """By row, which of the topics; empty where all rows go to one."""


def columns_of(batch: pa.RecordBatch, topic: str | None, now_ms: int) -> Columns:
    """With `topic` all rows go there, whatever a column says. KafkaError for a row that cannot become a record."""
    named = dict(zip(batch.schema.names, batch.columns, strict=True))
    count = batch.num_rows
    header_ends, names, contents = _headers(named.get("headers"))
    rows = Rows(
        times_ms=_times_ms(named.get("timestamp"), count, now_ms),
        keys=_field(named.get("key"), count),
        values=_field(named.get("value"), count),
        header_ends=header_ends,
        names=names,
        contents=contents,
    )
    topics, topic_of = ([topic], _fixed(np.empty(0, np.int32))) if topic is not None else _topics(named.get("topic"))
    return Columns(rows, _given(named.get("partition")), topics, topic_of)


def _field(column: Any, count: int) -> Field:
    """Of strings or bytes; without a column all is null."""
    if column is None:
        nothing = np.zeros(count, np.uint8)
        return Field(_fixed(np.zeros(count + 1, np.int32)), _fixed(nothing), _fixed(np.empty(0, np.uint8)))
    if column.type not in (pa.binary(), pa.string()):
        column = column.cast(pa.binary())
    _, ends, content = column.buffers()
    data = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    if ends is None:  # as Arrow has it of a column without rows
        return Field(_fixed(np.zeros(1, np.int32)), _valid(column), _fixed(data))
    numbers = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    return Field(_fixed(numbers), _valid(column), _fixed(data))


def _valid(column: Any) -> Bytes:
    if not column.null_count:
        return _fixed(np.empty(0, np.uint8))
    return _fixed(column.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8))


def _headers(column: Any) -> tuple[Ints, Field, Field]:
    if column is None or len(column) == column.null_count:
        return _fixed(np.empty(0, np.int32)), _field(None, 0), _field(None, 0)
    if column.null_count:  # what lies in the place of a null may be anything
        column = pc.if_else(column.is_valid(), column, pa.scalar([], column.type))
    ends = column.offsets.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    names, contents = column.values.flatten()
    if names.slice(int(ends[0]), int(ends[-1] - ends[0])).null_count:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a header has no key; in column headers each one needs it")
    return _fixed(ends), _field(names, len(names)), _field(contents, len(contents))


def _times_ms(column: Any, count: int, now_ms: int) -> Longs:
    """Now, where it is not said."""
    if column is None:
        return _fixed(np.full(count, now_ms, np.int64))
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    times = micros.fill_null(now_ms * _US_PER_MS).to_numpy(zero_copy_only=False) // _US_PER_MS
    if count and times.min() < 0:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a row has a timestamp before 1970, which no record can have")
    return _fixed(times)


def _given(column: Any) -> Ints:
    if column is None or len(column) == column.null_count:
        return _fixed(np.empty(0, np.int32))
    there = column.is_valid().to_numpy(zero_copy_only=False)
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int32)
    return _fixed(np.where(there, np.where(numbers < 0, NO_SUCH_PARTITION, numbers), NOT_GIVEN).astype(np.int32))


def _topics(column: Any) -> tuple[list[str], Ints]:
    if column is None or column.null_count:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, "a row names no topic: fill column topic, or give option topic for all"
        )
    encoded = column.dictionary_encode()
    topics = encoded.dictionary.to_pylist()
    if len(topics) == 1:
        return topics, _fixed(np.empty(0, np.int32))
    return topics, _fixed(encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32))


def _fixed(array: npt.NDArray[N]) -> npt.NDArray[N]:
    """Not to be written to: compiled code has one form for each combination of kinds, and so there is only one."""
    fixed = np.ascontiguousarray(array)
    if fixed.flags.writeable:
        fixed = fixed.view()
        fixed.flags.writeable = False
    return fixed
