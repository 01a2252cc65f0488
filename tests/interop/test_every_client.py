"""Each client library does, against a real broker process, what its users do with it every day."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.interop.clients.asynchronous import AioKafka
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.java import Java
from tests.interop.clients.kcat import Kcat
from tests.interop.clients.node import KafkaJs
from tests.interop.clients.pure_python import KafkaPython
from tests.interop.clients.shape import GIVE_UP_S, Consumed, Lookup, Reader, Sender, TopicAdmin
from tests.interop.segments import stored_batches
from tests.servers.process import BrokerProcess

RECORDS = 100_000
PARTITIONS = 3
FEW = 3  # a batch of so few of our records does not always shrink, and a client may then send it as it is
SENDERS: Sequence[type[Sender]] = (Confluent, KafkaPython, AioKafka, Kcat, KafkaJs, Java)
READERS: Sequence[type[Reader]] = (Confluent, KafkaPython, AioKafka, Kcat, Java)
LOOKUPS: Sequence[type[Lookup]] = (Confluent, KafkaPython, AioKafka, Kcat, KafkaJs, Java)
ADMINS: Sequence[type[TopicAdmin]] = (Confluent, KafkaPython, AioKafka, KafkaJs, Java)
CASES = [(sender.name, codec) for sender in SENDERS for codec in sender.codecs]

GetClient = Callable[[str], Any]


def records(count: int) -> list[bytes]:
    """100 bytes each: a number, then text that compresses about as well as log lines do."""
    words = b"broker leader follower offset batch segment epoch fetch produce record " * 4
    return [b"%08d " % index + words[index % 71 :][:91] for index in range(count)]


def assert_each_once_and_in_order(read: Sequence[Consumed], sent: Sequence[bytes]) -> None:
    by_partition: dict[int, list[Consumed]] = defaultdict(list)
    for record in read:
        by_partition[record.partition].append(record)
    for partition, part in by_partition.items():
        assert [record.offset for record in part] == list(range(len(part))), f"offsets of partition {partition}"
        numbers = [int(record.value[:8]) for record in part]
        assert numbers == sorted(numbers), f"order of partition {partition}"
    assert sorted(record.value for record in read) == list(sent)


@pytest.mark.parametrize(("name", "codec"), CASES, ids=[f"{name}-{codec}" for name, codec in CASES])
def test_a_hundred_thousand_records_come_back_once_and_in_order(
    name: str, codec: str, client: GetClient, confluent: Confluent, broker: BrokerProcess, topic: str
) -> None:
    sender: Sender = client(name)
    confluent.create_topic(topic, PARTITIONS, {})
    sent = records(RECORDS)
    sender.produce(topic, PARTITIONS, sent, codec, idempotent=True)

    batches = list(stored_batches(broker.partitions, topic))
    assert {batch.codec for batch in batches if batch.record_count > FEW} == {codec}
    assert all(batch.producer_id >= 0 for batch in batches), "sent without idempotence"
    assert sum(batch.record_count for batch in batches) == RECORDS

    reader: Reader = client(name) if name in {kind.name for kind in READERS} else confluent
    assert_each_once_and_in_order(reader.consume(topic, PARTITIONS, RECORDS), sent)


@pytest.mark.parametrize("name", [kind.name for kind in SENDERS])
def test_records_sent_without_idempotence_come_back(
    name: str, client: GetClient, confluent: Confluent, broker: BrokerProcess, topic: str
) -> None:
    confluent.create_topic(topic, PARTITIONS, {})
    sent = records(1_000)
    client(name).produce(topic, PARTITIONS, sent, "none", idempotent=False)
    assert {batch.producer_id for batch in stored_batches(broker.partitions, topic)} == {-1}
    assert_each_once_and_in_order(confluent.consume(topic, PARTITIONS, len(sent)), sent)


@pytest.fixture(scope="module")
def clocked(confluent: Confluent) -> tuple[str, int]:
    """A topic whose record at offset `n` of either partition was stamped `n` times 10 ms after the returned time."""
    name, start_ms = "clocked", (int(time.time()) - 3600) * 1000
    confluent.create_topic(name, 2, {})
    producer = confluent.producer()
    for offset in range(1_000):
        for partition in range(2):
            producer.produce(name, b"tick", partition=partition, timestamp=start_ms + 10 * offset)
    assert producer.flush(GIVE_UP_S) == 0
    return name, start_ms


@pytest.mark.parametrize("name", [kind.name for kind in LOOKUPS])
def test_offsets_are_found_by_time(name: str, client: GetClient, clocked: tuple[str, int]) -> None:
    lookup: Lookup = client(name)
    topic, start_ms = clocked
    for after_ms, offset in ((-1, 0), (0, 0), (1, 1), (5_000, 500), (5_001, 501), (9_990, 999), (9_991, None)):
        assert lookup.offsets_at(topic, 2, start_ms + after_ms) == [offset, offset], f"{after_ms} ms"


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline, f"never seen: {what}"
        time.sleep(0.02)


def partitions_listed(confluent: Confluent, topic: str) -> int:
    """Asks for all topics: to ask for one by name may create it."""
    listed = confluent.admin.list_topics(timeout=GIVE_UP_S).topics
    return len(listed[topic].partitions) if topic in listed else 0


@pytest.mark.parametrize("name", [kind.name for kind in ADMINS])
def test_topics_are_created_with_settings_and_deleted(
    name: str, client: GetClient, confluent: Confluent, topic: str
) -> None:
    admin: TopicAdmin = client(name)
    admin.create_topic(topic, 4, {"retention.ms": "3600000"})
    wait_until(lambda: partitions_listed(confluent, topic) == 4, "a topic of four partitions is listed")
    assert confluent.topic_setting(topic, "retention.ms") == "3600000"
    with pytest.raises(Exception, match=r"(?i)exist|error 36"):  # every client has an exception class of its own
        admin.create_topic(topic, 4, {})

    admin.delete_topic(topic)
    wait_until(lambda: partitions_listed(confluent, topic) == 0, "the deleted topic is listed no more")
