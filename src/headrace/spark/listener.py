"""A listener for Spark's queries: commits group offsets, and tells the lag.

    spark.streams.addListener(GroupListener("localhost:9092", groups={"orders to lake": "lake"}))

Then `headrace group describe lake` shows the query as it shows any group.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from headrace.client.cluster import parse_bootstrap
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.spark.ages import ages_s
from headrace.spark.group_offsets import commit_group_offsets
from headrace.spark.lag import Lag, LagClock
from headrace.spark.offsets import StreamOffset, from_json

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class QueryLag:
    """Of one query after a micro-batch."""

    query: str
    group: str
    batch_id: int
    partitions: Mapping[TopicPartition, Lag]

    @property
    def records(self) -> int:
        return sum(lag.records for lag in self.partitions.values())

    @property
    def seconds(self) -> float:
        return max((lag.seconds for lag in self.partitions.values()), default=0.0)


Commit = Callable[[str, str, Mapping[TopicPartition, int]], None]
AgesOf = Callable[[str, Mapping[TopicPartition, int]], Mapping[TopicPartition, float]]


class GroupListener(StreamingQueryListener):
    """Of all queries of the session, or of those that `groups` names. A query without a name goes by its id, and its
    group is then `spark-<id>`. `on_lag` hears of each micro-batch."""

    def __init__(
        self,
        bootstrap: str,
        groups: Mapping[str, str] | None = None,
        on_lag: Callable[[QueryLag], None] | None = None,
        *,
        commit: Commit = commit_group_offsets,
        ages: AgesOf = ages_s,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """ValueError for a bootstrap that is none: nobody hears of what is raised later on."""
        parse_bootstrap(bootstrap)
        self._bootstrap = bootstrap
        self._groups = groups
        self._on_lag = on_lag
        self._commit = commit
        self._ages = partial(ages, bootstrap)
        self._now_s = now_s
        self._clocks: dict[str, LagClock] = {}
        self._lags: dict[str, QueryLag] = {}

    @property
    def lags(self) -> dict[str, QueryLag]:
        """The last of each query that runs."""
        return dict(self._lags)

    def prometheus(self) -> str:
        """The same as text that Prometheus reads, for whoever serves it."""
        lines = []
        for name, figure in (("headrace_spark_lag_records", "records"), ("headrace_spark_lag_seconds", "seconds")):
            lines.append(f"# TYPE {name} gauge")
            for query in self._lags.values():
                for one, lag in query.partitions.items():
                    labels = f'query={_quoted(query.query)},group={_quoted(query.group)},topic="{one.topic}"'
                    lines.append(f'{name}{{{labels},partition="{one.partition}"}} {getattr(lag, figure)}')
        return "\n".join(lines) + "\n"

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None:
        self._lags.pop(str(event.id), None)
        self._clocks.pop(str(event.id), None)

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        query = progress.name or str(progress.id)
        if self._groups is not None and query not in self._groups:
            return
        group = (self._groups or {}).get(query) or progress.name or f"spark-{progress.id}"
        read: dict[TopicPartition, int] = {}
        latest: dict[TopicPartition, int] = {}
        for source in progress.sources:
            end = _offset(source.endOffset)
            if end is not None:
                # Of a batch that is done again Spark does not say how far its topics go: nobody knows the lag then.
                told = _offset(source.latestOffset)
                for one, offset in told.offsets.items() if told is not None else ():
                    latest[one] = max(offset, latest.get(one, offset))
                newest = told or end
                # What is not read any more has its place still, and its topic may be gone. Of sources that read the
                # same, one may be behind the others.
                for one in end.offsets.keys() & newest.offsets.keys():
                    read[one] = min(end.offsets[one], read.get(one, end.offsets[one]))
        if not read:
            return
        try:
            self._commit(self._bootstrap, group, read)
        except KafkaError as error:  # who watches the lag hears of it late; the query has nothing of it
            log.warning("the offsets of group %s were not committed: %s", group, error)
        if not latest:
            return
        clock = self._clocks.setdefault(str(progress.id), LagClock(self._ages))
        lag = QueryLag(query, group, progress.batchId, clock.lag(read, latest, self._now_s()))
        self._lags[str(progress.id)] = lag
        if self._on_lag is not None:
            self._on_lag(lag)


def _quoted(text: str) -> str:
    """As Prometheus has it, which knows no other escapes than these."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _offset(text: str | None) -> StreamOffset | None:
    """None if it is of a source of another kind."""
    try:
        told = json.loads(text or "")
        return from_json(told) if isinstance(told, dict) else None
    except ValueError:
        return None
