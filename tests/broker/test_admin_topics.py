"""CreateTopics, DeleteTopics and CreatePartitions, as clients of each version see them."""

import pytest

from headrace.controller import topics
from headrace.core.acl import Operation
from headrace.errors import ErrorCode
from headrace.metadata.memory import Fault
from headrace.model import ZERO_UUID
from headrace.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.broker.admin_bench import AdminBench


async def create(
    bench: AdminBench, *topics: CreatableTopic, version: int = 7, validate_only: bool = False, timeout_ms: int = 5000
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)
    return (await bench.ask(request, version, CreateTopicsResponse)).topics


async def delete(bench: AdminBench, *states: DeleteTopicState, version: int = 6) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest(topics=list(states), timeout_ms=5000)
    if version < 6:
        request = DeleteTopicsRequest(topic_names=[state.name or "" for state in states], timeout_ms=5000)
    return (await bench.ask(request, version, DeleteTopicsResponse)).responses


async def grow(
    bench: AdminBench, *topics: CreatePartitionsTopic, version: int = 3, validate_only: bool = False
) -> list[tuple[str, int]]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=5000, validate_only=validate_only)
    results = (await bench.ask(request, version, CreatePartitionsResponse)).results
    return [(result.name, result.error_code) for result in results]


def codes(results: list[CreatableTopicResult]) -> list[int]:
    return [result.error_code for result in results]


@pytest.mark.parametrize("version", range(2, 8))
async def test_every_version_creates_a_topic_and_hosts_its_partitions(bench: AdminBench, version: int) -> None:
    setting = CreatableTopicConfig(name="retention.ms", value="77")
    (result,) = await create(
        bench, CreatableTopic(name="t", num_partitions=3, replication_factor=1, configs=[setting]), version=version
    )
    assert (result.name, result.error_code) == ("t", 0)
    topic = bench.broker.image.topics["t"]
    assert topic.config.retention_ms == 77
    hosted = bench.broker.partitions.topic_by_id(topic.id)
    assert hosted is not None and list(hosted.partitions) == [0, 1, 2]
    if version >= 7:
        assert result.topic_id == topic.id
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.configs is not None
        told = {config.name: (config.value, config.config_source) for config in result.configs}
        assert told["retention.ms"] == ("77", 1)
        assert told["segment.bytes"] == ("1073741824", 5)


async def test_names_that_metrics_could_not_tell_apart_collide(bench: AdminBench) -> None:
    assert codes(await create(bench, CreatableTopic(name="a.b_c"))) == [0]
    results = await create(bench, CreatableTopic(name="a_b.c"), CreatableTopic(name="a-b_c"), CreatableTopic(name="a"))
    assert codes(results) == [ErrorCode.INVALID_TOPIC_EXCEPTION, 0, 0]
    assert "'a.b_c'" in (results[0].error_message or "")
    assert codes(await create(bench, CreatableTopic(name="a.b_c"))) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    for validate_only in (True, False):
        pair = await create(bench, CreatableTopic(name="x.y"), CreatableTopic(name="x_y"), validate_only=validate_only)
        assert codes(pair) == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    await delete(bench, DeleteTopicState(name="a.b_c"))
    assert codes(await create(bench, CreatableTopic(name="a_b.c"))) == [0]


@pytest.mark.parametrize("validate_only", [True, False])
async def test_partitions_are_bounded_over_all_topics_of_a_request(
    bench: AdminBench, monkeypatch: pytest.MonkeyPatch, validate_only: bool
) -> None:
    monkeypatch.setattr(topics, "PARTITIONS_MAX", 10)
    wanted = [CreatableTopic(name=f"t{n}", num_partitions=4, replication_factor=1) for n in range(3)]
    assigned = [CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in range(3)]
    wanted.append(CreatableTopic(name="assigned", assignments=assigned))
    results = await create(bench, *wanted, validate_only=validate_only)
    assert codes(results) == [0, 0, ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION]


