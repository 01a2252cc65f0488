"""Which manifest of a partition is in force: one small key in the metadata store, which its leader alone moves."""

from typing import NamedTuple

import msgspec

from headrace.core.epochs import EpochList


class Pointer(msgspec.Struct, frozen=True, tag_field="v", tag=1):
    """With what followers, elections and operators need to know without reading the manifest."""

    manifest: str
    """The name of the object."""
    leader_epoch: int
    """Of the leader that wrote it. Never falls."""
    log_start_offset: int
    """Of the whole log. Never falls."""
    highest_remote_offset: int
    """Up to it, inclusive and from the log start on, everything is in the tier; -1: nothing is."""
    highest_remote_epoch: int
    """In which the record at `highest_remote_offset` was written."""
    bytes: int
    """Of all finished segments."""
    segments: int
    finished_ms: int = -1
    """Wall clock when the copy of the newest finished segment was finished."""

    def is_of(self, epochs: EpochList, log_end_offset: int) -> bool:
        """Whether a replica has the same records up to `highest_remote_offset`, by its own list of epochs.

        Where two replicas agree on the epoch of an offset, they agree on all records up to it.
        """
        highest = self.highest_remote_offset
        return 0 <= highest < log_end_offset and epochs.epoch_at(highest) == self.highest_remote_epoch


class StoredPointer(NamedTuple):
    pointer: Pointer
    rev: int


class PointerPut(NamedTuple):
    """A change of the image."""

    topic_id: bytes
    partition: int
    stored: StoredPointer


class PointerGone(NamedTuple):
    topic_id: bytes
    partition: int


class TierTopicRecord(msgspec.Struct, frozen=True, tag_field="v", tag=1):
    """There may be objects of this topic. It is written before the first, and goes after the last."""

    name: str
    """For people: the topic is gone when it matters."""


class TierTopicPut(NamedTuple):
    topic_id: bytes
    rev: int


class TierTopicGone(NamedTuple):
    topic_id: bytes


TierChange = PointerPut | PointerGone | TierTopicPut | TierTopicGone

Pointers = dict[tuple[bytes, int], StoredPointer]
"""By topic id and index."""


def point(known: Pointers, topics: dict[bytes, int], change: TierChange, changed: list[tuple[bytes, int]]) -> None:
    """`changed` gets the partition whose pointer did."""
    if isinstance(change, TierTopicPut):
        topics[change.topic_id] = max(change.rev, topics.get(change.topic_id, 0))
        return
    if isinstance(change, TierTopicGone):
        topics.pop(change.topic_id, None)
        return
    key = change.topic_id, change.partition
    if isinstance(change, PointerGone):
        if known.pop(key, None) is not None:
            changed.append(key)
    elif key not in known or known[key].rev < change.stored.rev:
        known[key] = change.stored
        changed.append(key)
