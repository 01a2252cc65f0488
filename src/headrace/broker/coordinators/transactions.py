"""The transaction coordinator: the transactional ids whose partition of `__transaction_state` this node leads.

What is decided (`core.transaction`) is written, and is in force when the record is committed. Until then everybody else
who asks for the same id is told to come again (51), also when the caller has stopped waiting: the record is in the log,
and this node must not come to another end than one that reads it. An end in force is marked in the partitions
(`markers`), and when all of them know it the id is free for its next transaction.

Where nothing has to be written, memory answers only while the lease of this node is valid. Without it another one may
coordinate by now, and have come to another end: what is in force is written again, and stands when that is committed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from headrace.broker.broker import Broker
from headrace.broker.coordinators.markers import ANSWER_MS_MAX, VERSION, Ending, Markers
from headrace.broker.coordinators.state_log import StateLog
from headrace.core import transaction
from headrace.core.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE, coordinating_partition
from headrace.core.transaction import NEED_PRODUCER_ID, Claim, State, TopicPartition, Transaction
from headrace.core.transaction_log import entry_of, read_entry
from headrace.errors import ErrorCode
from headrace.wire.batch import BatchHeader, Record
from headrace.wire.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse

log = logging.getLogger(__name__)

ANSWER_S_MAX: Final = 10.0
"""A caller that waited so long for a record to be committed hears 15, and may ask again: then 51 until it is."""
COMPLETE_RETRY_S: Final = 0.5
TRANSACTIONAL_ID_BYTES_MAX: Final = 32_767
"""More does not fit into a record's key."""
TRANSACTIONAL_IDS_MAX: Final = 1_000_000
"""That one node keeps. One more is refused (44) until others have expired."""
WAITING_FOR_IDS_MAX: Final = 10_000
"""Callers that wait for a producer id at one time. More are told to come again (14)."""
NOBODY: Final = Claim(transaction.NO_PRODUCER_ID, transaction.NO_EPOCH)

Then = Callable[[ErrorCode], None]
ThenClaim = Callable[[ErrorCode, Claim], None]
ThenCodes = Callable[[dict[TopicPartition, ErrorCode]], None]


class Kept:
    """A transactional id. Its transaction is the one in force; None while the first is not committed."""

    __slots__ = ("deadline_ms", "ending", "index", "is_pending", "transaction", "transactional_id")

    def __init__(self, index: int, transactional_id: str, known: Transaction | None) -> None:
        self.index = index
        self.transactional_id = transactional_id
        self.transaction = known
        self.is_pending = False
        self.deadline_ms = 0
        """Monotonic: when an open transaction has had its time."""
        self.ending: Ending | None = None


