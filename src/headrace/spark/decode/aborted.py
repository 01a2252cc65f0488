"""Which batches belong to transactions that were rolled back."""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.model import Buffer
from headrace.wire.batch import BatchHeader
from headrace.wire.markers import read_marker


class Aborted(NamedTuple):
    """A transaction that was rolled back, and where its records in this partition lie."""

    first_offset: int
    producer_id: int
    last_offset: int | None = None
    """None, as a broker tells it: until the marker that says so."""


class AbortedRanges:
    """Asked batch after batch, in the order of the log, also about batches of which nothing is wanted."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._open: dict[int, int | None] = {}  # last offsets, by producer

    def drops(self, data: Buffer, pos: int, header: BatchHeader) -> bool:
        """Whether the batch at `pos` is of such a transaction. ProtocolError for a marker that cannot be read."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            one = self._coming.pop()
            if one.last_offset is None or one.last_offset >= header.base_offset:
                self._open[one.producer_id] = one.last_offset
        producer_id = header.producer_id
        if producer_id not in self._open:
            return False
        last_offset = self._open[producer_id]
        if last_offset is not None and last_offset < header.base_offset:
            del self._open[producer_id]
            return False
        if header.is_control and last_offset is None:
            marker = read_marker(data, pos)
            if marker is not None and not marker.committed:
                del self._open[producer_id]
        return header.is_transactional