async def test_numbers_left_open_are_the_brokers() -> None:
    bench = await AdminBench().start({"num.partitions": "4"})
    (result,) = await create(bench, CreatableTopic(name="t"))
    assert (result.num_partitions, result.replication_factor) == (4, 1)


async def test_replicas_may_be_assigned(bench: AdminBench) -> None:
    good = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    bad = [CreatableReplicaAssignment(partition_index=0, broker_ids=[2])]
    results = await create(
        bench, CreatableTopic(name="good", assignments=good), CreatableTopic(name="bad", assignments=bad)
    )
    assert codes(results) == [0, ErrorCode.INVALID_REPLICA_ASSIGNMENT]


async def test_each_bad_topic_gets_its_own_code_and_a_sentence(bench: AdminBench) -> None:
    await create(bench, CreatableTopic(name="there"))
    unknown = CreatableTopicConfig(name="retention", value="1")
    results = await create(
        bench,
        CreatableTopic(name="there"),
        CreatableTopic(name="a/b"),
        CreatableTopic(name="none", num_partitions=0),
        CreatableTopic(name="three", replication_factor=3),
        CreatableTopic(name="setting", configs=[unknown]),
        CreatableTopic(name="twice"),
        CreatableTopic(name="twice"),
        CreatableTopic(name="good"),
    )
    assert [(result.name, result.error_code) for result in results] == [
        ("there", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.INVALID_PARTITIONS),
        ("three", ErrorCode.INVALID_REPLICATION_FACTOR),
        ("setting", ErrorCode.INVALID_CONFIG),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("good", 0),
    ]
    assert all(result.error_message for result in results[:-1])
    assert set(bench.broker.image.topics) == {"there", "good"}


async def test_validation_alone_creates_nothing_and_has_no_id(bench: AdminBench) -> None:
    (result,) = await create(bench, CreatableTopic(name="t", num_partitions=2), validate_only=True)
    assert (result.error_code, result.topic_id, result.num_partitions) == (0, ZERO_UUID, 2)
    assert not bench.broker.image.topics


async def test_creation_needs_a_right_on_the_cluster_or_on_the_topic(bench: AdminBench) -> None:
    bench.deny(Operation.CREATE, "kafka-cluster")
    bench.deny(Operation.CREATE, "closed")
    results = await create(bench, CreatableTopic(name="open"), CreatableTopic(name="closed"))
    assert codes(results) == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


async def test_who_may_not_see_settings_is_not_shown_them(bench: AdminBench) -> None:
    bench.deny(Operation.DESCRIBE_CONFIGS, "t")
    (result,) = await create(bench, CreatableTopic(name="t"))
    assert (result.error_code, result.topic_config_error_code) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])


async def test_a_creation_that_is_not_settled_in_time_is_neither_done_nor_refused(bench: AdminBench) -> None:
    bench.store.faults.extend([Fault.UNKNOWN_LATE] * 100)
    assert codes(await create(bench, CreatableTopic(name="t"), timeout_ms=100)) == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize("version", range(1, 7))
