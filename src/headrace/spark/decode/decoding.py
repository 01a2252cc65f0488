"""Record batches of a partition to Arrow record batches of about 10,000 rows or 2 MB."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.errors import ErrorCode, KafkaError
from headrace.model import Buffer
from headrace.spark.decode.aborted import AbortedRanges
from headrace.spark.decode.columns import Columns
from headrace.spark.decode.scanning import FINE, REASONS, TABLE_WIDTH, Bytes, Longs, scan
from headrace.wire.batch import DECOMPRESSED_BYTES_MAX, HEADER_BYTES, MAGIC, BatchHeader, crc_of, headers
from headrace.wire.compression import Codec, decompress_into
from headrace.wire.errors import ProtocolError
from headrace.wire.records import RECORD_BYTES_MIN

ROWS_AIM = 10_000
BYTES_AIM = 2 << 20
SCRATCH_BYTES = 4 << 20
"""Of decompressed records; grows where one batch holds more."""


class Decoder:
    """Of one partition. Keeps its working memory from call to call, so one reader uses it at a time."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self._columns = Columns(schema, topic, partition)
        self._name = f"{topic}-{partition}"
        self._scratch: Bytes = np.empty(0, np.uint8)

    def decode(
        self, batches: Buffer, start_offset: int, end_offset: int, aborted: AbortedRanges | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The records from `start_offset` to before `end_offset` of whole batches, without control records.

        With `aborted`, also without those of transactions that were rolled back. KafkaError (CORRUPT_MESSAGE) for the
        first batch that is not well formed; what comes before it is handed out.
        """
        view = memoryview(batches).toreadonly()
        group = _Group()
        at_offset = start_offset
        try:
            for pos, header in headers(view):
                at_offset = header.base_offset
                if header.base_offset >= end_offset:
                    break
                # Also of what is left out: damage may be why it seems to have nothing that is wanted.
                _check(view, pos, header)
                dropped = aborted is not None and aborted.drops(view, pos, header)
                if dropped or header.is_control or header.last_offset < start_offset:
                    continue
                if not self._add(group, view, pos, header):
                    yield from self._flush(group, view, start_offset, end_offset)
                    if not self._add(group, view, pos, header):
                        raise ProtocolError(f"it holds more than {DECOMPRESSED_BYTES_MAX} bytes")
                if group.rows >= ROWS_AIM or group.size >= BYTES_AIM:
                    yield from self._flush(group, view, start_offset, end_offset)
        except ProtocolError as error:
            yield from self._flush(group, view, start_offset, end_offset)
            raise self._corrupt(at_offset, str(error)) from None
        yield from self._flush(group, view, start_offset, end_offset)

    def _add(self, group: "_Group", view: memoryview, pos: int, header: BatchHeader) -> bool:
        """False if the group must be emptied first."""
        is_packed = header.codec is not Codec.NONE and header.record_count > 0
        if group.table and group.is_packed != is_packed:
            return False
        begin, end = pos + HEADER_BYTES, pos + header.size
        if is_packed:
            begin, payload = group.size, view[begin:end]
            length = self._unpack(header.codec, payload, begin)
            if length is None:
                return False
            end = begin + length
        if not 0 <= header.record_count <= (end - begin) // RECORD_BYTES_MIN:
            raise ProtocolError(f"{end - begin} bytes cannot hold {header.record_count} records")
        group.is_packed = is_packed
        group.add(header, begin, end)
        return True

    def _unpack(self, codec: Codec, payload: memoryview, begin: int) -> int | None:
        """Its length behind `begin`; None if there is no room, which a group that has begun is to make."""
        if not len(self._scratch):
            self._scratch = np.empty(SCRATCH_BYTES, np.uint8)
        while True:
            room = self._scratch[begin:]
            length = decompress_into(codec, payload, room.data) if len(room) else None
            if length is not None or begin or len(self._scratch) > DECOMPRESSED_BYTES_MAX:
                return length
            self._scratch = np.empty(min(4 * len(self._scratch), DECOMPRESSED_BYTES_MAX + 1), np.uint8)

    def _flush(self, group: "_Group", view: memoryview, start: int, end: int) -> Iterator[pa.RecordBatch]:
        if not group.table:
            return
        # Neither is to be written to: the compiled scan has one form for what is, and another for what is not.
        data = np.frombuffer(self._scratch.data.toreadonly() if group.is_packed else view, np.uint8)
        table: Longs = np.array(group.table, np.int64).reshape(-1, TABLE_WIDTH)
        rows = self._columns.room(group.rows, group.size)
        row_ends: Longs = np.empty(len(table), np.int64)
        count, status, at = scan(data, table, start, end, self._columns.wants, rows, row_ends)
        base_offset = group.base_offsets[at]
        size = group.size
        group.clear()
        if count:
            yield from _cut(self._columns.batch(data, rows, count, table, row_ends), size)
        if status != FINE:
            raise self._corrupt(base_offset, REASONS[status])

    def _corrupt(self, offset: int, reason: str) -> KafkaError:
        text = f"the record batch of {self._name} at offset {offset} cannot be read: {reason.rstrip('.')}"
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, text)


class _Group:
    """Batches that one scan goes over: all in the data as it came, or all decompressed."""

    def __init__(self) -> None:
        self.is_packed = False
        self.clear()

    def clear(self) -> None:
        self.table: list[int] = []
        self.base_offsets: list[int] = []
        self.rows = 0
        self.size = 0

    def add(self, header: BatchHeader, begin: int, end: int) -> None:
        is_append_time = header.is_log_append_time
        time = header.max_timestamp if is_append_time else header.base_timestamp
        count, last_delta = header.record_count, header.last_offset_delta
        self.table += (begin, end, count, header.base_offset, last_delta, time, is_append_time)
        self.table += (header.leader_epoch, header.producer_id)
        self.base_offsets.append(header.base_offset)
        self.rows += count
        self.size += end - begin


def _check(view: memoryview, pos: int, header: BatchHeader) -> None:
    if header.magic != MAGIC:
        raise ProtocolError(f"it has magic {header.magic}; only {MAGIC} is supported")
    if crc_of(view, pos, header.size) != header.crc:
        raise ProtocolError("it fails its checksum")


def _cut(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """A large batch in about equal parts; up to half as much again as was aimed for is left whole."""
    parts = max(1, round(batch.num_rows / ROWS_AIM), min(batch.num_rows, round(size / BYTES_AIM)))
    step = -(-batch.num_rows // parts)
    for at in range(0, batch.num_rows, step):
        yield batch.slice(at, step)


def decode(
    batches: Buffer,
    schema: pa.Schema,
    start_offset: int,
    end_offset: int,
    aborted: AbortedRanges | None,
    topic: str,
    partition: int,
) -> Iterator[pa.RecordBatch]:
    """For who reads once; see `Decoder`."""
    return Decoder(schema, topic, partition).decode(batches, start_offset, end_offset, aborted)
