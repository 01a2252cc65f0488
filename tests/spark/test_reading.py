"""Tasks and planners as plain Python, against brokers in this process."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.client import Admin, Consumer, Producer
from headrace.client import cluster as client_cluster
from headrace.client.cluster import Cluster as ClientCluster
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.spark.batch_reader import BatchReader, batch_reader
from headrace.spark.log_view import view_of
from headrace.spark.options import Connection, read_options
from headrace.spark.planning import Piece, Range
from headrace.spark.reading import fetch
from headrace.spark.schema import source_schema
from headrace.spark.stream_reader import StreamReader
from headrace.spark.verdicts import DataLoss, Query, Verdict
from headrace.testing import Cluster
from tests.spark.filling import delete_records, delete_topic, fill, make_topic, numbers

VALUES = pa.schema([("value", pa.binary())])
T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        make_topic(running.bootstrap, "t", 2)
        yield running


@pytest.fixture
def sure_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a topic is not there: with one broker, nobody hears of it later than others."""
    monkeypatch.setattr(client_cluster, "UNKNOWN_TOPIC_MS_MAX", 200)


def batch(cluster: Cluster, **options: str) -> BatchReader:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", **options}
    return batch_reader(read_options(given, "batch"), source_schema(True))


def values_of(reader: BatchReader | StreamReader, pieces: Sequence[InputPartition]) -> list[bytes]:
    found = [row["value"] for piece in pieces for some in reader.read(piece) for row in some.to_pylist()]
    return sorted(found, key=int)


def topic_id(cluster: Cluster) -> bytes:
    options = read_options({"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t"}, "batch")
    return view_of(options.connection).topics(options.selection, 0)["t"].topic_id


def values_between(
    cluster: Cluster, start: int, end: int, id_: bytes, *, fails: bool = True, epoch: int = -1, **settings: Any
) -> list[Any]:
    connection = Connection(cluster.bootstrap, fetch_wait_ms=50, **settings)
    found = fetch(Range(T0, id_, start, end, epoch), connection, VALUES, fails, Query.NAMED)
    return [value for some in found for value in some.column("value").to_pylist()]


def test_a_batch_reads_each_record_once_however_it_is_cut(cluster: Cluster) -> None:
    fill(cluster.bootstrap, "t", numbers(0, 5_000), partitions=2)
    for options in ({}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "301"}):
        reader = batch(cluster, **options)
        assert values_of(reader, reader.partitions()) == numbers(0, 5_000)


def test_a_process_that_has_read_a_topic_reads_partitions_that_it_got_since(cluster: Cluster) -> None:
    async def grown() -> None:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_partitions({"t": 4})

    fill(cluster.bootstrap, "t", numbers(0, 10), partitions=2)
    reader = batch(cluster)
    assert values_of(reader, reader.partitions()) == numbers(0, 10)
    asyncio.run(grown())
    fill(cluster.bootstrap, "t", numbers(10, 30), partitions=4)
    assert values_of(reader, batch(cluster).partitions()) == numbers(0, 30)


@pytest.mark.parametrize("selection", [{"subscribe": "t,u"}, {"subscribePattern": "[tu]"}])
def test_a_process_that_has_planned_a_batch_plans_the_next_one_with_the_topics_of_now(
    cluster: Cluster, selection: dict[str, str]
) -> None:
    make_topic(cluster.bootstrap, "u")
    fill(cluster.bootstrap, "u", numbers(0, 10))
    given = {"kafka.bootstrap.servers": cluster.bootstrap, **selection}
    reader = batch_reader(read_options(given, "batch"), source_schema(True))
    assert values_of(reader, reader.partitions()) == numbers(0, 10)
    delete_topic(cluster.bootstrap, "u")
    make_topic(cluster.bootstrap, "u", 2)
    fill(cluster.bootstrap, "u", numbers(10, 14), partitions=2)
    assert values_of(reader, reader.partitions()) == numbers(10, 14)


