"""How far a run is: rows, rows per second, lag, and when it will be through."""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.model import TopicPartition
from headrace.spark.lag import Ages, LagClock
from headrace.spark.offsets import StreamOffset, from_json

WINDOW = 8
"""Micro-batches over which the speed is told."""


@dataclass(frozen=True)
class LakeProgress:
    batch_id: int
    rows: int
    """Read by this run so far."""
    rows_per_s: float
    lag_rows: int
    lag_s: float
    end_s: float | None
    """In so many seconds all that is there now will be read; None while nobody can tell."""
    offsets: int = 0
    """Up to which all runs have read, those of all partitions added up."""


@dataclass
class ProgressClock:
    """Fed with what Spark tells after each micro-batch."""

    started_s: float
    ages: Ages = lambda _: {}
    _last_batch: int = -1
    _rows: int = 0
    _seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _first: dict[TopicPartition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._clock = LagClock(self.ages)

    def news(
        self, reports: Sequence[Mapping[str, Any]], now_s: float, is_stopped: Callable[[], bool]
    ) -> Iterator[LakeProgress]:
        """Of the batches that had rows and were not told before; only with the newest one somebody is asked for ages,
        which takes a while."""
        new = [one for one in reports if one["batchId"] > self._last_batch and one["numInputRows"] > 0]
        for one in new:
            if is_stopped():
                return
            self._last_batch = int(one["batchId"])
            progress = self.told(one, now_s, may_ask=one is new[-1])
            if progress is not None:
                yield progress

    def told(self, progress: Mapping[str, Any], now_s: float, may_ask: bool = True) -> LakeProgress | None:
        """None if it says nothing of offsets, or not how far topics go, as Spark does of a batch that is done again."""
        read: dict[TopicPartition, int] = {}
        latest: dict[TopicPartition, int] = {}
        for source in progress["sources"]:
            start, end = _offset(source.get("startOffset")), _offset(source.get("endOffset"))
            read.update(end.offsets)
            if newest := _offset(source.get("latestOffset")).offsets:
                latest.update({**end.offsets, **newest})
            for one, offset in end.offsets.items():
                begin = end.begin_of(one, start)
                self._first.setdefault(one, offset if begin is None else begin)
        if not latest:
            return None
        if not self._seen:
            self._seen.append((self.started_s, 0))
        rows = max(self._rows, sum(offset - self._first[one] for one, offset in read.items()))
        self._rows = rows
        self._seen.append((now_s, rows))
        lags = self._clock.lag(read, latest, now_s, may_ask).values()
        lag_rows = sum(lag.records for lag in lags)
        (first_s, first_rows), (last_s, last_rows) = self._seen[0], self._seen[-1]
        speed = (last_rows - first_rows) / max(last_s - first_s, 1e-3)
        return LakeProgress(
            batch_id=int(progress["batchId"]),
            rows=rows,
            rows_per_s=speed,
            lag_rows=lag_rows,
            lag_s=max((lag.seconds for lag in lags), default=0.0),
            end_s=0.0 if not lag_rows else lag_rows / speed if speed > 0 else None,
            offsets=sum(read.values()),
        )


def _offset(told: Any) -> StreamOffset:
    """Of nothing, if it is of a source of another kind."""
    try:
        found = json.loads(told) if isinstance(told, str) else told
        return from_json(found) if isinstance(found, dict) else StreamOffset({})
    except ValueError:
        return StreamOffset({})
