"""Filters that are known before anything is read."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
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
    Not,
)

from headrace.model import TopicPartition
from headrace.spark.batch_reader import BatchReader, PushdownReader, batch_reader, plan_batch
from headrace.spark.option_values import OptionRefused
from headrace.spark.options import read_options
from headrace.spark.pushdown import Pruned, pruned
from headrace.spark.schema import source_schema
from headrace.spark.verdicts import DataLoss
from tests.spark.fake_view import FakeLog, FakeView

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LEAST = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def planned(filters: list[Filter], **options: str) -> list[tuple[int, int, int]]:
    view = FakeView({T0: FakeLog(start=5, end=100), T1: FakeLog(end=50)}, times={T0: [(1_000, 60)]})
    pieces = plan_batch(read_options({**LEAST, **options}, "batch"), view, pruned(filters))
    return [(piece.range.partition.partition, piece.range.start, piece.range.end) for piece in pieces]


OFFSET, PARTITION, TOPIC, TIMESTAMP = ("offset",), ("partition",), ("topic",), ("timestamp",)
ALL = [(0, 5, 100), (1, 0, 50)]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = _EPOCH + timedelta(seconds=1)
"""The time of partition 0's offset 60."""


@pytest.mark.parametrize(
    ("one", "pieces"),
    [
        (GreaterThan(OFFSET, 60), [(0, 61, 100)]),
        (GreaterThanOrEqual(OFFSET, 49), [(0, 49, 100), (1, 49, 50)]),
        (LessThan(OFFSET, 7), [(0, 5, 7), (1, 0, 7)]),
        (LessThanOrEqual(OFFSET, 7), [(0, 5, 8), (1, 0, 8)]),
        (EqualTo(OFFSET, 3), [(1, 3, 4)]),
        (In(OFFSET, (90, 95)), [(0, 90, 96)]),
        (EqualTo(PARTITION, 1), [(1, 0, 50)]),
        (In(PARTITION, (0, 7)), [(0, 5, 100)]),
        (EqualTo(TOPIC, "t"), ALL),
        (EqualTo(TOPIC, "u"), []),
        (IsNotNull(TOPIC), ALL),
        (IsNotNull(("value",)), ALL),
        (Not(EqualTo(OFFSET, 3)), ALL),
        (EqualTo(("value",), b"x"), ALL),
        (GreaterThan(("a", "offset"), 3), ALL),
        (GreaterThan(OFFSET, "3"), ALL),
        (GreaterThanOrEqual(TIMESTAMP, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), [(0, 60, 100)]),
        (GreaterThan(TIMESTAMP, datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)), []),
        (EqualTo(TIMESTAMP, SECOND), [(0, 60, 100)]),
        (EqualNullSafe(TIMESTAMP, SECOND), [(0, 60, 100)]),
        (EqualNullSafe(TIMESTAMP, None), ALL),
        (In(TIMESTAMP, (SECOND + timedelta(days=9), None, SECOND)), [(0, 60, 100)]),
        (In(TIMESTAMP, (SECOND + timedelta(days=9), _EPOCH)), ALL),
        (In(TIMESTAMP, (None,)), ALL),
        (LessThan(TIMESTAMP, datetime(1970, 1, 1, tzinfo=UTC)), ALL),
        (LessThanOrEqual(TIMESTAMP, SECOND), ALL),
        # Records have times before 1970, too, and brokers are not asked for them: -1 and -2 are ends of a log to them.
        *((GreaterThanOrEqual(TIMESTAMP, _EPOCH + timedelta(milliseconds=ms)), ALL) for ms in (0, -1, -2, -5)),
        (EqualTo(TIMESTAMP, datetime(1900, 1, 1, tzinfo=UTC)), ALL),
    ],
)
def test_a_filter_narrows_what_is_planned(one: Filter, pieces: list[Any]) -> None:
    assert planned([one]) == pieces


def test_filters_add_up() -> None:
    some: list[Filter] = [GreaterThan(OFFSET, 10), LessThan(OFFSET, 20), In(PARTITION, (0, 1)), EqualTo(PARTITION, 1)]
    assert planned(some) == [(1, 11, 20)]


