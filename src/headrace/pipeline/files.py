"""What tasks do: rows to Parquet files, one per day at a time, and what they wrote as rows for the driver."""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.pipeline.place import Place
from headrace.spark import task
from headrace.system import SystemRandom

if TYPE_CHECKING:
    import pyarrow as pa

WRITTEN = "path string, event_date string, rows long, bytes long, dead long"
OPEN_MAX = 64
"""Files of different days that a task has open at one time."""

ROW_GROUP_BYTES = 16 << 20
WAITING_BYTES_MAX = 128 << 20
"""Rows of all days that are not in a file yet. So a task whose rows come in no order of days makes few files."""
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
OUR_NAME = re.compile(r"(\d{10}-\d{5}-\d+|merged-\d{10})-[0-9a-f]{16}(-\d+)?\.parquet")
"""Of tasks and of merges. Other files in a table's directory are somebody else's."""


class Written(NamedTuple):
    """One file."""

    path: str
    """Within the table."""
    event_date: str
    rows: int
    bytes: int


def writer(
    place: Place, below: str, batch_id: int, schema: "pa.Schema", file_bytes: int
) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """For mapInArrow. Files lie in `below` within the table, in a directory for each day."""

    def write(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        attempt = task.attempt(task.current())
        prefix = file_prefix(batch_id, attempt.partition, attempt.attempt_id)
        files = DayFiles(place, below, prefix, schema, file_bytes)
        dead = 0
        for batch in batches:
            dead += files.add(batch)
        files.close()
        rows: list[tuple[Any, ...]] = [(*one, 0) for one in files.written]
        if dead:
            rows.append((None, None, 0, 0, dead))
        columns = list(zip(*rows, strict=True)) or [()] * 5
        kinds = [pa.string(), pa.string(), pa.int64(), pa.int64(), pa.int64()]
        names = ["path", "event_date", "rows", "bytes", "dead"]
        yield pa.RecordBatch.from_arrays([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], names)

    return write


def file_prefix(batch_id: int, partition: int, attempt_id: int) -> str:
    """Of the names of one attempt's files: no other attempt has it, and no other table."""
    return f"{batch_id:010d}-{partition:05d}-{attempt_id}-{SystemRandom().bits(64):016x}"


class DayFiles:
    def __init__(self, place: Place, below: str, prefix: str, schema: "pa.Schema", file_bytes: int) -> None:
        self.written: list[Written] = []
        self._place = place
        self._below = below
        self._prefix = prefix
        self._schema = schema
        self._file_bytes = file_bytes
        self._fs = place.file_system()
        self._days: dict[str, _DayFile] = {}
        self._count = 0

    def add(self, batch: "pa.RecordBatch") -> int:
        """How many of the rows are dead letters, which are left out."""
        import pyarrow.compute as pc

        good = batch.filter(pc.is_null(batch.column("_reason")))
        days = good.column("event_date")
        for day in pc.unique(days):
            same = pc.is_null(days) if day.as_py() is None else pc.equal(days, day)
            rows = good if good.num_rows == batch.num_rows and pc.all(same).as_py() else good.filter(same)
            self._append(NO_DATE if day.as_py() is None else day.as_py().isoformat(), rows)
        while sum(file.waiting_bytes for file in self._days.values()) > WAITING_BYTES_MAX:
            self._flush(max(self._days, key=lambda day: self._days[day].waiting_bytes))
        return int(batch.num_rows - good.num_rows)

    def _append(self, day: str, rows: "pa.RecordBatch") -> None:
        import pyarrow as pa

        file = self._days.get(day)
        if file is None:
            self._count += 1
            path = f"event_date={day}/{self._prefix}-{self._count}.parquet"
            where = self._place.within(f"{self._below}{path}")
            file = self._days[day] = _DayFile(self._fs, where, path, self._schema)
        file.add(pa.Table.from_batches([rows]).select(self._schema.names).cast(self._schema))
        if file.waiting_bytes >= ROW_GROUP_BYTES:
            self._flush(day)
        if file.size >= self._file_bytes:
            self._finish(day)

    def _flush(self, day: str) -> None:
        opened = [one for one, file in self._days.items() if file.is_open]
        if not self._days[day].is_open and len(opened) >= OPEN_MAX:
            self._finish(opened[0])
        self._days[day].flush()

    def _finish(self, day: str) -> None:
        file = self._days.pop(day)
        self.written.append(Written(file.path, day, file.rows, file.close()))

    def close(self) -> None:
        for day in list(self._days):
            self._finish(day)


class _DayFile:
    """Opened when its first rows are written, not when they come."""

    def __init__(self, fs: Any, where: str, path: str, schema: "pa.Schema") -> None:
        self.path = path
        self.rows = 0
        self.waiting_bytes = 0
        self._waiting: list[pa.Table] = []
        self._fs = fs
        self._where = where
        self._schema = schema
        self._stream: Any = None
        self._writer: Any = None

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    @property
    def size(self) -> int:
        """About: what is not encoded yet counts as a quarter of what it is."""
        return (int(self._stream.tell()) if self.is_open else 0) + self.waiting_bytes // 4

    def add(self, rows: "pa.Table") -> None:
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self.waiting_bytes += rows.nbytes

    def flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._writer is None:
            self._fs.create_dir(self._where.rpartition("/")[0], recursive=True)
            self._stream = self._fs.open_output_stream(self._where)
            self._writer = pq.ParquetWriter(self._stream, self._schema, compression="zstd")
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting, self.waiting_bytes = [], 0

    def close(self) -> int:
        """The bytes of the file."""
        self.flush()
        self._writer.close()
        self._stream.close()
        return int(self._fs.get_file_info(self._where).size)
