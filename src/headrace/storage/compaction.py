"""What of a batch stays when a log is compacted. Nothing here touches a file.

A record stays if no later one has its key. One without a value, a tombstone, stays for `delete.retention.ms` after
compaction first met it, so that whoever reads the log meanwhile hears of the deletion. Batches never change their
offsets, and the last batch of an active producer stays, even empty: it says what the producer's next sequence is.
"""

from collections.abc import Mapping

from headrace.model import Buffer
from headrace.storage.compaction_txns import Transactions
from headrace.storage.txn_index import AbortedTransaction
from headrace.wire.batch import BatchHeader
from headrace.wire.errors import ProtocolError
from headrace.wire.markers import read_marker
from headrace.wire.record_scan import Scanned, kept, payload, scan
from headrace.wire.rewriting import emptied, horizon_of, repacked

GONE = b""

ENTRY_BYTES = 160
"""What a key takes in memory: its place in a dictionary, up to 17 bytes of it, and an offset."""

LastOfProducer = tuple[int, int]
"""Offset of the last batch that has records, -1 if there is none, and the epoch."""


class NewestOffsets:
    """The newest offset of each key, for batches from some offset up to `end_offset`."""

    def __init__(self, end_offset: int, keys_max: int, transactions: Transactions) -> None:
        self.end_offset = end_offset
        self.by_key: dict[bytes | None, int] = {}
        self._keys_max = keys_max
        self._transactions = transactions

    @property
    def fill(self) -> float:
        return len(self.by_key) / self._keys_max

    def add(self, batch: Buffer, pos: int, header: BatchHeader) -> bool:
        """The next batch. False if it has no place any more; the first one always has."""
        if header.is_control:
            self._transactions.ended(header, read_marker(batch, pos))
        elif not self._transactions.is_aborted(header) and header.record_count:
            if self.by_key and len(self.by_key) + header.record_count > self._keys_max:
                return False
            self._add_keys(batch, pos, header)
        self.end_offset = header.last_offset + 1
        return True

    def _add_keys(self, batch: Buffer, pos: int, header: BatchHeader) -> None:
        try:
            keys, deltas, _, _ = scan(payload(batch, header, pos), header.record_count)
        except ProtocolError:
            return  # nobody can read it, and so it stays as it is
        base_offset = header.base_offset
        self.by_key.update(zip(keys, [base_offset + delta for delta in deltas], strict=True))
        self.by_key.pop(None, None)


class Rules:
    def __init__(
        self,
        newest: NewestOffsets,
        transactions: Transactions,
        last_of_producers: Mapping[int, LastOfProducer],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._newest = newest.by_key
        self._end_offset = newest.end_offset
        self._transactions = transactions
        self._last_of_producers = last_of_producers
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self.aborted: list[AbortedTransaction] = []
        """Transactions whose markers were met and have to be known of; whoever writes them down clears the list."""

    def apply(self, batch: Buffer, pos: int, header: BatchHeader, *, is_last: bool) -> bytes | None:
        """What becomes of the batch, which comes next: other bytes, GONE, or None if it stays as it is.

        The last batch of a segment stays, even empty, so that offsets which were given out are known to have been.
        """
        has_to_stay = is_last or self._is_last_of_producer(header)
        if header.is_control:
            left = self._marker(batch, pos, header)
        else:
            left = self._data(batch, pos, header)
        if left is GONE and has_to_stay:
            return emptied(header) if header.record_count else None
        return left

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_of_producers.get(header.producer_id)
        if last is None:
            return False
        last_offset, epoch = last
        return (
            header.last_offset == last_offset
            if last_offset >= 0
            else header.is_control and header.producer_epoch == epoch
        )

    def _marker(self, batch: Buffer, pos: int, header: BatchHeader) -> bytes | None:
        may_go, aborted = self._transactions.ended(header, read_marker(batch, pos))
        if aborted is not None:
            self.aborted.append(aborted)
        if not header.record_count:
            return GONE
        if not may_go:
            return None
        horizon_ms = horizon_of(header)
        if horizon_ms is None:
            return repacked(header, payload(batch, header, pos), header.record_count, self._horizon_ms)
        return GONE if horizon_ms <= self._now_ms else None

    def _data(self, batch: Buffer, pos: int, header: BatchHeader) -> bytes | None:
        if self._transactions.is_aborted(header) or not header.record_count:
            return GONE
        if header.base_offset >= self._end_offset:
            return None
        try:
            records = payload(batch, header, pos)
            scanned = scan(records, header.record_count)
        except ProtocolError:
            return None
        return self._without_lost(header, records, scanned)

    def _without_lost(self, header: BatchHeader, records: bytes, scanned: Scanned) -> bytes | None:
        keys, deltas, _, tombstones = scanned
        newest, base_offset = self._newest, header.base_offset
        newest_of = newest.get
        lost = [at for at, key in enumerate(keys) if newest_of(key, -1) > base_offset + deltas[at]]
        if None in keys:
            lost += [at for at, key in enumerate(keys) if key is None]
        horizon_ms = horizon_of(header)
        if tombstones and horizon_ms is not None and horizon_ms <= self._now_ms:
            lost += tombstones
        lost = sorted(set(lost))
        if len(lost) == header.record_count:
            return GONE
        begins_horizon = horizon_ms is None and not set(lost).issuperset(tombstones)
        if not lost and not begins_horizon:
            return None
        left = kept(records, scanned, lost) if lost else records
        return repacked(header, left, header.record_count - len(lost), self._horizon_ms if begins_horizon else None)
