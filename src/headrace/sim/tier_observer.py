"""Looks at the tier of a world from outside: what is in force, what is really there, and who has the rest."""

from collections.abc import Sequence

from headrace.core.tier_lineage import RemoteLog
from headrace.core.tier_pointer import Pointer
from headrace.core.tier_rows import COPY_FINISHED, Manifest, SegmentRow
from headrace.metadata import records
from headrace.model import TopicPartition
from headrace.sim.history import History
from headrace.sim.observer import find
from headrace.sim.tier_history import Covered, Damaged, Dangling, Orphan
from headrace.sim.world import SimNode, World
from headrace.storage.memory_files import MemoryFiles
from headrace.tier.layout import SegmentName, parse_key
from headrace.tier.manifest import decode
from headrace.tier.marking import MARK_PREFIX
from headrace.tier.memory import MemoryStore
from headrace.tier.probing import PROBE_PREFIX
from headrace.tier.verify import verify_segment

LOOK_EVERY_S = 0.05
EXPIRY_S_MAX = 45.0
"""When everything has healed, what nothing names is gone after that."""


class TierObserver:
    def __init__(self, world: World, history: History, partitions: Sequence[TopicPartition]) -> None:
        self._world = world
        self._history = history
        self._partitions = partitions
        self._manifests: dict[str, Manifest] = {}
        self._last: dict[tuple[int, TopicPartition], Covered] = {}
        self._dangling: set[str] = set()

    def start(self) -> None:
        loop = self._world.loop
        loop.at(loop.now_s + LOOK_EVERY_S, loop.outside, self._look)

    def _look(self) -> None:
        for partition in self._partitions:
            self._look_at(partition)
        self.start()

    def _look_at(self, partition: TopicPartition) -> None:
        truth = self._world.truth
        topic_id, record = truth.topic_id(partition.topic), truth.partition(partition)
        if topic_id is None or record is None:
            return
        pointer = truth.pointer(topic_id, partition.partition)
        rows = [] if pointer is None else self._there(partition, pointer)
        members = {member.broker_id: member.broker_epoch for member in record.isr}
        for node in self._world.nodes:
            if node.node is not None and members.get(node.node_id) == node.node.broker_epoch:
                self._see(node, partition, 0 if pointer is None else pointer.log_start_offset, rows)

    def _there(self, partition: TopicPartition, pointer: Pointer) -> list[SegmentRow]:
        """Rows of finished segments whose objects exist."""
        manifest = self._manifest(pointer.manifest)
        if manifest is None:
            self._tell_dangling(partition, pointer.manifest)
            return []
        stored = self._segments()
        rows = []
        for row in manifest.rows:
            if row.state is COPY_FINISHED:
                if row.id in stored:
                    rows.append(row)
                else:
                    self._tell_dangling(partition, row.id)
        return rows

    def _manifest(self, key: str) -> Manifest | None:
        content = self._world.objects.bucket.objects.get(key)
        if content is None:
            return None
        if key not in self._manifests:
            self._manifests[key] = decode(content)
        return self._manifests[key]

    def _segments(self) -> dict[str, str]:
        """By id, the names of all that are stored."""
        found = {}
        for key in self._world.objects.bucket.objects:
            name = parse_key(key)
            if name is not None and isinstance(name.object, SegmentName):
                found[name.object.id] = key
        return found

    def _tell_dangling(self, partition: TopicPartition, key: str) -> None:
        if key not in self._dangling:
            self._dangling.add(key)
            self._history.add(Dangling(self._world.loop.now_s, partition, key))

    def _see(self, node: SimNode, partition: TopicPartition, log_start: int, rows: list[SegmentRow]) -> None:
        hosted = find(node, partition)
        log = None if hosted is None else hosted.log_if_open
        if hosted is None or log is None or hosted.fault:
            return
        remote = RemoteLog(rows, log.epochs.entries, log.log_end_offset)
        seen = Covered(
            0.0,
            node.node_id,
            partition,
            max(log_start, hosted.log_start_offset),
            log.local_log_start_offset,
            log.log_end_offset,
            tuple((row.base_offset, row.end_offset) for row in remote.rows),
        )
        if self._last.get((node.node_id, partition)) != seen:
            self._last[node.node_id, partition] = seen
            self._history.add(seen._replace(at_s=self._world.loop.now_s))

    # In the end.

    async def until_clean(self) -> None:
        """Until nothing is left that nothing names; what is left after a while is told."""
        end_s = self._world.loop.now_s + EXPIRY_S_MAX
        while (left := self._unnamed()) and self._world.loop.now_s < end_s:
            await self._world.passing(0.25)
        for key in left:
            self._history.add(Orphan(self._world.loop.now_s, key))

    def _unnamed(self) -> list[str]:
        truth = self._world.truth
        named: set[str] = set()
        left = [key.decode() for key, topic_id in truth.tier_topics() if not truth.is_topic(topic_id)]
        for place, pointer in truth.pointers():
            topic_id, _ = records.pointer_in(place)
            if not truth.is_topic(topic_id):
                left.append(place.decode())
                continue
            named.add(pointer.manifest)
            manifest = self._manifest(pointer.manifest)
            named |= set() if manifest is None else {row.id for row in manifest.rows}
        for key in self._world.objects.bucket.objects:
            name = parse_key(key)
            known = name.object.id if name is not None and isinstance(name.object, SegmentName) else key
            if known not in named and not key.startswith((PROBE_PREFIX, MARK_PREFIX)):
                left.append(key)
        return left

    async def verify(self) -> None:
        """Every finished segment, byte for byte."""
        store = MemoryStore(self._world.objects.bucket, MemoryFiles())
        stored = self._segments()
        for _, pointer in self._world.truth.pointers():
            manifest = self._manifest(pointer.manifest)
            for row in () if manifest is None else manifest.rows:
                if row.state is COPY_FINISHED and row.id in stored:
                    for problem in await verify_segment(store, stored[row.id], row):
                        self._history.add(Damaged(stored[row.id], problem))
