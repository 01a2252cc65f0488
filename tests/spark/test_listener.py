"""Lag, and what the listener makes of Spark's reports."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client import Admin, Producer
from headrace.client.group_admin import Committed
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.spark.ages import ages_s
from headrace.spark.group_offsets import commit_group_offsets
from headrace.spark.lag import ASK_EVERY_S, SEEN_MAX, Lag, LagClock
from headrace.spark.listener import GroupListener, QueryLag
from headrace.system import SystemClock
from headrace.testing import Cluster
from tests.spark.filling import make_topic

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def progress(read: str | None, latest: str | None, name: str | None = "q", batch: int = 4) -> Any:
    source = SimpleNamespace(endOffset=read, latestOffset=latest)
    return SimpleNamespace(progress=SimpleNamespace(id="i-d", name=name, batchId=batch, sources=[source]))


class Heard:
    def __init__(self, **settings: Any) -> None:
        self.committed: list[Any] = []
        self.lags: list[QueryLag] = []
        self.now_s = 100.0
        self.refuses = False
        self.listener = GroupListener(
            "h:1",
            on_lag=self.lags.append,
            commit=self._commit,
            now_s=lambda: self.now_s,
            **{"ages": lambda _bootstrap, _offsets: {}, **settings},
        )

    def _commit(self, bootstrap: str, group: str, offsets: Any) -> None:
        if self.refuses:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there is none")
        self.committed.append((bootstrap, group, dict(offsets)))


def test_lag_is_counted_in_records_and_from_when_there_was_more_to_read() -> None:
    clock = LagClock()
    assert clock.lag({T0: 10}, {T0: 10}, 100.0) == {T0: Lag(0, 0.0)}
    assert clock.lag({T0: 10}, {T0: 15}, 101.0) == {T0: Lag(5, 0.0)}
    assert clock.lag({T0: 10}, {T0: 30}, 104.0) == {T0: Lag(20, 3.0)}
    assert clock.lag({T0: 20}, {T0: 30}, 106.0) == {T0: Lag(10, 2.0)}
    assert clock.lag({T0: 30}, {T0: 30}, 109.0) == {T0: Lag(0, 0.0)}


def test_what_was_there_before_the_clock_has_the_age_of_its_record() -> None:
    asked: list[Any] = []

    def ages(offsets: Any) -> dict[TopicPartition, float]:
        asked.append(dict(offsets))
        return {T0: 3600.0}

    clock = LagClock(ages)
    assert clock.lag({T0: 10, T1: 5}, {T0: 30, T1: 5}, 100.0) == {T0: Lag(20, 3600.0), T1: Lag(0, 0.0)}
    assert asked == [{T0: 10}]
    assert clock.lag({T0: 30, T1: 5}, {T0: 40, T1: 5}, 101.0)[T0] == Lag(10, 0.0)
    assert clock.lag({T0: 30, T1: 5}, {T0: 40, T1: 5}, 104.0)[T0] == Lag(10, 3.0)
    assert len(asked) == 1  # of what came since, the clock itself knows


def test_ages_are_asked_for_now_and_then_and_grow_older_between() -> None:
    asked: list[Any] = []

    def ages(offsets: Any) -> dict[TopicPartition, float]:
        asked.append(dict(offsets))
        return dict.fromkeys(offsets, 3600.0)

    clock = LagClock(ages)
    ends = {T0: 30, T1: 30}
    assert clock.lag({T0: 10, T1: 10}, ends, 100.0, may_ask=False) == {T0: Lag(20, 0.0), T1: Lag(20, 0.0)}
    assert clock.lag({T0: 10, T1: 10}, ends, 100.0) == {T0: Lag(20, 3600.0), T1: Lag(20, 3600.0)}
    later = 100.0 + ASK_EVERY_S - 1
    grown = 3600.0 + ASK_EVERY_S - 1
    assert clock.lag({T0: 10, T1: 11}, ends, later) == {T0: Lag(20, grown), T1: Lag(19, grown)}
    assert asked == [{T0: 10, T1: 10}]
    assert clock.lag({T0: 10, T1: 11}, ends, later + 1) == {T0: Lag(20, 3600.0), T1: Lag(19, 3600.0)}
    assert asked[1:] == [{T0: 10, T1: 11}]
    assert clock.lag({T0: 10, T1: 30}, {T0: 30, T1: 31}, later + 2)[T1] == Lag(1, 0.0)  # there since it was first told
    clock.lag({T0: 10, T1: 11}, ends, 50.0)
    assert len(asked) == 3  # the clock was set back


def test_what_was_told_of_another_log_by_the_same_name_is_forgotten() -> None:
    clock = LagClock(lambda offsets: dict.fromkeys(offsets, 3600.0))
    assert clock.lag({T0: 10}, {T0: 30}, 100.0) == {T0: Lag(20, 3600.0)}
    assert clock.lag({T0: 10}, {T0: 20}, 101.0) == {T0: Lag(10, 0.0)}


async def test_an_age_is_that_of_the_first_record_that_is_not_read() -> None:
    hour_ms = 3_600_000
    now_ms = SystemClock().wall_ms()
    async with Cluster() as cluster:
        await asyncio.to_thread(make_topic, cluster.bootstrap, "t", 2)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            for at in range(3):
                await producer.send("t", b"x", partition=0, timestamp_ms=now_ms - (9 - at) * hour_ms)
        found = await asyncio.to_thread(ages_s, cluster.bootstrap, {T0: 1, T1: 0})
    assert found.keys() == {T0} and 8 * 3600 <= found[T0] < 8.5 * 3600


def test_a_clock_remembers_no_more_than_it_may() -> None:
    clock = LagClock()
    for at in range(5 * SEEN_MAX):
        clock.lag({T0: 0}, {T0: at + 1}, float(at))
    assert clock.lag({T0: 0}, {T0: 5 * SEEN_MAX}, 5.0 * SEEN_MAX)[T0].seconds == 5.0 * SEEN_MAX
    assert sum(map(len, clock._seen.values())) <= SEEN_MAX + 1


def test_a_report_becomes_a_commit_and_a_lag() -> None:
    heard = Heard()
    heard.listener.onQueryProgress(progress('{"@log":{},"t":{"0":5,"1":7}}', '{"t":{"0":9,"1":7}}'))
    assert heard.committed == [("h:1", "q", {T0: 5, T1: 7})]
    (lag,) = heard.lags
    assert (lag.query, lag.group, lag.batch_id, lag.records, lag.seconds) == ("q", "q", 4, 4, 0.0)
    heard.now_s += 3
    heard.listener.onQueryProgress(progress('{"t":{"0":5,"1":7}}', '{"t":{"0":9,"1":7}}'))
    assert heard.lags[-1].seconds == 3.0
    assert 'headrace_spark_lag_records{query="q",group="q",topic="t",partition="0"} 4\n' in heard.listener.prometheus()
    assert (
        'headrace_spark_lag_seconds{query="q",group="q",topic="t",partition="0"} 3.0\n' in heard.listener.prometheus()
    )
    heard.listener.onQueryTerminated(SimpleNamespace(id="i-d"))
    assert heard.listener.lags == {}


def test_offsets_are_committed_before_anybody_is_asked_for_ages() -> None:
    happened: list[str] = []

    def ages(_bootstrap: str, _offsets: Any) -> dict[TopicPartition, float]:
        happened.append("asked")
        return {}

    listener = GroupListener("h:1", commit=lambda *_: happened.append("committed"), ages=ages)
    listener.onQueryProgress(progress('{"t":{"0":5}}', '{"t":{"0":9}}'))
    assert happened == ["committed", "asked"]


def test_what_is_not_read_any_more_is_not_committed() -> None:
    """Its topic may be gone, and a group cannot be told of that."""
    heard = Heard()
    heard.listener.onQueryProgress(progress('{"@gone":["u"],"t":{"0":5},"u":{"0":3}}', '{"t":{"0":9}}'))
    assert heard.committed == [("h:1", "q", {T0: 5})]


@pytest.mark.parametrize("order", [1, -1])
def test_a_partition_that_several_sources_of_a_query_read_is_read_as_far_as_the_last_of_them(order: int) -> None:
    heard = Heard()
    report = progress('{"t":{"0":5,"1":7}}', '{"t":{"0":9,"1":7}}')
    report.progress.sources += progress('{"t":{"0":3},"u":{"0":1}}', '{"t":{"0":8},"u":{"0":1}}').progress.sources
    report.progress.sources[:] = report.progress.sources[::order]
    heard.listener.onQueryProgress(report)
    assert heard.committed == [("h:1", "q", {T0: 3, T1: 7, TopicPartition("u", 0): 1})]
    assert heard.lags[-1].records == 6


def test_of_a_batch_that_is_done_again_nobody_knows_the_lag_but_how_far_it_has_read() -> None:
    """It is not 0, as which it was told; and what comes with the next batch was there before."""
    heard = Heard(ages=lambda _bootstrap, offsets: dict.fromkeys(offsets, 3600.0))
    heard.listener.onQueryProgress(progress('{"t":{"0":5}}', None))
    assert heard.committed == [("h:1", "q", {T0: 5})] and not heard.lags
    heard.listener.onQueryProgress(progress('{"t":{"0":6}}', '{"t":{"0":9}}'))
    assert (heard.lags[-1].records, heard.lags[-1].seconds) == (3, 3600.0)


def test_names_are_told_as_prometheus_reads_them() -> None:
    heard = Heard()
    heard.listener.onQueryProgress(progress('{"t":{"0":5}}', '{"t":{"0":5}}', name='Größe "\\" \n'))
    assert 'query="Größe \\"\\\\\\" \\n"' in heard.listener.prometheus()


def test_groups_are_chosen_by_the_names_of_queries() -> None:
    heard = Heard(groups={"q": "g"})
    heard.listener.onQueryProgress(progress('{"t":{"0":5}}', None))
    heard.listener.onQueryProgress(progress('{"t":{"0":5}}', None, name="other"))
    assert [group for _, group, _ in heard.committed] == ["g"]
    unnamed = Heard()
    unnamed.listener.onQueryProgress(progress('{"t":{"0":5}}', None, name=None))
    assert [group for _, group, _ in unnamed.committed] == ["spark-i-d"]


def test_a_bootstrap_that_is_none_is_told_at_once() -> None:
    """Spark swallows what a listener raises while a query runs."""
    with pytest.raises(ValueError, match="bootstrap 'nowhere' is not host:port"):
        GroupListener("nowhere")


def test_sources_of_other_kinds_and_refused_commits_do_not_disturb() -> None:
    heard = Heard()
    for other in (None, "7", "nothing", '{"file": 3}', "[]"):
        heard.listener.onQueryProgress(progress(other, other))
    assert heard.committed == []
    heard.refuses = True
    heard.listener.onQueryProgress(progress('{"t":{"0":5}}', '{"t":{"0":5}}'))
    assert heard.lags[-1].records == 0


def test_a_committed_offset_is_that_of_a_group() -> None:
    async def offsets(bootstrap: str) -> dict[TopicPartition, Committed]:
        async with Admin(bootstrap) as admin:
            return await admin.groups.offsets("g")

    with Cluster() as cluster:
        make_topic(cluster.bootstrap, "t", 2)
        commit_group_offsets(cluster.bootstrap, "g", {T0: 5, T1: 7})
        assert {one: at.offset for one, at in asyncio.run(offsets(cluster.bootstrap)).items()} == {T0: 5, T1: 7}
