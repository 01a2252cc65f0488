"""Rows to files: one per day, whatever order they come in, and no more memory than is allowed."""

from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headrace.pipeline import files
from headrace.pipeline.files import DayFiles
from headrace.pipeline.place import place_of

SCHEMA = pa.schema([("id", pa.int64())])
DAYS = [date(2026, 1, 1) + timedelta(days=day) for day in range(100)]


def rows(begin: int, count: int, reasons: dict[int, str] | None = None) -> pa.RecordBatch:
    """Row after row of another day."""
    numbers = list(range(begin, begin + count))
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(numbers, pa.int64()),
            "event_date": pa.array([DAYS[number % len(DAYS)] for number in numbers], pa.date32()),
            "_reason": pa.array([(reasons or {}).get(number) for number in numbers], pa.string()),
        }
    )


def written(place: Path, batches: list[pa.RecordBatch], file_bytes: int = 1 << 20) -> tuple[DayFiles, int]:
    days = DayFiles(place_of(str(place), "/"), "", "name", SCHEMA, file_bytes)
    dead = sum(days.add(batch) for batch in batches)
    days.close()
    return days, dead


def ids(place: Path) -> list[int]:
    found = ds.dataset(str(place), format="parquet", partitioning="hive").to_table()
    return sorted(found.column("id").to_pylist())


def test_rows_of_many_days_in_no_order_make_one_file_for_each_day(tmp_path: Path) -> None:
    days, dead = written(tmp_path, [rows(begin, 500, {7: "bad"}) for begin in range(0, 2_000, 500)])
    assert dead == 1 and len(days.written) == len(DAYS)
    assert ids(tmp_path) == [number for number in range(2_000) if number != 7]
    for one in days.written:
        assert pq.ParquetFile(tmp_path / one.path).metadata.num_rows == one.rows
        assert (tmp_path / one.path).stat().st_size == one.bytes
        assert one.path.startswith(f"event_date={one.event_date}/")


@pytest.mark.parametrize(("limit", "least"), [("WAITING_BYTES_MAX", 1), ("ROW_GROUP_BYTES", 8), ("OPEN_MAX", 2)])
def test_limits_cost_files_and_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, least: int) -> None:
    if limit == "OPEN_MAX":
        monkeypatch.setattr(files, "WAITING_BYTES_MAX", 1)
    monkeypatch.setattr(files, limit, least)
    days, _ = written(tmp_path, [rows(begin, 250) for begin in range(0, 1_000, 250)])
    assert ids(tmp_path) == list(range(1_000))
    assert len(days.written) >= len(DAYS)
    assert limit != "OPEN_MAX" or len(days.written) > len(DAYS)


def test_a_file_that_is_full_is_followed_by_another(tmp_path: Path) -> None:
    same = rows(0, 1).schema
    big = pa.RecordBatch.from_arrays(
        [
            pa.array(range(50_000), pa.int64()),
            pa.array([DAYS[0]] * 50_000, pa.date32()),
            pa.nulls(50_000, pa.string()),
        ],
        schema=same,
    )
    days, _ = written(tmp_path, [big.slice(at, 5_000) for at in range(0, 50_000, 5_000)], file_bytes=40_000)
    assert len(days.written) > 1 and ids(tmp_path) == list(range(50_000))
