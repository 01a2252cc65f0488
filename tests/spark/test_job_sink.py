"""The sink of a batch job, against a broker in this process."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from headrace.client import Admin, CommitGroups, Consumer, Producer
from headrace.client.errors import TimedOut
from headrace.core.murmur2 import partition_for
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.net.peer import Peer
from headrace.spark.data_source import HeadraceDataSource
from headrace.spark.option_values import OptionRefused
from headrace.spark.scope import Scope
from headrace.spark.write_options import write_options
from headrace.testing import Cluster
from headrace.wire.batch import EncodedRecords
from headrace.wire.messages.produce import ProduceRequest
from tests.spark.filling import delete_topic, make_topic
from tests.spark.sink_stage import SETTINGS, VALUE, Spark, batches, pickled, readable, spark, wrote

__all__ = ["spark"]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(settings=SETTINGS) as running:
        make_topic(running.bootstrap, "t", 3)
        yield running


def sink(cluster: Cluster, schema: StructType = VALUE, **options: str) -> DataSourceArrowWriter:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "t", **options}
    return HeadraceDataSource(given).writer(schema=schema, overwrite=False)


def test_a_job_is_read_as_a_whole_or_not_at_all(cluster: Cluster, spark: Spark) -> None:
    job = sink(cluster)
    messages: list[Any] = []
    for spark.partition in range(3):
        messages.append(wrote(pickled(job).write(batches([b"%d" % spark.partition]))))
    pickled(job).commit(messages)
    failed = sink(cluster)
    half = wrote(pickled(failed).write(batches([b"half"])))
    pickled(failed).write(batches([b"of a process that was lost"]))
    pickled(failed).abort([half, None])
    pickled(job).abort(messages)  # changes nothing any more
    assert readable(cluster.bootstrap) == [b"0", b"1", b"2"]


@pytest.mark.usefixtures("spark")
def test_each_job_counts_for_itself(cluster: Cluster) -> None:
    for _ in range(2):
        job = sink(cluster)
        job.commit([job.write(batches([b"x"]))])
    assert readable(cluster.bootstrap) == [b"x", b"x"]


@pytest.mark.usefixtures("spark")
def test_a_job_that_lost_a_message_is_not_committed(cluster: Cluster) -> None:
    job = sink(cluster)
    messages: list[Any] = [job.write(batches([b"x"])), None]
    with pytest.raises(KafkaError, match="1 tasks have not told what they wrote"):
        job.commit(messages)
    job.abort(messages)
    assert readable(cluster.bootstrap) == []


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_job_whose_commit_is_not_answered_is_not_called_failed_and_its_end_is_told(
    is_committed: bool, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who took it for failed would run it again, and have its rows twice."""
    job = sink(cluster)
    written = wrote(job.write(batches([b"x"])))
    commit = CommitGroups.commit

    async def unanswered(groups: CommitGroups, *asked: Any) -> None:
        if is_committed:
            await commit(groups, *asked)
        raise TimedOut("nobody answered")

    with monkeypatch.context() as cut:
        cut.setattr(CommitGroups, "commit", unanswered)
        with pytest.raises(KafkaError, match="not known whether the job is committed: nobody"):
            job.commit([written])
    job.abort([written])
    assert readable(cluster.bootstrap) == [b"x"] * is_committed
    assert ("is committed, whatever else is told" in caplog.text) == is_committed


@pytest.mark.usefixtures("spark")
def test_rows_go_where_the_java_client_would_put_them(cluster: Cluster) -> None:
    async def places() -> dict[bytes | None, int]:
        async with Consumer(cluster.bootstrap) as consumer:
            partitions = await consumer.partitions_of("t")
            consumer.assign(partitions)
            found: dict[bytes | None, int] = {}
            async with asyncio.timeout(30):
                while len(found) < 50:
                    found |= {record.key: record.partition for record in await consumer.poll(200)}
            return found

    keys = [f"key {number}" for number in range(50)]
    schema = StructType([StructField("key", StringType()), StructField("value", StringType())])
    job = sink(cluster, schema, **{"deliveryGuarantee": "at_least_once", "kafka.compression.type": "lz4"})
    batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(keys)], ["key", "value"])
    job.commit([job.write(iter([batch]))])
    assert asyncio.run(places()) == {key.encode(): partition_for(key.encode(), 3) for key in keys}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("given", "asked"), [("0", 0), ("1", 1), ("all", -1), (None, -1)])
