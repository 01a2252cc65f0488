"""One partition of `__consumer_offsets` read back: groups, their offsets, and what open transactions would commit.

There may be a million offsets. Keys that differ in the partition only share all but their last four bytes, so that
one look-up finds where an offset belongs, and its value is kept unread.
"""

import logging
from collections.abc import Iterator

from headrace.core.group import Group
from headrace.core.group_storing import restored
from headrace.model import Buffer
from headrace.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader
from headrace.wire.errors import ProtocolError
from headrace.wire.group_records import (
    GROUP_KEY,
    OFFSET_KEYS,
    read_group_key,
    read_group_value,
    read_offset_prefix,
)
from headrace.wire.markers import read_marker
from headrace.wire.pairs import Pair, read_pairs

log = logging.getLogger(__name__)


class Replay:
    def __init__(self, index: int) -> None:
        self.groups: dict[str, Group] = {}
        self.open: dict[int, set[Group]] = {}
        self.markers: list[tuple[int, bool]] = []
        """Transactions that ended while this was read."""
        self._index = index
        self._targets: dict[bytes, dict[int, bytes]] = {}
        self._places: dict[bytes, tuple[str, str]] = {}
        self._unknown = 0

    def batch(self, header: BatchHeader, chunk: Buffer, pos: int) -> None:
        """The batch at `pos`."""
        attributes = header.attributes
        if attributes & CONTROL:
            marker = read_marker(chunk, pos)
            if marker is not None:
                for group_id in [group.group_id for group in self.open.pop(header.producer_id, ())]:
                    self.groups[group_id].offsets.end(header.producer_id, marker.committed)
            return
        pairs = read_pairs(chunk, pos, header)
        if attributes & TRANSACTIONAL:
            for key, value in pairs:
                self._pending(header.producer_id, key, value)
        elif self.open:
            for key, value in pairs:
                self._slowly(key, value)
        else:
            self._quickly(pairs)

    def _quickly(self, pairs: list[Pair]) -> None:
        targets = self._targets
        for key, value in pairs:
            if key is None or key[:2] not in OFFSET_KEYS:
                self._other(key, value)
                continue
            target = targets.get(key[:-4])
            if target is None:
                place = self._place(key[:-4])
                if place is None:
                    continue
                target = targets[key[:-4]] = self._offsets_in(*place)
            if value is not None:
                target[int.from_bytes(key[-4:], "big")] = value
            else:
                target.pop(int.from_bytes(key[-4:], "big"), None)

    def _slowly(self, key: bytes | None, value: bytes | None) -> None:
        """While transactions are open: they lose to what comes after them."""
        if key is None or key[:2] not in OFFSET_KEYS:
            self._other(key, value)
            return
        place = self._place(key[:-4])
        if place is not None:
            group_id, topic = place
            partition = int.from_bytes(key[-4:], "big")
            offsets = self._group(group_id).offsets
            if self._targets:
                self._targets.clear()  # what is removed below may be found there
            offsets.commit(topic, partition, value, offsets.appended([(topic, partition)]))

    def _pending(self, producer_id: int, key: bytes | None, value: bytes | None) -> None:
        place = None if key is None or key[:2] not in OFFSET_KEYS else self._place(key[:-4])
        if key is None or place is None:
            return
        group = self._group(place[0])
        group.offsets.pend(producer_id, [(place[1], int.from_bytes(key[-4:], "big"), value)])
        self.open.setdefault(producer_id, set()).add(group)

    def _place(self, prefix: bytes) -> tuple[str, str] | None:
        place = self._places.get(prefix)
        if place is None:
            try:
                place = self._places[prefix] = read_offset_prefix(prefix)
            except ProtocolError as error:
                self._skip(str(error))
        return place

    def _group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self._index)
        return group

    def _offsets_in(self, group_id: str, topic: str) -> dict[int, bytes]:
        return self._group(group_id).offsets.by_topic.setdefault(topic, {})

    def _other(self, key: bytes | None, value: bytes | None) -> None:
        if key is None or key[:2] != GROUP_KEY:
            self._skip("its key is of a kind that is not known here")
            return
        try:
            group_id = read_group_key(key)
            known = self._group(group_id)
            if value is None:
                fresh = Group(group_id, self._index)
                fresh.offsets = known.offsets
            else:
                fresh = restored(group_id, self._index, read_group_value(value), known.offsets)
        except ProtocolError as error:
            self._skip(str(error))
            return
        self.groups[group_id] = fresh
        if known.offsets.pending:
            for producer_id in known.offsets.pending:
                waiting = self.open[producer_id]
                waiting.discard(known)
                waiting.add(fresh)

    def _skip(self, reason: str) -> None:
        """A later version may write what this one does not know; what it can read is as good as ever."""
        self._unknown += 1
        if self._unknown == 1:
            log.warning("__consumer_offsets-%d holds a record that is left out: %s", self._index, reason)

    def finish(self) -> Iterator[Group]:
        """Groups of which something is left."""
        self._targets.clear()
        self._places.clear()
        for group_id, group in list(self.groups.items()):
            by_topic = group.offsets.by_topic
            for topic in [topic for topic, partitions in by_topic.items() if not partitions]:
                del by_topic[topic]
            if group.is_blank:
                del self.groups[group_id]
            else:
                yield group
