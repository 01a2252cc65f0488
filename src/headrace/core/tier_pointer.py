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


Pointers = dict[tuple[bytes, int], StoredPointer]
"""By topic id and index."""


def point(known: Pointers, change: PointerPut | PointerGone, changed: list[tuple[bytes, int]]) -> None:
    """`changed` gets the partition, if anything did."""
    key = change.topic_id, change.partition
    if isinstance(change, PointerGone):
        if known.pop(key, None) is not None:
            changed.append(key)
    elif key not in known or known[key].rev < change.stored.rev:
        known[key] = change.stored
        changed.append(key)