class Transactions:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._kept: dict[int, dict[str, Kept]] = {}
        self._epochs: dict[int, int] = {}
        self._incomplete: dict[int, dict[Kept, Transaction]] = {}
        """All markers are written, but the log took no record: it is tried again."""
        self._waiting_for_ids: set[asyncio.Task[None]] = set()
        self.ongoing: dict[Kept, None] = {}
        """Those that may time out."""
        self.committed = self.aborted = self.timed_out = self.expired = 0
        self.log = StateLog(broker, TRANSACTION_STATE, self)
        self.markers = Markers(broker.loop, broker.image, self._ask)

    async def _ask(self, node_id: int, request: WriteTxnMarkersRequest, client_id: str) -> WriteTxnMarkersResponse:
        return await self._broker.peers.ask(
            node_id, request, WriteTxnMarkersResponse, VERSION, ANSWER_MS_MAX, client_id
        )

    async def close(self) -> None:
        await self.markers.close()
        for task in self._waiting_for_ids:
            task.cancel()
        await asyncio.gather(*self._waiting_for_ids, return_exceptions=True)

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def __iter__(self) -> Iterator[Kept]:
        for index in self.log.led_indexes:
            yield from self._kept[index].values()

    # Leaderships of `__transaction_state`.

    def begin(self, index: int, leader_epoch: int) -> None:
        self._kept[index] = {}
        self._epochs[index] = leader_epoch

    def replay(self, index: int, header: BatchHeader, records: Sequence[Record]) -> None:
        if header.is_control:
            return
        kept = self._kept[index]
        for record in records:
            read = read_entry(record.key, record.value)
            if read is None:
                continue
            transactional_id, known = read
            if known is None or known.state is State.DEAD:
                kept.pop(transactional_id, None)
            else:
                kept[transactional_id] = Kept(index, transactional_id, known)

    def loaded(self, index: int) -> None:
        """The leader before may have died between an end and its markers."""
        for kept in list(self._kept[index].values()):
            self._follow_up(kept)

    def ended(self, index: int) -> None:
        """Whoever waits for one of its records hears of it from the log."""
        self.markers.drop(index)
        self._epochs.pop(index, None)
        for kept in self._kept.pop(index, {}).values():
            self.ongoing.pop(kept, None)

    # Requests.

    def find(self, transactional_id: str) -> Kept | ErrorCode | None:
        """None: nothing is known of it."""
        index = self._index_of(transactional_id)
        return index if isinstance(index, ErrorCode) else self._kept[index].get(transactional_id)

    def init(
        self, transactional_id: str, claim: Claim | None, timeout_ms: int, then: ThenClaim, fresh_id: int | None = None
    ) -> None:
        """InitProducerId. `then` gets the id and the epoch that the producer has now."""
        index = self._index_of(transactional_id)
        if isinstance(index, ErrorCode):
            then(index, NOBODY)
            return
        kept = self._kept[index].get(transactional_id)
        if kept is not None and kept.is_pending:
            then(ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
            return
        known = None if kept is None else kept.transaction
        now_ms = self._broker.clock.wall_ms()
        decided = transaction.initialised(known, claim, timeout_ms, now_ms, fresh_id)
        if isinstance(decided, ErrorCode):
            then(self._from_memory(decided), NOBODY)
        elif decided is NEED_PRODUCER_ID:
            self._init_with_fresh_id(transactional_id, claim, timeout_ms, then)
        elif kept is not None:
            self._begin(kept, decided, then)
        elif len(self) >= TRANSACTIONAL_IDS_MAX:
            then(ErrorCode.POLICY_VIOLATION, NOBODY)
        else:
            self._kept[index][transactional_id] = kept = Kept(index, transactional_id, None)
            self._begin(kept, decided, then)

    def _begin(self, kept: Kept, decided: Transaction, then: ThenClaim) -> None:
        if decided.state is State.PREPARE_ABORT:
            # The open transaction of the one before ends first; the caller comes again, and gets the next epoch.
            self._decide_for(kept, decided, lambda error: then(error or ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY))
            return
        got = Claim(decided.producer_id, decided.epoch)
        self._decide_for(kept, decided, lambda error: then(error, NOBODY if error else got))

    def _init_with_fresh_id(self, transactional_id: str, claim: Claim | None, timeout_ms: int, then: ThenClaim) -> None:
        def go_on(fresh_id: int | None) -> None:
            if fresh_id is None:
                then(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NOBODY)
            else:
                self.init(transactional_id, claim, timeout_ms, then, fresh_id)

        self.with_producer_id(go_on)

    def with_producer_id(self, then: Callable[[int | None], None]) -> None:
        """A producer id that nobody had before, mostly at once; None when there is none to be had."""
        producer_ids = self._broker.controller.producer_ids
        taken = producer_ids.take()
        if taken is not None or len(self._waiting_for_ids) >= WAITING_FOR_IDS_MAX:
            then(taken)
            return

        async def wait() -> None:
            then(await producer_ids.next())

        task = self._broker.loop.create_task(wait())
        self._waiting_for_ids.add(task)
        task.add_done_callback(self._waiting_for_ids.discard)

    def add_partitions(
        self, transactional_id: str, claim: Claim, partitions: frozenset[TopicPartition], then: Then
    ) -> None:
        known = self._owned(transactional_id, claim)
        if isinstance(known, ErrorCode):
            then(known)
            return
        kept, current = known
        self._carry_out(kept, current, transaction.joined(current, partitions, self._broker.clock.wall_ms()), then)

    def add_offsets(self, transactional_id: str, claim: Claim, group: str, then: Then) -> None:
        """The partition that keeps the group's offsets becomes a part of the transaction."""
        topic = self._broker.image.topics.get(CONSUMER_OFFSETS)
        if topic is None:
            self._broker.internal_topics.create(CONSUMER_OFFSETS)
            then(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        index = coordinating_partition(CONSUMER_OFFSETS, group, len(topic.partitions))
        self.add_partitions(transactional_id, claim, frozenset({(CONSUMER_OFFSETS, index)}), then)

    def end(self, transactional_id: str, claim: Claim, commit: bool, then: Then) -> None:
        known = self._owned(transactional_id, claim)
        if isinstance(known, ErrorCode):
            then(known)
            return
        kept, current = known
        self._carry_out(kept, current, transaction.ended(current, commit, self._broker.clock.wall_ms()), then)

    def verify(
        self, transactional_id: str, claim: Claim, partitions: Sequence[TopicPartition], then: ThenCodes
    ) -> None:
        """Whether partitions are in the producer's open transaction, as far as that is committed."""
        found = self._known(transactional_id, claim)
        if isinstance(found, ErrorCode):
            then(dict.fromkeys(partitions, found))
            return
        kept, known = found
        codes = {partition: transaction.verified(known, partition) for partition in partitions}

        def answer(error: ErrorCode) -> None:
            then(dict.fromkeys(partitions, error) if error else codes)

        if self._broker.controller.lease_valid():
            then(codes)
        elif known.state is not State.ONGOING or kept.is_pending:
            answer(ErrorCode.NOT_COORDINATOR)
        else:
            self._decide_for(kept, known, answer)

    # What nobody asks for.

    def fence(self, kept: Kept) -> None:
        """Its time is over: it is aborted, and its owner finds another epoch in its place."""
        known = kept.transaction
        if kept.is_pending or known is None or known.state is not State.ONGOING:
            return

        def fenced(error: ErrorCode) -> None:
            if not error:
                self.timed_out += 1
                log.info("the transaction of %r took longer than %d ms", kept.transactional_id, known.timeout_ms)

        self._decide(kept, transaction.fenced(known, self._broker.clock.wall_ms()), fenced)

    def forget(self, index: int, expired: Sequence[Kept], tombstones: Sequence[tuple[bytes, None]]) -> ErrorCode:
        """Ids that nobody used for long, all of one partition."""

        def forgotten(error: ErrorCode) -> None:
            if not error:
                self.expired += len(expired)
                for kept in expired:
                    del self._kept[index][kept.transactional_id]

        refused = self.log.append(index, tombstones, forgotten)
        for kept in expired:
            kept.is_pending = not refused
        return refused

    # Decisions.

    def _index_of(self, transactional_id: str) -> int | ErrorCode:
        index = self.log.index_of(transactional_id)
        if index is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        led = self.log.led(index)
        return led if isinstance(led, ErrorCode) else index

    def _owned(self, transactional_id: str, claim: Claim) -> tuple[Kept, Transaction] | ErrorCode:
        found = self._known(transactional_id, claim)
        if isinstance(found, ErrorCode):
            return found
        return ErrorCode.CONCURRENT_TRANSACTIONS if found[0].is_pending else found

    def _known(self, transactional_id: str, claim: Claim) -> tuple[Kept, Transaction] | ErrorCode:
        kept = self.find(transactional_id)
        if isinstance(kept, ErrorCode):
            return kept
        known = None if kept is None else kept.transaction
        refused = transaction.owned(known, claim)
        if refused or kept is None or known is None:
            return self._from_memory(refused)
        return kept, known

    def _carry_out(self, kept: Kept, current: Transaction, decided: transaction.Decision, then: Then) -> None:
        if isinstance(decided, ErrorCode):
            then(self._from_memory(decided))
        elif isinstance(decided, Transaction):
            self._decide_for(kept, decided, then)
        elif self._broker.controller.lease_valid():
            then(ErrorCode.NONE)
        else:
            self._decide_for(kept, current, then)

    def _from_memory(self, error: ErrorCode) -> ErrorCode:
        """A refusal for which nothing is written."""
        return error if not error or self._broker.controller.lease_valid() else ErrorCode.NOT_COORDINATOR

    def _decide_for(self, kept: Kept, decided: Transaction, then: Then) -> None:
        """For somebody who does not wait for ever."""
        self._decide(kept, decided, _Answer(self._broker.loop, then))

    def _decide(self, kept: Kept, decided: Transaction, then: Then) -> None:
        def committed(error: ErrorCode) -> None:
            if not error:
                kept.transaction = decided
                kept.is_pending = False
                self._follow_up(kept)
            then(error)

        refused = self.log.append(kept.index, [entry_of(kept.transactional_id, decided)], committed)
        if refused:
            if kept.transaction is None:
                # A disk that fails just now has ended the leadership.
                self._kept.get(kept.index, {}).pop(kept.transactional_id, None)
            then(refused)
        else:
            kept.is_pending = True

    def _follow_up(self, kept: Kept) -> None:
        """What a state in force calls for."""
        known = kept.transaction
        assert known is not None
        if known.state is State.ONGOING:
            if kept not in self.ongoing:
                clock = self._broker.clock
                kept.deadline_ms = clock.monotonic_ms() + known.left_ms(clock.wall_ms())
                self.ongoing[kept] = None
            return
        self.ongoing.pop(kept, None)
        if known.state in transaction.PREPARED:
            kept.ending = Ending(kept.index, self._epochs[kept.index], known, lambda: self._marked(kept, known))
            self.markers.send(kept.ending)

    def _marked(self, kept: Kept, known: Transaction) -> None:
        """The one place where a transaction becomes complete: from its Prepare state in force, and no other."""
        current = self._kept.get(kept.index, {}).get(kept.transactional_id)
        if current is not kept or kept.transaction is not known or kept.is_pending:
            return

        def completed(error: ErrorCode) -> None:
            if not error:
                kept.ending = None
                self.committed += known.commits
                self.aborted += not known.commits
            elif not kept.is_pending:
                self._complete_later(kept, known)

        self._decide(kept, transaction.completed(known, self._broker.clock.wall_ms()), completed)

    def _complete_later(self, kept: Kept, known: Transaction) -> None:
        """Nothing was appended. If the leadership is over, the next one sends the markers again."""
        index = kept.index
        if index not in self._incomplete:
            self._incomplete[index] = {}
            self._broker.loop.call_later(COMPLETE_RETRY_S, self._complete_again, index)
        self._incomplete[index][kept] = known

    def _complete_again(self, index: int) -> None:
        """While one is refused the others need not ask."""
        for kept, known in self._incomplete.pop(index).items():
            if index in self._incomplete:
                self._incomplete[index][kept] = known
            else:
                self._marked(kept, known)


class _Answer:
    """Leaves once: with the outcome, or with 15 when the caller has waited long enough."""

    __slots__ = ("_then", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, then: Then) -> None:
        self._then: Then | None = then
        self._timer = loop.call_later(ANSWER_S_MAX, self, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def __call__(self, error: ErrorCode) -> None:
        then, self._then = self._then, None
        if then is not None:
            self._timer.cancel()
            then(error)
