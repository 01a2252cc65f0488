"""A transactional id as its coordinator knows it, and what one request, time-out or marker makes of it.

Everything here is a value: a decision is the next state, or the error code that the caller gets, or DONE where nothing
has to be written. The state in force is the one whose record is committed. Until then a decision is pending, and every
other one waits (51): whoever leads next reads the log, and must come to the same end.

The states are Kafka's: Empty > Ongoing > PrepareCommit | PrepareAbort > CompleteCommit | CompleteAbort > Ongoing ...
"""

from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from headrace.errors import ErrorCode

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME_MS: Final = -1
EPOCH_MAX: Final = 32_767
EXHAUSTED_EPOCH: Final = EPOCH_MAX - 1
"""The last epoch that a producer may get. One more is kept, to fence it with."""


class State(IntEnum):
    """As they stand in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """What Kafka's tools call it."""
        return self.name.title().replace("_", "")


STATES: Final = {state.label: state for state in State}
PREPARED: Final = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
RESTING: Final = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
"""No transaction is open, and none is about to end."""

TopicPartition = tuple[str, int]


class Done(Enum):
    DONE = 0


DONE: Final = Done.DONE
"""It is so already, nothing has to be written."""


class NeedProducerId(Enum):
    NEED_PRODUCER_ID = 0


NEED_PRODUCER_ID: Final = NeedProducerId.NEED_PRODUCER_ID
"""The decision has to be made again, with a producer id that nobody had before."""


class Claim(NamedTuple):
    """Who a producer says it is."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    updated_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME_MS
    previous_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    """The epoch whose owner asked for this one: if it asks again, the answer was lost."""

    @property
    def is_exhausted(self) -> bool:
        return self.epoch >= EXHAUSTED_EPOCH

    @property
    def commits(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    def left_ms(self, now_ms: int) -> int:
        """How much of its time an open transaction has left. Never more than all: another clock may have begun it."""
        return min(max(self.started_ms + self.timeout_ms - now_ms, 0), self.timeout_ms)

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.state in RESTING and self.updated_ms + expiration_ms <= now_ms


Decision = Transaction | ErrorCode | Done


def initialised(
    known: Transaction | None, claim: Claim | None, timeout_ms: int, now_ms: int, fresh_producer_id: int | None
) -> Transaction | ErrorCode | NeedProducerId:
    """InitProducerId. A result in PREPARE_ABORT fences the owner of an open transaction: its epoch is given to nobody,
    and the caller is told to come again (51)."""
    if known is None:
        if fresh_producer_id is None:
            return NEED_PRODUCER_ID
        return _begun(fresh_producer_id, NO_PRODUCER_ID, NO_EPOCH, timeout_ms, now_ms)
    if claim is not None and not _is_known(known, claim):
        return ErrorCode.PRODUCER_FENCED
    if known.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known.state is State.ONGOING:
        if claim is not None and claim.epoch != known.epoch:
            return ErrorCode.PRODUCER_FENCED  # Kafka would let it abort what its successor has begun
        return fenced(known, now_ms)
    if known.is_exhausted and (claim is None or claim.epoch == known.epoch):
        if fresh_producer_id is None:
            return NEED_PRODUCER_ID
        last_epoch = NO_EPOCH if claim is None else known.epoch
        return _begun(fresh_producer_id, known.producer_id, last_epoch, timeout_ms, now_ms)
    return _bumped(known, claim, timeout_ms, now_ms)


def begun_after(spent: Claim, timeout_ms: int, now_ms: int) -> Transaction:
    """Of an id that was not known, with the producer id of one that is forgotten: partitions remember each producer id
    for long, and so remember fewer. Whoever had it before is fenced by the epoch."""
    return replace(
        _begun(spent.producer_id, NO_PRODUCER_ID, NO_EPOCH, timeout_ms, now_ms),
        epoch=spent.epoch + 1,
    )


def _is_known(known: Transaction, claim: Claim) -> bool:
    """The current id; or the one before, by whoever used up its epochs and did not hear of the new one."""
    if claim.producer_id == known.producer_id:
        return True
    return claim.producer_id == known.previous_producer_id and claim.epoch >= EXHAUSTED_EPOCH


def _begun(producer_id: int, previous: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
    return Transaction(
        producer_id=producer_id,
        epoch=0,
        timeout_ms=timeout_ms,
        state=State.EMPTY,
        updated_ms=now_ms,
        previous_producer_id=previous,
        last_epoch=last_epoch,
    )


def _bumped(known: Transaction, claim: Claim | None, timeout_ms: int, now_ms: int) -> Transaction | ErrorCode:
    epoch, last_epoch = known.epoch + 1, NO_EPOCH
    if claim is not None:
        if claim == (known.producer_id, known.epoch):
            last_epoch = known.epoch
        elif claim.epoch == known.last_epoch:
            epoch, last_epoch = known.epoch, known.last_epoch  # the answer was lost: here it is again
        else:
            return ErrorCode.PRODUCER_FENCED
    return replace(
        known,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=State.EMPTY,
        partitions=frozenset(),
        started_ms=NO_TIME_MS,
        updated_ms=now_ms,
    )


def owned(known: Transaction | None, claim: Claim) -> ErrorCode:
    """Whether the caller is the producer that the id belongs to."""
    if known is None or known.producer_id != claim.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if known.epoch == claim.epoch else ErrorCode.PRODUCER_FENCED


def joined(known: Transaction, partitions: frozenset[TopicPartition], now_ms: int) -> Decision:
    """AddPartitionsToTxn by the owner, and AddOffsetsToTxn for the partition of a group."""
    if known.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known.state is State.ONGOING:
        if partitions <= known.partitions:
            return DONE
        return replace(known, partitions=known.partitions | partitions, updated_ms=now_ms)
    if not partitions:
        return DONE
    return replace(known, state=State.ONGOING, partitions=partitions, started_ms=now_ms, updated_ms=now_ms)


def verified(known: Transaction, partition: TopicPartition) -> ErrorCode:
    """Whether the owner has made the partition a part of its open transaction. What is pending does not count: it is
    looked at again where the records are appended."""
    if known.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE if partition in known.partitions else ErrorCode.TRANSACTION_ABORTABLE


def ended(known: Transaction, commit: bool, now_ms: int) -> Decision:
    """EndTxn by the owner. The answer may leave as soon as the result is committed: then there is one end only."""
    if known.state is State.ONGOING:
        return replace(known, state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT, updated_ms=now_ms)
    if known.state is State.EMPTY or known.commits != commit:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if known.state in PREPARED else DONE


def fenced(known: Transaction, now_ms: int) -> Transaction:
    """The open transaction ends without its owner, who is told by the epoch: nobody ever has this one."""
    assert known.state is State.ONGOING and known.epoch < EPOCH_MAX
    return replace(known, state=State.PREPARE_ABORT, epoch=known.epoch + 1, last_epoch=NO_EPOCH, updated_ms=now_ms)


def completed(known: Transaction, now_ms: int) -> Transaction:
    """All markers are where they belong."""
    assert known.state in PREPARED
    state = State.COMPLETE_COMMIT if known.commits else State.COMPLETE_ABORT
    return replace(known, state=state, partitions=frozenset(), updated_ms=now_ms)
