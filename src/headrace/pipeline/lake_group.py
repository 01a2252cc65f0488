"""With --group the offsets of a lake's query are committed as a consumer's are, after each batch."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from headrace.spark.listener import GroupListener

HEARD_S_MAX = 10.0
"""Brokers may not answer. The table does not need them."""


class _Listener(GroupListener):
    """Knows whether it has heard of the end of each query: Spark tells of a batch some time after that is over."""

    def __init__(self, bootstrap: str, query_name: str, group: str) -> None:
        super().__init__(bootstrap, {query_name: group})
        self._running: set[str] = set()
        self._changed = threading.Condition()

    def onQueryStarted(self, event: Any) -> None:
        """Before `start` returns."""
        with self._changed:
            self._running.add(str(event.runId))

    def onQueryTerminated(self, event: Any) -> None:
        """After all else of that query."""
        super().onQueryTerminated(event)
        with self._changed:
            self._running.discard(str(event.runId))
            self._changed.notify_all()

    def hear_all(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._running, HEARD_S_MAX)


@contextmanager
def committing_as(group: str | None, bootstrap: str, query_name: str, spark: SparkSession) -> Iterator[None]:
    """For queries that begin and end within."""
    if group is None:
        yield
        return
    listener = _Listener(bootstrap, query_name, group)
    spark.streams.addListener(listener)
    try:
        yield
        listener.hear_all()
    finally:
        spark.streams.removeListener(listener)
