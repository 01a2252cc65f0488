"""Which topics may be created or grown: Kafka's codes, and a sentence for each."""

import pytest

from headrace.controller.topics import (
    PARTITIONS_PER_TOPIC_MAX,
    MorePartitions,
    NewTopic,
    Planned,
    Refusal,
    name_refusal,
    plan_creation,
    plan_growth,
)
from headrace.controller.writing import TopicPlan
from headrace.core.cluster import BrokerPut, ClusterImage, IsrMember, PartitionRecord, RegisteredBroker, TopicPut
from headrace.errors import ErrorCode

ID = bytes(range(16))


def image_of(*broker_ids: int, settings: dict[str, str] | None = None) -> ClusterImage:
    image = ClusterImage(1, settings or {})
    image.apply([BrokerPut(RegisteredBroker(broker, 70 + broker, "h", 9092, None)) for broker in broker_ids])
    return image


def created(image: ClusterImage, new: NewTopic) -> TopicPlan:
    plan = plan_creation(image, new, ID, 0, Planned())
    assert isinstance(plan, TopicPlan)
    return plan


def code_of(image: ClusterImage, new: NewTopic) -> ErrorCode:
    refusal = plan_creation(image, new, ID, 0, Planned())
    assert isinstance(refusal, Refusal)
    assert refusal.message
    return refusal.code


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249])
def test_names_that_kafka_allows(name: str) -> None:
    assert name_refusal(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n", "a\x00", "٣"])
def test_names_that_kafka_refuses(name: str) -> None:
    refusal = name_refusal(name)
    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code_of(image_of(1), NewTopic(name)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_new_topic_is_led_by_its_first_replica_under_epoch_0_and_all_replicas_are_in_sync() -> None:
    plan = created(image_of(1, 2, 3), NewTopic("t", 2, 2))
    assert plan.partitions == [
        PartitionRecord(replicas=(1, 2), isr=(IsrMember(1, 71), IsrMember(2, 72)), leader=1),
        PartitionRecord(replicas=(2, 3), isr=(IsrMember(2, 72), IsrMember(3, 73)), leader=2),
    ]


def test_what_the_request_leaves_open_comes_from_the_broker() -> None:
    image = image_of(1, 2, settings={"num.partitions": "3", "default.replication.factor": "2"})
    plan = created(image, NewTopic("t"))
    assert [len(record.replicas) for record in plan.partitions] == [2, 2, 2]


def test_partitions_with_equal_records_share_one() -> None:
    partitions = created(image_of(1), NewTopic("t", 1000)).partitions
    assert len({id(record) for record in partitions}) == 1


def test_assigned_replicas_are_taken_as_they_are() -> None:
    plan = created(image_of(1, 2, 3), NewTopic("t", assignments=[(1, [3, 1]), (0, [2, 3])]))
    assert [record.replicas for record in plan.partitions] == [(2, 3), (3, 1)]
    assert [record.leader for record in plan.partitions] == [2, 3]


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", PARTITIONS_PER_TOPIC_MAX + 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -1, [(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, [(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (0, [2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", settings={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", settings={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", settings={"retention": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", settings={"cleanup.policy": "other"}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_created_is_refused_with_kafkas_code(new: NewTopic, code: ErrorCode) -> None:
    assert code_of(image_of(1, 2), new) is code


def test_a_topic_that_exists_is_not_created_again() -> None:
    image = image_of(1)
    plan = created(image, NewTopic("t", 1))
    image.apply([TopicPut("t", ID, plan.partitions, [1], 1)])
    assert code_of(image, NewTopic("t", 1)) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_cluster_has_a_limit_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.controller.topics.PARTITIONS_MAX", 5)
    image = image_of(1)
    image.apply([TopicPut("t", ID, created(image, NewTopic("t", 3)).partitions, [1] * 3, 1)])
    assert code_of(image, NewTopic("u", 3)) is ErrorCode.POLICY_VIOLATION
    created(image, NewTopic("u", 2))


def grown(more: MorePartitions, *broker_ids: int) -> TopicPlan | Refusal:
    image = image_of(1, 2)
    image.apply([TopicPut("t", ID, created(image, NewTopic("t", 2, 2)).partitions, [4, 4], 4)])
    for gone in {1, 2} - set(broker_ids or (1, 2)):
        del image.brokers[gone]
    return plan_growth(image, image.topics["t"], more, start=0)


def test_a_topic_grows_with_the_replication_that_it_has() -> None:
    plan = grown(MorePartitions("t", 4))
    assert isinstance(plan, TopicPlan)
    assert (plan.first, plan.last, plan.topic_rev) == (2, 4, 4)
    assert [record.replicas for record in plan.partitions] == [(1, 2), (2, 1)]


def test_new_partitions_may_be_assigned() -> None:
    plan = grown(MorePartitions("t", 3, [[2, 1]]))
    assert isinstance(plan, TopicPlan)
    assert [record.replicas for record in plan.partitions] == [(2, 1)]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (MorePartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", PARTITIONS_PER_TOPIC_MAX + 1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 4, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, [[1, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_grow_is_refused_with_kafkas_code(more: MorePartitions, code: ErrorCode) -> None:
    refusal = grown(more)
    assert isinstance(refusal, Refusal)
    assert refusal.code is code


def test_a_topic_cannot_grow_while_too_few_brokers_are_there() -> None:
    refusal = grown(MorePartitions("t", 3), 1)
    assert isinstance(refusal, Refusal)
    assert refusal.code is ErrorCode.INVALID_REPLICATION_FACTOR
