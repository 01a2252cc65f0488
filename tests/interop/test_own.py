"""Stock clients that own a partition, by their client.id or with a companion, and lose it to others.

Three broker processes. A client of the old owner writes as fast as its library lets it, up to 1,000 writes under way,
while another takes over.
"""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from headrace import own
from headrace.wire.messages.versions import ApiVersionsRequest, ApiVersionsResponse
from tests.interop import owners
from tests.interop.clients.java import Java
from tests.interop.clients.line_program import LineProgram
from tests.servers.choice import chosen
from tests.servers.cluster import HeadraceCluster, running_cluster

pytestmark = [
    pytest.mark.skipif(chosen() != "headrace", reason="Apache Kafka has no owners"),
    # kafka-python and aiokafka leave sockets behind when a broker closes them.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAMES = ["confluent-kafka", "kafka-python", "aiokafka", "java"]
BEGUN = 200
"""So many records are stored when another takes over; as a rule 1,000 more are under way."""
UNDER_WAY = {"confluent-kafka": 1_000, "kafka-python": 1_000, "java": 1_000, "aiokafka": BEGUN}
"""aiokafka has one batch of a partition under way at a time."""
GROUP = "g"
OWN = 18_200

FENCED = {
    "confluent-kafka": {"PRODUCER_FENCED", "_FENCED"},
    "kafka-python": {"ProducerFencedError"},
    "aiokafka": {"ProducerFenced"},
    "java": {"ProducerFencedException"},
}
TURNED_AWAY = {
    "confluent-kafka": {"TOPIC_AUTHORIZATION_FAILED"},
    "kafka-python": {"TopicAuthorizationFailedError"},
    "aiokafka": {"TopicAuthorizationFailedError"},
    "java": {"TopicAuthorizationException"},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceCluster]:
    with running_cluster(tmp_path_factory.mktemp("owners")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def java(cluster: HeadraceCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LineProgram]:
    with Java.start(cluster.bootstrap, tmp_path_factory.mktemp("java")) as program:
        yield program


@pytest.fixture
def topic(cluster: HeadraceCluster) -> str:
    name = f"owned-{uuid.uuid4().hex[:12]}"
    cluster.create_topic(name, 1, configs={"min.insync.replicas": "2"})
    return name


class Clients:
    """Of one library."""

    def __init__(self, name: str, cluster: HeadraceCluster, java: LineProgram, scratch: Path) -> None:
        self._name, self._bootstrap, self._java, self._scratch = name, cluster.bootstrap, java, scratch

    def writer(self, topic: str, client_id: str, acks: str, prefix: str) -> Any:
        if self._name == "java":
            return owners.JavaWriter(self._java, self._scratch, topic, client_id, acks, prefix)
        kinds = {"confluent-kafka": owners.RdWriter, "kafka-python": owners.KafkaPythonWriter}
        return kinds.get(self._name, owners.AioWriter)(self._bootstrap, topic, client_id, acks, prefix)

    def reader(self, topic: str, client_id: str) -> Any:
        if self._name == "java":
            return owners.JavaReader(self._java, self._scratch, topic, client_id)
        kinds = {"confluent-kafka": owners.RdReader, "kafka-python": owners.KafkaPythonReader}
        return kinds.get(self._name, owners.AioReader)(self._bootstrap, topic, client_id)


@pytest.fixture
def clients(request: pytest.FixtureRequest, cluster: HeadraceCluster, java: LineProgram, tmp_path: Path) -> Clients:
    return Clients(request.param, cluster, java, tmp_path)


def end_of(cluster: HeadraceCluster, topic: str) -> int:
    with cluster.call(cluster.leader_of(topic)) as caller:
        return caller.latest(topic, 1)[0].offset


def produce(cluster: HeadraceCluster, topic: str, client_id: str, *values: str, patience_s: float = 20.0) -> set[str]:
    """With acks=all; the names of the errors."""
    told: set[str] = set()

    def answered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            told.add(error.name())

    settings = {"enable.idempotence": True, "message.timeout.ms": int(patience_s * 1000), "linger.ms": 0}
    base = {"bootstrap.servers": cluster.bootstrap, "client.id": client_id, "log_level": 2}
    producer = Producer({**base, **settings})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=answered)
    assert producer.flush(patience_s + 10) == 0
    return told


def log_of(cluster: HeadraceCluster, topic: str) -> list[str]:
    """All that is there, as anybody can read it."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "error", "log_level": 2})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    end = end_of(cluster, topic)
    deadline = time.monotonic() + 60
    while len(values) < end:
        assert time.monotonic() < deadline, f"{len(values)} of {end}"
        for message in consumer.consume(5_000, timeout=1):
            assert message.error() is None, message.error()
            values.append((message.value() or b"").decode())
    consumer.close()
    return values


def until_told(cluster: HeadraceCluster, old: Any, acks: str) -> None:
    if acks == "0":
        time.sleep(1.0)  # nobody tells it: it writes on, into the void
    else:
        until(cluster, lambda: old.is_told, "the old owner is told")


def until(cluster: HeadraceCluster, holds: Any, what: str) -> None:
    cluster.until(holds, what, 60)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("clients", NAMES, indirect=True)
def test_a_producer_whose_client_id_has_a_lower_token_is_fenced(
    clients: Clients, acks: str, cluster: HeadraceCluster, topic: str, request: pytest.FixtureRequest
) -> None:
    """Town-14, Town-9, Town-10."""
    old = clients.writer(topic, f"own--{GROUP}--1--old", acks, "old")
    try:
        until(cluster, lambda: end_of(cluster, topic) >= BEGUN, "the old owner writes")
        assert produce(cluster, topic, f"own--{GROUP}--2--new", *(f"new {n}" for n in range(10))) == set()
        until_told(cluster, old, acks)
        assert produce(cluster, topic, f"own--{GROUP}--2--new", "new end") == set()
    finally:
        old.stop()
    log = log_of(cluster, topic)
    first = log.index("new 0")
    assert log[first:] == [*(f"new {n}" for n in range(10)), "new end"]
    name = request.node.callspec.params["clients"]
    assert first >= BEGUN and old.count >= UNDER_WAY[name]
    if acks != "0":
        assert old.told and old.told <= FENCED[name], old.told


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("clients", NAMES, indirect=True)
def test_a_producer_whose_companion_lost_the_partition_is_fenced(
    clients: Clients, acks: str, cluster: HeadraceCluster, topic: str, request: pytest.FixtureRequest
) -> None:
    """Town-25, Town-9, Town-10."""
    with own.claim_sync(cluster.bootstrap, GROUP, f"{topic}-0", exclusive="produce", client_id="old") as claimed:
        old = clients.writer(topic, claimed.client_id, acks, "old")
        try:
            until(cluster, lambda: end_of(cluster, topic) >= BEGUN, "the old owner writes")
            with own.claim_sync(cluster.bootstrap, GROUP, f"{topic}-0", 1, exclusive="produce") as taken:
                assert claimed.lost.wait(1)
                assert produce(cluster, topic, taken.client_id, *(f"new {n}" for n in range(10))) == set()
                until_told(cluster, old, acks)
                assert produce(cluster, topic, taken.client_id, "new end") == set()
                fence = taken.fence_offset
                old.stop()  # once it is released, everybody may write again
        finally:
            old.stop()
    log = log_of(cluster, topic)
    assert all(value.startswith("old") for value in log[:fence])
    assert log[fence:] == [*(f"new {n}" for n in range(10)), "new end"]
    name = request.node.callspec.params["clients"]
    assert fence >= BEGUN and old.count >= UNDER_WAY[name]
    if acks != "0":
        assert old.told and old.told <= FENCED[name], old.told


@pytest.mark.parametrize("way", ["client.id", "companion"])
@pytest.mark.parametrize("clients", NAMES, indirect=True)
def test_a_consumer_that_lost_the_partition_is_turned_away_and_is_served_nothing_more(
    clients: Clients, way: str, cluster: HeadraceCluster, topic: str, request: pytest.FixtureRequest
) -> None:
    """Town-14."""
    before, after = [f"before {n}" for n in range(100)], [f"after {n}" for n in range(100)]
    assert produce(cluster, topic, "anybody", *before) == set()
    resource = f"{topic}-0"
    is_companion = way == "companion"
    names = [resource, resource] if is_companion else ["not used", "not used either"]
    exclusive: own.Exclusive = "fetch" if is_companion else False
    with own.claim_sync(cluster.bootstrap, GROUP, names[0], exclusive=exclusive) as one:
        old = clients.reader(topic, one.client_id if is_companion else f"own--{GROUP}--1--old")
        new: Any = None
        try:
            if request.node.callspec.params["clients"] != "java":
                until(cluster, lambda: old.count == 100, "the old reader has read")
            else:
                time.sleep(3)
            number = 1 if is_companion else None
            with own.claim_sync(cluster.bootstrap, GROUP, names[1], number, exclusive=exclusive) as two:
                client_id = two.client_id if is_companion else f"own--{GROUP}--2--new"
                new = owners.RdReader(cluster.bootstrap, topic, client_id)
                until(cluster, lambda: new.count == 100, "the new reader has read")
                assert produce(cluster, topic, "anybody", *after) == set()
                until(cluster, lambda: new.count == 200, "the new reader has read on")
                until(cluster, lambda: old.is_told, "the old reader is told")
                time.sleep(0.5)
                old.stop()
                new.stop()
        finally:
            old.stop()
            if new is not None:
                new.stop()
    assert [value.decode() for value in new.values] == before + after
    assert [value.decode() for value in old.values] == before
    name = request.node.callspec.params["clients"]
    assert old.told and old.told <= TURNED_AWAY[name], old.told


def test_two_connections_with_one_client_id_live_side_by_side_and_equal_tokens_do_not(
    cluster: HeadraceCluster, topic: str
) -> None:
    """Town-19."""
    first = owners.RdWriter(cluster.bootstrap, topic, "own--a--b--3--one", "all", "one")
    second = owners.RdWriter(cluster.bootstrap, topic, "own--a--b--3--one", "all", "two")
    try:
        until(cluster, lambda: min(first.count, second.count) >= 1_500, "both write")
        assert produce(cluster, topic, "own--a--b--3--other", "x") == {"PRODUCER_FENCED"}
        assert produce(cluster, topic, "own--a--b--2--one", "x") == {"PRODUCER_FENCED"}
        with pytest.raises(own.AlreadyOwned) as refused, own.claim_sync(cluster.bootstrap, "a--b", f"{topic}-0"):
            pass
        assert refused.value.generation == 3 and refused.value.owner is not None
        assert refused.value.owner.client_id == "own--a--b--3--one"
    finally:
        first.stop()
        second.stop()
    assert first.told == second.told == set()


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("first", [1, 2])
def test_a_lower_token_stays_out_when_the_owner_is_away_and_when_the_leader_has_moved(
    moved: bool, first: int, cluster: HeadraceCluster, topic: str
) -> None:
    """Town-39, Town-19: in either order of arrival."""
    assert produce(cluster, topic, "own--g--1--one", "1") == set()
    assert produce(cluster, topic, "own--g--2--two", "2") == set()
    if moved:
        victim = cluster.leader_of(topic)
        cluster.nodes[victim].kill()
        cluster.withdraw(victim)
        cluster.until_led_by_another(victim, topic)
    try:
        if first == 1:
            assert produce(cluster, topic, "own--g--1--one", "3") == {"PRODUCER_FENCED"}
        assert produce(cluster, topic, "own--g--2--other", "4") == {"PRODUCER_FENCED"}
        assert produce(cluster, topic, "own--g--2--two", "5") == set()
        assert produce(cluster, topic, "own--g--1--one", "6") == {"PRODUCER_FENCED"}
    finally:
        if moved:
            cluster.nodes[victim].start()
            cluster.until_whole(topic)
    assert log_of(cluster, topic) == ["1", "2", "5"]


def test_an_idempotent_producer_of_the_owner_lives_through_a_change_of_leaders(
    cluster: HeadraceCluster, topic: str, java: LineProgram, tmp_path: Path
) -> None:
    """Town-33, with Java's."""
    with own.claim_sync(cluster.bootstrap, GROUP, f"{topic}-0", exclusive="produce") as claimed:
        writer = owners.JavaWriter(java, tmp_path, topic, claimed.client_id, "all", "mine")
        victim = cluster.leader_of(topic)
        try:
            until(cluster, lambda: end_of(cluster, topic) >= BEGUN, "the owner writes")
            cluster.nodes[victim].kill()
            cluster.withdraw(victim)
            cluster.until_led_by_another(victim, topic)
            claimed.regained(30)
            assert claimed.generation == 1
            moved_at = claimed.fence_offset
            until(cluster, lambda: end_of(cluster, topic) >= moved_at + BEGUN, "the owner writes on")
        finally:
            writer.stop()
            cluster.nodes[victim].start()
            cluster.until_whole(topic)
    assert writer.told == set()
    assert [int(value.split()[1]) for value in log_of(cluster, topic)] == list(range(end_of(cluster, topic)))


def test_stock_clients_are_told_of_the_api_and_do_not_mind(cluster: HeadraceCluster) -> None:
    """Town-16: every test of this directory runs with brokers that advertise it."""
    for node_id in cluster.nodes:
        with cluster.call(node_id) as caller:
            answer = caller.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3,
                                ApiVersionsResponse)  # fmt: skip
        assert OWN in {api.api_key for api in answer.api_keys}
