"""Arrow batches that are put together before they are cut by partition: with many partitions each gets few rows of
one, and a record batch costs about the same whether it holds ten rows or a thousand."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION_BYTES_AIM = 32 << 10
GATHERED_BYTES_MAX = 8 << 20


def bytes_aim(columns: list[str], partitions: int) -> int:
    """Rows without a key stay together anyway."""
    if "key" not in columns and "partition" not in columns:
        return 0
    return min(GATHERED_BYTES_MAX, partitions * PARTITION_BYTES_AIM)


def gathered(rows: "Iterator[pa.RecordBatch]", aim: "Callable[[pa.RecordBatch], int]") -> "Iterator[pa.RecordBatch]":
    """The same rows in their order, in batches of about as many bytes as `aim` says of each that comes, or more."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        size += batch.nbytes
        if size >= aim(batch):
            yield from _joined(waiting)
            waiting, size = [], 0
    yield from _joined(waiting)


def _joined(batches: "list[pa.RecordBatch]") -> "list[pa.RecordBatch]":
    if len(batches) < 2:
        return batches
    import pyarrow as pa

    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