def test_rows_have_the_schema_that_spark_compares_them_with(cluster: Cluster) -> None:
    fill(cluster.bootstrap, "t", [b"1"], headers=[("h", b"x")])
    reader = batch(cluster)
    (piece,) = reader.partitions()
    (found,) = reader.read(piece)
    assert found.schema.equals(to_arrow_schema(source_schema(True), timezone="UTC"))


def test_of_no_piece_nothing_is_read(cluster: Cluster) -> None:
    assert batch(cluster).partitions() == []
    assert list(batch(cluster).read(InputPartition(None))) == []


def test_fetching_stops_at_the_end_of_the_range(cluster: Cluster) -> None:
    """In the middle of a batch, and though much more is there."""
    fill(cluster.bootstrap, "t", numbers(0, 3_000))
    id_ = topic_id(cluster)
    assert values_between(cluster, 1_000, 1_500, id_) == numbers(1_000, 1_500)
    assert values_between(cluster, 2_999, 3_000, id_) == [b"2999"]


def test_a_batch_larger_than_what_is_asked_for_is_read_all_the_same(cluster: Cluster) -> None:
    fill(cluster.bootstrap, "t", [b"x" * 50_000] * 4)
    assert len(values_between(cluster, 0, 4, topic_id(cluster), partition_fetch_bytes_max=1_000)) == 4


def test_what_is_not_committed_is_not_read_under_read_committed(cluster: Cluster) -> None:
    async def transactions() -> None:
        async with Producer(cluster.bootstrap, transactional_id="x") as producer:
            for at, ends in enumerate(["commit", "abort", "commit"]):
                await producer.begin()
                for value in (b"%d" % (10 * at), b"%d" % (10 * at + 1)):
                    producer.send("t", value, partition=0)
                await producer.flush()
                await (producer.commit() if ends == "commit" else producer.abort())

    asyncio.run(transactions())
    reader = batch(cluster, **{"kafka.isolation.level": "read_committed"})
    assert values_of(reader, reader.partitions()) == [b"0", b"1", b"20", b"21"]
    reader = batch(cluster)
    assert values_of(reader, reader.partitions()) == [b"0", b"1", b"10", b"11", b"20", b"21"]


def test_retention_that_overtakes_a_task_is_aged_out(cluster: Cluster) -> None:
    fill(cluster.bootstrap, "t", numbers(0, 100))
    id_ = topic_id(cluster)
    delete_records(cluster.bootstrap, {T0: 60})
    with pytest.raises(DataLoss, match="records of t-0 from offset 10 to 59 were deleted") as raised:
        values_between(cluster, 10, 100, id_)
    assert raised.value.loss.verdict is Verdict.AGED_OUT
    assert values_between(cluster, 10, 100, id_, fails=False) == numbers(60, 100)
    assert values_between(cluster, 10, 50, id_, fails=False) == []


def test_a_topic_made_anew_under_a_task_is_recreated(cluster: Cluster) -> None:
    fill(cluster.bootstrap, "t", numbers(0, 10))
    id_ = topic_id(cluster)
    assert values_between(cluster, 0, 10, id_) == numbers(0, 10)  # so that the process knows the old one
    delete_topic(cluster.bootstrap, "t")
    make_topic(cluster.bootstrap, "t", 2)
    fill(cluster.bootstrap, "t", numbers(0, 500))
    with pytest.raises(DataLoss) as raised:
        values_between(cluster, 5, 10, id_)
    assert raised.value.loss.verdict is Verdict.RECREATED
    assert values_between(cluster, 5, 10, id_, fails=False) == []
    assert values_between(cluster, 5, 10, topic_id(cluster)) == numbers(5, 10)


