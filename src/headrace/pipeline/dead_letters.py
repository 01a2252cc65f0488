"""Records that are no rows of the table go to a topic of their own: key and value as they were, with the reason."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headrace.pipeline.parsing import REASON
from headrace.spark.foreach_batch import foreach_batch

LAKE_SCOPE_CHARS = 52
"""A scope has 64 at most."""
HEADERS = {
    "headrace.topic": "_topic",
    "headrace.partition": "_partition",
    "headrace.offset": "_offset",
    "headrace.reason": REASON,
}


class DeadLetters:
    """Written by the exactly-once sink, and counted as a part of the batch that they are of.

    Under a name that follows from that of the lake's scope alone, so that they are not written again where somebody
    gives that scope for a checkpoint that was moved.
    """

    def __init__(self, bootstrap: str, topic: str, checkpoint: str, lake_scope: str) -> None:
        self._write = foreach_batch(
            bootstrap,
            topic,
            checkpoint_location=checkpoint,
            scope=f"{lake_scope[:LAKE_SCOPE_CHARS]}-dead-letter",
            columns=_columns,
        )

    def write(self, rows: DataFrame, batch_id: int) -> None:
        self._write(rows.where(f.col(REASON).isNotNull()), batch_id)


def _columns(rows: DataFrame) -> DataFrame:
    headers = f.array(
        *(
            f.struct(f.lit(name).alias("key"), f.col(column).cast("string").cast("binary").alias("value"))
            for name, column in HEADERS.items()
        )
    )
    return rows.select(
        f.col("_key").alias("key"),
        f.col("_value").alias("value"),
        headers.cast("array<struct<key:string,value:binary>>").alias("headers"),
    )
