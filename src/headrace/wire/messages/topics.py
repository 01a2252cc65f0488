"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37)."""

from headrace.wire.struct import Message, Struct
from headrace.wire.types import ZERO_UUID, Bool, Int8, Int16, Int32, String, Uuid, field, tagged


class CreatableReplicaAssignment(Struct):
    partition_index: Int32
    broker_ids: list[Int32]


class CreatableTopicConfig(Struct):
    name: String
    value: String | None


class CreatableTopic(Struct):
    name: String
    num_partitions: Int32 = -1
    replication_factor: Int16 = -1
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)


class CreateTopicsRequest(Message, api=19, versions=(2, 7), flexible=5):
    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Struct):
    name: String
    value: String | None
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Struct):
    name: String
    topic_id: Uuid = field(default=ZERO_UUID, since=7)
    error_code: Int16 = 0
    error_message: String | None = None
    topic_config_error_code: Int16 = tagged(0, default=0, since=5)
    num_partitions: Int32 = field(default=-1, since=5)
    replication_factor: Int16 = field(default=-1, since=5)
    configs: list[CreatableTopicConfigs] | None = field(default=None, since=5)


class CreateTopicsResponse(Message, api=19, versions=(2, 7), flexible=5):
    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult]


class DeleteTopicState(Struct):
    name: String | None = None
    topic_id: Uuid = ZERO_UUID


class DeleteTopicsRequest(Message, api=20, versions=(1, 6), flexible=4):
    topics: list[DeleteTopicState] = field(default_factory=list, since=6)
    topic_names: list[String] = field(default_factory=list, until=5)
    timeout_ms: Int32


class DeletableTopicResult(Struct):
    name: String | None = field(default="", null=6)
    topic_id: Uuid = field(default=ZERO_UUID, since=6)
    error_code: Int16 = 0
    error_message: String | None = field(default=None, since=5)


class DeleteTopicsResponse(Message, api=20, versions=(1, 6), flexible=4):
    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult]


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32]


class CreatePartitionsTopic(Struct):
    name: String
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None = None


class CreatePartitionsRequest(Message, api=37, versions=(0, 3), flexible=2):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool = False


class CreatePartitionsTopicResult(Struct):
    name: String
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(Message, api=37, versions=(0, 3), flexible=2):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult]