def test_a_process_that_knows_the_topic_of_before_reads_the_one_of_now(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While brokers take their time to tell it."""
    fill(cluster.bootstrap, "t", numbers(0, 10))
    assert values_between(cluster, 0, 10, topic_id(cluster)) == numbers(0, 10)
    delete_topic(cluster.bootstrap, "t")
    make_topic(cluster.bootstrap, "t", 2)
    fill(cluster.bootstrap, "t", numbers(10, 20))
    id_ = topic_id(cluster)
    refresh = ClientCluster._refresh

    async def slowly(self: ClientCluster) -> None:
        await asyncio.sleep(1.3)
        await refresh(self)

    monkeypatch.setattr(ClientCluster, "_refresh", slowly)
    assert values_between(cluster, 0, 10, id_, fails=False) == numbers(10, 20)


def test_a_log_that_does_not_reach_the_range_is_truncated(cluster: Cluster) -> None:
    fill(cluster.bootstrap, "t", numbers(0, 10))
    with pytest.raises(DataLoss) as raised:
        values_between(cluster, 20, 30, topic_id(cluster))
    assert raised.value.loss.verdict is Verdict.TRUNCATED


@pytest.mark.parametrize(("epoch", "poll_ms_max"), [(0, 60_000), (-1, 1_000)])
def test_a_log_that_ends_inside_the_range_is_truncated(cluster: Cluster, epoch: int, poll_ms_max: int) -> None:
    """At once where epochs tell it; else when nothing more came for as long as a task waits."""
    fill(cluster.bootstrap, "t", numbers(0, 10))
    given: Any = {"epoch": epoch, "poll_ms_max": poll_ms_max}
    with pytest.raises(
        DataLoss, match="t-0 had reached offset 30, and of that only what is before 10 is left"
    ) as raised:
        values_between(cluster, 5, 30, topic_id(cluster), **given)
    assert raised.value.loss.verdict is Verdict.TRUNCATED
    assert values_between(cluster, 5, 30, topic_id(cluster), fails=False, **given) == numbers(5, 10)


def test_a_log_that_has_grown_since_it_was_too_short_is_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the fetch that failed and the question why."""
    fill(cluster.bootstrap, "t", numbers(0, 10))
    ask = Consumer.beginning_offsets

    async def after_more_came(self: Consumer, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        await asyncio.to_thread(fill, cluster.bootstrap, "t", numbers(10, 40))
        return await ask(self, partitions)

    monkeypatch.setattr(Consumer, "beginning_offsets", after_more_came)
    assert values_between(cluster, 20, 30, topic_id(cluster), fails=False) == numbers(20, 30)


def test_a_task_that_gets_nothing_says_so_in_the_end(cluster: Cluster) -> None:
    def read_what_is_open() -> None:
        values_between(cluster, 0, 5, topic_id(cluster), poll_ms_max=1_000, is_read_committed=True)

    async def with_open_transaction() -> None:
        async with Producer(cluster.bootstrap, transactional_id="x") as producer:
            await producer.begin()
            for value in numbers(0, 5):
                producer.send("t", value, partition=0)
            await producer.flush()
            await asyncio.to_thread(read_what_is_open)

    with pytest.raises(KafkaError, match=r"nothing of t-0 came in 1000 ms \(kafkaConsumer.pollTimeoutMs\)") as raised:
        asyncio.run(with_open_transaction())
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_task_that_is_left_half_read_leaves_nothing_behind(cluster: Cluster) -> None:
    """As under a limit; the next task of the process reads its own."""
    fill(cluster.bootstrap, "t", numbers(0, 50_000))
    reader = batch(cluster)
    pieces = reader.partitions()
    reading: Any = reader.read(pieces[0])
    assert next(reading).num_rows > 0
    reading.close()
    assert values_of(reader, pieces) == numbers(0, 50_000)


def test_a_topic_that_does_not_exist_is_named(cluster: Cluster) -> None:
    with pytest.raises(KafkaError, match="topic 'nothing' does not exist"):
        batch(cluster, subscribe="nothing").partitions()


def test_a_pattern_finds_topics_and_not_the_brokers_own(cluster: Cluster) -> None:
    make_topic(cluster.bootstrap, "t-other")
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribePattern": ".*"}
    options = read_options(given, "stream")
    view = view_of(options.connection)
    assert list(view.topics(options.selection, 0)) == ["t", "t-other"]
    delete_topic(cluster.bootstrap, "t-other")
    assert list(view.topics(options.selection, 60_000)) == ["t", "t-other"]
    assert list(view.topics(options.selection, 0)) == ["t"]


@pytest.mark.parametrize(("pattern", "topics"), [("t", ["t", "t-other"]), ("oth", ["t-other"]), ("^t$", ["t"])])
def test_a_pattern_is_looked_for_anywhere_in_a_name(cluster: Cluster, pattern: str, topics: list[str]) -> None:
    make_topic(cluster.bootstrap, "t-other")
    options = read_options({"kafka.bootstrap.servers": cluster.bootstrap, "subscribePattern": pattern}, "stream")
    assert list(view_of(options.connection).topics(options.selection, 0)) == topics
    assert [topic for topic in ("t", "t-other") if options.selection.is_matched(topic)] == topics


def stream(cluster: Cluster, **options: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "startingOffsets": "earliest", **options}
    return StreamReader(read_options(given, "stream"), source_schema(False))


def test_a_stream_reads_on_by_offsets_alone(cluster: Cluster) -> None:
    fill(cluster.bootstrap, "t", numbers(0, 1_000), partitions=2)
    reader = stream(cluster, maxOffsetsPerTrigger="400")
    at = reader.initialOffset()
    found: list[bytes] = []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        found += values_of(reader, reader.partitions(at, end))
        at = end
    assert sorted(found, key=int) == numbers(0, 1_000)
    assert reader.reportLatestOffset()["t"] == {"0": 500, "1": 500}


@pytest.mark.usefixtures("sure_soon")
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_of_a_pattern_that_is_deleted_ends_a_stream_only_if_losses_do(cluster: Cluster, fails: str) -> None:
    """In the batch that was planned and not finished, and in the next one, that is planned at once."""
    make_topic(cluster.bootstrap, "u")
    fill(cluster.bootstrap, "t", numbers(0, 5))
    fill(cluster.bootstrap, "u", numbers(5, 10))
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribePattern": "[tu]", "startingOffsets": "earliest"}
    options = read_options({**given, "maxOffsetsPerTrigger": "8", "failOnDataLoss": fails}, "stream")
    reader = StreamReader(options, source_schema(False))
    start = reader.initialOffset()
    planned = reader.latestOffset(start, reader.getDefaultReadLimit())
    delete_topic(cluster.bootstrap, "u")
    if fails == "true":
        with pytest.raises(DataLoss, match="GONE: topic 'u' was deleted"):
            values_of(reader, reader.partitions(start, planned))
        with pytest.raises(DataLoss, match="GONE: topic 'u' was deleted"):
            reader.latestOffset(planned, reader.getDefaultReadLimit())
        return
    found = values_of(reader, reader.partitions(start, planned))
    end = reader.latestOffset(planned, reader.getDefaultReadLimit())
    assert found + values_of(reader, reader.partitions(planned, end)) == numbers(0, 5)


@pytest.mark.usefixtures("sure_soon")
def test_a_topic_that_a_stream_names_and_that_is_deleted_is_told_as_gone_also_after_a_restart(cluster: Cluster) -> None:
    fill(cluster.bootstrap, "t", numbers(0, 5))
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
    options = read_options(given, "stream")
    reader = StreamReader(options, source_schema(False))
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    delete_topic(cluster.bootstrap, "t")
    again = StreamReader(options, source_schema(False))
    again.initialOffset()
    again.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match="GONE: topic 't', which the query names, was deleted"):
        again.latestOffset(end, again.getDefaultReadLimit())


@pytest.mark.usefixtures("sure_soon")
def test_the_group_of_a_query_hears_nothing_of_topics_that_are_not_read_any_more(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def committed() -> dict[TopicPartition, int]:
        async with Admin(cluster.bootstrap) as admin:
            return {one: at.offset for one, at in (await admin.groups.offsets("g")).items()}

    make_topic(cluster.bootstrap, "u")
    fill(cluster.bootstrap, "t", numbers(0, 5))
    group = {"kafka.group.id": "g", "commitGroupOffsets": "true"}
    reader = stream(cluster, subscribe="t,u", **group)
    before = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    delete_topic(cluster.bootstrap, "u")
    fill(cluster.bootstrap, "t", numbers(5, 7))
    again = stream(cluster, subscribe="t", **group)
    end = again.latestOffset(before, again.getDefaultReadLimit())
    assert end["u"] == {"0": 0}
    again.commit(end)
    assert asyncio.run(committed()) == {T0: 7, TopicPartition("t", 1): 0}
    assert "were not committed" not in caplog.text


@pytest.mark.usefixtures("sure_soon")
def test_what_a_task_advises_whose_named_topic_was_deleted_helps(cluster: Cluster) -> None:
    make_topic(cluster.bootstrap, "u")
    fill(cluster.bootstrap, "t", numbers(0, 5))
    fill(cluster.bootstrap, "u", numbers(5, 10))
    reader = stream(cluster, subscribe="t,u")
    start = reader.initialOffset()
    planned = reader.latestOffset(start, reader.getDefaultReadLimit())
    delete_topic(cluster.bootstrap, "u")
    advice = "Leave it out of what the query names, and set failOnDataLoss to false, to go on with others"
    with pytest.raises(DataLoss, match=advice):
        values_of(reader, reader.partitions(start, planned))
    again = stream(cluster, subscribe="t", failOnDataLoss="false")
    assert values_of(again, again.partitions(start, planned)) == numbers(0, 5)
    fill(cluster.bootstrap, "t", numbers(10, 12))
    end = again.latestOffset(planned, again.getDefaultReadLimit())
    assert values_of(again, again.partitions(planned, end)) == numbers(10, 12)


@pytest.mark.usefixtures("sure_soon")
@pytest.mark.parametrize("selection", [{"subscribe": "u"}, {"subscribe": "", "subscribePattern": "[u]"}])
def test_what_a_task_of_a_batch_advises_helps(cluster: Cluster, selection: dict[str, str]) -> None:
    make_topic(cluster.bootstrap, "u")
    fill(cluster.bootstrap, "u", numbers(5, 10))
    given = {name: text for name, text in selection.items() if text}
    options = read_options({"kafka.bootstrap.servers": cluster.bootstrap, **given}, "batch")
    reader = batch_reader(options, source_schema(True))
    pieces = reader.partitions()
    delete_topic(cluster.bootstrap, "u")
    with pytest.raises(DataLoss, match=r"GONE: .*Load it again \(spark.read\), without the topic if it names it"):
        values_of(reader, pieces)
    if "subscribePattern" in given:
        assert reader.partitions() == []
    make_topic(cluster.bootstrap, "u")
    fill(cluster.bootstrap, "u", numbers(20, 22))
    with pytest.raises(DataLoss, match=r"RECREATED: .*Load it again \(spark.read\) to read them"):
        values_of(reader, pieces)
    assert values_of(reader, reader.partitions()) == numbers(20, 22)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_stream_that_reads_only_what_is_committed_from_now_on_waits_where_it_is(cluster: Cluster, fails: str) -> None:
    """It has read records of a transaction that is open still."""
    at: dict[str, Any] = {}

    def read_all() -> None:
        reader = stream(cluster)
        at.update(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()))
        assert at["t"] == {"0": 5, "1": 0}
        committed = stream(cluster, failOnDataLoss=fails, **{"kafka.isolation.level": "read_committed"})
        assert committed.latestOffset(at, committed.getDefaultReadLimit()) == at

    async def with_open_transaction() -> None:
        async with Producer(cluster.bootstrap, transactional_id="x") as producer:
            await producer.begin()
            for value in numbers(0, 5):
                producer.send("t", value, partition=0)
            await producer.flush()
            await asyncio.to_thread(read_all)
            await producer.commit()

    asyncio.run(with_open_transaction())


def test_bytes_per_trigger_are_met_about(cluster: Cluster) -> None:
    fill(cluster.bootstrap, "t", [b"x" * 1_000] * 2_000, partitions=2)
    reader = stream(cluster, maxBytesPerTrigger="200kb")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert 100 <= sum(end["t"].values()) <= 250


def test_a_reader_goes_to_its_tasks_without_its_connections(cluster: Cluster) -> None:
    import pickle

    reader = stream(cluster)
    reader.initialOffset()
    assert isinstance(pickle.loads(pickle.dumps(reader)), StreamReader)
    piece = Piece(Range(T0, bytes(16), 0, 1))
    assert pickle.loads(pickle.dumps(piece)) == piece
