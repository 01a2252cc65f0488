"""An async client of a Kafka cluster: `Producer`, `Consumer`, `Admin`, `CommitGroups`."""

from headrace.client.admin import Admin
from headrace.client.batches import RecordMetadata
from headrace.client.commit_group import BatchRefused, CommitGroups, Decided, Handle
from headrace.client.consumer import Consumer
from headrace.client.descriptions import (
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    ConfigSource,
    CreatedTopic,
    Elected,
    ElectionType,
    LogDirDescription,
    LogDirPartition,
    NewTopic,
    PartitionDescription,
    Resource,
    ResourceType,
    TopicDescription,
)
from headrace.client.errors import BufferFull, Fenced, NotReachable, TimedOut, TransactionFailed
from headrace.client.fetched import ConsumerRecord
from headrace.client.group_admin import Committed, GroupDescription, GroupListing, GroupMember
from headrace.client.offsets import OffsetAndTimestamp
from headrace.client.outside import Outside
from headrace.client.producer import Producer

__all__ = [
    "Admin",
    "BatchRefused",
    "BrokerDescription",
    "BufferFull",
    "ClusterDescription",
    "CommitGroups",
    "Committed",
    "ConfigEntry",
    "ConfigSource",
    "Consumer",
    "ConsumerRecord",
    "CreatedTopic",
    "Decided",
    "Elected",
    "ElectionType",
    "Fenced",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "Handle",
    "LogDirDescription",
    "LogDirPartition",
    "NewTopic",
    "NotReachable",
    "OffsetAndTimestamp",
    "Outside",
    "PartitionDescription",
    "Producer",
    "RecordMetadata",
    "Resource",
    "ResourceType",
    "TimedOut",
    "TopicDescription",
    "TransactionFailed",
]
