"""The transaction coordinator: the transactional ids whose partition of `__transaction_state` this node leads.

What is decided (`core.transaction`) is written, and is in force when the record is committed. Until then everybody else
who asks for the same id is told to come again (51), also when the caller has stopped waiting: the record is in the log,
and this node must not come to another end than one that reads it. An end in force is marked in the partitions
(`markers`), and when all of them know it the id is free for its next transaction.

Where nothing has to be written, memory answers only while the lease of this node is valid. Without it another one may
coordinate by now, and have come to another end: what is in force is written again, and stands when that is committed.

Ids of a form of their own belong to attempts of Spark queries, whose batches are committed whole (`commit_groups`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from headrace.broker.broker import Broker
from headrace.broker.coordinators.commit_groups import CommitGroups
from headrace.broker.coordinators.kept import Kept
from headrace.broker.coordinators.markers import ANSWER_MS_MAX, VERSION, Ending, Markers
from headrace.broker.coordinators.queries import Queries
from headrace.broker.coordinators.state_log import Entry, StateLog
from headrace.core import transaction
from headrace.core.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE, coordinating_partition
from headrace.core.transaction import NEED_PRODUCER_ID, Claim, State, TopicPartition, Transaction
from headrace.core.transaction_log import entry_of, read_entry
from headrace.core.transactional_id import attempt_of
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
FOLLOWED_UP: Final = 200
"""Transactions that ended together, whose markers set out in one turn of the loop."""
NOBODY: Final = Claim(transaction.NO_PRODUCER_ID, transaction.NO_EPOCH)

Then = Callable[[ErrorCode], None]
ThenClaim = Callable[[ErrorCode, Claim], None]
ThenCodes = Callable[[dict[TopicPartition, ErrorCode]], None]
Change = tuple[Kept, Transaction]
"""An id, and the state that is to be in force."""


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
        self.queries = Queries(broker, self)
        self.groups = CommitGroups(broker, self, self.queries)

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
        self.queries.begin(index)

    def replay(self, index: int, header: BatchHeader, records: Sequence[Record]) -> None:
        if header.is_control:
            return
        kept = self._kept[index]
        for record in records:
            read = read_entry(record.key, record.value)
            if read is None:
                self.queries.replay(index, record.key, record.value)
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
        self.queries.ended(index)
        self._epochs.pop(index, None)
        for kept in self._kept.pop(index, {}).values():
            self.ongoing.pop(kept, None)

    # Requests.

    def find(self, transactional_id: str) -> Kept | ErrorCode | None:
        """None: nothing is known of it."""
        index = self.place_of(transactional_id)
        return index if isinstance(index, ErrorCode) else self._kept[index].get(transactional_id)

    def place_of(self, transactional_id: str) -> int | ErrorCode:
        """The partition that keeps it, if this node leads that one."""
        index = self.log.index_of(transactional_id)
        if index is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        led = self.log.led(index)
        return led if isinstance(led, ErrorCode) else index

    def at(self, index: int) -> Mapping[str, Kept]:
        """All that one partition keeps, which this node leads."""
        return self._kept[index]

    def init(
        self, transactional_id: str, claim: Claim | None, timeout_ms: int, then: ThenClaim, fresh_id: int | None = None
    ) -> None:
        """InitProducerId. `then` gets the id and the epoch that the producer has now."""
        index = self.place_of(transactional_id)
        if isinstance(index, ErrorCode):
            then(index, NOBODY)
            return
        kept = self._kept[index].get(transactional_id)
        attempt = attempt_of(transactional_id) if kept is None else kept.attempt
        refused = ErrorCode.NONE if attempt is None else self.queries.refusal(index, attempt, is_new=kept is None)
        if kept is not None and kept.is_pending:
            refused = refused or ErrorCode.CONCURRENT_TRANSACTIONS
        if refused:
            then(refused, NOBODY)
            return
        known = None if kept is None else kept.transaction
        now_ms = self._broker.clock.wall_ms()
        spent = None if attempt is None or kept is not None else self.queries.take_spent(index, attempt)
        if spent is None:
            decided = transaction.initialised(known, claim, timeout_ms, now_ms, fresh_id)
        else:
            decided = transaction.begun_after(spent, timeout_ms, now_ms)
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
            self.queries.opened(kept)
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
        known = self._refused_attempt(transactional_id) or self._owned(transactional_id, claim)
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
        """An attempt of a query may give up by itself. It is committed with all others of its batch, or not at all."""
        known = self._owned(transactional_id, claim)
        if commit and not isinstance(known, ErrorCode) and known[0].attempt is not None:
            known = ErrorCode.INVALID_TXN_STATE
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
                    self.queries.forgotten(kept)

        refused = self.log.append(index, tombstones, forgotten)
        for kept in expired:
            kept.is_pending = not refused
        return refused

    # Decisions.

    def _refused_attempt(self, transactional_id: str) -> ErrorCode:
        """At a batch that is over nobody begins anything, also whoever is unknown by now."""
        attempt = attempt_of(transactional_id)
        index = None if attempt is None else self.place_of(transactional_id)
        if attempt is None or index is None or isinstance(index, ErrorCode):
            return ErrorCode.NONE
        return self.queries.refusal(index, attempt, is_new=False)

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
        refused = self.decide_together(kept.index, [(kept, decided)], then)
        if refused:
            if kept.transaction is None:
                self._drop(kept)
            then(refused)

    def decide_together(
        self, index: int, changes: Sequence[Change], then: Then, entries: Sequence[Entry] | None = None
    ) -> ErrorCode:
        """All in one batch, so that all are in force or none is. None of them may be pending. `entries`: what is
        written, if it is more than the changes, or known already. Anything but NONE: nothing was written."""

        def committed(error: ErrorCode) -> None:
            if not error:
                for kept, decided in changes:
                    kept.transaction = decided
                    kept.is_pending = False
                self._follow_up_all(changes)
            then(error)

        if entries is None:
            entries = [entry_of(kept.transactional_id, decided) for kept, decided in changes]
        refused = self.log.append(index, entries, committed)
        if not refused:
            for kept, _ in changes:
                kept.is_pending = True
        return refused

    def _follow_up_all(self, changes: Sequence[Change], at: int = 0) -> None:
        """A few in each turn of the loop; a leadership that has ended meanwhile is none of theirs."""
        for kept, decided in changes[at : at + FOLLOWED_UP]:
            if kept.transaction is decided and self._kept.get(kept.index, {}).get(kept.transactional_id) is kept:
                self._follow_up(kept)
        if at + FOLLOWED_UP < len(changes):
            self._broker.loop.call_soon(self._follow_up_all, changes, at + FOLLOWED_UP)

    def _drop(self, kept: Kept) -> None:
        # A disk that fails just now has ended the leadership.
        self._kept.get(kept.index, {}).pop(kept.transactional_id, None)
        self.queries.dropped(kept)

    def _follow_up(self, kept: Kept) -> None:
        """What a state in force calls for."""
        known = kept.transaction
        assert known is not None
        if kept.attempt is not None:
            self.queries.noted(kept)
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
