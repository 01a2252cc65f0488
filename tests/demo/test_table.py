"""The table is read back with every column of it."""

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from demo.lake import COLUMNS, TABLE, rows_in
from tests.demo.sound import sound


def test_rows_are_read_back_with_all_their_columns(tmp_path: Path) -> None:
    rows = sound().lake[:50]
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    write_deltalake(tmp_path / TABLE, pa.table({name: list(values) for name, values in columns.items()}))
    assert sorted(rows_in(tmp_path)) == rows
