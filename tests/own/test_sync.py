"""`claim_sync`: the same, for programs without an event loop."""

import threading
import time
from collections.abc import Iterator

import pytest

from headrace import own
from headrace.model import TopicPartition
from headrace.testing import Cluster
from headrace.testing.cluster import CLIENTS
from tests.cli.programs import headrace

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        done = headrace("topic", "create", "t", "--bootstrap", cluster.bootstrap)
        assert done.returncode == 0, done.said
        yield cluster


def test_it_has_the_same_attributes_and_clients(cluster: Cluster) -> None:
    with own.claim_sync(cluster.bootstrap, "g", T0) as ownership:
        assert ownership.generations == {"t-0": 1} and ownership.generation == 1
        assert ownership.fence_offsets == {"t-0": 0} and ownership.fence_offset == 0
        assert not ownership.lost.is_set() and ownership.group == "g"
        with ownership.producer(linger_ms=0) as producer:
            sent = [producer.send("t", b"%d" % number, partition=0) for number in range(100)]
            assert [future.result(30).offset for future in sent] == list(range(100))
            producer.flush()
        with ownership.consumer() as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 98)
            assert [record.value for record in consumer.poll(30_000)] == [b"98", b"99"]
            assert consumer.position(T0) == 100
        ownership.check()
        ownership.regained()
    assert ownership.lost.is_set()
    with own.claim_sync(cluster.bootstrap, "g", T0) as again:
        assert again.generation == 2
        assert [record.value for record in again.backlog(T0, 97)] == [b"97", b"98", b"99"]


def test_a_takeover_is_known_within_100_ms(cluster: Cluster) -> None:
    """Town-44."""
    with own.claim_sync(cluster.bootstrap, "g", T0) as old, old.producer() as producer:
        with own.claim_sync(cluster.bootstrap, "g", T0, 1):
            assert old.lost.wait(0.1)
            with pytest.raises(own.OwnershipLost):
                old.regained(30)
            with pytest.raises(own.OwnershipLost):
                producer.send("t", b"too late", partition=0)
        assert old.is_gone


def test_a_silent_network_is_known_within_6_s_and_the_same_generation_regained(cluster: Cluster) -> None:
    """Town-44."""
    with own.claim_sync(cluster.bootstrap, "g", ["t-0", "a name"]) as ownership:
        cluster.cut(CLIENTS, 1)
        began = time.monotonic()
        assert ownership.lost.wait(10)
        assert time.monotonic() - began <= 6.0
        cluster.heal()
        ownership.regained(60)
        assert not ownership.lost.is_set() and ownership.generations == {"a name": 1, "t-0": 1}


def test_standbys_wait_and_nobody_is_evicted(cluster: Cluster) -> None:
    turns: list[int] = []

    def stand_by() -> None:
        with own.claim_sync(cluster.bootstrap, "g", T0, wait=True) as ownership:
            turns.append(ownership.generation)

    with own.claim_sync(cluster.bootstrap, "g", T0) as ownership:
        with pytest.raises(own.AlreadyOwned), own.claim_sync(cluster.bootstrap, "g", T0):
            pass
        thread = threading.Thread(target=stand_by)
        thread.start()
        time.sleep(0.5)
        assert not turns and not ownership.lost.is_set()
    thread.join(30)
    assert turns == [2]


def test_threads_and_connections_end_with_the_claim(cluster: Cluster) -> None:
    before = threading.active_count()
    with own.claim_sync(cluster.bootstrap, "g", T0):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
