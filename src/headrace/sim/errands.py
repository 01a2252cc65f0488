"""What a clerk asks for: all that tools of administrators do, with mistakes."""

from collections.abc import Callable
from random import Random

from headrace.wire.batch import build
from headrace.wire.messages import configs, elections, group_offsets, groups, metadata, offsets, topics, transactions
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from headrace.wire.records import NewRecord
from headrace.wire.struct import Message

TOPIC = "k"
"""The clerk's own: its records come and go."""
OTHERS = "t"
GROUPS = ("k1", "k2", "n", "")
Errand = tuple[Message, type[Message]]
TIMEOUT_MS = 1_500
BROKER, OF_TOPIC = 4, 2
PATTERNS = (None, "", r"x\d+", r"[^a-w]{1,2}(1|2)?", "(first|x.)*", "(((", "a{9}b+?")
SET, DELETE, APPEND, SUBTRACT = range(4)

VERSIONS: dict[type[Message], int] = {
    group_offsets.OffsetCommitRequest: 7,
    group_offsets.OffsetFetchRequest: 6,
    transactions.ListTransactionsRequest: 2,
    ProduceRequest: 9,
    elections.ElectLeadersRequest: 2,
}
"""Where others would ask for something else."""


def _produce(random: Random) -> Errand:
    records = [NewRecord(0, b"key %d" % number, random.randbytes(9)) for number in range(random.randint(1, 3))]
    data = PartitionProduceData(index=random.randrange(4), records=build(records))
    topic = [TopicProduceData(name=TOPIC, partition_data=[data])]
    return ProduceRequest(acks=random.choice((1, -1)), timeout_ms=1_000, topic_data=topic), ProduceResponse


def _delete_records(random: Random) -> Errand:
    place = offsets.DeleteRecordsPartition(partition_index=random.randrange(4), offset=random.randint(-2, 9))
    topic = offsets.DeleteRecordsTopic(name=random.choice((TOPIC, TOPIC, "nowhere")), partitions=[place])
    return offsets.DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), offsets.DeleteRecordsResponse


def _epoch_ends(random: Random) -> Errand:
    place = offsets.OffsetForLeaderPartition(partition=random.randrange(3), leader_epoch=random.randrange(4))
    topic = offsets.OffsetForLeaderTopic(topic=random.choice((TOPIC, OTHERS)), partitions=[place])
    return offsets.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]), offsets.OffsetForLeaderEpochResponse


def _create_topics(random: Random) -> Errand:
    assignments = [
        topics.CreatableReplicaAssignment(partition_index=random.randrange(2), broker_ids=[1, random.randint(1, 4)])
        for _ in range(random.randint(1, 2))
    ]
    wrong = [
        topics.CreatableTopic(name=name)
        for name in ("", "..", "t", TOPIC, "a.b", "a_b", "x" * 250, "what?", "__consumer_offsets")
    ]
    wrong += [
        topics.CreatableTopic(name="many", num_partitions=random.choice((-1, 0, 1 << 30))),
        topics.CreatableTopic(name="copies", replication_factor=random.choice((0, 9))),
        topics.CreatableTopic(name="set", configs=[topics.CreatableTopicConfig(name="retention.ms", value="soon")]),
        topics.CreatableTopic(name="placed", assignments=assignments),
    ]
    asked = random.sample(wrong, 4)
    return topics.CreateTopicsRequest(topics=asked, timeout_ms=TIMEOUT_MS, validate_only=True), (
        topics.CreateTopicsResponse
    )


def _create_partitions(random: Random) -> Errand:
    assignments = [topics.CreatePartitionsAssignment(broker_ids=[1, 2]) for _ in range(random.randint(1, 2))]
    topic = topics.CreatePartitionsTopic(
        name=random.choice((TOPIC, "nowhere")),
        count=random.randint(2, 6),
        assignments=random.choice((None, assignments)),
    )
    return topics.CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=True), (
        topics.CreatePartitionsResponse
    )


def _describe_topics(random: Random) -> Errand:
    cursor = metadata.Cursor(topic_name=TOPIC, partition_index=random.randrange(3))
    request = metadata.DescribeTopicPartitionsRequest(
        topics=[metadata.TopicRequest(name=name) for name in random.sample((TOPIC, OTHERS, "nowhere"), 2)],
        response_partition_limit=random.randint(1, 4),
        cursor=random.choice((None, cursor)),
    )
    return request, metadata.DescribeTopicPartitionsResponse


def _elect(random: Random) -> Errand:
    """An unclean leader only of its own topic."""
    asked = [elections.TopicPartitions(topic=name, partitions=[0, 1, 7]) for name in (TOPIC, "nowhere")]
    request = elections.ElectLeadersRequest(election_type=random.choice((0, 1)), topic_partitions=asked)
    return request, elections.ElectLeadersResponse


