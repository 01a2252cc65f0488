"""Runs of one query on one checkpoint, or on a copy of it, one after another and at the same time."""

import time
from collections.abc import Callable

import pytest

from headrace import own
from headrace.spark.driver_claims import OWN_GROUP, DriverAhead, NewerDriver, OlderCheckpoint
from headrace.spark.scope import MovedCheckpoint, scope_of
from headrace.testing import Cluster
from tests.spark.filling import make_topic
from tests.spark.sink_runs import Queries, broker, end, processes, query, spark, topic
from tests.spark.sink_stage import SETTINGS, Query, Spark, readable

__all__ = ["broker", "end", "processes", "query", "spark", "topic"]


def test_an_older_driver_stops_and_is_told_where_the_newer_one_is(
    broker: Cluster, topic: str, query: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = query("old"), query("new")
    monkeypatch.setattr("socket.gethostname", lambda: "host-a")
    old.commit(old.batch(0), 0)
    monkeypatch.setattr("socket.gethostname", lambda: "host-b")
    new.commit(new.batch(1), 1)
    late = old.batch(2)
    with pytest.raises(NewerDriver, match=r"query query-.* was taken over by a newer driver on host-b"):
        old.commit(late, 2)
    old.sink().abort(list(late), 2)
    with pytest.raises(NewerDriver):  # it stays so
        old.commit(old.batch(2), 2)
    new.commit(new.batch(2), 2)
    assert readable(broker.bootstrap, topic) == sorted(
        [b"0.0 old", b"0.1 old", b"1.0 new", b"1.1 new", b"2.0 new", b"2.1 new"]
    )


def test_a_driver_whose_process_was_replaced_is_still_the_same_one(query: Queries) -> None:
    """Spark ends processes that are idle for a minute."""
    one, moved = query("run1", process="a"), query("run1", process="b")
    one.commit(one.batch(0), 0)
    moved.commit(moved.batch(1), 1)
    one.commit(one.batch(2), 2)


def test_processes_of_one_run_do_not_take_the_query_from_each_other(
    broker: Cluster, topic: str, query: Queries
) -> None:
    """Spark commits in any that is idle, of several if there are several queries."""
    one, other = query("run1", process="a"), query("run1", process="b")
    for batch_id, turn in enumerate((one, other, one, other)):
        turn.commit(turn.batch(batch_id), batch_id)
    resource = f"query/{scope_of(None, f'/checkpoints/{topic}', topic).name}/query-{topic}"
    with pytest.raises(own.AlreadyOwned) as refused, own.claim_sync(broker.bootstrap, OWN_GROUP, resource):
        pass
    assert refused.value.generation == 1


@pytest.mark.parametrize("is_alive", [False, True])
@pytest.mark.parametrize("old_ms", [1, 3])
def test_an_older_driver_whose_process_was_replaced_stops_too(
    old_ms: int, is_alive: bool, query: Queries, end: Callable[[str], None]
) -> None:
    old, new = query("old", started_ms=old_ms), query("new", started_ms=2)
    old.commit(old.batch(0), 0)
    end("old")
    new.commit(new.batch(1), 1)
    if not is_alive:
        end("new")
    later = query("old", started_ms=old_ms, process="another")
    with pytest.raises(NewerDriver):
        later.commit(later.batch(1), 1)
    new.commit(new.batch(2), 2)


@pytest.mark.parametrize("new_ms", [1, 3])
def test_a_newer_driver_replays_a_batch_of_one_that_lives(new_ms: int, query: Queries) -> None:
    """Newer is who began to drive later, and be it in an application that was there before."""
    old, new = query("old", started_ms=2), query("new", started_ms=new_ms)
    old.commit(old.batch(0), 0)
    late = new.batch(1)
    old.commit(old.batch(1), 1)
    new.commit(late, 1)
    with pytest.raises(NewerDriver):
        old.commit(old.batch(2), 2)
    new.commit(new.batch(2), 2)


@pytest.mark.parametrize("process", ["the same", "another"])
def test_an_older_checkpoint_is_refused_before_its_rows_are_taken_for_written(
    process: str, broker: Cluster, topic: str, query: Queries, end: Callable[[str], None]
) -> None:
    """As of a backup that was restored: batches have their numbers again, and other rows."""
    one = query("run1", process="the same")
    for batch_id in range(5):
        one.commit(one.batch(batch_id), batch_id)
    if process != "the same":
        end("the same")
    for run in ("run2", "run3"):  # however often it is started
        older = query(run, process=process)
        with pytest.raises(OlderCheckpoint, match=r"batch 2 of .* comes, and batch 4 was written before, by run run1"):
            older.commit(older.batch(2), 2)
    all_again = query("run4", process=process, scope="restored")
    all_again.commit(all_again.batch(2), 2)
    newest = query("run5", process=process)
    newest.commit(newest.batch(4), 4)
    newest.commit(newest.batch(5), 5)
    expected = [*((n, b"run1") for n in range(5)), (2, b"run4"), (5, b"run5")]
    assert readable(broker.bootstrap, topic) == sorted(
        b"%d.%d %s" % (n, at, who) for n, who in expected for at in (0, 1)
    )


def test_only_the_first_batch_of_a_run_and_the_last_one_written_can_have_been_written_by_another_one(
    broker: Cluster, topic: str, query: Queries
) -> None:
    """Of one that lives, too: it may have gone on meanwhile. Who comes with an older checkpoint must not be told that
    its rows are written: its first batch may be its only one."""
    one, behind, two = query("run1"), query("run2"), query("run3")
    for batch_id in range(3):
        one.commit(one.batch(batch_id), batch_id)
    with pytest.raises(DriverAhead, match=r"run run1 on .* has written batch 2 of .* while this one was at batch 1"):
        behind.commit(behind.batch(1), 1)
    with pytest.raises(NewerDriver):
        one.commit(one.batch(3), 3)
    two.commit(two.batch(2), 2)
    two.commit(two.batch(3), 3)
    expected = [*((n, b"run1") for n in range(3)), (3, b"run3")]
    assert readable(broker.bootstrap, topic) == sorted(
        b"%d.%d %s" % (n, at, who) for n, who in expected for at in (0, 1)
    )


def test_a_copied_checkpoint_is_refused_until_somebody_says_what_it_is(
    broker: Cluster, topic: str, query: Queries
) -> None:
    one, copied = query("run1"), query("run2", checkpointLocation="s3a://bucket/copy/")
    one.commit(one.batch(0), 0)
    again = copied.batch(0)
    assert not again[0].outcome.is_skipped
    with pytest.raises(
        MovedCheckpoint, match=r"first seen with its checkpoint at \.\.\.(.*), and now at s3a"
    ) as raised:
        copied.commit(again, 0)
    copied.sink().abort(list(again), 0)
    old_scope = str(raised.value).split("give option scope=")[1].split()[0]
    moved = query("run3", checkpointLocation="s3a://bucket/copy", scope=old_scope)
    assert moved.batch(0)[0].outcome.is_skipped
    moved.commit(moved.batch(1), 1)
    own = query("run4", checkpointLocation="s3a://bucket/copy", scope="a.copy")
    own.commit(own.batch(0), 0)
    assert readable(broker.bootstrap, topic) == sorted(
        [b"0.0 run1", b"0.1 run1", b"1.0 run3", b"1.1 run3", b"0.0 run4", b"0.1 run4"]
    )


def test_a_copied_checkpoint_that_writes_another_topic_is_refused_too(
    broker: Cluster, topic: str, query: Queries
) -> None:
    """The original may write that one later, as any other."""
    other = f"{topic}-other"
    make_topic(broker.bootstrap, other, 2)
    one, copied = query("run1"), query("run2", checkpointLocation="/copy", topic=other)
    one.commit(one.batch(0), 0)
    again = copied.batch(0)
    for _ in range(2):
        with pytest.raises(MovedCheckpoint, match=r"and now at /copy, where it writes what .* scope=<a name"):
            copied.commit(again, 0)
    copied.sink().abort(list(again), 0)
    also = query("run1", topic=other)
    also.commit(also.batch(0), 0)
    own = query("run3", checkpointLocation="/copy", topic=other, scope="a.copy")
    own.commit(own.batch(0), 0)
    assert readable(broker.bootstrap, other) == [b"0.0 run1", b"0.0 run3", b"0.1 run1", b"0.1 run3"]


def test_a_query_that_runs_on_keeps_its_place_where_brokers_forget(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.spark.driver_claims.PLACE_AGAIN_MS", 100)
    forgetful = {
        "commit.group.retention.ms": "1000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    }
    with Cluster(settings={**SETTINGS, **forgetful}) as broker:
        make_topic(broker.bootstrap, "t", 1)
        given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "t", "checkpointLocation": "/original"}
        one = Query(spark, "run1", given)
        for batch_id in range(6):
            one.commit(one.batch(batch_id), batch_id)
            time.sleep(0.4)
        copied = Query(spark, "run2", {**given, "checkpointLocation": "/copy"})
        with pytest.raises(MovedCheckpoint):
            copied.commit(copied.batch(5), 5)


def test_whoever_moved_a_checkpoint_is_told_the_scope_of_the_very_topic(
    broker: Cluster, topic: str, query: Queries
) -> None:
    """Of a query that writes two topics, or wrote another one before."""
    other = f"{topic}-other"
    make_topic(broker.bootstrap, other, 2)
    for name in (topic, other):
        one = query("run1", topic=name)
        one.commit(one.batch(0), 0)
    for name in (other, topic):
        moved = query("run2", topic=name, checkpointLocation="/elsewhere")
        again = moved.batch(0)
        with pytest.raises(MovedCheckpoint) as raised:
            moved.commit(again, 0)
        moved.sink().abort(list(again), 0)
        old_scope = str(raised.value).split("give option scope=")[1].split()[0]
        goes_on = query("run3", topic=name, checkpointLocation="/elsewhere", scope=old_scope)
        goes_on.commit(goes_on.batch(0), 0)
        goes_on.commit(goes_on.batch(1), 1)
        assert readable(broker.bootstrap, name) == [b"0.0 run1", b"0.1 run1", b"1.0 run3", b"1.1 run3"]


def test_a_scope_that_was_given_once_is_asked_for_again(query: Queries) -> None:
    one, without = query("run1", scope="given"), query("run2")
    one.commit(one.batch(0), 0)
    again = without.batch(0)
    with pytest.raises(MovedCheckpoint, match="with option scope=given before: give it again"):
        without.commit(again, 0)
    without.sink().abort(list(again), 0)


def test_the_same_place_may_be_written_in_several_ways_and_the_topic_may_change(
    broker: Cluster, topic: str, query: Queries
) -> None:
    make_topic(broker.bootstrap, f"{topic}-other")
    one = query("run1", checkpointLocation="/checkpoints/x")
    one.commit(one.batch(0), 0)
    two = query("run2", checkpointLocation="file:///checkpoints/x/")
    assert two.batch(0)[0].outcome.is_skipped
    three = query("run3", checkpointLocation="/checkpoints/x", topic=f"{topic}-other")
    three.commit(three.batch(0), 0)
    assert len(readable(broker.bootstrap, f"{topic}-other")) == 2
