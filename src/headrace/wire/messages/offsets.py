"""ListOffsets (2), DeleteRecords (21), OffsetForLeaderEpoch (23)."""

from headrace.wire.struct import Message, Struct
from headrace.wire.types import Int8, Int16, Int32, Int64, String, field


class ListOffsetsPartition(Struct):
    partition_index: Int32
    current_leader_epoch: Int32 = field(default=-1, since=4)
    timestamp: Int64


class ListOffsetsTopic(Struct):
    name: String
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(Message, api=2, versions=(1, 11), flexible=6):
    replica_id: Int32 = -1
    isolation_level: Int8 = field(default=0, since=2)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field(default=0, since=10)


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = field(default=-1, since=4)


class ListOffsetsTopicResponse(Struct):
    name: String
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Message, api=2, versions=(1, 11), flexible=6):
    throttle_time_ms: Int32 = field(default=0, since=2)
    topics: list[ListOffsetsTopicResponse]


class DeleteRecordsPartition(Struct):
    partition_index: Int32
    offset: Int64


class DeleteRecordsTopic(Struct):
    name: String
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsRequest(Message, api=21, versions=(0, 2), flexible=2):
    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32
    low_watermark: Int64 = -1
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Struct):
    name: String
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(Message, api=21, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult]


class OffsetForLeaderPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


class OffsetForLeaderTopic(Struct):
    topic: String
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(Message, api=23, versions=(2, 4), flexible=4):
    replica_id: Int32 = field(default=-2, since=3)
    topics: list[OffsetForLeaderTopic]


class OffsetForLeaderEpochEndOffset(Struct):
    """Kafka calls it EpochEndOffset, as it calls another struct of Fetch."""

    error_code: Int16 = 0
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: String
    partitions: list[OffsetForLeaderEpochEndOffset]


class OffsetForLeaderEpochResponse(Message, api=23, versions=(2, 4), flexible=4):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult]
