"""Transactions as compaction meets them, from batch to batch: what was rolled back goes, and markers outlive records.

One pass over a log needs one of these, from the first batch on: transactions span segments.
"""

from collections.abc import Iterable

from headrace.storage.txn_index import AbortedTransaction
from headrace.wire.batch import BatchHeader
from headrace.wire.markers import Marker


class Transactions:
    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted` are all that have records or markers in what is compacted, wherever their markers lie."""
        self._coming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        """By producer: rolled back, and the marker was not met yet."""
        self._has_records: set[int] = set()
        """Producers, of whose transaction there were batches since their last marker."""

    def is_aborted(self, data: BatchHeader) -> bool:
        """Whether the data batch, which comes next, was rolled back."""
        self._begin_up_to(data.last_offset)
        if not data.is_transactional:
            return False
        self._has_records.add(data.producer_id)
        return data.producer_id in self._aborted

    def ended(self, header: BatchHeader, marker: Marker | None) -> tuple[bool, AbortedTransaction | None]:
        """Of the control batch that comes next: whether nothing needs it, and what is to be known of its transaction.

        As long as a batch of the transaction is left, even an empty one, its end has to be told. What was removed in
        this very pass counts as left, since a death may bring it back.
        """
        self._begin_up_to(header.last_offset)
        if marker is None:
            return header.record_count == 0, None
        aborted = None if marker.committed else self._aborted.pop(header.producer_id, None)
        had_records = header.producer_id in self._has_records
        self._has_records.discard(header.producer_id)
        return not had_records, aborted if had_records else None

    def _begin_up_to(self, offset: int) -> None:
        coming = self._coming
        while coming and coming[-1].first_offset <= offset:
            begun = coming.pop()
            self._aborted[begun.producer_id] = begun
