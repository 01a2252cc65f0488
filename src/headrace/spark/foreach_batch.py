"""`foreach_batch`: the sink for queries in update mode, which Spark does not let a Python sink have itself.

query = counts.writeStream.outputMode("update").foreachBatch(
    foreach_batch("127.0.0.1:9092", "counts", checkpoint_location="/checkpoints/counts", columns=to_record)
).option("checkpointLocation", "/checkpoints/counts").start()
"""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from headrace.spark.option_values import OptionRefused
from headrace.spark.write_options import write_options

Shape = Callable[[DataFrame], DataFrame]


def foreach_batch(
    bootstrap: str,
    topic: str | None = None,
    *,
    checkpoint_location: str | None = None,
    scope: str | None = None,
    columns: Shape | None = None,
    options: Mapping[str, str] | None = None,
) -> Callable[[DataFrame, int], None]:
    """For `writeStream.foreachBatch`: each batch is in the topic once, as with `format("headrace")`.

    `checkpoint_location` is that of the query, which Spark does not tell; or give `scope`, a name under which its
    batches are counted, the same after every restart. A query that writes to one topic twice needs two scopes.
    `columns` makes of a batch the columns key, value, headers, topic, partition and timestamp, if it has not got them.
    `options` are further ones of the sink.
    """
    given = {"kafka.bootstrap.servers": bootstrap, **(options or {})}
    for name, value in (("topic", topic), ("checkpointLocation", checkpoint_location), ("scope", scope)):
        if value is not None:
            given[name] = value
    parsed = write_options(given)
    if parsed.guarantee != "at_least_once":
        parsed.scope()
    if parsed.foreach_batch_id is not None:
        raise OptionRefused("option foreachBatchId is set by foreach_batch itself")

    def write(batch: DataFrame, batch_id: int) -> None:
        rows = batch if columns is None else columns(batch)
        rows.write.format("headrace").mode("append").options(**given, foreachBatchId=str(batch_id)).save()

    return write
