"""What tasks do: rows to Parquet files, one per day at a time, and what they wrote as rows for the driver."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.pipeline.place import Place
from headrace.spark import task
from headrace.system import SystemRandom

if TYPE_CHECKING:
    import pyarrow as pa

WRITTEN = "path string, event_date string, rows long, bytes long, dead long"
OPEN_MAX = 16
"""Files of different days that a task has open at one time."""

ROW_GROUP_BYTES = 16 << 20
NO_DATE = "__HIVE_DEFAULT_PARTITION__"


class Written(NamedTuple):
    """One file."""

    path: str
    """Within the table."""
    event_date: str
    rows: int
    bytes: int


def writer(
    place: Place, below: str, name: str, schema: "pa.Schema", file_bytes: int
) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """For mapInArrow. Files lie in `below` within the table, in a directory for each day."""

    def write(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        attempt = task.attempt(task.current())
        prefix = f"{name}-{attempt.partition:05d}-{attempt.attempt_id}-{SystemRandom().bits(64):016x}"
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


class DayFiles:
    def __init__(self, place: Place, below: str, prefix: str, schema: "pa.Schema", file_bytes: int) -> None:
        self.written: list[Written] = []
        self._place = place
        self._below = below
        self._prefix = prefix
        self._schema = schema
        self._file_bytes = file_bytes
        self._fs = place.file_system()
        self._open: dict[str, _DayFile] = {}
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
        return int(batch.num_rows - good.num_rows)

    def _append(self, day: str, rows: "pa.RecordBatch") -> None:
        import pyarrow as pa

        file = self._open.pop(day, None)
        if file is None:
            while len(self._open) >= OPEN_MAX:
                self._finish(next(iter(self._open)))
            self._count += 1
            path = f"event_date={day}/{self._prefix}-{self._count}.parquet"
            file = _DayFile(self._fs, self._place.within(f"{self._below}{path}"), path, self._schema)
        self._open[day] = file  # the last one used stays open longest
        file.add(pa.Table.from_batches([rows]).select(self._schema.names).cast(self._schema))
        if file.size >= self._file_bytes:
            self._finish(day)

    def _finish(self, day: str) -> None:
        file = self._open.pop(day)
        self.written.append(Written(file.path, day, file.rows, file.close()))

    def close(self) -> None:
        for day in list(self._open):
            self._finish(day)


class _DayFile:
    def __init__(self, fs: Any, where: str, path: str, schema: "pa.Schema") -> None:
        import pyarrow.parquet as pq

        self.path = path
        self.rows = 0
        self._fs = fs
        self._where = where
        fs.create_dir(where.rpartition("/")[0], recursive=True)
        self._stream = fs.open_output_stream(where)
        self._writer = pq.ParquetWriter(self._stream, schema, compression="zstd")
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    @property
    def size(self) -> int:
        """About: what is not encoded yet counts as it is."""
        return int(self._stream.tell()) + self._waiting_bytes // 4

    def add(self, rows: "pa.Table") -> None:
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting, self._waiting_bytes = [], 0

    def close(self) -> int:
        """The bytes of the file."""
        self._flush()
        self._writer.close()
        self._stream.close()
        return int(self._fs.get_file_info(self._where).size)
