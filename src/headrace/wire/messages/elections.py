"""ElectLeaders (43)."""

from headrace.wire.struct import Message, Struct
from headrace.wire.types import Int8, Int16, Int32, String, field


class TopicPartitions(Struct):
    topic: String
    partitions: list[Int32]


class ElectLeadersRequest(Message, api=43, versions=(0, 2), flexible=2):
    """Election type 0 is preferred, 1 unclean. No partitions at all stands for every partition."""

    election_type: Int8 = field(default=0, since=1)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = 60_000


class PartitionResult(Struct):
    partition_id: Int32
    error_code: Int16 = 0
    error_message: String | None = None


class ReplicaElectionResult(Struct):
    topic: String
    partition_result: list[PartitionResult]


class ElectLeadersResponse(Message, api=43, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(default=0, since=1)
    replica_election_results: list[ReplicaElectionResult]
