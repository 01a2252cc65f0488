"""What consumers of a group tell each other through its coordinator, in their own bytes."""

import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence

from headrace.model import TopicPartition

NO_USER_DATA = struct.pack(">i", -1)


def subscription(topics: Sequence[str]) -> bytes:
    return struct.pack(">hi", 0, len(topics)) + b"".join(map(_string, topics)) + NO_USER_DATA


def assignment(partitions: Iterable[TopicPartition]) -> bytes:
    indexes: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        indexes[topic].append(index)
    told = [_string(topic) + struct.pack(f">{len(at) + 1}i", len(at), *at) for topic, at in indexes.items()]
    return struct.pack(">hi", 0, len(told)) + b"".join(told) + NO_USER_DATA


def ranges(members: Sequence[str], partitions: Sequence[TopicPartition]) -> dict[str, bytes]:
    """Neighbours to each; the first ones have one more where it does not divide."""
    share, more = divmod(len(partitions), len(members))
    assigned, at = {}, 0
    for number, member in enumerate(sorted(members)):
        end = at + share + (number < more)
        assigned[member] = assignment(partitions[at:end])
        at = end
    return assigned


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
