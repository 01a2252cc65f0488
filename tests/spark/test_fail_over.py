"""Planner and tasks while leaders die."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.client import Admin, NewTopic, Producer
from headrace.client.cluster import Cluster as ClientCluster
from headrace.client.outside import Outside
from headrace.model import TopicPartition
from headrace.net.peer import Peer
from headrace.spark.log_view import view_of
from headrace.spark.options import Connection, Selection
from headrace.spark.stream_reader import StreamReader
from headrace.spark.verdicts import DataLoss
from headrace.testing import Cluster
from headrace.wire.messages.offsets import ListOffsetsRequest
from tests.spark.filling import fill, numbers
from tests.spark.test_reading import stream, values_of

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
QUICK = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "200"}
WAIT_S_MAX = 30.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(QUICK, brokers=3) as running:

        async def made() -> None:
            async with Admin(running.bootstrap) as admin:
                await admin.create_topics([NewTopic("t", 1, 3)])

        asyncio.run(made())
        yield running


def until(holds: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(int(WAIT_S_MAX / 0.05)):
        if holds():
            return
        waited.wait(0.05)
    raise TimeoutError("it does not come to that")


def leader(cluster: Cluster, topic: str = "t") -> int:
    found = cluster.leader(topic, 0)
    assert found is not None
    return found


def kill(cluster: Cluster, first: int, topic: str = "t") -> None:
    """Until another one leads."""
    cluster.kill(first)
    until(lambda: cluster.leader(topic, 0) not in (first, None))


async def produce(bootstrap: str, value: bytes, topic: str = "t") -> None:
    async with Producer(bootstrap, linger_ms=0) as producer:
        await producer.send(topic, value, partition=0)


def test_ends_wait_for_a_leader_that_does_not_know_them_yet_and_ask_it_again_later_without_new_metadata(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T207-10."""
    fill(cluster.bootstrap, "t", numbers(0, 10))
    first = leader(cluster)
    others = sorted({1, 2, 3} - {first})
    for broker in others:
        cluster.hold_high_watermark(broker)
    asyncio.run(produce(cluster.bootstrap, b"10"))
    view = view_of(Connection(cluster.bootstrap))
    assert view.ends([T0])[T0].end == 11
    cluster.cut(*others)
    kill(cluster, first)
    view.topics(Selection(topics=("t",)), 0)
    events = noted(monkeypatch)
    told: list[Any] = []
    asking = threading.Thread(target=lambda: told.append(view.ends([T0])[T0]))
    asking.start()
    until(lambda: events.count("asked") >= 6)
    assert not told, "the leader could not know yet"
    cluster.heal()
    asking.join(WAIT_S_MAX)
    assert told[0].end == 11
    assert told[0].epoch > 0
    assert "new metadata" not in events
    waits = sorted(event for event in events if event != "asked")
    assert len(waits) == events.count("asked") - 2, "for each of the two ends, a wait before it was asked again"
    assert {f"waited after failure {failures}" for failures in range(1, 3)} <= set(waits), "longer and longer"


