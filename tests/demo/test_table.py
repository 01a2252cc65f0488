"""The table is read back with every column of it."""

import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from demo.lake import COLUMNS, TABLE, rows_in, written_ms
from tests.demo.sound import sound


def test_rows_are_read_back_with_all_their_columns(tmp_path: Path) -> None:
    rows = sound().lake[:50]
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    write_deltalake(tmp_path / TABLE, pa.table({name: list(values) for name, values in columns.items()}))
    assert sorted(rows_in(tmp_path)) == rows


def test_when_rows_came_into_the_table_is_told_by_its_log_and_not_when_they_were_merged(tmp_path: Path) -> None:
    begun_ms = int(time.time() * 1000)
    for number in range(2):
        write_deltalake(tmp_path / TABLE, pa.table({"number": [number]}), mode="append")
    DeltaTable(tmp_path / TABLE).optimize.compact()
    assert DeltaTable(tmp_path / TABLE).version() == 2
    first, second = written_ms(tmp_path)
    assert begun_ms <= first <= second <= time.time() * 1000
