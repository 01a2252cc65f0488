"""Leaderships that are moved while their leaders live: each is asked to step down first.

The answer is good for one partition epoch only: the record is written if it is still the one that was asked about, and
a newer one is asked about again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from headrace.controller import writing
from headrace.controller.ledger import Ledger
from headrace.controller.writing import Changed
from headrace.core.cluster import NO_LEADER, PartitionRecord, Topic
from headrace.errors import ErrorCode

log = logging.getLogger(__name__)

STEP_DOWN_S = 2.0
ROUNDS = 3
"""How often a partition whose record keeps changing is asked about."""


MOVES_AT_ONCE = 1_000
"""A leader has two seconds to step down from all that it is asked about, and serves none of it until it has moved."""


class StepDown(NamedTuple):
    topic_id: bytes
    partition: int
    partition_epoch: int


AskStepDown: TypeAlias = Callable[[int, int, Sequence[StepDown]], Awaitable[Mapping[tuple[bytes, int], ErrorCode]]]
"""Of a node, in the name of a controller epoch; what it answers for each partition. It may raise OSError."""

Wanted: TypeAlias = Callable[[Topic, int], PartitionRecord | ErrorCode]
"""The record that a move would write, or why there is none."""


async def nobody_steps_down(*_: object) -> Mapping[tuple[bytes, int], ErrorCode]:
    return {}


class Moves:
    def __init__(self, ledger: Ledger) -> None:
        self.ask: AskStepDown = nobody_steps_down
        self.counts: Counter[str] = Counter()
        self._ledger = ledger

    async def move(
        self, partitions: Iterable[tuple[Topic, int]], wanted: Wanted, timeout_ms: int = 0
    ) -> dict[tuple[bytes, int], ErrorCode | None]:
        """By topic id and index: NONE when it moved, why not, or None when that is not known. Raises NotController."""
        settled: dict[tuple[bytes, int], ErrorCode | None] = {}
        silent: set[int] = set()
        for batch in writing.batches(partitions, MOVES_AT_ONCE):
            work = _Move(self._ledger, wanted, batch, silent)
            for _ in range(ROUNDS):
                asked = work.ask_for()
                if not asked:
                    break
                answers = await self._ask_all(asked)
                silent.update(leader for leader, of in asked.items() if of and of[0][:2] not in answers)
                work.answered(answers)
                await self._ledger.settle(work.attempt, timeout_ms)
            settled.update(work.settled)
        self.counts["moved"] += sum(code is ErrorCode.NONE for code in settled.values())
        return settled

    async def _ask_all(self, asked: Mapping[int, Sequence[StepDown]]) -> dict[tuple[bytes, int], ErrorCode]:
        answers: dict[tuple[bytes, int], ErrorCode] = {}
        for answer in await asyncio.gather(*(self._ask_one(broker_id, of) for broker_id, of in asked.items())):
            answers.update(answer)
        return answers

    async def _ask_one(self, broker_id: int, asked: Sequence[StepDown]) -> Mapping[tuple[bytes, int], ErrorCode]:
        self.counts["step downs"] += len(asked)
        try:
            async with asyncio.timeout(STEP_DOWN_S):
                return await self.ask(broker_id, self._ledger.epoch, asked)
        except (TimeoutError, OSError) as failure:
            self.counts["step downs without answer"] += len(asked)
            log.warning("node %d did not step down from %d partitions: %r", broker_id, len(asked), failure)
            return {}


class _Move:
    def __init__(
        self, ledger: Ledger, wanted: Wanted, partitions: list[tuple[Topic, int]], silent: Collection[int]
    ) -> None:
        """`silent` are nodes that have just not answered: they are not asked."""
        self.settled: dict[tuple[bytes, int], ErrorCode | None] = {
            (topic.id, index): None for topic, index in partitions
        }
        self._ledger = ledger
        self._wanted = wanted
        self._silent = silent
        self._open = {(topic.id, index): (topic, index) for topic, index in partitions}
        self._agreed: dict[tuple[bytes, int], int] = {}
        """Partitions whose leaders stand aside, or that have none, and the revision for which that holds."""
        self._asked: dict[tuple[bytes, int], int] = {}
        self._written: dict[tuple[bytes, int], PartitionRecord] = {}

    def ask_for(self) -> dict[int, list[StepDown]]:
        """Per leader. What needs no answer is agreed; what cannot be is settled."""
        image = self._ledger.image
        asked: dict[int, list[StepDown]] = {}
        self._asked, self._agreed = {}, {}
        for key, (topic, index) in list(self._open.items()):
            if image.topics_by_id.get(topic.id) is not topic:
                self._settle(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            wanted = self._wanted(topic, index)
            if isinstance(wanted, ErrorCode):
                self._settle(key, wanted)
                continue
            record, rev = topic.partitions[index], topic.partition_revs[index]
            leader = image.brokers.get(record.leader)
            if record.leader == NO_LEADER or leader is None or leader.epoch not in [m.broker_epoch for m in record.isr]:
                self._agreed[key] = rev
                asked.setdefault(NO_LEADER, [])
            elif record.leader in self._silent:
                self._settle(key, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
            else:
                self._asked[key] = rev
                asked.setdefault(record.leader, []).append(StepDown(topic.id, index, record.partition_epoch))
        return asked

    def answered(self, answers: Mapping[tuple[bytes, int], ErrorCode]) -> None:
        for key, rev in self._asked.items():
            code = answers.get(key, ErrorCode.REQUEST_TIMED_OUT)
            if code is ErrorCode.NONE:
                self._agreed[key] = rev
            elif code is ErrorCode.REQUEST_TIMED_OUT:
                self._settle(key, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        # Others (another epoch, no leader) are asked about again once the image has moved on.

    def _settle(self, key: tuple[bytes, int], code: ErrorCode) -> None:
        self.settled[key] = code
        self._open.pop(key, None)

    async def attempt(self) -> bool:
        image = self._ledger.image
        changed: list[Changed] = []
        for key, (topic, index) in list(self._open.items()):
            if image.topics_by_id.get(topic.id) is not topic:
                self._settle(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif topic.partitions[index] == self._written.get(key):
                self._settle(key, ErrorCode.NONE)  # an earlier attempt, whose outcome was not known, had succeeded
            elif self._agreed.get(key) == topic.partition_revs[index]:
                wanted = self._wanted(topic, index)
                if isinstance(wanted, ErrorCode):
                    self._settle(key, wanted)
                else:
                    changed.append(Changed(topic, index, wanted, topic.partition_revs[index]))
        for change in changed:
            self._written[change.topic.id, change.partition] = change.record
        if not await writing.write_partitions(self._ledger.store, changed):
            return False
        for change in changed:
            self._settle((change.topic.id, change.partition), ErrorCode.NONE)
        return True
