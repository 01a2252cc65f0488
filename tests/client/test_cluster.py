"""What a client believes of a cluster."""

import asyncio

import pytest

from headrace.client.cluster import Cluster, Leader, parse_bootstrap
from headrace.client.errors import NotReachable, TimedOut
from headrace.client.outside import BACKOFF_MS_MAX, Outside
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.net.peer import CONNECT_MS_MAX, PeerLost
from headrace.wire.messages.metadata import MetadataRequest
from headrace.wire.messages.topics import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic
from headrace.wire.messages.versions import ApiVersionsRequest
from tests.client.fake import HANG_UP, SILENCE, FakeBroker, FakeCluster

T0 = TopicPartition("t", 0)


def client_of(broker: FakeBroker) -> Cluster:
    return Cluster(broker.bootstrap, "test", Outside(), creates_topics=False)


def test_bootstrap_addresses_are_parsed_or_named() -> None:
    assert parse_bootstrap("a:1, b.c:22,[::1]:333") == [("a", 1), ("b.c", 22), ("::1", 333)]
    assert parse_bootstrap("a:1,,b:2, ") == [("a", 1), ("b", 2)]
    for wrong in ("", " , ", "a", "a:", ":1", "a:b", "a:0", "a:70000", "a:1,b"):
        with pytest.raises(ValueError, match="is not host:port"):
            parse_bootstrap(wrong)


def test_pauses_double_up_to_a_second_and_never_agree() -> None:
    outside = Outside()
    for failures, whole in ((1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (60, BACKOFF_MS_MAX)):
        pauses = {outside.backoff_ms(failures) for _ in range(200)}
        assert len(pauses) > 10 and min(pauses) >= whole * 0.8 and max(pauses) <= whole * 1.2


async def test_an_old_leader_does_not_come_back_from_a_broker_that_lags() -> None:
    fake = FakeCluster()
    fake.add("t", 1)
    async with FakeBroker(fake) as broker:
        cluster = client_of(broker)
        fake.topics["t"].epochs[0] = 5
        await cluster.know(["t"])
        assert cluster.leader(T0) == Leader(1, 5)
        fake.topics["t"].epochs[0] = 4
        fake.topics["t"].leaders[0] = 9
        await cluster.refresh()
        assert cluster.leader(T0) == Leader(1, 5)
        fake.topics["t"].topic_id = b"n" * 16
        await cluster.refresh()
        assert cluster.leader(T0) == Leader(9, 4)
        await cluster.close()


async def test_a_number_that_no_request_has_room_for_is_the_callers_mistake() -> None:
    async with FakeBroker(FakeCluster()) as broker:
        cluster = client_of(broker)
        more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=1 << 40)], timeout_ms=1000)
        with pytest.raises(KafkaError, match="count is 1099511627776, and must be from") as refused:
            await cluster.ask(more, CreatePartitionsResponse)
        assert refused.value.code == ErrorCode.INVALID_REQUEST
        await cluster.close()


async def test_refreshes_at_the_same_time_are_one_request() -> None:
    async with FakeBroker(FakeCluster()) as broker:
        cluster = client_of(broker)
        await asyncio.gather(*[cluster.refresh() for _ in range(10)])
        assert broker.asked_for(MetadataRequest) == 1
        await cluster.close()


async def test_another_seed_is_asked_when_the_first_is_away() -> None:
    fake = FakeCluster()
    async with FakeBroker(fake) as broker:
        cluster = Cluster(f"127.0.0.1:1,{broker.bootstrap}", "test", Outside(), creates_topics=False)
        await cluster.refresh()
        assert list(cluster.brokers) == [1]
        with pytest.raises(PeerLost, match="broker 7 is not in the metadata"):
            await cluster.peer(7)
        await cluster.close()


async def test_a_seed_that_hangs_keeps_nobody_from_the_others() -> None:
    async with FakeBroker(FakeCluster()) as hanging, FakeBroker(FakeCluster()) as broker:
        hanging.always(ApiVersionsRequest, lambda _request: SILENCE)
        cluster = Cluster(f"{hanging.bootstrap},{broker.bootstrap}", "test", Outside(), creates_topics=False)
        async with asyncio.timeout(CONNECT_MS_MAX / 1000 / 2):
            await cluster.refresh()
        assert list(cluster.brokers.values()) == parse_bootstrap(broker.bootstrap)
        await cluster.close()


async def test_a_topic_that_comes_late_is_waited_for() -> None:
    fake = FakeCluster()
    async with FakeBroker(fake) as broker:
        cluster = client_of(broker)
        known = asyncio.ensure_future(cluster.know(["t"]))
        await asyncio.sleep(0.05)
        fake.add("t", 1)
        await known
        assert cluster.leader(T0) == Leader(1, 0)
        await cluster.close()


async def test_a_question_is_put_again_when_its_connection_breaks_and_given_up_in_time() -> None:
    request = CreatePartitionsRequest(topics=[], timeout_ms=1)
    async with FakeBroker(FakeCluster()) as broker:
        cluster = client_of(broker)
        broker.always(CreatePartitionsRequest, lambda _request: CreatePartitionsResponse(results=[]))
        broker.then(CreatePartitionsRequest, [HANG_UP, HANG_UP])
        await cluster.ask(request, CreatePartitionsResponse)
        assert broker.asked_for(CreatePartitionsRequest) == 3
        broker.always(CreatePartitionsRequest, lambda _request: SILENCE)
        with pytest.raises(TimedOut, match=f"CreatePartitions was not answered by {broker.bootstrap}"):
            await cluster.ask(request, CreatePartitionsResponse, timeout_ms=50)
        await cluster.close()


async def test_an_api_that_is_not_spoken_is_named() -> None:
    async with FakeBroker(FakeCluster(), versions_max={37: -1}) as broker:
        cluster = client_of(broker)
        with pytest.raises(KafkaError, match="does not speak a version of CreatePartitions"):
            await cluster.ask(CreatePartitionsRequest(topics=[], timeout_ms=1), CreatePartitionsResponse)
        await cluster.close()


async def test_nobody_there_names_every_address_that_was_tried() -> None:
    cluster = Cluster("127.0.0.1:1,127.0.0.1:2", "test", Outside(), creates_topics=False)
    with pytest.raises(NotReachable, match=r"bootstrap 127.0.0.1:1,127.0.0.1:2 .* 127.0.0.1:1: .*127.0.0.1:2: "):
        await cluster.refresh()
    await cluster.close()
