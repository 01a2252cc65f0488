"""What a coordinator writes of a transaction, and makes of what it reads."""

from typing import Final

from headrace.core.transaction import State, Transaction
from headrace.model import Buffer
from headrace.wire.errors import ProtocolError
from headrace.wire.transaction_records import (
    TransactionLogPartitions,
    TransactionLogValue,
    key_bytes,
    read_key,
    read_value,
    value_bytes,
)

_KNOWN: Final = frozenset(int(state) for state in State)


def entry_of(transactional_id: str, transaction: Transaction) -> tuple[bytes, bytes]:
    """The record that makes a state the one in force."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(partition)
    partitions = [TransactionLogPartitions(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state is State.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        last_producer_epoch=transaction.last_epoch,
    )
    return key_bytes(transactional_id), value_bytes(value)


def tombstone_of(transactional_id: str) -> tuple[bytes, None]:
    return key_bytes(transactional_id), None


def read_entry(key: Buffer | None, value: Buffer | None) -> tuple[str, Transaction | None] | None:
    """None for what is no transaction's record. ProtocolError when it cannot be read."""
    if key is None:
        return None
    transactional_id = read_key(key)
    if transactional_id is None:
        return None
    if value is None:
        return transactional_id, None
    stored = read_value(value)
    if stored.transaction_status not in _KNOWN:
        raise ProtocolError(f"{transactional_id!r} is in state {stored.transaction_status}, which is not known here")
    partitions = frozenset(
        (topic.topic, partition) for topic in stored.transaction_partitions or () for partition in topic.partition_ids
    )
    return transactional_id, Transaction(
        producer_id=stored.producer_id,
        previous_producer_id=stored.previous_producer_id,
        epoch=stored.producer_epoch,
        last_epoch=stored.last_producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        state=State(stored.transaction_status),
        partitions=partitions,
        started_ms=stored.transaction_start_timestamp_ms,
        updated_ms=stored.transaction_last_update_timestamp_ms,
    )
