"""The two topics that brokers keep for themselves, and which of their partitions keeps a key."""

from headrace.config import BrokerConfig
from headrace.core.transactional_id import placement_key

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})

_INT_MIN = 1 << 31


def replication_factor(topic: str, config: BrokerConfig) -> int:
    """What an internal topic has as soon as there are so many nodes."""
    if topic == CONSUMER_OFFSETS:
        return config.offsets_topic_replication_factor
    return config.transaction_state_log_replication_factor


def coordinating_partition(topic: str, key: str, partitions: int) -> int:
    """The partition of an internal topic that keeps a group, or a transactional id."""
    return partition_of(placement_key(key) if topic == TRANSACTION_STATE else key, partitions)


def partition_of(key: str, partitions: int) -> int:
    """Kafka's choice: whoever leads it coordinates the key. The one number without an absolute value counts as 0."""
    hashed = _java_hash(key)
    if hashed >= _INT_MIN:
        hashed = (1 << 32) - hashed
    return 0 if hashed == _INT_MIN else hashed % partitions


def _java_hash(text: str) -> int:
    """`String.hashCode` as an unsigned number: over UTF-16, of which a rare character has two units."""
    hashed = 0
    if text.isascii():
        for unit in text.encode():
            hashed = (hashed * 31 + unit) & 0xFFFFFFFF
        return hashed
    encoded = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        hashed = (hashed * 31 + (encoded[at] << 8 | encoded[at + 1])) & 0xFFFFFFFF
    return hashed
