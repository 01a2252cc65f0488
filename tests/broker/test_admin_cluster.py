"""DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, InitProducerId and FindCoordinator."""

import errno

import pytest

from headrace.broker.partitions import Hosted, Partitions
from headrace.controller.topics import NewTopic
from headrace.core.acl import Operation
from headrace.core.cluster import BrokerGone
from headrace.errors import ErrorCode
from headrace.storage.log_dir import LogDir
from headrace.wire.batch import NewRecord, build, read_header
from headrace.wire.compression import Codec
from headrace.wire.messages.coordinators import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headrace.wire.messages.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from headrace.wire.messages.metadata import (
    Cursor,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from tests.broker.admin_bench import AdminBench
from tests.controller.world import SeededRandom

UNASKED = -(2**31)


@pytest.mark.parametrize("version", range(3))
async def test_every_version_tells_the_nodes_and_the_controller(bench: AdminBench, version: int) -> None:
    answer = await bench.ask(DescribeClusterRequest(), version, DescribeClusterResponse)
    assert (answer.error_code, answer.controller_id, answer.cluster_id) == (0, 1, bench.broker.image.cluster_id)
    assert [(node.broker_id, node.host, node.port) for node in answer.brokers] == [(1, "127.0.0.1", 9092)]
    assert answer.cluster_authorized_operations == UNASKED


async def test_rights_on_the_cluster_are_told_when_asked_for(bench: AdminBench) -> None:
    bench.deny(Operation.ALTER, "kafka-cluster")
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    operations = (await bench.ask(request, 0, DescribeClusterResponse)).cluster_authorized_operations
    assert operations & 1 << Operation.CREATE
    assert not operations & 1 << Operation.ALTER


@pytest.mark.parametrize(
    ("endpoint", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_only_brokers_can_be_asked_for(bench: AdminBench, endpoint: int, code: ErrorCode) -> None:
    answer = await bench.ask(DescribeClusterRequest(endpoint_type=endpoint), 1, DescribeClusterResponse)
    assert answer.error_code == code
    assert answer.brokers == []


async def pages(bench: AdminBench, limit: int, *names: str) -> list[list[tuple[str | None, list[int]]]]:
    """Every page: topics, each with the partitions told."""
    told: list[list[tuple[str | None, list[int]]]] = []
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
        )
        answer = await bench.ask(request, 0, DescribeTopicPartitionsResponse)
        assert all(topic.error_code == 0 for topic in answer.topics)
        told.append([(topic.name, [p.partition_index for p in topic.partitions]) for topic in answer.topics])
        if answer.next_cursor is None:
            return told
        cursor = answer.next_cursor


@pytest.fixture
async def topics(bench: AdminBench) -> AdminBench:
    await bench.broker.controller.create_topics([NewTopic("b", 3), NewTopic("a", 2), NewTopic("c", 1)])
    return bench


async def test_topics_are_told_in_order_a_page_at_a_time(topics: AdminBench) -> None:
    assert await pages(topics, 100) == [[("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]]
    assert await pages(topics, 3) == [[("a", [0, 1]), ("b", [0])], [("b", [1, 2]), ("c", [0])]]
    assert await pages(topics, 2) == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2]), ("c", [0])]]
    assert await pages(topics, 2, "c", "a") == [[("a", [0, 1])], [("c", [0])]]
    assert len(await pages(topics, 0)) == 6


async def test_a_partition_is_told_with_its_leader_and_replicas(topics: AdminBench) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="c")])
    ((topic,), _) = await asked_topics(topics, request)
    (partition,) = topic.partitions
    assert topic.topic_id == topics.broker.image.topics["c"].id
    assert (partition.leader_id, partition.leader_epoch) == (1, 0)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
    topics.broker.image.apply([BrokerGone(1)])
    ((topic,), _) = await asked_topics(topics, request)
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert partition.offline_replicas == [1]


