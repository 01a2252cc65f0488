"""`Encoder`: Arrow batches into record batches, each for one partition."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.spark.encode.columns import Columns, columns_of
from headrace.spark.encode.placing import place_rows, sort_rows
from headrace.spark.encode.writing_records import Bytes, Longs, put_records
from headrace.wire.batch import HEADER_BYTES, EncodedRecords
from headrace.wire.compression import Codec, compress

BATCH_BYTES = 512 << 10
"""Of records before compression. Brokers take batches of a megabyte unless told otherwise."""

PartitionCounts = Callable[[Sequence[str]], Mapping[str, int]]


class Encoder:
    """Of one task. Keeps its working memory from call to call."""

    def __init__(
        self,
        topic: str | None,
        partition_counts: PartitionCounts,
        *,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        first_turn: int = 0,
    ) -> None:
        """`first_turn`: which partition gets the rows without a key of the first Arrow batch; the next one those of
        the next."""
        self._topic = topic
        self._partition_counts = partition_counts
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._turn = first_turn
        self._scratch: Bytes = np.empty(HEADER_BYTES + batch_bytes, np.uint8)

    def encode(self, batch: pa.RecordBatch, now_ms: int) -> Iterator[tuple[TopicPartition, EncodedRecords]]:
        """All rows, those of a partition in their order. KafkaError for a row that cannot become a record."""
        if not batch.num_rows:
            return
        columns = columns_of(batch, self._topic, now_ms)
        known = self._partition_counts(columns.topics)
        counts = [known[topic] for topic in columns.topics]
        order, ends = self._placed(columns, counts)
        target = 0
        for topic, count in zip(columns.topics, counts, strict=True):
            for partition in range(count):
                for records in self._batches(columns, order, int(ends[target]), int(ends[target + 1])):
                    yield TopicPartition(topic, partition), records
                target += 1

    def _placed(self, columns: Columns, counts: list[int]) -> tuple[Longs, Longs]:
        """The rows of target after target, and where those of each end."""
        turns = np.array([self._turn % count for count in counts], np.int32)
        self._turn += 1
        total = len(columns.rows.times_ms)
        targets: Longs = np.empty(total, np.int64)
        numbers = np.array(counts, np.int32)
        wrong = place_rows(columns.rows.keys, columns.given, columns.topic_of, numbers, turns, targets)
        if wrong >= 0:
            at = int(columns.topic_of[wrong]) if len(columns.topic_of) else 0
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"a row names a partition that topic {columns.topics[at]!r} has not: it has {counts[at]}, from 0 on",
            )
        ends: Longs = np.empty(sum(counts) + 1, np.int64)
        order: Longs = np.empty(total, np.int64)
        sort_rows(targets, ends, order)
        return order, ends

    def _batches(self, columns: Columns, order: Longs, first: int, end: int) -> Iterator[EncodedRecords]:
        rows = columns.rows
        while first < end:
            count, to, latest_ms, needs = put_records(
                self._scratch, HEADER_BYTES, rows, order, first, end, self._batch_bytes
            )
            if needs:
                self._scratch = np.empty(HEADER_BYTES + int(needs), np.uint8)
                continue
            base_ms = int(rows.times_ms[order[first]])
            yield EncodedRecords(self._data(int(to)), self._codec, int(count), base_ms, int(latest_ms))
            first += int(count)

    def _data(self, end: int) -> bytearray:
        written = self._scratch.data
        if self._codec is Codec.NONE:
            return bytearray(written[:end])
        data = bytearray(HEADER_BYTES)
        data += compress(self._codec, written[HEADER_BYTES:end])
        return data
