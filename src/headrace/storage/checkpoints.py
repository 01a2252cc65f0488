"""Kafka's small text files: leader epochs, offsets by partition, and the topic id of a partition directory."""

import base64
import re
from collections.abc import Iterable, Mapping

from headrace.core.epochs import EpochEntry, EpochList
from headrace.model import ZERO_UUID, TopicPartition

VERSION = 0
PARTITION_METADATA_VERSION = 0


class CorruptCheckpoint(ValueError):
    """A text that is not what its file should hold. The message is one sentence that says what is wrong."""


def format_leader_epochs(entries: Iterable[tuple[int, int]]) -> str:
    """`leader-epoch-checkpoint`"""
    return _format([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def parse_leader_epochs(text: str) -> tuple[EpochEntry, ...]:
    lines = _parse(text, "leader-epoch-checkpoint", fields=2)
    entries = [(_number(epoch, line), _number(offset, line)) for line, (epoch, offset) in lines]
    try:
        return EpochList(entries).entries
    except ValueError as error:
        raise CorruptCheckpoint(f"The leader-epoch-checkpoint is out of order: {error}") from None


def format_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`, `replication-offset-checkpoint`"""
    return _format([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    lines = _parse(text, "offset checkpoint", fields=3)
    return {
        TopicPartition(topic, _number(partition, line)): _number(offset, line)
        for line, (topic, partition, offset) in lines
    }


def format_partition_metadata(topic_id: bytes) -> str:
    """`partition.metadata`; Kafka ends it without a newline."""
    return f"version: {PARTITION_METADATA_VERSION}\ntopic_id: {uuid_text(topic_id)}"


def parse_partition_metadata(text: str) -> bytes:
    """The topic id."""
    found = {}
    for line in text.splitlines():
        name, colon, content = line.partition(":")
        if not colon:
            raise CorruptCheckpoint(f"partition.metadata has a line {line!r} without a colon.")
        found[name.strip()] = content.strip()
    for name in ("version", "topic_id"):
        if name not in found:
            raise CorruptCheckpoint(f"partition.metadata names no {name}.")
    if found["version"] != str(PARTITION_METADATA_VERSION):
        raise CorruptCheckpoint(
            f"partition.metadata has version {found['version']!r}, only {PARTITION_METADATA_VERSION} is known."
        )
    topic_id = parse_uuid(found["topic_id"])
    if topic_id == ZERO_UUID:
        raise CorruptCheckpoint("partition.metadata names a topic id of zeros.")
    return topic_id


def uuid_text(uuid: bytes) -> str:
    """As Kafka writes ids: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def parse_uuid(text: str) -> bytes:
    if not re.fullmatch("[A-Za-z0-9_-]{22}", text):
        raise CorruptCheckpoint(f"{text!r} is no id of 22 characters in URL-safe base64.")
    return base64.urlsafe_b64decode(text + "==")


def _format(lines: list[str]) -> str:
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""])


def _parse(text: str, name: str, fields: int) -> list[tuple[str, list[str]]]:
    # Kafka creates the files empty, and takes that for a list without entries.
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return []
    if _number(lines[0], lines[0]) != VERSION:
        raise CorruptCheckpoint(f"The {name} has version {lines[0]}, only {VERSION} is known.")
    if len(lines) == 1:
        return []
    entries = [(line, line.split()) for line in lines[2:]]
    for line, parts in entries:
        if len(parts) != fields:
            raise CorruptCheckpoint(f"The {name} has a line {line!r}, which is not {fields} fields.")
    if _number(lines[1], lines[1]) != len(entries):
        raise CorruptCheckpoint(f"The {name} announces {lines[1]} entries and has {len(entries)}.")
    return entries


def _number(text: str, line: str) -> int:
    # int() would also take underscores, blanks and other scripts' digits.
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise CorruptCheckpoint(f"{text!r} in the line {line!r} is no number.")
    return int(text)
