"""Small files of a day into one: which of them, and their rows."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.pipeline.place import Place

if TYPE_CHECKING:
    import pyarrow as pa

SMALL = 2
"""A file is small that has less than this part of what a file is to have."""


def small_files(found: Iterable[tuple[int, str]], file_bytes: int) -> list[str]:
    """Of sizes and paths: a few hundred megabytes of them at most, the smallest ones first."""
    chosen: list[str] = []
    total = 0
    for size, path in sorted(found):
        if size * SMALL > file_bytes or total + size > file_bytes * SMALL:
            break
        chosen.append(path)
        total += size
    return chosen


def join(place: Place, paths: Sequence[str], into: str, schema: "pa.Schema") -> int:
    """How many rows they have together. FileNotFoundError if one is gone."""
    import pyarrow.parquet as pq

    fs = place.file_system()
    where = place.within(into)
    fs.create_dir(where.rpartition("/")[0], recursive=True)
    rows = 0
    with fs.open_output_stream(where) as stream, pq.ParquetWriter(stream, schema, compression="zstd") as out:
        for path in paths:
            try:
                with fs.open_input_file(place.within(path)) as source:
                    table = pq.read_table(source, schema=schema, partitioning=None)
            except OSError as error:  # an object that goes while it is read is no FileNotFoundError to pyarrow
                if gone := place.unseen(paths):
                    raise FileNotFoundError(gone) from error
                raise
            out.write_table(table)
            rows += table.num_rows
    return rows
