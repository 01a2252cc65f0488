"""What is in the tier alone is read from its objects, without any broker, and what is not from brokers: each once."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from pyspark.sql.datasource import GreaterThanOrEqual, InputPartition
from pyspark.sql.types import StructType

from headrace.client import Producer
from headrace.client.cluster import Cluster as ClientCluster
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.spark import tier_reading, tier_view
from headrace.spark.batch_reader import BatchReader, PushdownReader
from headrace.spark.options import read_options
from headrace.spark.planning import Piece
from headrace.spark.schema import METADATA, source_schema
from headrace.spark.stream_reader import StreamReader
from headrace.spark.tier_planning import TierPiece
from headrace.spark.tier_view import Remote
from headrace.spark.verdicts import DataLoss, Verdict
from headrace.storage.memory_files import MemoryFiles
from headrace.testing import Cluster
from headrace.tier.memory import MemoryStore, Mishap
from headrace.tier.store import Refused
from tests.spark.filling import delete_records, delete_topic, fill, numbers
from tests.spark.test_reading import values_of
from tests.spark.tiering import AT_ONCE, SETTINGS, fill_slowly, make_tiered, stop, until, until_cold

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with Cluster(SETTINGS) as running:
        as_tasks_see_it(running, monkeypatch)
        yield running


def as_tasks_see_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_reading, "_stores", {})
    monkeypatch.setattr(tier_reading, "open_store", lambda _: MemoryStore(cluster.tier, MemoryFiles()))


@pytest.fixture
def cold(cluster: Cluster) -> list[dict[str, Any]]:
    """Topic `t` with the numbers below 2,000 in two partitions."""
    make_tiered(cluster.bootstrap, "t", 2)
    fill_slowly(cluster.bootstrap, "t", 0, 2_000, partitions=2)
    return until_cold(cluster.bootstrap, "t")


def given(cluster: Cluster, **options: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": "t",
        "kafkaConsumer.pollTimeoutMs": "3000",
        **options,
    }


def batch(cluster: Cluster, **options: str) -> BatchReader:
    return BatchReader(read_options(given(cluster, **options), "batch"), source_schema(False))


def pieces_of(found: list[InputPartition], partition: int) -> list[Piece]:
    pieces = [piece for piece in found if isinstance(piece, Piece)]
    assert len(pieces) == len(found)
    return [piece for piece in pieces if piece.range.partition.partition == partition]


def in_tier(found: list[InputPartition]) -> list[TierPiece]:
    return [piece for piece in found if isinstance(piece, TierPiece)]


def test_a_batch_reads_the_tier_up_to_the_local_log_and_the_rest_from_brokers(
    cluster: Cluster, cold: list[dict[str, Any]]
) -> None:
    for options in ({}, {"minPartitions": "9"}, {"maxRecordsPerPartition": "117"}):
        reader = batch(cluster, **options)
        planned = reader.partitions()
        for one in cold:
            mine = pieces_of(planned, one["partition"])
            assert [piece.range.start for piece in mine] == [0, *(piece.range.end for piece in mine[:-1])]
            assert mine[-1].range.end == 1_000
            seam = [piece.range.start for piece in mine if not isinstance(piece, TierPiece)]
            assert seam and seam[0] == one["local_log_start"]
        assert values_of(reader, planned) == numbers(0, 2_000)


def test_pieces_are_cut_where_segments_are(
    cluster: Cluster, cold: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.spark.tier_planning.PIECE_BYTES_MAX", 1)
    reader = batch(cluster)
    planned = reader.partitions()
    bases = [one["base_offset"] for one in cold[0]["segments"] if one["base_offset"] < cold[0]["local_log_start"]]
    assert len(bases) > 3
    assert [piece.range.start for piece in pieces_of(planned, 0)] == [*bases, cold[0]["local_log_start"]]
    assert values_of(reader, planned) == numbers(0, 2_000)


@pytest.mark.usefixtures("cold")
def test_once_it_is_planned_the_tier_is_read_though_no_broker_answers(cluster: Cluster) -> None:
    reader = batch(cluster, minPartitions="8")
    planned = reader.partitions()
    stop(cluster)
    found = [int(value) for value in values_of(reader, in_tier(planned))]
    assert len(found) > 1_500
    assert len(set(found)) == len(found) == sum(piece.range.size for piece in in_tier(planned))


@pytest.mark.usefixtures("cold")
def test_who_wants_it_fetches_everything_from_brokers(cluster: Cluster) -> None:
    reader = batch(cluster, readTier="false")
    planned = reader.partitions()
    assert not in_tier(planned)
    assert values_of(reader, planned) == numbers(0, 2_000)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_rows_have_the_leader_epoch_and_producer_of_their_batch_from_the_tier_and_from_brokers(
    cluster: Cluster, compression: str
) -> None:
    make_tiered(cluster.bootstrap, "t")
    fill_slowly(cluster.bootstrap, "t", 0, 500, compression=compression)
    cluster.restart(1)
    cluster.wait_until_serving()
    fill_slowly(cluster.bootstrap, "t", 500, 1_000, compression=compression)
    until_cold(cluster.bootstrap, "t")
    schema = StructType([field for field in source_schema(False, True) if field.name in ("offset", *METADATA)])
    told = {}
    for reads in ("true", "false"):
        reader = BatchReader(read_options(given(cluster, readTier=reads), "batch"), schema)
        planned = reader.partitions()
        assert bool(in_tier(planned)) == (reads == "true")
        told[reads] = [tuple(row.values()) for one in planned for some in reader.read(one) for row in some.to_pylist()]
    assert told["true"] == told["false"]
    offsets, epochs, producers = zip(*told["true"], strict=True)
    assert offsets == tuple(range(1_000))
    assert epochs[0] == epochs[499] < epochs[500] == epochs[999]
    assert [producers[at : at + AT_ONCE].count(producers[at]) for at in range(0, 1_000, AT_ONCE)] == [AT_ONCE] * 20
    assert len(set(producers)) == 20 and min(producers) >= 0


def test_a_topic_without_a_tier_is_fetched(cluster: Cluster) -> None:
    make_tiered(cluster.bootstrap, "t", 2, remote_storage_enable="false", local_retention_bytes="-2")
    fill_slowly(cluster.bootstrap, "t", 0, 200, partitions=2)
    delete_records(cluster.bootstrap, {T0: 50})
    reader = batch(cluster)
    planned = reader.partitions()
    assert not in_tier(planned)
    assert values_of(reader, planned) == [b"%d" % n for n in range(200) if n % 2 or n >= 100]


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
def test_brokers_that_do_not_tell_of_a_tier_are_fetched_from(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    """Those that know no such question are asked once."""
    asked = []

    async def refuse(_cluster: object, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Remote]:
        asked.append(list(partitions))
        raise KafkaError(code, "no")

    monkeypatch.setattr(tier_view, "ask_remote", refuse)
    reader = batch(cluster)
    for _ in range(2):
        planned = reader.partitions()
        assert not in_tier(planned)
    assert values_of(reader, planned) == numbers(0, 2_000)
    assert len(asked) == (1 if code is ErrorCode.UNSUPPORTED_VERSION else 2)


def test_what_leaders_said_is_remembered_until_it_does_not_hold(
    cluster: Cluster, cold: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[TopicPartition] = []
    ask = tier_view.ask_remote

    async def counted(one: ClientCluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Remote]:
        asked.extend(partitions)
        return await ask(one, partitions)

    monkeypatch.setattr(tier_view, "ask_remote", counted)
    monkeypatch.setattr("headrace.spark.log_view.LOCAL_STARTS_MS_MAX", 0)
    reader = batch(cluster)
    first = reader.partitions()
    assert reader.partitions() == first
    assert sorted(asked) == [T0, TopicPartition("t", 1)]
    fill_slowly(cluster.bootstrap, "t", 2_000, 3_000)
    until(lambda: until_cold(cluster.bootstrap, "t")[0]["local_log_start"] > cold[0]["local_log_start"])
    later = reader.partitions()
    assert sorted(asked) == [T0, T0, TopicPartition("t", 1)]
    assert values_of(reader, later) == numbers(0, 3_000)
    delete_topic(cluster.bootstrap, "t")
    make_tiered(cluster.bootstrap, "t", 1)
    fill_slowly(cluster.bootstrap, "t", 7_000, 8_000)
    until_cold(cluster.bootstrap, "t")
    anew = batch(cluster, **{"partition.metadata.cache.ttl.ms": "0"})
    assert values_of(anew, anew.partitions()) == numbers(7_000, 8_000)
    assert len(asked) == 4


@pytest.mark.usefixtures("cold")
def test_a_stream_fills_up_from_the_tier(cluster: Cluster) -> None:
    options = given(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="450")
    reader = StreamReader(read_options(options, "stream"), source_schema(False))
    at = reader.initialOffset()
    found: list[bytes] = []
    kinds = []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        planned = reader.partitions(at, end)
        assert reader.partitions(at, end) == planned, "the same whenever it is asked for"
        kinds.append(len(in_tier(planned)))
        found += values_of(reader, planned)
        at = end
    assert sorted(found, key=int) == numbers(0, 2_000)
    assert kinds[:4] == [2, 2, 2, 2]


async def write_transactions(bootstrap: str, committed: list[int], look: Callable[[], None]) -> None:
    """Long ones over several segments, with short ones between; each third of these, and each other of those, aborted.

    At the end one is open, and behind its beginning lies the marker of one whose records are all in the tier.
    """

    async def send(producer: Producer, first: int, count: int = 20) -> list[int]:
        for at in range(first, first + count, 20):
            for number in range(at, min(at + 20, first + count)):
                producer.send("t", b"%d" % number, partition=0)
            await producer.flush()
        return list(range(first, first + count))

    async def shortly(producer: Producer, first: int, count: int = 20, *, is_kept: bool = True) -> None:
        await producer.begin()
        sent = await send(producer, first, count)
        await (producer.commit() if is_kept else producer.abort())
        committed.extend(sent if is_kept else [])

    async with (
        Producer(bootstrap, transactional_id="long") as long,
        Producer(bootstrap, transactional_id="short") as short,
        Producer(bootstrap, transactional_id="open") as hanging,
    ):
        for first in range(0, 80_000, 10_000):
            await long.begin()
            sent = await send(long, first)
            for step in range(4):
                await shortly(short, first + 1_000 * (step + 1), is_kept=(first // 10_000 + step) % 3 != 0)
            sent += await send(long, first + 20)
            if first == 70_000:
                break
            is_kept = first % 20_000 == 0
            await (long.commit() if is_kept else long.abort())
            committed.extend(sent if is_kept else [])
        await shortly(short, 80_000, 300)
        await hanging.begin()
        await send(hanging, 90_000, 300)
        await long.abort()
        await asyncio.to_thread(look)
        await hanging.abort()


def test_of_transactions_only_what_is_committed_is_read(cluster: Cluster) -> None:
    """Also where the end of one lies in a later segment, or still on the broker's disk behind an open transaction."""
    make_tiered(cluster.bootstrap, "t")
    committed: list[int] = []

    def look() -> None:
        (cold,) = until_cold(cluster.bootstrap, "t")
        assert sum("txnindex" in one["sections"] for one in cold["segments"]) > 3
        assert cold["aborted_across"], "a marker is on the broker's disk"
        expected = [b"%d" % number for number in sorted(committed)]
        for options in ({}, {"maxRecordsPerPartition": "17"}):
            reader = batch(cluster, **{"kafka.isolation.level": "read_committed", **options})
            planned = reader.partitions()
            assert in_tier(planned)
            assert values_of(reader, planned) == expected
        everything = batch(cluster)
        assert len(values_of(everything, everything.partitions())) == 8 * 4 * 20 + 8 * 40 + 600

    asyncio.run(write_transactions(cluster.bootstrap, committed, look))


