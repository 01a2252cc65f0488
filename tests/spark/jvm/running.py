"""Queries that run to their end, and what came of them."""

from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

TOO_SLOW = "Python worker failed to connect back"
"""Spark gives a new process of Python ten seconds to come up, which a busy machine may not keep."""

STARTS = 5


def run_out(writer: DataStreamWriter) -> StreamingQuery:
    """Until all that was there when it began is read. Started again if Spark could not: so it would be by its user."""
    for _ in range(STARTS - 1):
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination(120)
        except StreamingQueryException as failure:
            if TOO_SLOW not in str(failure):
                raise
        else:
            return query
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(120)
    return query


class Seen:
    """Values by micro-batch, as `foreachBatch` got them."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.fails = False

    def __call__(self, frame: DataFrame, _batch_id: int) -> None:
        values = [bytes(row.value) for row in frame.select("value").collect()]
        if self.fails:
            raise RuntimeError("it was told to fail")
        self.batches.append(values)

    @property
    def values(self) -> list[bytes]:
        return sorted((value for batch in self.batches for value in batch), key=int)


def run(frame: DataFrame, checkpoint: Path, seen: Seen) -> StreamingQuery:
    """Until all that was there when it began is read."""
    return run_out(frame.writeStream.foreachBatch(seen).option("checkpointLocation", str(checkpoint)))