def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the client does from now on: questions for ends of logs, waits before the next one, new metadata."""
    events: list[str] = []
    request, backoff_ms, refresh = Peer.request, Outside.backoff_ms, ClientCluster._refresh

    async def requested(self: Peer, message: Any, *arguments: Any) -> Any:
        if isinstance(message, ListOffsetsRequest):
            events.append("asked")
        return await request(self, message, *arguments)

    def waited(self: Outside, failures: int) -> int:
        events.append(f"waited after failure {failures}")
        return backoff_ms(self, failures)

    async def refreshed(self: ClientCluster) -> None:
        events.append("new metadata")
        await refresh(self)

    monkeypatch.setattr(Peer, "request", requested)
    monkeypatch.setattr(Outside, "backoff_ms", waited)
    monkeypatch.setattr(ClientCluster, "_refresh", refreshed)
    return events


def make_unclean(cluster: Cluster) -> None:
    async def made() -> None:
        async with Admin(cluster.bootstrap) as admin:
            unclean = {"unclean.leader.election.enable": "true"}
            await admin.create_topics([NewTopic("u", 1, 3, configs=unclean)])

    asyncio.run(made())


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_leader_that_knows_late_what_is_committed_is_waited_for_also_where_unclean_ones_may_lead(
    cluster: Cluster, fails: str
) -> None:
    """There a leader tells at once where it believes that its log ends (KIP-207)."""
    make_unclean(cluster)
    fill(cluster.bootstrap, "u", numbers(0, 10))
    first = leader(cluster, "u")
    others = sorted({1, 2, 3} - {first})
    for broker in others:
        cluster.hold_high_watermark(broker)
    asyncio.run(produce(cluster.bootstrap, b"10", "u"))
    reader = stream(cluster, subscribe="u", failOnDataLoss=fails)
    start = reader.initialOffset()
    at = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert at["u"] == {"0": 11}
    cluster.cut(*others)
    kill(cluster, first, "u")
    assert view_of(Connection(cluster.bootstrap)).ends([U0])[U0].end < 11
    assert reader.latestOffset(at, reader.getDefaultReadLimit()) == at
    found: list[bytes] = []
    task = threading.Thread(target=lambda: found.extend(values_of(reader, reader.partitions(start, at))))
    task.start()
    task.join(2.5)
    assert task.is_alive() and not found
    cluster.heal()
    task.join(WAIT_S_MAX)
    assert found == numbers(0, 11)
    until(lambda: view_of(Connection(cluster.bootstrap)).ends([U0])[U0].end == 11)
    asyncio.run(produce(cluster.bootstrap, b"11", "u"))
    end = reader.latestOffset(at, reader.getDefaultReadLimit())
    assert values_of(reader, reader.partitions(at, end)) == [b"11"]


def test_what_an_unclean_leader_does_not_have_is_truncated_for_planner_and_tasks(cluster: Cluster) -> None:
    make_unclean(cluster)
    fill(cluster.bootstrap, "u", numbers(0, 10))
    first = leader(cluster, "u")
    others = sorted({1, 2, 3} - {first})
    until(lambda: cluster.in_sync("u", 0) == {1, 2, 3})
    for broker in others:
        cluster.kill(broker)
    until(lambda: cluster.in_sync("u", 0) == {first})
    fill(cluster.bootstrap, "u", numbers(10, 15))
    readers = {fails: stream(cluster, subscribe="u", failOnDataLoss=fails) for fails in ("true", "false")}
    start = readers["true"].initialOffset()
    at = readers["true"].latestOffset(start, readers["true"].getDefaultReadLimit())
    assert at["u"] == {"0": 15}
    cluster.kill(first)
    for broker in others:
        cluster.start(broker)
    until(lambda: cluster.leader("u", 0) in others)
    with pytest.raises(DataLoss, match="TRUNCATED: u-0 had reached offset 15, and of that only what is before 10 is"):
        values_of(readers["true"], readers["true"].partitions(start, at))
    with pytest.raises(DataLoss, match="TRUNCATED: u-0 had reached offset 15, and of that only what is before 10 is"):
        readers["true"].latestOffset(at, readers["true"].getDefaultReadLimit())
    goes_on = readers["false"]
    assert values_of(goes_on, goes_on.partitions(start, at)) == numbers(0, 10)
    fill(cluster.bootstrap, "u", numbers(100, 110))
    # Now the log is longer than what was planned, and what was written since is not what was planned.
    for pieces in ("1", "4"):
        again = {
            fails: stream(cluster, subscribe="u", failOnDataLoss=fails, minPartitions=pieces)
            for fails in ("true", "false")
        }
        with pytest.raises(
            DataLoss, match=r"TRUNCATED: u-0 had reached offset \d+, and of that only what is before 10"
        ):
            values_of(again["true"], again["true"].partitions(start, at))
        assert values_of(again["false"], again["false"].partitions(start, at)) == numbers(0, 10)
    end = goes_on.latestOffset(at, goes_on.getDefaultReadLimit())
    assert values_of(goes_on, goes_on.partitions(at, end)) == numbers(100, 110)


def test_a_stream_goes_on_through_dying_leaders_without_loss_or_doubles(cluster: Cluster) -> None:
    reader = stream(cluster, **{"partition.metadata.cache.ttl.ms": "0"})
    at = reader.initialOffset()
    found: list[bytes] = []
    for turn in range(3):
        fill(cluster.bootstrap, "t", numbers(100 * turn, 100 * turn + 100))
        at = _read_on(reader, at, found)
        first = leader(cluster)
        kill(cluster, first)
        at = _read_on(reader, at, found)
        cluster.start(first)
        until(lambda: cluster.in_sync("t", 0) == {1, 2, 3})
    assert sorted(found, key=int) == numbers(0, 300)
    assert len(found) == 300


def _read_on(reader: StreamReader, at: dict[str, Any], found: list[bytes]) -> dict[str, Any]:
    end = reader.latestOffset(at, reader.getDefaultReadLimit())
    assert end["t"]["0"] >= at["t"]["0"]
    found += values_of(reader, reader.partitions(at, end))
    return end
