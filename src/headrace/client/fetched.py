"""Fetched bytes of one partition, opened batch by batch when their records are asked for."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.model import Buffer, TopicPartition
from headrace.wire.batch import BatchHeader, Record, headers, read_records
from headrace.wire.markers import read_marker


class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Aborted(NamedTuple):
    """A transaction that was rolled back: its records in this partition begin here."""

    first_offset: int
    producer_id: int


def last_of(data: Buffer) -> BatchHeader | None:
    """The last whole batch, if there is one."""
    last: BatchHeader | None = None
    for _, header in headers(data):
        last = header
    return last


class Fetched:
    """Hands out the records of one fetch from `position` on, without control records and, if `aborted` is given,
    without those of transactions that were rolled back."""

    def __init__(
        self,
        partition: TopicPartition,
        data: Buffer,
        position: int,
        aborted: Sequence[Aborted] | None,
        end: int | None = None,
        leader_epoch: int = -1,
    ) -> None:
        self.position = position
        self.end = position if end is None else end  # of the next record to fetch
        self.leader_epoch = leader_epoch  # in which the last of it was written
        self.size = len(data)
        self.partition = partition
        self.data = data
        self.aborted = aborted
        self._batches: Iterator[tuple[int, BatchHeader]] = headers(data)
        self._filtered = aborted is not None
        self._aborted = sorted(aborted or ())
        self._rolling_back: set[int] = set()
        self._open: list[Record] = []  # records of the open batch that are not handed out
        self._open_end = position

    def take(self, count_max: int, into: list[ConsumerRecord]) -> bool:
        """Adds records until there are so many in all. False when this fetch has no more.

        ProtocolError for a batch that cannot be read; `position` then stands before it.
        """
        topic, partition = self.partition
        while len(into) < count_max:
            if not self._open:
                self.position = max(self.position, self._open_end)
                if not self._open_next():
                    return False
            room = count_max - len(into)
            now, self._open = self._open[:room], self._open[room:]
            into += [ConsumerRecord(topic, partition, *record) for record in now]
            if now:
                self.position = now[-1].offset + 1
        return True

    def _open_next(self) -> bool:
        for pos, header in self._batches:
            if header.last_offset >= self.position and self._is_readable(pos, header):
                records = read_records(self.data, pos)
                self._open = [record for record in records if record.offset >= self.position]
                self._open_end = header.last_offset + 1
                return True
            self.position = max(self.position, header.last_offset + 1)
        return False

    def _is_readable(self, pos: int, header: BatchHeader) -> bool:
        if self._filtered:
            while self._aborted and self._aborted[0].first_offset <= header.last_offset:
                self._rolling_back.add(self._aborted.pop(0).producer_id)
            if header.is_control and header.producer_id in self._rolling_back:
                marker = read_marker(self.data, pos)
                if marker is not None and not marker.committed:
                    self._rolling_back.discard(header.producer_id)
            if header.is_transactional and header.producer_id in self._rolling_back:
                return False
        return not header.is_control
