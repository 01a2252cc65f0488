"""ISR changes that leaders propose (AlterPartition)."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from headrace.controller import writing
from headrace.controller.ledger import Ledger
from headrace.controller.writing import Changed, CoverageChange
from headrace.core.alter_partition import judge_alter, judge_sender
from headrace.core.cluster import IsrMember, PartitionRecord
from headrace.core.coverage import UNKNOWN_OFFSET, LocalCoverage, merged
from headrace.errors import ErrorCode
from headrace.metadata.store import OutcomeUnknown

JUDGED: Final = 7
"""Fields of a proposal that decide about the record."""


class Proposal(NamedTuple):
    topic_id: bytes
    partition: int
    leader_epoch: int
    new_isr: Sequence[IsrMember]
    recovering: bool
    partition_epoch: int
    resume: bool = False
    coverage: Mapping[int, LocalCoverage] = MappingProxyType({})
    """Of members of a tiered partition, by node. With nothing else to change it is all that is written."""
    log_start: int = UNKNOWN_OFFSET


class AlterPartitions:
    """`error` of the whole request, else `settled` for each proposal: the record that holds now, or why not."""

    def __init__(self, ledger: Ledger, broker_id: int, broker_epoch: int, proposals: Sequence[Proposal]) -> None:
        self.error = ErrorCode.NONE
        self.reported = 0
        """Partitions of which something else is remembered now."""
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
        changed: dict[int, tuple[Changed, CoverageChange | None]] = {}
        informed: dict[int, CoverageChange] = {}
        for n, proposal in enumerate(self._proposals):
            judged = judge_alter(image, self._broker_id, self._broker_epoch, *proposal[:JUDGED])
            self.settled[n] = judged
            if isinstance(judged, PartitionRecord):
                topic = image.topics_by_id[proposal.topic_id]
                coverage = self._coverage(proposal, judged)
                if judged is not topic.partitions[proposal.partition]:
                    rev = topic.partition_revs[proposal.partition]
                    changed[n] = Changed(topic, proposal.partition, judged, rev), coverage
                elif coverage is not None:
                    informed[n] = coverage
        try:
            written = await writing.write_partitions_with(self._ledger.store, list(changed.values()))
            written = await writing.write_coverage(self._ledger.store, list(informed.values())) and written
        except OutcomeUnknown:
            # The leader asks again: the partition epoch decides whether it was written.
            for n in (*changed, *informed):
                self.settled[n] = ErrorCode.REQUEST_TIMED_OUT
            self._ledger.doubt()
            return True
        if written:
            self.reported = len(informed) + sum(coverage is not None for _, coverage in changed.values())
        return written

    def _coverage(self, proposal: Proposal, record: PartitionRecord) -> CoverageChange | None:
        """None when nothing is said, or nothing new."""
        if not proposal.coverage:
            return None
        image = self._ledger.image
        known = image.coverage.get((proposal.topic_id, proposal.partition))
        epochs = {member.broker_id: member.broker_epoch for member in proposal.new_isr if member.broker_epoch >= 0}
        before = None if known is None else known.record
        new = merged(before, proposal.coverage, proposal.log_start, epochs, record.replicas, image.brokers)
        if known is not None and new == known.record:
            return None
        return CoverageChange(proposal.topic_id, proposal.partition, new, 0 if known is None else known.rev)
