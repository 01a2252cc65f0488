"""Metadata (3), DescribeCluster (60), DescribeTopicPartitions (75)."""

from typing import Final

from headrace.wire.struct import Message, Struct
from headrace.wire.types import ZERO_UUID, Bool, Int8, Int16, Int32, String, Uuid, field

OPERATIONS_UNASKED: Final = -0x80000000
"""Authorized operations of who did not ask for them."""


class MetadataRequestTopic(Struct):
    topic_id: Uuid = field(default=ZERO_UUID, since=10)
    name: String | None = field(default="", null=10)


# librdkafka, when it asks for all topics, writes the null array as four bytes and sends three more than it should.
class MetadataRequest(Message, api=3, versions=(0, 13), flexible=9, surplus_bytes_max=3):
    topics: list[MetadataRequestTopic] | None = field(default_factory=list, null=1)
    allow_auto_topic_creation: Bool = field(default=True, since=4)
    include_cluster_authorized_operations: Bool = field(default=False, since=8, until=10)
    include_topic_authorized_operations: Bool = field(default=False, since=8)


class MetadataResponseBroker(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None, since=1)


class MetadataResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1, since=7)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field(default_factory=list, since=5)


class MetadataResponseTopic(Struct):
    error_code: Int16 = 0
    name: String | None = field(default="", null=12)
    topic_id: Uuid = field(default=ZERO_UUID, since=10)
    is_internal: Bool = field(default=False, since=1)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field(default=OPERATIONS_UNASKED, since=8)


class MetadataResponse(Message, api=3, versions=(0, 13), flexible=9):
    throttle_time_ms: Int32 = field(default=0, since=3)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = field(default=None, since=2)
    controller_id: Int32 = field(default=-1, since=1)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field(default=OPERATIONS_UNASKED, since=8, until=10)
    error_code: Int16 = field(default=0, since=13)


class DescribeClusterRequest(Message, api=60, versions=(0, 2), flexible=0):
    include_cluster_authorized_operations: Bool = False
    endpoint_type: Int8 = field(default=1, since=1)
    include_fenced_brokers: Bool = field(default=False, since=2)


class DescribeClusterBroker(Struct):
    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = None
    is_fenced: Bool = field(default=False, since=2)


class DescribeClusterResponse(Message, api=60, versions=(0, 2), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Int8 = field(default=1, since=1)
    cluster_id: String
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = OPERATIONS_UNASKED


class TopicRequest(Struct):
    name: String


class Cursor(Struct):
    topic_name: String
    partition_index: Int32


class DescribeTopicPartitionsRequest(Message, api=75, versions=(0, 0), flexible=0):
    topics: list[TopicRequest]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32] = field(default_factory=list)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16 = 0
    name: String | None
    topic_id: Uuid = ZERO_UUID
    is_internal: Bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = OPERATIONS_UNASKED


class DescribeTopicPartitionsResponse(Message, api=75, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = None