def test_a_plan_without_all_indexes_of_aborts_asks_brokers_where_it_matters(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_tiered(cluster.bootstrap, "t")
    monkeypatch.setattr("headrace.spark.tier_planning.INDEXES_MAX", 1)
    committed: list[int] = []

    def look() -> None:
        until_cold(cluster.bootstrap, "t")
        reader = batch(cluster, **{"kafka.isolation.level": "read_committed"})
        assert values_of(reader, reader.partitions()) == [b"%d" % number for number in sorted(committed)]

    asyncio.run(write_transactions(cluster.bootstrap, committed, look))
    assert "the ends of its transactions are too far away" in caplog.text


def tier_pieces(reader: BatchReader, partition: int = 0) -> list[TierPiece]:
    return [piece for piece in in_tier(reader.partitions()) if piece.range.partition.partition == partition]


@pytest.mark.usefixtures("cold")
def test_what_expires_after_it_was_planned_is_aged_out(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.spark.tier_planning.PIECE_BYTES_MAX", 1)
    strict, lenient = batch(cluster), batch(cluster, failOnDataLoss="false")
    planned = tier_pieces(strict)
    gone = [piece.parts[0].key for piece in planned[:2]]
    start = planned[2].range.start + 3
    delete_records(cluster.bootstrap, {T0: start})
    until(lambda: not set(gone) & cluster.tier.objects.keys())
    with pytest.raises(DataLoss) as raised:
        values_of(strict, planned[:1])
    assert raised.value.loss.verdict is Verdict.AGED_OUT
    assert raised.value.loss.resume_at == start
    assert values_of(lenient, planned[:2]) == []
    assert values_of(lenient, planned[3:4]) != []


@pytest.mark.usefixtures("cold")
def test_a_topic_made_anew_after_it_was_planned_is_not_taken_for_the_old_one(cluster: Cluster) -> None:
    reader = batch(cluster)
    planned = tier_pieces(reader)
    delete_topic(cluster.bootstrap, "t")
    make_tiered(cluster.bootstrap, "t", 2)
    fill_slowly(cluster.bootstrap, "t", 5_000, 7_000, partitions=2)
    until(lambda: not any(part.key in cluster.tier.objects for piece in planned for part in piece.parts))
    with pytest.raises(DataLoss) as raised:
        values_of(reader, planned)
    assert raised.value.loss.verdict is Verdict.RECREATED


@pytest.mark.usefixtures("cold")
def test_a_store_that_fails_now_and_then_is_asked_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_reading, "RETRY_S", 0.001)
    fails = iter([True, True, False] * 1_000)
    cluster.tier.mishap = lambda *_: Mishap(fails=next(fails))
    reader = batch(cluster)
    planned = reader.partitions()
    stop(cluster)
    found = values_of(reader, in_tier(planned))
    assert len(found) == len(set(found)) > 1_500


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("how", ["away", "refused", "breaks off"])
def test_where_tasks_do_not_reach_the_store_brokers_are_asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    monkeypatch.setattr(tier_reading, "RETRY_S", 0.001)
    calls = count()

    def refuse(_: str) -> MemoryStore:
        raise Refused("There is no such store here.")

    if how == "refused":
        monkeypatch.setattr(tier_reading, "open_store", refuse)
    else:
        cluster.tier.mishap = lambda *_: Mishap(fails=how == "away" or next(calls) > 10)
    reader = batch(cluster)
    assert values_of(reader, reader.partitions()) == numbers(0, 2_000)
    assert "is fetched from brokers: " in caplog.text


@pytest.mark.usefixtures("cold")
def test_damage_in_an_object_is_found(cluster: Cluster) -> None:
    reader = batch(cluster)
    (piece, *_) = tier_pieces(reader)
    part = piece.parts[1]
    content = bytearray(cluster.tier.objects[part.key])
    content[100] ^= 1
    cluster.tier.objects[part.key] = bytes(content)
    with pytest.raises(KafkaError, match=f"at offset {part.row.base_offset} cannot be read: it fails its checksum"):
        values_of(reader, [piece])


def test_segments_without_anything_new_enough_are_not_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times begin anew with each call that fills, and the first one has the latest."""
    monkeypatch.setattr("headrace.spark.tier_planning.PIECE_BYTES_MAX", 1)
    make_tiered(cluster.bootstrap, "t", segment_bytes="8000")
    fill(cluster.bootstrap, "t", numbers(0, 300))
    fill_slowly(cluster.bootstrap, "t", 300, 3_000)
    until_cold(cluster.bootstrap, "t")
    reader = PushdownReader(read_options(given(cluster), "batch"), source_schema(False))
    assert len(in_tier(reader.partitions())) > 2
    list(reader.pushFilters([GreaterThanOrEqual(("timestamp",), datetime(1970, 1, 1, 0, 0, 1, 250_000, tzinfo=UTC))]))
    (piece,) = in_tier(planned := reader.partitions())
    assert piece.range.start == 250
    assert set(numbers(250, 300)) <= set(values_of(reader, planned))


def test_a_segment_of_another_history_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """T8-3: after an unclean election the tier holds records that the leader does not have."""
    settings = {**SETTINGS, "broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "200"}
    with Cluster(settings, brokers=2) as cluster:
        as_tasks_see_it(cluster, monkeypatch)
        make_tiered(cluster.bootstrap, "t", 1, 2, unclean_leader_election_enable="true", min_insync_replicas="1")
        first = cluster.leader("t", 0)
        assert first is not None
        second = 3 - first
        fill_slowly(cluster.bootstrap, "t", 0, 500)
        until(lambda: cluster.in_sync("t", 0) == {1, 2})
        cluster.kill(second)
        until(lambda: cluster.in_sync("t", 0) == {first})
        fill_slowly(cluster.bootstrap, "t", 1_000, 2_000)
        until_cold(cluster.bootstrap, "t", first)
        reader = batch(cluster)
        assert in_tier(reader.partitions()), "what is remembered of the first leader is not to be used of the second"
        cluster.kill(first)
        cluster.start(second)
        until(lambda: cluster.leader("t", 0) == second)
        fill_slowly(cluster.bootstrap, "t", 5_000, 6_000)
        (found,) = until_cold(cluster.bootstrap, "t", second)
        others = [one for one in found["segments"] if one["verdict"] not in ("inside", None)]
        assert others, "the manifest still names what the first one copied"
        planned = reader.partitions()
        read = {part.key for piece in planned if isinstance(piece, TierPiece) for part in piece.parts}
        assert read and not read & {one["object"] for one in others}
        assert values_of(reader, planned) == [*numbers(0, 500), *numbers(5_000, 6_000)]
