"""OffsetCommit (8), OffsetFetch (9), TxnOffsetCommit (28), OffsetDelete (47)."""

from headrace.model import ZERO_UUID
from headrace.wire.struct import Message, Struct
from headrace.wire.types import Bool, Int16, Int32, Int64, String, Uuid, field


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1, since=6)
    committed_metadata: String | None


class OffsetCommitRequestTopic(Struct):
    name: String = field(default="", until=9)
    topic_id: Uuid = field(default=ZERO_UUID, since=10)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Message, api=8, versions=(2, 10), flexible=8):
    group_id: String
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: String | None = field(default=None, since=7)
    retention_time_ms: Int64 = field(default=-1, since=2, until=4)
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Struct):
    name: String = field(default="", until=9)
    topic_id: Uuid = field(default=ZERO_UUID, since=10)
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Message, api=8, versions=(2, 10), flexible=8):
    throttle_time_ms: Int32 = field(default=0, since=3)
    topics: list[OffsetCommitResponseTopic]


class OffsetFetchRequestTopic(Struct):
    """`topic_id` takes the place of the name in version 10."""

    name: String = field(default="", until=9)
    topic_id: Uuid = field(default=ZERO_UUID, since=10)
    partition_indexes: list[Int32]


class OffsetFetchRequestGroup(Struct):
    group_id: String
    member_id: String | None = field(default=None, since=9)
    member_epoch: Int32 = field(default=-1, since=9)
    topics: list[OffsetFetchRequestTopic] | None


class OffsetFetchRequest(Message, api=9, versions=(1, 10), flexible=6):
    group_id: String = field(default="", until=7)
    topics: list[OffsetFetchRequestTopic] | None = field(default_factory=list, until=7, null=2)
    groups: list[OffsetFetchRequestGroup] = field(default_factory=list, since=8)
    require_stable: Bool = field(default=False, since=7)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1, since=5)
    metadata: String | None
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Struct):
    name: String = field(default="", until=9)
    topic_id: Uuid = field(default=ZERO_UUID, since=10)
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponseGroup(Struct):
    group_id: String
    topics: list[OffsetFetchResponseTopic]
    error_code: Int16 = 0


class OffsetFetchResponse(Message, api=9, versions=(1, 10), flexible=6):
    throttle_time_ms: Int32 = field(default=0, since=3)
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list, until=7)
    error_code: Int16 = field(default=0, since=2, until=7)
    groups: list[OffsetFetchResponseGroup] = field(default_factory=list, since=8)


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1, since=2)
    committed_metadata: String | None


class TxnOffsetCommitRequestTopic(Struct):
    name: String
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Message, api=28, versions=(0, 5), flexible=3):
    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = field(default=-1, since=3)
    member_id: String = field(default="", since=3)
    group_instance_id: String | None = field(default=None, since=3)
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: String
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Message, api=28, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32


class OffsetDeleteRequestTopic(Struct):
    name: String
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Message, api=47, versions=(0, 0)):
    group_id: String
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Struct):
    name: String
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(Message, api=47, versions=(0, 0)):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)