async def test_every_version_deletes_by_name(bench: AdminBench, version: int) -> None:
    await create(bench, CreatableTopic(name="t"), CreatableTopic(name="stays"))
    topic_id = bench.broker.image.topics["t"].id
    gone, unknown = await delete(bench, DeleteTopicState(name="t"), DeleteTopicState(name="u"), version=version)
    assert (gone.name, gone.error_code) == ("t", 0)
    assert (unknown.name, unknown.error_code) == ("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if version >= 6:
        assert gone.topic_id == topic_id
    assert set(bench.broker.image.topics) == {"stays"}
    assert bench.broker.partitions.topic_by_id(topic_id) is None


async def test_topics_are_deleted_by_id(bench: AdminBench) -> None:
    await create(bench, CreatableTopic(name="t"))
    topic_id = bench.broker.image.topics["t"].id
    gone, unknown = await delete(
        bench, DeleteTopicState(topic_id=topic_id), DeleteTopicState(topic_id=bytes(range(16)))
    )
    assert (gone.name, gone.error_code) == ("t", 0)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


async def test_a_topic_is_named_in_one_way_and_once(bench: AdminBench) -> None:
    await create(bench, CreatableTopic(name="t"))
    topic_id = bench.broker.image.topics["t"].id
    results = await delete(
        bench,
        DeleteTopicState(name="t", topic_id=topic_id),
        DeleteTopicState(),
        DeleteTopicState(name="u"),
        DeleteTopicState(name="u"),
    )
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 3
    both = await delete(bench, DeleteTopicState(name="t"), DeleteTopicState(topic_id=topic_id))
    assert [result.error_code for result in both] == [0, 0]


async def test_deletion_can_be_switched_off() -> None:
    bench = await AdminBench().start({"delete.topic.enable": "false"})
    await create(bench, CreatableTopic(name="t"))
    (old,) = await delete(bench, DeleteTopicState(name="t"), version=2)
    (new,) = await delete(bench, DeleteTopicState(name="t"), version=3)
    assert (old.error_code, new.error_code) == (ErrorCode.INVALID_REQUEST, ErrorCode.TOPIC_DELETION_DISABLED)
    assert "t" in bench.broker.image.topics


async def test_deletion_needs_its_right_and_an_id_does_not_tell_the_name(bench: AdminBench) -> None:
    await create(bench, CreatableTopic(name="seen"), CreatableTopic(name="hidden"))
    for name in ("seen", "hidden", "absent"):
        bench.deny(Operation.DELETE, name)
    bench.deny(Operation.DESCRIBE, "hidden")
    ids = {name: bench.broker.image.topics[name].id for name in ("seen", "hidden")}
    results = await delete(
        bench,
        DeleteTopicState(topic_id=ids["seen"]),
        DeleteTopicState(topic_id=ids["hidden"]),
        DeleteTopicState(name="absent"),
    )
    assert [(result.name, result.error_code) for result in results] == [
        ("seen", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("absent", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]


async def test_a_deletion_that_is_not_settled_in_time_is_neither_done_nor_refused(bench: AdminBench) -> None:
    await create(bench, CreatableTopic(name="t"))
    bench.store.unavailable = True
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=100)
    (result,) = (await bench.ask(request, 6, DeleteTopicsResponse)).responses
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "t" in bench.broker.image.topics


@pytest.mark.parametrize("version", range(4))
async def test_every_version_adds_partitions_and_hosts_them(bench: AdminBench, version: int) -> None:
    await create(bench, CreatableTopic(name="t", num_partitions=2))
    assert await grow(bench, CreatePartitionsTopic(name="t", count=5), version=version) == [("t", 0)]
    topic = bench.broker.image.topics["t"]
    hosted = bench.broker.partitions.topic_by_id(topic.id)
    assert hosted is not None and list(hosted.partitions) == [0, 1, 2, 3, 4]


async def test_what_cannot_grow_gets_its_code(bench: AdminBench) -> None:
    await create(bench, CreatableTopic(name="t", num_partitions=2), CreatableTopic(name="closed"))
    bench.deny(Operation.ALTER, "closed")
    assigned = [CreatePartitionsAssignment(broker_ids=[7])]
    assert await grow(bench, CreatePartitionsTopic(name="t", count=3, assignments=assigned)) == [
        ("t", ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    ]
    assert await grow(
        bench,
        CreatePartitionsTopic(name="t", count=2),
        CreatePartitionsTopic(name="closed", count=5),
        CreatePartitionsTopic(name="none", count=5),
        CreatePartitionsTopic(name="twice", count=5),
        CreatePartitionsTopic(name="twice", count=6),
    ) == [
        ("t", ErrorCode.INVALID_PARTITIONS),
        ("closed", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]


async def test_growth_can_be_validated_alone(bench: AdminBench) -> None:
    await create(bench, CreatableTopic(name="t", num_partitions=2))
    assert await grow(bench, CreatePartitionsTopic(name="t", count=5), validate_only=True) == [("t", 0)]
    assert len(bench.broker.image.topics["t"].partitions) == 2
