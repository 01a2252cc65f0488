"""Queries that run to their end."""

from pyspark.errors import StreamingQueryException
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
