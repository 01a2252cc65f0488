"""What stands in the metadata store: its keys, and the values as JSON with a version."""

from typing import TypeVar
from urllib.parse import quote, unquote

import msgspec

from headrace.core.cluster import BrokerRecord, OwnedRecord, PartitionRecord
from headrace.core.coverage import CoverageRecord
from headrace.core.tier_pointer import Pointer, TierTopicRecord
from headrace.metadata.store import UnreadableMetadata

VERSION = 1

CLUSTER_KEY = b"/cluster"
PRODUCER_IDS_KEY = b"/pid"
TOPICS = b"/t/"
PARTITIONS = b"/p/"
TOPIC_SETTINGS = b"/c/topic/"
BROKER_SETTINGS = b"/c/broker/"
BROKERS = b"/b/"
UNFINISHED = b"/gc/"
CONTROLLER_KEY = b"/controller"
OFFLINE = b"/od/"
OWNED = b"/own/"
COVERAGE = b"/li/"
TIER = b"/tier/"
TIER_TOPICS = b"/tt/"
TIER_STORE_KEY = b"/tierstore"
_ALL_BROKERS = b"default"


class ClusterRecord(msgspec.Struct, frozen=True, tag_field="v", tag=VERSION):
    id: str


class TopicRecord(msgspec.Struct, frozen=True, tag_field="v", tag=VERSION):
    """Partition records from `partitions` on do not count: they are being created, or left over."""

    id: str
    partitions: int


class UnfinishedRecord(msgspec.Struct, frozen=True, tag_field="v", tag=VERSION):
    """Partition records `first` to `last` of a topic id that no topic counts: being created, or to be deleted.

    Whoever creates them compares this key with every write. To take over, a cleaner rewrites it first.
    """

    first: int
    last: int
    taken_over: int = 0


class OverridesRecord(msgspec.Struct, frozen=True, tag_field="v", tag=VERSION):
    settings: dict[str, str]


class ProducerIdsRecord(msgspec.Struct, frozen=True, tag_field="v", tag=VERSION):
    """Every id below `next` has been given to some node."""

    next: int


class ControllerRecord(msgspec.Struct, frozen=True, tag_field="v", tag=VERSION):
    """Who decides. The revision that created the key is the controller's epoch.

    Whoever holds the office rewrites it to settle writes of unknown outcome: all of them compare its last revision.
    """

    broker_id: int
    incarnation: str
    moved: int = 0


class OfflineRecord(msgspec.Struct, frozen=True, tag_field="v", tag=VERSION):
    """Replicas of a node that its disks have lost, as topic ids in hexadecimal and indexes."""

    replicas: tuple[tuple[str, int], ...]


class TierStoreRecord(msgspec.Struct, frozen=True, tag_field="v", tag=VERSION):
    """The object store that is used. It is written once, and never changed."""

    mark: str
    """The id of the object in it that tells it from others."""


class _Version(msgspec.Struct):
    v: int = 0


R = TypeVar(
    "R",
    ClusterRecord,
    TopicRecord,
    PartitionRecord,
    UnfinishedRecord,
    OverridesRecord,
    ProducerIdsRecord,
    ControllerRecord,
    OfflineRecord,
    BrokerRecord,
    OwnedRecord,
    CoverageRecord,
    Pointer,
    TierTopicRecord,
    TierStoreRecord,
)


def topic_key(name: str) -> bytes:
    return TOPICS + name.encode()


def partition_key(topic_id: bytes, index: int) -> bytes:
    return b"%s%s/%d" % (PARTITIONS, topic_id.hex().encode(), index)


def topic_settings_key(name: str) -> bytes:
    return TOPIC_SETTINGS + name.encode()


def broker_settings_key(broker_id: int | None) -> bytes:
    return BROKER_SETTINGS + (_ALL_BROKERS if broker_id is None else b"%d" % broker_id)


def broker_key(broker_id: int) -> bytes:
    return b"%s%d" % (BROKERS, broker_id)


def unfinished_key(topic_id: bytes) -> bytes:
    return UNFINISHED + topic_id.hex().encode()


def offline_key(broker_id: int, part: int) -> bytes:
    return b"%s%d/%d" % (OFFLINE, broker_id, part)


def coverage_key(topic_id: bytes, index: int) -> bytes:
    return b"%s%s/%d" % (COVERAGE, topic_id.hex().encode(), index)


def coverage_in(key: bytes) -> tuple[bytes, int]:
    return topic_id_in(key, COVERAGE), int(key[len(COVERAGE) + 33 :])


def pointer_key(topic_id: bytes, index: int) -> bytes:
    return b"%s%s/%d" % (TIER, topic_id.hex().encode(), index)


def pointer_in(key: bytes) -> tuple[bytes, int]:
    return topic_id_in(key, TIER), int(key[len(TIER) + 33 :])


def tier_topic_key(topic_id: bytes) -> bytes:
    return TIER_TOPICS + topic_id.hex().encode()


def owned_key(group: str, resource: str) -> bytes:
    return OWNED + f"{quote(group, safe='')}/{quote(resource, safe='')}".encode()


def owned_in(key: bytes) -> tuple[str, str]:
    """Group and resource."""
    group, _, resource = key[len(OWNED) :].decode().partition("/")
    return unquote(group), unquote(resource)


def broker_in(key: bytes) -> int:
    return int(key[len(BROKERS) :])


def offline_in(key: bytes) -> tuple[int, int]:
    """Node and part."""
    broker_id, _, part = key[len(OFFLINE) :].partition(b"/")
    return int(broker_id), int(part)


def name_in(key: bytes, prefix: bytes) -> str:
    return key[len(prefix) :].decode()


def topic_id_in(key: bytes, prefix: bytes) -> bytes:
    return bytes.fromhex(key[len(prefix) : len(prefix) + 32].decode())


def partition_in(key: bytes) -> tuple[bytes, int]:
    return topic_id_in(key, PARTITIONS), int(key[len(PARTITIONS) + 33 :])


def broker_settings_owner(key: bytes) -> int | None:
    owner = key[len(BROKER_SETTINGS) :]
    return None if owner == _ALL_BROKERS else int(owner)


def encode(
    record: ClusterRecord
    | TopicRecord
    | PartitionRecord
    | UnfinishedRecord
    | OverridesRecord
    | ProducerIdsRecord
    | ControllerRecord
    | OfflineRecord
    | BrokerRecord
    | OwnedRecord
    | CoverageRecord
    | Pointer
    | TierTopicRecord
    | TierStoreRecord,
) -> bytes:
    return msgspec.json.encode(record)


def decode(kind: type[R], key: bytes, value: bytes) -> R:
    """Raises UnreadableMetadata for a value of a newer program, or for what is no value of ours."""
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.MsgspecError as error:
        name = key.decode(errors="replace")
        found = _version(value)
        if found > VERSION:
            reason = f"has version {found}; this program reads up to version {VERSION}"
        else:
            reason = f"cannot be read: {error}"
        raise UnreadableMetadata(f"Metadata key {name} {reason}") from error


def _version(value: bytes) -> int:
    try:
        return msgspec.json.decode(value, type=_Version).v
    except msgspec.MsgspecError:
        return 0
