"""Offsets committed, plainly or in a transaction, and deleted. Each is one batch, and counts when it is committed."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from headrace.broker.broker import Broker
from headrace.core.group import Group
from headrace.core.group_effects import GroupState
from headrace.core.group_members import CONSUMER
from headrace.core.group_offsets import TopicPartition
from headrace.core.verified import Verified
from headrace.errors import ErrorCode
from headrace.wire.group_records import group_key, offset_key

Then = Callable[[ErrorCode], None]
NewOffset = tuple[str, int, bytes]
"""Topic, partition and the value of its record."""
ENTRIES_MAX = 5_000
"""Tombstones in one batch: their keys are at most some hundred bytes."""

_TRANSACTIONAL = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE,
}
"""What verification says, as a client of TxnOffsetCommit up to version 4 understands it."""


class Committer(NamedTuple):
    """Who commits, as it says itself."""

    member_id: str
    instance_id: str | None
    generation: int


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int


def commit(broker: Broker, group_id: str, by: Committer, offsets: Sequence[NewOffset], then: Then) -> None:
    """`then` is called once, perhaps at once."""
    group = _group_for(broker, group_id, by, in_transaction=False)
    if isinstance(group, ErrorCode):
        then(group)
        return
    if not offsets:
        broker.groups.settle(group)
        then(ErrorCode.NONE)
        return
    position = 0

    def committed() -> None:
        for topic, partition, value in offsets:
            group.offsets.commit(topic, partition, value, position)
        broker.groups.offsets_committed += len(offsets)

    error = broker.groups.append(group, _entries(group, offsets), then, committed)
    if not error:
        position = group.offsets.appended([(topic, partition) for topic, partition, _ in offsets])
    broker.groups.settle(group)
    if error:
        then(_too_large(error))


def commit_in_transaction(
    broker: Broker, group_id: str, by: Committer, within: Transaction, offsets: Sequence[NewOffset], then: Then
) -> None:
    """They wait for the marker of the transaction, which is verified to have this group in it."""
    group = _group_for(broker, group_id, by, in_transaction=True)
    if isinstance(group, ErrorCode):
        then(group)
        return
    hosted = broker.groups.log.led(group.index)
    if isinstance(hosted, ErrorCode) or not offsets:
        broker.groups.settle(group)
        then(hosted if isinstance(hosted, ErrorCode) else ErrorCode.NONE)
        return

    def verified(error: ErrorCode, guard: Verified | None) -> None:
        if error:
            broker.groups.settle(group)
            then(_TRANSACTIONAL.get(error, error))
        else:
            _append_in_transaction(broker, group_id, by, within, offsets, then, guard)

    broker.verification.verify(hosted, within.transactional_id, within.producer_id, within.epoch, verified)


def _append_in_transaction(
    broker: Broker,
    group_id: str,
    by: Committer,
    within: Transaction,
    offsets: Sequence[NewOffset],
    then: Then,
    guard: Verified | None,
) -> None:
    group = _group_for(broker, group_id, by, in_transaction=True)  # Time has passed since it was looked at.
    if isinstance(group, ErrorCode):
        then(group)
        return
    groups = broker.groups
    producer = within.producer_id, within.epoch
    error = groups.append(group, _entries(group, offsets), then, producer=producer, verified=guard)
    if not error:
        group.offsets.pend(within.producer_id, offsets)
        groups.opened(group, within.producer_id)
    groups.settle(group)
    if error:
        then(_too_large(error))


def _group_for(broker: Broker, group_id: str, by: Committer, in_transaction: bool) -> Group | ErrorCode:
    found = broker.groups.find(group_id)
    if found is None and by.generation >= 0:
        return ErrorCode.ILLEGAL_GENERATION
    if found is None:
        found = broker.groups.find_or_make(group_id)
    if isinstance(found, ErrorCode):
        return found
    now_ms = broker.clock.monotonic_ms()
    refused = found.may_commit(by.member_id, by.instance_id, by.generation, now_ms, in_transaction)
    if refused:
        broker.groups.settle(found)
    return refused or found


def _entries(group: Group, offsets: Sequence[NewOffset]) -> list[tuple[bytes, bytes | None]]:
    prefix = group.offsets.key_prefix
    return [(offset_key(prefix(topic), partition), value) for topic, partition, value in offsets]


def _too_large(error: ErrorCode) -> ErrorCode:
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error is ErrorCode.UNKNOWN_SERVER_ERROR else error


# Deletion.


def delete_group(broker: Broker, group_id: str, then: Then) -> None:
    group = broker.groups.find(group_id)
    if group is None:
        then(ErrorCode.GROUP_ID_NOT_FOUND)
    elif isinstance(group, ErrorCode):
        then(group)
    elif group.state is not GroupState.EMPTY or group.pending:
        then(ErrorCode.NON_EMPTY_GROUP)
    else:
        bury(broker, group, group.offsets.all_keys(), then, with_group=True)


def may_delete(group: Group, topic: str) -> ErrorCode:
    """Whether offsets of that topic may go while the group lives."""
    if group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if group.protocol_type != CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP
    is_read = group.subscribed is None or topic in group.subscribed
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE


def delete_offsets(broker: Broker, group: Group, keys: Iterable[TopicPartition], then: Then) -> None:
    """As many as the log knows something of; `then` is called once."""
    known = group.offsets.all_keys()
    bury(broker, group, [key for key in keys if key in known], then)


def bury(broker: Broker, group: Group, keys: Iterable[TopicPartition], then: Then, *, with_group: bool = False) -> None:
    """Tombstones for these offsets, in as many batches as it takes, and for the group itself, which is gone then."""
    buried = list(keys)
    parts = [buried[at : at + ENTRIES_MAX] for at in range(0, len(buried), ENTRIES_MAX)] or [[]]
    for part in parts:
        is_last = part is parts[-1]
        error = _bury_some(broker, group, part, then if is_last else _ignore, is_last and with_group)
        if error:
            then(error)
            return
    if with_group:
        broker.groups.forget(group)
    else:
        broker.groups.settle(group)


def _bury_some(broker: Broker, group: Group, keys: Sequence[TopicPartition], then: Then, with_group: bool) -> ErrorCode:
    groups, prefix, offsets = broker.groups, group.offsets.key_prefix, group.offsets
    entries: list[tuple[bytes, bytes | None]] = [(offset_key(prefix(topic), index), None) for topic, index in keys]
    if with_group and group.generation > 0:  # Else the log knows only offsets of it.
        entries.append((group_key(group.group_id), None))
    if not entries:
        then(ErrorCode.NONE)
        return ErrorCode.NONE
    position = 0

    def committed() -> None:
        for topic, index in keys:
            offsets.commit(topic, index, None, position)

    error = groups.append(group, entries, then, committed)
    if not error:
        position = offsets.appended(keys)
    return error


def _ignore(_: ErrorCode) -> None:
    """The last batch of several is committed after the others."""