def _alter_some(random: Random) -> Errand:
    place, edits = random.choice(
        (
            ((OF_TOPIC, TOPIC), [("cleanup.policy", APPEND, "compact")]),
            ((OF_TOPIC, TOPIC), [("cleanup.policy", SUBTRACT, "compact")]),
            ((OF_TOPIC, TOPIC), [("retention.ms", APPEND, "1")]),
            ((OF_TOPIC, TOPIC), [("retention.ms", SET, "1"), ("segment.bytes", SET, "4096")]),
            ((OF_TOPIC, TOPIC), [("retention.ms", DELETE, None), ("retention.ms", SET, "1")]),
            ((OF_TOPIC, "nowhere"), [("retention.ms", DELETE, None)]),
            ((BROKER, ""), [("group.max.size", SET, "1000")]),
            ((BROKER, ""), [("group.max.size", DELETE, None)]),
            ((BROKER, "1"), [("group.max.size", SET, "900")]),
            ((BROKER, "2"), [("node.id", SET, "9")]),
            ((BROKER, "9"), [("group.max.size", SET, None)]),
            ((99, ""), [("group.max.size", SET, "7")]),
        )
    )
    changes = [configs.IncrementalAlterableConfig(name=name, config_operation=op, value=v) for name, op, v in edits]
    resource = configs.IncrementalAlterConfigsResource(resource_type=place[0], resource_name=place[1], configs=changes)
    return configs.IncrementalAlterConfigsRequest(resources=[resource]), configs.IncrementalAlterConfigsResponse


def _alter_all(random: Random) -> Errand:
    kind, name = random.choice(((OF_TOPIC, TOPIC), (BROKER, ""), (BROKER, "2")))
    setting = ("retention.ms", "3600000") if kind == OF_TOPIC else ("group.max.size", "1200")
    changes = [configs.AlterableConfig(name=setting[0], value=setting[1])]
    resource = configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    return configs.AlterConfigsRequest(resources=[resource]), configs.AlterConfigsResponse


def _describe_configs(random: Random) -> Errand:
    kind, name = random.choice(((OF_TOPIC, TOPIC), (BROKER, ""), (BROKER, "2"), (OF_TOPIC, "nowhere"), (8, "1")))
    keys = random.choice((None, ["group.max.size", "retention.ms"]))
    resource = configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = configs.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    return request, configs.DescribeConfigsResponse


def _commit(random: Random) -> Errand:
    places = [
        group_offsets.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=7, committed_metadata="x" * random.choice((1, 5_000))
        )
        for index in range(2)
    ]
    named = [group_offsets.OffsetCommitRequestTopic(name=name, partitions=places) for name in (TOPIC, "nowhere")]
    group = random.choice(("k1", "k2", ""))
    return group_offsets.OffsetCommitRequest(group_id=group, topics=named), group_offsets.OffsetCommitResponse


def _fetch_offsets(random: Random) -> Errand:
    named = [group_offsets.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])]
    asked = random.choice((None, named))
    return group_offsets.OffsetFetchRequest(group_id=random.choice(GROUPS), topics=asked), (
        group_offsets.OffsetFetchResponse
    )


def _delete_offsets(random: Random) -> Errand:
    places = [group_offsets.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
    named = [group_offsets.OffsetDeleteRequestTopic(name=name, partitions=places) for name in (TOPIC, "m")]
    # Of the others' group nothing, in whatever state it is.
    group = random.choice(("k1", "k2", "k9", ""))
    return group_offsets.OffsetDeleteRequest(group_id=group, topics=named), group_offsets.OffsetDeleteResponse


def _delete_groups(random: Random) -> Errand:
    asked = random.choice((["k1"], ["k2", "k9", ""]))
    return groups.DeleteGroupsRequest(groups_names=asked), groups.DeleteGroupsResponse


def _describe_groups(_random: Random) -> Errand:
    request = groups.DescribeGroupsRequest(groups=[*GROUPS, "k9"])
    return request, groups.DescribeGroupsResponse


def _list_groups(random: Random) -> Errand:
    states = random.choice(([], ["Stable"], ["empty", "Dead"]))
    return groups.ListGroupsRequest(states_filter=states), groups.ListGroupsResponse


def _list_transactions(random: Random) -> Errand:
    request = transactions.ListTransactionsRequest(
        state_filters=random.choice(([], ["Ongoing"], ["CompleteCommit", "Strange"])),
        producer_id_filters=random.choice(([], [1, 2])),
        duration_filter=random.choice((-1, 500)),
        transactional_id_pattern=random.choice(PATTERNS),
    )
    return request, transactions.ListTransactionsResponse


def _describe_transactions(_random: Random) -> Errand:
    return transactions.DescribeTransactionsRequest(transactional_ids=["x1", "x2", "nobody", ""]), (
        transactions.DescribeTransactionsResponse
    )


def _describe_producers(random: Random) -> Errand:
    named = [
        transactions.DescribeProducersTopic(name=name, partition_indexes=[0, random.randrange(9)])
        for name in (OTHERS, "x", "nowhere")
    ]
    return transactions.DescribeProducersRequest(topics=named), transactions.DescribeProducersResponse


ALL: tuple[Callable[[Random], Errand], ...] = (
    _produce,
    _delete_records,
    _epoch_ends,
    _create_topics,
    _create_partitions,
    _describe_topics,
    _elect,
    _alter_some,
    _alter_all,
    _describe_configs,
    _commit,
    _fetch_offsets,
    _delete_offsets,
    _delete_groups,
    _describe_groups,
    _list_groups,
    _list_transactions,
    _describe_transactions,
    _describe_producers,
)
