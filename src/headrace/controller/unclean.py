"""Leaders at any price, when somebody asks for them (ElectLeaders with type unclean)."""

from collections.abc import Callable, Sequence

from headrace.controller import writing
from headrace.controller.ledger import Ledger
from headrace.controller.writing import Changed
from headrace.core.cluster import Topic
from headrace.core.election import Election, elect_unclean
from headrace.errors import ErrorCode


class ElectUnclean:
    """`settled` by topic id and index: NONE when a leader was elected, why not, or None when that is not known."""

    def __init__(
        self,
        ledger: Ledger,
        partitions: Sequence[tuple[Topic, int]],
        tell: Callable[[list[tuple[Changed, Election]]], None],
    ) -> None:
        """`tell` counts the elections that were held, and says so."""
        self.settled: dict[tuple[bytes, int], ErrorCode | None] = {
            (topic.id, index): None for topic, index in partitions
        }
        self._ledger = ledger
        self._partitions = partitions
        self._tell = tell
        self._tried: dict[tuple[bytes, int], tuple[Changed, Election]] = {}

    async def attempt(self) -> bool:
        image = self._ledger.image
        due: list[tuple[Changed, Election]] = []
        for topic, index in self._partitions:
            key = (topic.id, index)
            if self.settled[key] is not None:
                continue
            if image.topics_by_id.get(topic.id) is not topic:
                self.settled[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            record = topic.partitions[index]
            tried = self._tried.get(key)
            if tried is not None and record == tried[1].record:
                self._held([tried])  # an earlier attempt, whose outcome was not known, had succeeded
                continue
            elected = elect_unclean(record, topic.id, index, image)
            if isinstance(elected, ErrorCode):
                self.settled[key] = elected
            else:
                self._tried[key] = Changed(topic, index, elected.record, topic.partition_revs[index]), elected
                due.append(self._tried[key])
        if not await writing.write_partitions(self._ledger.store, [changed for changed, _ in due]):
            return False
        self._held(due)
        return True

    def _held(self, elections: list[tuple[Changed, Election]]) -> None:
        for changed, _ in elections:
            self.settled[changed.topic.id, changed.partition] = ErrorCode.NONE
        self._tell(elections)
