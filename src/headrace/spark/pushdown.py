"""Filters of a batch that are known before anything is read."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from headrace.model import TopicPartition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET_MAX = (1 << 63) - 1
_NOT_BEFORE = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)
"""What is at that time or later."""


@dataclass(frozen=True)
class Pruned:
    """What can match: nothing outside of it does."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min: int = 0
    offset_end: int = _OFFSET_MAX
    time_ms_min: int | None = None
    """Above zero."""

    def is_read(self, one: TopicPartition) -> bool:
        return (self.topics is None or one.topic in self.topics) and (
            self.partitions is None or one.partition in self.partitions
        )


def pruned(filters: Iterable[Filter]) -> Pruned:
    return reduce(_narrowed, filters, Pruned())


def _narrowed(known: Pruned, one: Filter) -> Pruned:
    column, kind, value = _parts(one)
    if column in ("topic", "partition") and kind in (EqualTo, EqualNullSafe, In):
        return _chosen(known, column, value if kind is In else [value])
    if column == "offset":
        return _bounded(known, kind, value)
    if column == "timestamp" and kind in (In, *_NOT_BEFORE):
        # Times need not rise with offsets: only what comes before the first hit is sure to be none.
        times = [time for time in (value if kind is In else [value]) if time is not None]
        if times and all(isinstance(time, datetime) for time in times):
            return _begun_at(known, _floor_ms(min(times)))
    return known


def _begun_at(known: Pruned, time_ms: int) -> Pruned:
    """Brokers cannot be asked for a time before 1970: to them numbers below zero mean other things."""
    return replace(known, time_ms_min=max(time_ms, known.time_ms_min or time_ms)) if time_ms > 0 else known


def _chosen(known: Pruned, column: str, chosen: Iterable[Any]) -> Pruned:
    right = str if column == "topic" else int
    values = frozenset(value for value in chosen if value is not None)
    if not all(isinstance(value, right) for value in values):
        return known
    if column == "topic":
        return replace(known, topics=values if known.topics is None else known.topics & values)
    return replace(known, partitions=values if known.partitions is None else known.partitions & values)


def _bounded(known: Pruned, kind: type[Filter], value: Any) -> Pruned:
    values = [one for one in (value if kind is In else [value]) if one is not None]
    if not values or not all(isinstance(one, int) for one in values):
        return known
    least, most = min(values), max(values)
    begin, end = {
        In: (least, most + 1),
        EqualTo: (least, most + 1),
        EqualNullSafe: (least, most + 1),
        GreaterThan: (least + 1, _OFFSET_MAX),
        GreaterThanOrEqual: (least, _OFFSET_MAX),
        LessThan: (0, most),
        LessThanOrEqual: (0, most + 1),
    }.get(kind, (0, _OFFSET_MAX))
    return replace(known, offset_min=max(known.offset_min, begin), offset_end=min(known.offset_end, end))


def _parts(one: Filter) -> tuple[str, type[Filter], Any]:
    """Column, kind and value; a column of no name for what is not of one column."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 else "", type(one), getattr(one, "value", None)


def _floor_ms(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(milliseconds=1)
