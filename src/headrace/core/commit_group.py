"""All transactions of one batch of one query end together: what may be decided, and what a coordinator writes of it.

A query is told by what the transactional ids of its attempts begin with (`core.transactional_id`). Of each, the last
batch that was committed is known, for ever: a batch that is not later was decided before, by whomever, and nothing of
it is ever committed again.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from headrace.core.transaction import Claim, State, Transaction
from headrace.core.transactional_id import Attempt, attempt_of, is_name, is_scope, query_key
from headrace.model import Buffer
from headrace.wire.transaction_records import (
    CommitGroupLogHandle,
    CommitGroupValue,
    group_key_bytes,
    group_value_bytes,
    read_group_key,
    read_group_value,
)

NO_BATCH: Final = -1
GIVEN_UP: Final = "given up"
"""In the place of the run that ended a batch job: its driver was taken for dead."""
ABORTED: Final = "aborted"
"""The same: its driver has given it up."""


class Op(IntEnum):
    QUERY = 0
    COMMIT = 1
    ABORT = 2
    ALIVE = 3


class Handle(NamedTuple):
    """The transaction of one attempt, as the attempt left it."""

    transactional_id: str
    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    batch_id: int
    run_id: str
    decided_ms: int
    winners: tuple[Claim, ...] = ()
    """Whose records are those of the batch."""


def is_over(last: Decision | None, batch_id: int) -> bool:
    """Nothing of the batch may begin, or be committed, any more."""
    return last is not None and batch_id <= last.batch_id


def is_committable(known: Transaction | None, claim: Claim) -> bool:
    """It is open, and exactly as its attempt left it: one that somebody else has ended or begun anew is not."""
    return known is not None and known.state is State.ONGOING and (known.producer_id, known.epoch) == claim


def fault_of(scope: str, query_id: str) -> str | None:
    """What is wrong with the name of a query."""
    if not is_scope(scope):
        return f"{scope!r} cannot be a scope"
    return None if is_name(query_id) else f"{query_id!r} cannot be the id of a query"


def fault_of_batch(scope: str, query_id: str, batch_id: int, run_id: str, handles: list[Handle]) -> str | None:
    """What is wrong with a request to end a batch, whatever is known of it."""
    if batch_id < 0:
        return f"there is no batch {batch_id}"
    if not is_name(run_id):
        return f"{run_id!r} cannot be the id of a run"
    wanted = Attempt(query_key(scope, query_id), batch_id)
    seen = set()
    for handle in handles:
        if attempt_of(handle.transactional_id) != wanted:
            return f"{handle.transactional_id!r} is no attempt at batch {batch_id} of this query"
        seen.add(handle.transactional_id)
    return None if len(seen) == len(handles) else "an attempt is named twice"


def decision_entry(query: str, decision: Decision) -> tuple[bytes, bytes]:
    handles = [CommitGroupLogHandle(producer_id=one.producer_id, producer_epoch=one.epoch) for one in decision.winners]
    value = CommitGroupValue(
        batch_id=decision.batch_id,
        run_id=decision.run_id,
        decided_timestamp_ms=decision.decided_ms,
        handles=handles,
    )
    return group_key_bytes(query), group_value_bytes(value)


def decision_tombstone(query: str) -> tuple[bytes, None]:
    return group_key_bytes(query), None


def read_decision(key: Buffer | None, value: Buffer | None) -> tuple[str, Decision | None] | None:
    """Without its winners, which nobody asks for any more. None for another kind of record. ProtocolError when it
    cannot be read."""
    query = None if key is None else read_group_key(key)
    if query is None:
        return None
    if value is None:
        return query, None
    stored = read_group_value(value)
    return query, Decision(batch_id=stored.batch_id, run_id=stored.run_id, decided_ms=stored.decided_timestamp_ms)
