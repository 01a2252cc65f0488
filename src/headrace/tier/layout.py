"""The names of objects: `<cluster>/<topic id>/<partition>/…`, topic ids in hexadecimal.

A segment's name begins with its base offset, and a manifest's with its leader epoch and number, in digits enough to
sort as numbers do. Both end with random bits, so that two nodes never choose the same name.
"""

import re
from typing import NamedTuple
from urllib.parse import quote

_PARTITION = re.compile(r"(?P<cluster>[^/]+)/(?P<topic>[0-9a-f]{32})/(?P<partition>\d+)/(?P<name>[^/]+)")
_SEGMENT = re.compile(r"(\d{20})-(\d+)-([0-9a-f]{32})\.segment")
_MANIFEST = re.compile(r"manifest-(\d{10})-(\d{20})-([0-9a-f]{32})")


class SegmentName(NamedTuple):
    base_offset: int
    leader_epoch: int
    id: str


class ManifestName(NamedTuple):
    leader_epoch: int
    number: int
    id: str


class ObjectName(NamedTuple):
    topic_id: bytes
    partition: int
    object: SegmentName | ManifestName


def new_id(random_bits: int) -> str:
    """From 128 of them."""
    return f"{random_bits:032x}"


def cluster_prefix(cluster_id: str) -> str:
    return quote(cluster_id, safe="").replace("%", "=").replace("~", "=7E").replace(".", "=2E") + "/"


def topic_prefix(cluster_id: str, topic_id: bytes) -> str:
    return f"{cluster_prefix(cluster_id)}{topic_id.hex()}/"


def partition_prefix(cluster_id: str, topic_id: bytes, partition: int) -> str:
    return f"{topic_prefix(cluster_id, topic_id)}{partition}/"


def segment_key(cluster_id: str, topic_id: bytes, partition: int, name: SegmentName) -> str:
    file = f"{name.base_offset:020d}-{name.leader_epoch}-{name.id}.segment"
    return partition_prefix(cluster_id, topic_id, partition) + file


def manifest_key(cluster_id: str, topic_id: bytes, partition: int, name: ManifestName) -> str:
    file = f"manifest-{name.leader_epoch:010d}-{name.number:020d}-{name.id}"
    return partition_prefix(cluster_id, topic_id, partition) + file


def parse_key(key: str) -> ObjectName | None:
    """None for an object that is none of ours."""
    found = _PARTITION.fullmatch(key)
    if found is None:
        return None
    topic_id, partition = bytes.fromhex(found["topic"]), int(found["partition"])
    if segment := _SEGMENT.fullmatch(found["name"]):
        return ObjectName(topic_id, partition, SegmentName(int(segment[1]), int(segment[2]), segment[3]))
    if manifest := _MANIFEST.fullmatch(found["name"]):
        return ObjectName(topic_id, partition, ManifestName(int(manifest[1]), int(manifest[2]), manifest[3]))
    return None