def test_at_least_once_may_wait_for_fewer_brokers(
    cluster: Cluster, given: str | None, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    write = Peer._write

    def noted(self: Peer, message: Any, version: int) -> int:
        if isinstance(message, ProduceRequest):
            told.append(message.acks)
        return write(self, message, version)

    monkeypatch.setattr(Peer, "_write", noted)
    acks = {} if given is None else {"kafka.acks": given}
    job = sink(cluster, VALUE, deliveryGuarantee="at_least_once", **acks)
    job.commit([job.write(batches([b"x"]))])
    deadline_s = time.monotonic() + 30
    while not readable(cluster.bootstrap) and time.monotonic() < deadline_s:
        time.sleep(0.01)  # with acks=0, what is sent may not be there yet
    assert readable(cluster.bootstrap) == [b"x"]
    assert told == [asked]


@pytest.mark.usefixtures("spark")
def test_a_topic_that_does_not_exist_is_named_and_nothing_is_left_open(cluster: Cluster) -> None:
    job = sink(cluster, topic="no such topic")
    with pytest.raises(KafkaError, match="'no such topic' cannot be the name of a topic"):
        job.write(batches([b"x"]))


@pytest.mark.usefixtures("spark")
def test_a_time_that_brokers_do_not_allow_is_refused_with_their_setting(cluster: Cluster) -> None:
    job = sink(cluster, VALUE, **{"kafka.transaction.timeout.ms": "3600000"})
    with pytest.raises(KafkaError, match=r"may take 3600000 ms, which is more than .* transaction\.max\.timeout\.ms"):
        job.write(batches([b"x"]))


def test_more_tasks_than_brokers_allow_are_refused_with_their_setting(spark: Spark) -> None:
    with Cluster(settings={**SETTINGS, "commit.group.max.attempts": "1"}) as cluster:
        make_topic(cluster.bootstrap, "t")
        job = sink(cluster)
        written = wrote(job.write(batches([b"1"])))
        spark.partition = 1
        with pytest.raises(KafkaError, match=r"more open attempts at one batch than .* commit\.group\.max\.attempts"):
            job.write(batches([b"2"]))
        job.abort([written, None])


@pytest.mark.usefixtures("spark")
def test_more_than_the_buffer_of_a_task_is_written_too(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.spark.writing.BUFFER_BYTES", 100_000)
    job = sink(cluster, VALUE, **{"kafka.batch.size": "20000"})
    values = [bytes([number]) * 900 for number in range(200)] + [b"x" * 150_000]
    job.commit([job.write(batches(values))])
    assert readable(cluster.bootstrap) == sorted(values)


@pytest.mark.usefixtures("spark")
def test_batches_of_no_size_have_a_row_each_as_with_kafkas_producers(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    send = Producer.send_encoded

    def noted(producer: Producer, partition: TopicPartition, records: EncodedRecords, on_lost: Any) -> None:
        counts.append(records.record_count)
        send(producer, partition, records, on_lost)

    monkeypatch.setattr(Producer, "send_encoded", noted)
    job = sink(cluster, VALUE, **{"kafka.batch.size": "0"})
    job.commit([job.write(batches([b"1", b"2", b"3"]))])
    assert readable(cluster.bootstrap) == [b"1", b"2", b"3"]
    assert counts == [1, 1, 1]


@pytest.mark.usefixtures("spark")
def test_beside_the_option_a_column_topic_may_be_anything(cluster: Cluster) -> None:
    schema = StructType([*VALUE.fields, StructField("topic", IntegerType())])
    job = sink(cluster, schema)
    rows = {"value": [b"x", b"y"], "topic": pa.array([7, None], pa.int32())}
    job.commit([job.write(iter([pa.RecordBatch.from_pydict(rows)]))])
    assert readable(cluster.bootstrap) == [b"x", b"y"]


LEAST = {"kafka.bootstrap.servers": "h:1", "topic": "t"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"path": "x"}, "option path cannot be set: option topic names the topic"),
        ({"subscribe": "x"}, "there is no option subscribe"),
        ({"kafka.acks": "1"}, "option kafka.acks=1 needs deliveryGuarantee=at_least_once: rows that only one broker"),
        ({"kafka.acks": "0", "deliveryGuarantee": "exactly_once"}, "option kafka.acks=0 needs deliveryGuarantee=at_le"),
        ({"kafka.acks": "2"}, "option kafka.acks is all or -1 or 0 or 1, not '2'"),
        (
            {"kafka.acks": "1", "kafka.enable.idempotence": "true", "deliveryGuarantee": "at_least_once"},
            "options kafka.enable.idempotence=true and kafka.acks=1 contradict each other",
        ),
        ({"scope": "x", "deliveryGuarantee": "at_least_once"}, "at_least_once counts none: leave one of the two out"),
        ({"kafka.partitioner.class": "x"}, "column partition says where a row goes"),
        ({"kafka.transactional.id": "x"}, "each attempt at a task has its own"),
        ({"deliveryGuarantee": "twice"}, "option deliveryGuarantee is exactly_once or at_least_once, not 'twice'"),
        ({"kafka.compression.type": "brotli"}, "option kafka.compression.type is none or gzip"),
        ({"scope": "x"}, "a batch job is none of them: leave it out, or, in foreachBatch, write with"),
        ({"scope": "a b"}, "option scope has 1 to 64 of the characters"),
        ({"scope": "headrace.places"}, "option scope has"),
        ({"scope": "headrace.jobs"}, "option scope has"),
        ({"kafka.enable.idempotence": "false"}, "needs deliveryGuarantee=at_least_once"),
    ],
)
def test_an_option_that_cannot_be_has_one_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionRefused, match=sentence):
        HeadraceDataSource({**LEAST, **options}).writer(schema=VALUE, overwrite=False)


