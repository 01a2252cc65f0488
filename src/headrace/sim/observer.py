"""Looks into the nodes of a world from outside, as no client can: leaders, high watermarks, the bytes of logs."""

import hashlib
from collections.abc import Sequence

from headrace.broker.partitions import Hosted
from headrace.model import TopicPartition
from headrace.sim.history import History, LeaderAcked, Replica, Underacked, Watermark
from headrace.sim.world import SimNode, World
from headrace.storage.log import Log
from headrace.wire.batch import headers

LOOK_EVERY_S = 0.1


class Observer:
    def __init__(self, world: World, history: History, copies: int, isr_min: int = 1) -> None:
        self._world = world
        self._history = history
        self._copies = copies
        self._isr_min = isr_min
        self._small: dict[tuple[str, TopicPartition], int] = {}
        """The partition epochs at which leaders were seen with too small an ISR."""
        self._led: dict[TopicPartition, tuple[int, int]] = {}
        self._marks: dict[tuple[str, TopicPartition, int], int] = {}

    def start(self) -> None:
        loop = self._world.loop
        loop.at(loop.now_s + LOOK_EVERY_S, loop.outside, self._look)

    def _look(self) -> None:
        for node in self._world.nodes:
            for hosted in _led_by(node):
                self._see(node, hosted)
        self.start()

    def _see(self, node: SimNode, hosted: Hosted) -> None:
        partition = TopicPartition(hosted.topic, hosted.index)
        now_s, epoch, offset = self._world.loop.now_s, hosted.leader_epoch, hosted.high_watermark
        key = (node.process.name, partition, epoch)
        before = self._marks.get(key)
        if self._isr_min > 1:
            self._look_at_isr(node, hosted, partition, before)
        if offset != before:
            self._marks[key] = offset
            self._history.add(Watermark(now_s, node.process.name, partition, epoch, offset))
            if before is not None and offset > before:
                # A leader that commits answers those who waited for it.
                self._history.add(LeaderAcked(now_s, node.node_id, partition, epoch))
        if epoch > self._led.get(partition, (0, -1))[1]:
            self._led[partition] = (node.node_id, epoch)
            self._world.story.tell(node.host, f"leads {partition} in epoch {epoch}")

    def _look_at_isr(self, node: SimNode, hosted: Hosted, partition: TopicPartition, mark_before: int | None) -> None:
        leadership = hosted.leadership
        if leadership is None or hosted.config.min_insync_replicas < self._isr_min:
            return  # alone, or a topic that asks for less: offsets of groups, and what the boss makes
        record, key = leadership.record, (node.process.name, partition)
        was_small_at = self._small.pop(key, None)
        if len(record.isr) >= self._isr_min:
            return
        self._small[key] = record.partition_epoch
        if was_small_at == record.partition_epoch and mark_before is not None and hosted.high_watermark > mark_before:
            now_s, epoch = self._world.loop.now_s, record.leader_epoch
            self._history.add(Underacked(now_s, node.node_id, partition, epoch, len(record.isr)))

    async def until_in_sync(self, partitions: Sequence[TopicPartition]) -> None:
        """Until all replicas are there and end at the same offset."""
        while not all(self._is_in_sync(partition) for partition in partitions):
            await self._world.passing(0.25)

    def _is_in_sync(self, partition: TopicPartition) -> bool:
        found = [hosted for node in self._world.nodes if (hosted := find(node, partition)) is not None]
        return (
            len(found) == self._copies
            and len({(hosted.log_end_offset, hosted.high_watermark) for hosted in found}) == 1
        )

    async def until_informed(self) -> None:
        """Until every node has heard of what the metadata store holds now: what was slow when faults ended may still be
        on its way."""
        rev = self._world.truth.rev
        while not all(_known_rev(node) >= rev for node in self._world.nodes):
            await self._world.passing(0.25)

    def add_replicas(self, partitions: Sequence[TopicPartition]) -> None:
        """What all have on their own disks; where it is the whole log, they begin at the same offset too."""
        for partition in partitions:
            found = [(node, hosted) for node in self._world.nodes if (hosted := find(node, partition)) is not None]
            tiered = [hosted.log.local_log_start_offset for _, hosted in found if hosted.config.remote_storage_enable]
            for node, hosted in found:
                log = hosted.log
                end = hosted.log_end_offset
                start = max(tiered, default=log.log_start_offset)
                self._history.add(Replica(partition, node.node_id, start, end, _digest(log, start, end)))


def _digest(log: Log, start: int, end: int) -> str:
    """Of all batches. Where segments begin is each replica's own business."""
    digest = hashlib.sha256()
    while start < end:
        data = log.read(start, 1 << 30, end, True)
        digest.update(data)
        for _, header in headers(data):
            start = header.last_offset + 1
    return digest.hexdigest()


def _led_by(node: SimNode) -> list[Hosted]:
    if node.node is None or node.node.broker is None:
        return []
    return [hosted for hosted in node.node.broker.partitions if hosted.is_leading]


def _known_rev(node: SimNode) -> int:
    return -1 if node.node is None or node.node.broker is None else node.node.broker.image.rev


def find(node: SimNode, partition: TopicPartition) -> Hosted | None:
    if node.node is None or node.node.broker is None:
        return None
    hosted = node.node.broker.partitions.find_by_name(*partition)
    return hosted if isinstance(hosted, Hosted) else None
