"""Leaders at any price, when somebody asks for them (ElectLeaders with type unclean)."""

from collections.abc import Sequence

from headrace.controller import writing
from headrace.controller.ledger import Ledger
from headrace.controller.writing import Changed
from headrace.core.cluster import PartitionRecord, Topic
from headrace.core.election import elect_unclean
from headrace.errors import ErrorCode


class ElectUnclean:
    """`settled` by topic id and index: NONE when a leader was elected, why not, or None when that is not known."""

    def __init__(self, ledger: Ledger, partitions: Sequence[tuple[Topic, int]]) -> None:
        self.settled: dict[tuple[bytes, int], ErrorCode | None] = {
            (topic.id, index): None for topic, index in partitions
        }
        self._ledger = ledger
        self._partitions = partitions
        self._tried: dict[tuple[bytes, int], PartitionRecord] = {}

    async def attempt(self) -> bool:
        image = self._ledger.image
        changed: list[Changed] = []
        for topic, index in self._partitions:
            key = (topic.id, index)
            if self.settled[key] is not None:
                continue
            if image.topics_by_id.get(topic.id) is not topic:
                self.settled[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            record = topic.partitions[index]
            if record == self._tried.get(key):
                self.settled[key] = ErrorCode.NONE  # an earlier attempt, whose outcome was not known, had succeeded
                continue
            elected = elect_unclean(record, topic.id, index, image)
            if isinstance(elected, ErrorCode):
                self.settled[key] = elected
            else:
                self._tried[key] = elected.record
                changed.append(Changed(topic, index, elected.record, topic.partition_revs[index]))
        if not await writing.write_partitions(self._ledger.store, changed):
            return False
        for change in changed:
            self.settled[change.topic.id, change.partition] = ErrorCode.NONE
        return True