@pytest.mark.parametrize(
    ("fields", "options", "sentence"),
    [
        ({"vlaue": BinaryType()}, {}, "there is no column value to write; the columns are vlaue"),
        ({"value": IntegerType()}, {}, "column value is binary or string, not int; cast it in the query"),
        ({"value": BinaryType(), "partition": StringType()}, {}, "column partition is int, not string"),
        ({"value": BinaryType()}, {"topic": None}, "no topic is named: give option topic, or a column topic"),
        ({"value": BinaryType(), "topic": IntegerType()}, {"topic": None}, "column topic is string, not int; cast it"),
    ],
)
def test_columns_that_cannot_be_have_one_sentence(
    fields: dict[str, Any], options: dict[str, str | None], sentence: str
) -> None:
    given = {key: text for key, text in {**LEAST, **options}.items() if text is not None}
    schema = StructType([StructField(name, kind) for name, kind in fields.items()])
    for make in (HeadraceDataSource(given).writer, HeadraceDataSource(given).streamWriter):
        with pytest.raises(OptionRefused, match=sentence):
            make(schema=schema, overwrite=False)


@pytest.mark.usefixtures("spark")
def test_a_row_may_name_a_partition_that_its_topic_got_since_the_process_asked(cluster: Cluster) -> None:
    async def grown() -> None:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_partitions({"t": 5})

    def write(partition: int) -> None:
        rows = {"value": [b"%d" % partition], "partition": pa.array([partition], pa.int32())}
        schema = StructType([*VALUE.fields, StructField("partition", IntegerType())])
        job = sink(cluster, schema)
        job.commit([wrote(job.write(iter([pa.RecordBatch.from_pydict(rows)])))])

    write(2)
    asyncio.run(grown())
    write(4)
    assert readable(cluster.bootstrap) == [b"2", b"4"]
    with pytest.raises(KafkaError, match="it has 5, from 0 on"):
        write(5)


@pytest.mark.usefixtures("spark")
def test_a_topic_that_was_deleted_does_not_come_back_when_its_process_writes_another(cluster: Cluster) -> None:
    async def topics() -> set[str]:
        async with Admin(cluster.bootstrap) as admin:
            return set(await admin.list_topics())

    def write(topic: str) -> None:
        job = sink(cluster, topic=topic)
        job.commit([job.write(batches([b"x"]))])

    make_topic(cluster.bootstrap, "u")
    write("t")
    delete_topic(cluster.bootstrap, "t")
    write("u")
    assert "t" not in asyncio.run(topics())


@pytest.mark.usefixtures("spark")
def test_a_topic_in_a_column_that_does_not_exist_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as a topic may be unknown to a broker that is new."""
    monkeypatch.setattr("headrace.client.cluster.UNKNOWN_TOPIC_MS_MAX", 300)
    asked: list[str] = []
    monkeypatch.setattr(Producer, "partitions_of", _noted(asked, Producer.partitions_of))
    schema = StructType([*VALUE.fields, StructField("topic", StringType())])
    with Cluster(settings={**SETTINGS, "auto.create.topics.enable": "false"}) as cluster:
        job = HeadraceDataSource({"kafka.bootstrap.servers": cluster.bootstrap}).writer(schema=schema, overwrite=False)
        with pytest.raises(KafkaError, match="topic 'missing' does not exist"):
            job.write(iter([pa.RecordBatch.from_pydict({"value": [b"x"], "topic": ["missing"]})]))
    assert asked == ["missing"]


def _noted(asked: list[str], then: Callable[..., Any]) -> Callable[..., Any]:
    def noted(producer: Producer, topic: str) -> Any:
        asked.append(topic)
        return then(producer, topic)

    return noted


def test_strings_may_be_compared_in_any_way() -> None:
    schema = StructType([StructField("key", StringType("UTF8_LCASE")), StructField("value", StringType("UNICODE_CI"))])
    HeadraceDataSource(LEAST).writer(schema=schema, overwrite=False)


def test_columns_that_the_sink_does_not_know_are_left_out() -> None:
    schema = StructType([*VALUE.fields, StructField("offset", IntegerType())])
    HeadraceDataSource(LEAST).writer(schema=schema, overwrite=False)


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(OptionRefused, match="a topic cannot be overwritten"):
        HeadraceDataSource(LEAST).writer(schema=VALUE, overwrite=True)


async def test_the_brokers_keep_which_run_committed_last(cluster: Cluster) -> None:
    async with CommitGroups(cluster.bootstrap) as groups:
        assert await groups.last("s", "q") == (-1, None)
        await groups.commit("s", "q", 3, "run", [])
        assert await groups.last("s", "q") == (3, "run")


def test_a_relative_checkpoint_is_another_one_in_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scope() -> Scope:
        return write_options({**LEAST, "checkpointLocation": "checkpoint"}).scope()

    found = []
    for name in ("a", "copy of a"):
        (tmp_path / name / "checkpoint").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / name)
        found.append(scope())
    assert [one.path for one in found] == [str(tmp_path / name / "checkpoint") for name in ("a", "copy of a")]
    assert found[0].name != found[1].name
    monkeypatch.chdir(tmp_path)
    assert scope().path == "checkpoint"  # in the home of another file system
