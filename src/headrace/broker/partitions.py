"""The partitions that this node hosts, found by name or by id, and the directories that their logs live in."""

import logging
from collections.abc import Iterator, Sequence

from headrace.config import TopicConfig
from headrace.core.partition import Partition, ReplicaLog
from headrace.errors import ErrorCode
from headrace.storage.log import Log, LogConfig
from headrace.storage.log_dir import LogDir

log = logging.getLogger(__name__)


class HostedTopic:
    __slots__ = ("config", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, config: TopicConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.partitions: dict[int, Partition] = {}


class Partitions:
    def __init__(self, directories: Sequence[LogDir]) -> None:
        self._directories = directories
        self._by_name: dict[str, HostedTopic] = {}
        self._by_id: dict[bytes, HostedTopic] = {}
        self.open: dict[Partition, LogDir] = {}
        self.count = 0

    def __iter__(self) -> Iterator[Partition]:
        for topic in self._by_id.values():
            yield from topic.partitions.values()

    def topic_by_name(self, name: str) -> HostedTopic | None:
        return self._by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> HostedTopic | None:
        return self._by_id.get(topic_id)

    def find(self, topic_id: bytes, index: int) -> Partition | ErrorCode:
        topic = self._by_id.get(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return topic.partitions.get(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def find_by_name(self, name: str, index: int) -> Partition | ErrorCode:
        topic = self._by_name.get(name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return topic.partitions.get(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
