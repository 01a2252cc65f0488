"""DescribeLogDirs, versions 1-4: what lies in each data directory of this node, and how large it is.

3 has an error for the whole answer, 4 tells the size and the free space of the disk.
"""

import contextlib

from headrace.broker.broker import Broker
from headrace.broker.disk import FILES_LANE
from headrace.broker.partitions import Hosted
from headrace.broker.requests import Request
from headrace.controller.pacing import Pace
from headrace.core.acl import Operation
from headrace.errors import ErrorCode
from headrace.storage.log_dir import LogDir
from headrace.wire.messages.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

SPACE_SINCE = 4
PARTITION_US = 2


async def handle(broker: Broker, request: Request[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    if not broker.allowed_on_cluster(request.principal, Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    asked = request.body.topics
    wanted = None if asked is None else {(topic.topic, index) for topic in asked for index in topic.partitions}
    found: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {
        directory.path: {} for directory in broker.partitions.directories
    }
    pace = Pace()
    for partition in list(broker.partitions):
        if wanted is None or (partition.topic, partition.index) in wanted:
            found[partition.directory.path].setdefault(partition.topic, []).append(_described(partition))
        await pace.spend(PARTITION_US)
    return DescribeLogDirsResponse(
        results=[
            await _result(broker, request.version, directory, found[directory.path])
            for directory in broker.partitions.directories
        ]
    )


async def _result(
    broker: Broker, version: int, directory: LogDir, topics: dict[str, list[DescribeLogDirsPartition]]
) -> DescribeLogDirsResult:
    if directory.path in broker.faults.offline_directories:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[])
    described = [DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    result = DescribeLogDirsResult(log_dir=directory.path, topics=described)
    if version >= SPACE_SINCE:
        # Off the loop: a disk that hangs holds up who asks, and nobody else. One that cannot tell is unknown, -1.
        with contextlib.suppress(OSError):
            result.total_bytes, result.usable_bytes = await broker.offload.run(FILES_LANE, directory.space)
    return result


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
