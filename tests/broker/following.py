"""A replicator with its partitions, on files in memory, before a scripted leader."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from headrace.broker.disk import DiskFaults
from headrace.broker.parking import FetchEvents
from headrace.broker.partitions import Hosted, Partitions
from headrace.broker.replicator import Replicator
from headrace.core.acl import allowed
from headrace.core.cluster import ClusterImage, IsrMember, PartitionRecord, RegisteredBroker, Topic
from headrace.net.turn import Turn
from headrace.storage.files import Files
from headrace.storage.log_dir import LogDir
from headrace.storage.memory_files import MemoryFiles
from headrace.system import SystemClock, SystemRandom
from tests.broker.scripted_leader import LedLog, ScriptedLeader
from tests.broker.stepped import SteppedOffload
from tests.net.loops import until

TOPIC, TOPIC_ID = "t", bytes(range(16))
LEADER = RegisteredBroker(id=2, epoch=22, host="leader", port=9092, rack=None)
SELF = IsrMember(1, 11)
QUICK = {"replica.fetch.backoff.ms": "20", "replica.fetch.wait.max.ms": "5"}


def record_of(leader_epoch: int, leader: int = 2) -> PartitionRecord:
    return PartitionRecord((1, 2), (SELF, IsrMember(2, 22)), leader, leader_epoch, leader_epoch)


class Lines(logging.Handler):
    """What was logged at level ERROR, and tracebacks, which there must not be."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.errors: list[str] = []
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self.errors.append(record.getMessage())
            if record.exc_info:
                self.tracebacks.append(record.getMessage())


class Following:
    def __init__(self, files: Files, data: str, settings: Mapping[str, str], topic: Mapping[str, str]) -> None:
        self.files = files
        self.clock = SystemClock()
        self.offload = SteppedOffload()
        self.image = ClusterImage(1, {**QUICK, **settings})
        self.directories = [LogDir(files, path) for path in data.split(",")]
        self.partitions = Partitions(self.directories, SystemRandom(), self.image)
        loop = asyncio.get_running_loop()
        events = FetchEvents(
            loop, Turn(loop.call_soon), SystemRandom(), self.partitions, allowed, self.image.broker_config
        )
        self.faults = DiskFaults(self.offload, self.partitions, events)
        self.leader = ScriptedLeader()
        self.broker_epoch = 11
        self.replicator = Replicator(
            node_id=1,
            broker_epoch=lambda: self.broker_epoch,
            clock=self.clock,
            offload=self.offload,
            leaders=self.leader,
            faults=self.faults,
            config=lambda: self.image.broker_config,
        )
        self.lines = Lines()
        self._settings = topic

    @property
    def memory(self) -> MemoryFiles:
        assert isinstance(self.files, MemoryFiles)
        return self.files

    def host(self, count: int, name: str = TOPIC, topic_id: bytes = TOPIC_ID) -> None:
        topic = Topic(
            name=name,
            id=topic_id,
            partitions=[record_of(0)] * count,
            mod_rev=1,
            partition_revs=[1] * count,
            overrides=dict(self._settings),
            overrides_rev=0,
            config=self.image._configs.get(self._settings),
        )
        self.leader.names[name] = topic_id
        self.partitions.host(topic, range(count))

    def __getitem__(self, index: int) -> Hosted:
        found = self.partitions.find_by_name(TOPIC, index)
        assert isinstance(found, Hosted)
        return found

    def led(self, index: int = 0) -> LedLog:
        return self.leader.logs.setdefault((TOPIC_ID, index), LedLog())

    def follow(self, *indexes: int, leader_epoch: int = 0, leader: RegisteredBroker = LEADER) -> None:
        for index in indexes:
            self.led(index).leader_epoch = max(leader_epoch, self.led(index).leader_epoch)
            self[index].follow(record_of(leader_epoch))
            self.replicator.follow(self[index], leader, leader_epoch)

    def produce(self, index: int = 0, records: int = 1, **how: Any) -> None:
        self.led(index).append(records, **how)
        self.leader.changed()

    def is_equal(self, index: int = 0) -> bool:
        """Whether the follower has what the leader has, byte for byte, and counts it."""
        partition, led = self[index], self.led(index)
        if partition.log_end_offset != led.log_end or partition.high_watermark != led.high_watermark:
            return False
        return self.content(index) == led.bytes_from(led.log_start)

    def content(self, index: int = 0) -> bytes:
        log = self[index].log
        return b"".join(
            bytes(segment.log.read(0, segment.size))
            for segment in log.segments
            if segment.end_offset >= log.log_start_offset
        )

    async def until_equal(self, *indexes: int) -> None:
        await until(lambda: all(self.is_equal(index) for index in indexes or (0,)))

    @property
    def failed_indexes(self) -> list[int]:
        return sorted(partition.index for partition, _ in self.replicator.failed.items())


@asynccontextmanager
async def following(
    partitions: int = 1,
    *,
    settings: Mapping[str, str] | None = None,
    topic: Mapping[str, str] | None = None,
    files: Files | None = None,
    data: str = "/data",
) -> AsyncIterator[Following]:
    """Node 1 hosts partitions of a topic, and follows none of them yet."""
    bench = Following(files or MemoryFiles(), data, settings or {}, topic or {})
    logger = logging.getLogger("headrace")
    logger.addHandler(bench.lines)
    try:
        bench.host(partitions)
        yield bench
    finally:
        await bench.replicator.close()
        logger.removeHandler(bench.lines)
    assert bench.lines.tracebacks == []
