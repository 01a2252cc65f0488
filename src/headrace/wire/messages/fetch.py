"""Fetch (1)."""

from typing import Final

from headrace.wire.messages.produce import LeaderIdAndEpoch, NodeEndpoint
from headrace.wire.struct import Message, Struct
from headrace.wire.types import ZERO_UUID, Bool, Int8, Int16, Int32, Int64, Records, String, Uuid, field, tagged

NO_HIGH_WATERMARK: Final = 0x7FFFFFFFFFFFFFFF
"""What a fetcher says that does not tell the high watermark it knows."""


class ReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    """The last four are Headrace's own: what a follower of a tiered partition has on its own disk."""

    partition: Int32
    current_leader_epoch: Int32 = field(default=-1, since=9)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = field(default=-1, since=12)
    log_start_offset: Int64 = field(default=-1, since=5)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = tagged(0, default=ZERO_UUID, since=17)
    high_watermark: Int64 = tagged(1, default=NO_HIGH_WATERMARK, since=18)
    local_log_start_offset: Int64 = tagged(10000, default=-1, since=12)
    coverage_since_ms: Int64 = tagged(10001, default=-1, since=12)
    local_bytes: Int64 = tagged(10002, default=-1, since=12)
    at_local_retention: Bool = tagged(10003, default=False, since=12)


class FetchTopic(Struct):
    topic: String = field(default="", until=12)
    topic_id: Uuid = field(default=ZERO_UUID, since=13)
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic: String = field(default="", until=12)
    topic_id: Uuid = field(default=ZERO_UUID, since=13)
    partitions: list[Int32]


class FetchRequest(Message, api=1, versions=(4, 18), flexible=12):
    cluster_id: String | None = tagged(0, default=None, since=12)
    replica_id: Int32 = field(default=-1, until=14)
    replica_state: ReplicaState | None = tagged(1, default=None, since=15)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Int32 = field(default=0, since=7)
    session_epoch: Int32 = field(default=-1, since=7)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list, since=7)
    rack_id: String = field(default="", since=11)


class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: Int64
    first_offset: Int64


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16 = 0
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = field(default=-1, since=5)
    diverging_epoch: EpochEndOffset | None = tagged(0, default=None, since=12)
    current_leader: LeaderIdAndEpoch | None = tagged(1, default=None, since=12)
    snapshot_id: SnapshotId | None = tagged(2, default=None, since=12)
    aborted_transactions: list[AbortedTransaction] | None = None
    preferred_read_replica: Int32 = field(default=-1, since=11)
    records: Records | None


class FetchableTopicResponse(Struct):
    topic: String = field(default="", until=12)
    topic_id: Uuid = field(default=ZERO_UUID, since=13)
    partitions: list[PartitionData]


class FetchResponse(Message, api=1, versions=(4, 18), flexible=12):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(default=0, since=7)
    session_id: Int32 = field(default=0, since=7)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = tagged(0, default_factory=list, since=16)
