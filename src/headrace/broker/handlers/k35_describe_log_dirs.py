"""DescribeLogDirs, versions 1-4: what lies in each data directory of this node, and how large it is.

3 has an error for the whole answer. Gap: the size and the free space of the disk (4) are told as unknown, -1.
"""

from headrace.broker.broker import Broker
from headrace.broker.partitions import Hosted
from headrace.broker.requests import Request
from headrace.core.acl import Operation
from headrace.errors import ErrorCode
from headrace.wire.messages.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def handle(broker: Broker, request: Request[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    if not broker.allowed_on_cluster(request.principal, Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    asked = request.body.topics
    wanted = None if asked is None else {(topic.topic, index) for topic in asked for index in topic.partitions}
    found: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {
        directory.path: {} for directory in broker.partitions.directories
    }
    for partition in broker.partitions:
        if wanted is None or (partition.topic, partition.index) in wanted:
            found[partition.directory.path].setdefault(partition.topic, []).append(_described(partition))
    return DescribeLogDirsResponse(
        results=[_result(path, topics, path in broker.faults.offline_directories) for path, topics in found.items()]
    )


def _result(path: str, topics: dict[str, list[DescribeLogDirsPartition]], is_offline: bool) -> DescribeLogDirsResult:
    if is_offline:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, topics=[])
    described = [DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    return DescribeLogDirsResult(log_dir=path, topics=described)


def _described(partition: Hosted) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index,
        partition_size=_size(partition),
        offset_lag=max(partition.high_watermark - partition.log_end_offset, 0),
    )


def _size(partition: Hosted) -> int:
    """Without opening a log: one that is not open has not changed since the last clean stop."""
    if partition.log_if_open is not None:
        return partition.log_if_open.size_bytes
    remembered = partition.directory.remembered(partition.topic, partition.index)
    return 0 if remembered is None else remembered.size_bytes
