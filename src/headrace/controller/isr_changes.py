"""ISR changes that leaders propose (AlterPartition)."""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.controller import writing
from headrace.controller.ledger import Ledger
from headrace.controller.writing import Changed
from headrace.core.alter_partition import judge_alter, judge_sender
from headrace.core.cluster import IsrMember, PartitionRecord
from headrace.errors import ErrorCode
from headrace.metadata.store import OutcomeUnknown


class Proposal(NamedTuple):
    topic_id: bytes
    partition: int
    leader_epoch: int
    new_isr: Sequence[IsrMember]
    recovering: bool
    partition_epoch: int
    resume: bool = False


class AlterPartitions:
    """`error` of the whole request, else `settled` for each proposal: the record that holds now, or why not."""

    def __init__(self, ledger: Ledger, broker_id: int, broker_epoch: int, proposals: Sequence[Proposal]) -> None:
        self.error = ErrorCode.NONE
        self.settled: list[PartitionRecord | ErrorCode] = [ErrorCode.REQUEST_TIMED_OUT] * len(proposals)
        self._ledger = ledger
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._proposals = proposals

    async def attempt(self) -> bool:
        image = self._ledger.image
        self.error = judge_sender(image, self._broker_id, self._broker_epoch)
        if self.error:
            return True
        changed: list[tuple[int, Changed]] = []
        for n, proposal in enumerate(self._proposals):
            judged = judge_alter(image, self._broker_id, self._broker_epoch, *proposal)
            self.settled[n] = judged
            if isinstance(judged, PartitionRecord):
                topic = image.topics_by_id[proposal.topic_id]
                if judged is not topic.partitions[proposal.partition]:
                    rev = topic.partition_revs[proposal.partition]
                    changed.append((n, Changed(topic, proposal.partition, judged, rev)))
        try:
            return await writing.write_partitions(self._ledger.store, [change for _, change in changed])
        except OutcomeUnknown:
            # The leader asks again: the partition epoch decides whether it was written.
            for n, _ in changed:
                self.settled[n] = ErrorCode.REQUEST_TIMED_OUT
            self._ledger.doubt()
            return True
