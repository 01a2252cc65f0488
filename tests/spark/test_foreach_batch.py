"""What `foreach_batch` makes of the sink of a batch job, against a broker in this process."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.spark import task
from headrace.spark.committing import SecondWrite
from headrace.spark.data_source import HeadraceDataSource
from headrace.spark.foreach_batch import foreach_batch
from headrace.spark.messages import Written
from headrace.spark.option_values import OptionRefused
from headrace.spark.sink import ForeachBatchSink
from headrace.testing import Cluster
from tests.spark.filling import make_topic
from tests.spark.sink_stage import SETTINGS, VALUE, Spark, batches, pickled, readable, spark, wrote
from tests.spark.test_job_sink import sink

__all__ = ["spark"]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(settings=SETTINGS) as running:
        make_topic(running.bootstrap, "t", 3)
        yield running


class Frame:
    """A DataFrame as far as `foreach_batch` uses it; its tasks run at once."""

    def __init__(self, spark: Spark, *values: bytes) -> None:
        self._spark = spark
        self._values = values
        self.write = self
        self.messages: list[Written] = []

    def format(self, name: str) -> "Frame":
        assert name == "headrace"
        return self

    def mode(self, name: str) -> "Frame":
        assert name == "append"
        return self

    def options(self, **given: str) -> "Frame":
        self._given = {key.lower(): text for key, text in given.items()}
        return self

    def save(self) -> None:
        made = HeadraceDataSource(self._given).writer(schema=VALUE, overwrite=False)
        assert isinstance(made, ForeachBatchSink)
        self.messages = [wrote(pickled(made).write(batches(self._values)))]
        pickled(made).commit(list(self.messages))


def test_foreach_batch_writes_a_batch_once_however_often_it_is_run(cluster: Cluster, spark: Spark) -> None:
    write: Any = foreach_batch(cluster.bootstrap, "t", checkpoint_location="/checkpoints/counts")
    for run, batch_id in (("run1", 0), ("run1", 1), ("run2", 1)):
        spark.properties = {task.QUERY_ID: "q", task.RUN_ID: run, task.BATCH_ID: str(batch_id)}
        write(Frame(spark, b"%d" % batch_id), batch_id)
    assert readable(cluster.bootstrap) == [b"0", b"1"]


def test_a_write_from_elsewhere_than_its_batch_is_told_so_and_not_of_the_version_of_spark(
    cluster: Cluster, spark: Spark
) -> None:
    write: Any = foreach_batch(cluster.bootstrap, "t", checkpoint_location="/checkpoints/counts")
    spark.properties = {task.QUERY_ID: "q", task.RUN_ID: "run1", task.BATCH_ID: "1"}
    with pytest.raises(task.NotOfBatch, match="is to write batch 2, and Spark runs batch 1 in this thread"):
        write(Frame(spark, b"x"), 2)
    spark.properties = {}
    with pytest.raises(task.NotOfBatch, match=r"runs no batch in this thread: .* through pyspark\.inheritable_thread"):
        write(Frame(spark, b"x"), 2)


def test_two_writes_of_one_query_to_one_topic_have_scopes_of_their_own(cluster: Cluster, spark: Spark) -> None:
    spark.properties = {task.QUERY_ID: "q", task.RUN_ID: "run1", task.BATCH_ID: "0"}
    for scope in ("one", "two"):
        write: Any = foreach_batch(cluster.bootstrap, "t", scope=scope, checkpoint_location="/checkpoints/counts")
        write(Frame(spark, scope.encode()), 0)
    assert readable(cluster.bootstrap) == [b"one", b"two"]


@pytest.mark.parametrize("options", [{}, {"scope": "shared"}])
def test_a_second_write_of_a_batch_under_one_scope_is_refused_and_not_dropped_in_silence(
    cluster: Cluster, spark: Spark, options: dict[str, str]
) -> None:
    def run(name: str, *scopes: str | None) -> None:
        spark.properties = {task.QUERY_ID: "q", task.RUN_ID: name, task.BATCH_ID: "0"}
        for at, scope in enumerate(scopes):
            given = options if scope is None else {"scope": scope}
            write: Any = foreach_batch(cluster.bootstrap, "t", checkpoint_location="/c", options=given)
            write(Frame(spark, b"write %d" % at), 0)

    with pytest.raises(SecondWrite, match=r"batch 0 of query q .* give each write an option scope of its own"):
        run("run1", None, None)
    assert readable(cluster.bootstrap) == [b"write 0"]
    run("run2", None, "second")
    assert readable(cluster.bootstrap) == [b"write 0", b"write 1"]


def test_two_writes_of_a_batch_at_the_same_time_are_not_taken_for_one(cluster: Cluster, spark: Spark) -> None:
    spark.properties = {task.QUERY_ID: "q", task.RUN_ID: "run1", task.BATCH_ID: "0"}
    given = {"checkpointLocation": "/c", "foreachBatchId": "0"}
    one, two = sink(cluster, VALUE, **given), sink(cluster, VALUE, **given)
    written = [[wrote(each.write(batches([value])))] for each, value in ((one, b"one"), (two, b"two"))]
    one.commit(list(written[0]))
    one.commit(list(written[0]))  # as when the answer was lost
    with pytest.raises(SecondWrite):
        two.commit(list(written[1]))
    assert readable(cluster.bootstrap) == [b"one"]


def test_foreach_batch_says_at_once_what_it_needs() -> None:
    with pytest.raises(
        OptionRefused, match="exactly_once needs option checkpointLocation at the sink, or option scope"
    ):
        foreach_batch("h:1", "t")
    foreach_batch("h:1", "t", options={"deliveryGuarantee": "at_least_once"})
    with pytest.raises(OptionRefused, match="is deliveryGuarantee meant"):
        foreach_batch("h:1", "t", scope="x", options={"deliveryGarantee": "at_least_once"})
