"""Filters of a batch that are known before anything is read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from headrace.model import TopicPartition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET_MAX = (1 << 63) - 1
_NOT_BEFORE = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)
"""What is at that time or later."""
_ALWAYS_THERE = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


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


@dataclass
class Pushdown:
    pruned: Pruned = field(default_factory=Pruned)

    def push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Those that Spark has to apply still."""
        return [one for one in filters if not self._takes(one)]

    def _takes(self, one: Filter) -> bool:
        """Whether nothing is left to do for it."""
        column, kind, value = _parts(one)
        if kind is IsNotNull:
            return column in _ALWAYS_THERE
        if column in ("topic", "partition") and kind in (EqualTo, EqualNullSafe, In):
            return self._choose(column, value if kind is In else [value])
        if column == "offset":
            return self._bound_offset(kind, value)
        if column == "timestamp" and kind in (In, *_NOT_BEFORE):
            # Times need not rise with offsets: only what comes before the first hit is sure to be none.
            times = [time for time in (value if kind is In else [value]) if time is not None]
            if times and all(isinstance(time, datetime) for time in times):
                self._begin_at(_floor_ms(min(times)))
        return False

    def _begin_at(self, time_ms: int) -> None:
        """Brokers cannot be asked for a time before 1970: to them numbers below zero mean other things."""
        if time_ms > 0:
            self.pruned = replace(self.pruned, time_ms_min=max(time_ms, self.pruned.time_ms_min or time_ms))

    def _choose(self, column: str, chosen: Iterable[Any]) -> bool:
        right = str if column == "topic" else int
        values = frozenset(value for value in chosen if value is not None)
        if not all(isinstance(value, right) for value in values):
            return False
        if column == "topic":
            before = self.pruned.topics
            self.pruned = replace(self.pruned, topics=values if before is None else before & values)
        else:
            known = self.pruned.partitions
            self.pruned = replace(self.pruned, partitions=values if known is None else known & values)
        return True

    def _bound_offset(self, kind: type[Filter], value: Any) -> bool:
        bounds: Mapping[type[Filter], tuple[int, int]] = {}
        if kind is In and value and all(isinstance(one, int) for one in value):
            self._narrow(min(value), max(value) + 1)
            return False  # those between are still to be told apart
        if isinstance(value, int):
            bounds = {
                EqualTo: (value, value + 1),
                EqualNullSafe: (value, value + 1),
                GreaterThan: (value + 1, _OFFSET_MAX),
                GreaterThanOrEqual: (value, _OFFSET_MAX),
                LessThan: (0, value),
                LessThanOrEqual: (0, value + 1),
            }
        if kind not in bounds:
            return False
        self._narrow(*bounds[kind])
        return True

    def _narrow(self, begin: int, end: int) -> None:
        pruned = self.pruned
        self.pruned = replace(pruned, offset_min=max(pruned.offset_min, begin), offset_end=min(pruned.offset_end, end))


def _parts(one: Filter) -> tuple[str, type[Filter], Any]:
    """Column, kind and value; a column of no name for what is not of one column."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 else "", type(one), getattr(one, "value", None)


def _floor_ms(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(milliseconds=1)