async def asked_topics(
    bench: AdminBench, request: DescribeTopicPartitionsRequest
) -> tuple[list[DescribeTopicPartitionsResponseTopic], list[tuple[str | None, int]]]:
    """The topics told, and in short their names and codes."""
    answer = await bench.ask(request, 0, DescribeTopicPartitionsResponse)
    return answer.topics, [(topic.name, topic.error_code) for topic in answer.topics]


async def test_topics_that_are_missing_or_hidden_get_their_code(topics: AdminBench) -> None:
    topics.deny(Operation.DESCRIBE, "b")
    named = [TopicRequest(name=name) for name in ("a", "b", "none", "x/y")]
    _, told = await asked_topics(topics, DescribeTopicPartitionsRequest(topics=named))
    assert told == [
        ("a", 0),
        ("b", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("x/y", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    _, told = await asked_topics(topics, DescribeTopicPartitionsRequest(topics=[]))
    assert told == [("a", 0), ("c", 0)]


async def test_a_cursor_below_zero_is_refused_and_one_beyond_the_end_goes_on(topics: AdminBench) -> None:
    cursor = Cursor(topic_name="a", partition_index=-1)
    named = [TopicRequest(name="a")]
    _, told = await asked_topics(topics, DescribeTopicPartitionsRequest(topics=named, cursor=cursor))
    assert told == [("a", ErrorCode.INVALID_REQUEST)]
    cursor = Cursor(topic_name="b", partition_index=99)
    answered, _ = await asked_topics(topics, DescribeTopicPartitionsRequest(topics=[], cursor=cursor))
    assert [(topic.name, len(topic.partitions)) for topic in answered] == [("b", 0), ("c", 1)]


def sizes(answer: DescribeLogDirsResponse) -> dict[tuple[str, str, int], int]:
    return {
        (result.log_dir, topic.name, partition.partition_index): partition.partition_size
        for result in answer.results
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_version_tells_what_lies_in_each_directory(topics: AdminBench, version: int) -> None:
    hosted = topics.broker.partitions.find_by_name("a", 0)
    assert isinstance(hosted, Hosted)
    answer = await topics.ask(DescribeLogDirsRequest(topics=None), version, DescribeLogDirsResponse)
    assert [result.log_dir for result in answer.results] == ["/one", "/two"]
    told = sizes(answer)
    assert sorted((name, index) for _, name, index in told) == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0),
    ]  # fmt: skip
    assert set(told.values()) == {0}
    assert (hosted.directory.path, "a", 0) in told


async def test_version_4_tells_the_space_of_each_disk_and_what_is_unknown_of_it(topics: AdminBench) -> None:
    topics.files.fail("space", "/two*", errno.EIO)
    for version in (3, 4):
        answer = await topics.ask(DescribeLogDirsRequest(topics=[]), version, DescribeLogDirsResponse)
        one, two = ((result.total_bytes, result.usable_bytes) for result in answer.results)
        assert two == (-1, -1)
        assert one == ((-1, -1) if version == 3 else topics.broker.partitions.directories[0].space())


async def told_size(bench: AdminBench) -> int:
    answer = await bench.ask(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
    (size,) = [size for (_, name, index), size in sizes(answer).items() if (name, index) == ("a", 1)]
    return size


async def test_a_partition_is_as_large_as_its_records_and_is_not_opened_to_tell(topics: AdminBench) -> None:
    partitions = topics.broker.partitions
    hosted = partitions.find_by_name("a", 1)
    assert isinstance(hosted, Hosted)
    batch = build([NewRecord(1_700_000_000_000, None, b"value")], codec=Codec.NONE)
    hosted.log.append([(batch, read_header(batch))], 1_700_000_000_000)
    assert await told_size(topics) == len(batch)
    for directory in partitions.directories:
        assert directory.close() == []
    directories = [LogDir(topics.files, "/one"), LogDir(topics.files, "/two")]
    topics.broker.partitions = Partitions(directories, SeededRandom(), topics.broker.image)
    for topic in topics.broker.image.topics.values():
        topics.broker.partitions.host(topic, range(len(topic.partitions)))
    assert await told_size(topics) == len(batch)
    reopened = topics.broker.partitions.find_by_name("a", 1)
    assert isinstance(reopened, Hosted)
    assert reopened.log_if_open is None


async def test_single_partitions_can_be_asked_for(topics: AdminBench) -> None:
    asked = [DescribableLogDirTopic(topic="b", partitions=[2, 7]), DescribableLogDirTopic(topic="x", partitions=[0])]
    answer = await topics.ask(DescribeLogDirsRequest(topics=asked), 4, DescribeLogDirsResponse)
    assert [(name, index) for _, name, index in sizes(answer)] == [("b", 2)]


async def test_a_directory_that_is_offline_says_so(topics: AdminBench) -> None:
    topics.broker.faults.offline_directories.add("/one")
    answer = await topics.ask(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
    assert [(result.log_dir, result.error_code) for result in answer.results] == [
        ("/one", ErrorCode.KAFKA_STORAGE_ERROR),
        ("/two", 0),
    ]
    assert {directory for directory, _, _ in sizes(answer)} == {"/two"}


async def test_seeing_directories_needs_a_right_on_the_cluster(topics: AdminBench) -> None:
    topics.deny(Operation.DESCRIBE, "kafka-cluster")
    answer = await topics.ask(DescribeLogDirsRequest(topics=None), 3, DescribeLogDirsResponse)
    assert (answer.error_code, answer.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    assert (await topics.ask(DescribeLogDirsRequest(topics=None), 1, DescribeLogDirsResponse)).results == []


async def producer_id(
    bench: AdminBench, version: int = 5, transactional_id: str | None = None, known: tuple[int, int] = (-1, -1)
) -> tuple[int, int, int]:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=1000, producer_id=known[0], producer_epoch=known[1]
    )
    answer = await bench.ask(request, version, InitProducerIdResponse)
    return answer.error_code, answer.producer_id, answer.producer_epoch


async def test_every_version_gives_a_new_producer_id(bench: AdminBench) -> None:
    assert [await producer_id(bench, version) for version in range(6)] == [(0, n, 0) for n in range(6)]


async def test_a_producer_that_names_its_id_still_gets_a_new_one(bench: AdminBench) -> None:
    assert await producer_id(bench, known=(77, 3)) == (0, 0, 0)
    assert (await producer_id(bench, known=(77, -1)))[0] == ErrorCode.INVALID_REQUEST


async def test_transactions_do_not_exist_yet(bench: AdminBench) -> None:
    assert await producer_id(bench, transactional_id="x") == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
    assert (await producer_id(bench, transactional_id=""))[0] == ErrorCode.INVALID_REQUEST
    bench.deny(Operation.WRITE, "x")
    assert (await producer_id(bench, transactional_id="x"))[0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_an_idempotent_producer_needs_a_right_on_the_cluster_or_on_some_topic(topics: AdminBench) -> None:
    topics.deny(Operation.IDEMPOTENT_WRITE, "kafka-cluster")
    assert (await producer_id(topics))[0] == 0
    for name in ("a", "b", "c"):
        topics.deny(Operation.WRITE, name)
    assert (await producer_id(topics))[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_without_a_store_and_without_ids_a_producer_is_told_to_come_again(bench: AdminBench) -> None:
    bench.store.unavailable = True
    assert (await producer_id(bench))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize(
    ("key_type", "key", "code"),
    [
        (0, "group", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (0, "closed", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (1, "transaction", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (1, "closed", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (2, "share", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_every_version_says_that_there_is_no_coordinator(
    bench: AdminBench, version: int, key_type: int, key: str, code: ErrorCode
) -> None:
    if version == 0 and key_type != 0:
        return  # it knows groups only
    bench.deny(Operation.DESCRIBE, "closed")
    request = FindCoordinatorRequest(key_type=key_type, key=key)
    if version >= 4:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key, key + "2"])
    answer = await bench.ask(request, version, FindCoordinatorResponse)
    if version < 4:
        assert (answer.error_code, answer.node_id) == (code, -1)
    else:
        first, second = answer.coordinators
        assert (first.key, first.error_code, first.node_id) == (key, code, -1)
        assert second.key == key + "2"
