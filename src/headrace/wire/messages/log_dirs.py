"""DescribeLogDirs (35)."""

from headrace.wire.struct import Message, Struct
from headrace.wire.types import Bool, Int16, Int32, Int64, String, field


class DescribableLogDirTopic(Struct):
    topic: String
    partitions: list[Int32]


class DescribeLogDirsRequest(Message, api=35, versions=(1, 4), flexible=2):
    topics: list[DescribableLogDirTopic] | None


class DescribeLogDirsPartition(Struct):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool = False


class DescribeLogDirsTopic(Struct):
    name: String
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsResult(Struct):
    error_code: Int16 = 0
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = field(default=-1, since=4)
    usable_bytes: Int64 = field(default=-1, since=4)


class DescribeLogDirsResponse(Message, api=35, versions=(1, 4), flexible=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(default=0, since=3)
    results: list[DescribeLogDirsResult]
