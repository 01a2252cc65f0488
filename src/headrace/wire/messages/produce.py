"""Produce (0)."""

from headrace.wire.struct import Message, Struct
from headrace.wire.types import ZERO_UUID, Int16, Int32, Int64, Records, String, Uuid, field, tagged


class PartitionProduceData(Struct):
    index: Int32
    records: Records | None


class TopicProduceData(Struct):
    name: String = field(default="", until=12)
    topic_id: Uuid = field(default=ZERO_UUID, since=13)
    partition_data: list[PartitionProduceData]


class ProduceRequest(Message, api=0, versions=(3, 13), flexible=9):
    transactional_id: String | None = None
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32
    batch_index_error_message: String | None = None


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Struct):
    index: Int32
    error_code: Int16 = 0
    base_offset: Int64 = -1
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = field(default=-1, since=5)
    record_errors: list[BatchIndexAndErrorMessage] = field(default_factory=list, since=8)
    error_message: String | None = field(default=None, since=8)
    current_leader: LeaderIdAndEpoch | None = tagged(0, default=None, since=10)


class TopicProduceResponse(Struct):
    name: String = field(default="", until=12)
    topic_id: Uuid = field(default=ZERO_UUID, since=13)
    partition_responses: list[PartitionProduceResponse]


class NodeEndpoint(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = None


class ProduceResponse(Message, api=0, versions=(3, 13), flexible=9):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = 0
    node_endpoints: list[NodeEndpoint] = tagged(0, default_factory=list, since=10)
