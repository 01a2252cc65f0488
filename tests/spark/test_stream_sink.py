"""The sink of a stream, step by step as Spark takes them, against a broker in this process."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.errors import KafkaError
from headrace.spark import task, writing
from headrace.spark.option_values import OptionRefused
from headrace.testing import Cluster
from tests.spark.sink_runs import Queries, broker, end, processes, query, spark, topic
from tests.spark.sink_stage import Query, Spark, batches, readable, wrote

__all__ = ["broker", "end", "processes", "query", "spark", "topic"]


def test_rows_are_read_when_their_batch_is_committed_and_not_before(
    broker: Cluster, topic: str, query: Queries
) -> None:
    one = query("run1")
    for batch_id in range(3):
        one.commit(one.batch(batch_id), batch_id)
    assert readable(broker.bootstrap, topic) == sorted(b"%d.%d run1" % (n, at) for n in range(3) for at in range(2))


def test_a_batch_that_was_committed_before_a_crash_is_skipped_by_the_next_run(
    broker: Cluster, topic: str, query: Queries
) -> None:
    one, two = query("run1"), query("run2")
    one.commit(one.batch(0), 0)
    again = two.batch(0)
    assert all(message.outcome.is_skipped and message.outcome.handle is None for message in again)
    two.commit(again, 0)
    two.commit(two.batch(1), 1)
    assert readable(broker.bootstrap, topic) == [b"0.0 run1", b"0.1 run1", b"1.0 run2", b"1.1 run2"]


def test_an_answer_that_was_lost_is_no_second_commit_and_abort_undoes_nothing(
    broker: Cluster, topic: str, query: Queries
) -> None:
    one = query("run1")
    messages: list[Any] = list(one.batch(0))
    one.commit(messages, 0)
    one.commit(messages, 0)
    one.sink().abort([*messages, None], 0)
    assert readable(broker.bootstrap, topic) == [b"0.0 run1", b"0.1 run1"]


def test_attempts_that_are_not_named_are_never_read(broker: Cluster, topic: str, query: Queries) -> None:
    """As of a task that was run twice, or whose process was lost."""
    one = query("run1")
    one.task(0, 0, b"lost")
    one.commit(one.batch(0), 0)
    assert readable(broker.bootstrap, topic) == [b"0.0 run1", b"0.1 run1"]


def test_a_batch_that_spark_gives_up_is_never_read(broker: Cluster, topic: str, query: Queries) -> None:
    one = query("run1")
    one.sink().abort([*one.batch(0), None], 0)
    assert readable(broker.bootstrap, topic) == []
    one.commit(one.batch(0), 0)
    assert len(readable(broker.bootstrap, topic)) == 2


def test_a_task_that_fails_half_way_leaves_nothing_behind(broker: Cluster, topic: str, query: Queries) -> None:
    def failing() -> Iterator[Any]:
        yield from batches([b"half"])
        raise ZeroDivisionError

    one = query("run1")
    one.task(0, 0)  # so that Spark tells of this batch
    with pytest.raises(ZeroDivisionError):
        one.sink().write(failing())
    assert readable(broker.bootstrap, topic) == []


def test_tasks_without_rows_begin_no_transaction_and_a_batch_without_rows_counts(
    broker: Cluster, topic: str, query: Queries
) -> None:
    one = query("run1")
    messages = [one.task(0, 0), one.task(0, 1)]
    assert [message.outcome.handle for message in messages] == [None, None]
    one.commit(messages, 0)
    assert query("run2").task(0, 0, b"late").outcome.is_skipped
    assert readable(broker.bootstrap, topic) == []


def test_a_task_whose_batch_is_committed_while_it_writes_skips_the_rest(
    broker: Cluster, topic: str, query: Queries
) -> None:
    one, two = query("run1"), query("run2")

    def overtaken() -> Iterator[Any]:
        yield from batches([b"zombie"])
        two.commit(two.batch(0), 0)
        two.commit(two.batch(1), 1)
        one.task(0, 5)  # Spark tells the zombie what it told it before
        yield from batches([b"zombie"])

    one.task(0, 0)
    assert wrote(one.sink().write(overtaken())).outcome.is_skipped
    assert len(readable(broker.bootstrap, topic)) == 4


@pytest.mark.parametrize("missing", [task.QUERY_ID, task.BATCH_ID, task.RUN_ID])
def test_a_spark_that_does_not_tell_enough_is_refused(missing: str, query: Queries, spark: Spark) -> None:
    one = query("run1")
    one.task(0, 0)
    del spark.properties[missing]
    with pytest.raises(task.ContextMissing, match="does not tell a task"):
        one.sink().write(batches([b"x"]))


def test_messages_that_do_not_fit_are_not_committed(query: Queries) -> None:
    one = query("run1")
    messages: list[Any] = list(one.batch(0))
    for wrong, batch_id in (([*messages, None], 0), (messages, 1), ([*messages, *one.batch(1)], 0)):
        with pytest.raises(KafkaError, match="the batch is not committed"):
            one.commit(wrong, batch_id)
    one.sink().abort(messages, 0)
    one.sink().abort(list(one.batch(1)), 1)


def test_at_least_once_needs_no_checkpoint_and_no_commit(broker: Cluster, topic: str, spark: Spark) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "deliveryGuarantee": "at_least_once"}
    one = Query(spark, "run1", given)
    messages = one.batch(0)
    assert len(readable(broker.bootstrap, topic)) == 2
    one.commit(messages, 0)
    one.sink().abort(list(messages), 0)
    assert len(readable(broker.bootstrap, topic)) == 2


def test_a_checkpoint_that_is_not_told_is_asked_for_before_anything_is_run(
    broker: Cluster, topic: str, spark: Spark
) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    with pytest.raises(OptionRefused, match="needs option checkpointLocation at the sink, or option scope"):
        Query(spark, "run1", given).sink()


def test_a_cluster_that_is_no_headrace_gets_rows_at_least_once_and_that_is_said(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broker: Cluster, topic: str
) -> None:
    monkeypatch.setattr(writing, "offers_groups", lambda *_: False)
    writing.say_at_least_once.cache_clear()
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    one = Query(spark, "run1", given)
    one.commit(one.batch(0), 0)
    assert len(readable(broker.bootstrap, topic)) == 2
    assert caplog.text.count("rows are written at least once") == 1
    strict = Query(spark, "run1", {**given, "deliveryGuarantee": "exactly_once", "scope": "x"})
    with pytest.raises(KafkaError, match="exactly_once is not possible; deliveryGuarantee=at_least_once is"):
        strict.task(0, 0, b"x")