def test_the_latest_of_several_times_counts_also_beside_one_before_1970() -> None:
    since = GreaterThan(TIMESTAMP, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    ancient = GreaterThan(TIMESTAMP, datetime(1960, 1, 1, tzinfo=UTC))
    assert planned([since, ancient]) == planned([ancient, since]) == [(0, 60, 100)]


def test_a_batch_that_asks_for_what_is_not_there_fails_unless_that_is_accepted() -> None:
    gone = {"startingOffsets": '{"t": {"0": 2, "1": 0}}'}
    with pytest.raises(DataLoss, match="AGED_OUT"):
        planned([], **gone)
    assert planned([], **gone, failOnDataLoss="false") == ALL
    future = {"endingOffsets": '{"t": {"0": 200, "1": 10}}'}
    with pytest.raises(DataLoss, match="NOT_YET"):
        planned([], **future)
    assert planned([], **future, failOnDataLoss="false") == [(0, 5, 100), (1, 0, 10)]


@pytest.mark.parametrize(
    ("times", "pieces"),
    [
        ({"endingTimestamp": "2000"}, [(0, 0, 100)]),
        ({"startingTimestamp": "2000"}, []),
        ({"startingTimestamp": "500", "endingTimestamp": "2000"}, [(0, 40, 100)]),
    ],
)
def test_what_comes_while_a_batch_is_planned_is_not_asked_for(
    times: dict[str, str], pieces: list[tuple[int, int, int]]
) -> None:
    """Brokers tell first where the log ends, and then where the first record of a time is, which is behind that."""
    view = FakeView({T0: FakeLog(end=100)}, times={T0: [(1_000, 40), (2_000, 111)]})
    plan = plan_batch(read_options({**LEAST, **times}, "batch"), view, Pruned())
    assert [(piece.range.partition.partition, piece.range.start, piece.range.end) for piece in plan] == pieces


def test_only_a_process_that_spark_asks_about_filters_gets_a_reader_that_takes_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Elsewhere Spark fails the query of a reader that could take filters."""
    options, schema = read_options({**LEAST, "filterPushdown": "true"}, "batch"), source_schema(False)
    assert type(batch_reader(options, schema)) is BatchReader
    monkeypatch.setitem(__import__("sys").modules, "pyspark.sql.worker.data_source_pushdown_filters", pytest)
    assert type(batch_reader(options, schema)) is PushdownReader
    assert type(batch_reader(read_options({**LEAST, "filterPushdown": "false"}, "batch"), schema)) is BatchReader
    assert not caplog.records
    assert type(batch_reader(read_options(LEAST, "batch"), schema)) is BatchReader, "nobody has asked for it"
    assert "the option filterPushdown=true leaves out what is filtered" in caplog.text


@pytest.mark.parametrize(
    ("ending", "sentence"),
    [
        ({"endingOffsets": '{"t": {"0": 9, "1": 10}}'}, "option endingOffsets ends it at 10"),
        ({"endingOffsets": '{"t": {"0": 19, "1": -1}}', "startingOffsets": '{"t": {"0": 20, "1": 0}}'}, "at 19"),
        ({"endingTimestamp": "900", "startingOffsets": '{"t": {"0": 70, "1": 0}}'}, "endingTimestamp ends it at 60"),
    ],
)
def test_an_end_before_the_beginning_that_was_named_is_a_contradiction(ending: dict[str, str], sentence: str) -> None:
    given = {"startingOffsets": '{"t": {"0": -2, "1": 20}}', **ending}
    with pytest.raises(OptionRefused, match=sentence):
        planned([], **given)


def test_a_beginning_that_is_not_written_yet_is_told_as_that() -> None:
    given = {"startingOffsets": '{"t": {"0": -2, "1": 90}}', "endingOffsets": '{"t": {"0": -1, "1": 70}}'}
    with pytest.raises(DataLoss, match="NOT_YET"):
        planned([], **given)
