"""The checks of one stretch of one replica's log: whole, unharmed, in order, nothing of a producer twice.

Fed with bytes in the order of the log. It keeps figures, what it found, and what the next stretch has to fit.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from headrace.pipeline import batch_table as columns
from headrace.wire.batch import CONTROL, HEADER_BYTES, MAGIC, SEQUENCE_MASK, crc_of

FINDINGS_MAX = 20
"""Of one stretch; whoever has so many need not hear of more."""


class Finding(NamedTuple):
    kind: str
    """checksum, batch, offsets, epochs, sequence, difference, missing, unreadable or tier."""
    offset: int
    text: str


class Sequences(NamedTuple):
    """Of one producer in one epoch: the first and the last that a stretch has, and where."""

    first: int
    first_offset: int
    last: int
    last_offset: int


Producer = tuple[int, int]
"""Its id and its epoch."""


@dataclass
class Stretch:
    """What there is to say of the batches whose last offsets are from `start` to before `end`."""

    start: int
    end: int
    batches: int = 0
    records: int = 0
    bytes: int = 0
    first_offset: int = -1
    next_offset: int = -1
    """Behind the last batch; -1 if there is none."""
    first_epoch: int = -1
    last_epoch: int = -1
    digest: str = ""
    findings: list[Finding] = field(default_factory=list)
    producers: dict[Producer, Sequences] = field(default_factory=dict)
    unread: str = ""
    """Why it was not read to its end; it says nothing then about what is missing."""
    was_cut: bool = False
    """Retention was faster, so that the digest is not that of the whole stretch."""

    def note(self, kind: str, offset: int, text: str) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(kind, offset, text))


class BatchChecks:
    def __init__(
        self, start: int, end: int, *, is_compacted: bool, checks_sums: bool = True, keeps_headers: bool = False
    ) -> None:
        self.stretch = Stretch(start, end)
        self.is_done = False
        """A batch has come that belongs to the next stretch, or rubbish."""
        self.headers: list[tuple[int, bytes]] = []
        """Offsets and headers, if they are kept."""
        self._is_compacted = is_compacted
        self._checks_sums = checks_sums
        self._keeps_headers = keeps_headers
        self._digest = blake2b(digest_size=16)
        self._is_next_cut_off = False
        self._sequences: dict[Producer, Sequences] = self.stretch.producers

    def feed(self, data: bytes | memoryview) -> int:
        """How many of the bytes were used: the rest comes again, with more behind it."""
        view = memoryview(data)
        table, used, is_lost = columns.table_of(view)
        last_offsets = table[:, columns.LAST_OFFSET]
        stretch = self.stretch
        wanted = table[(last_offsets >= stretch.start) & (last_offsets < stretch.end)]
        self._look_at(view, wanted)
        if is_lost:
            stretch.note("batch", max(stretch.next_offset, stretch.start), f"no record batch begins at byte {used}")
        if is_lost or (len(table) and last_offsets[-1] >= stretch.end - 1):
            self.is_done = True
        return used

    def cut(self) -> None:
        """Retention took what comes next before it was read: the batch that follows need not join the one before."""
        self.stretch.was_cut = self._is_next_cut_off = True

    def finish(self) -> Stretch:
        self.stretch.digest = self._digest.hexdigest()
        return self.stretch

    def _look_at(self, view: memoryview, table: columns.Longs) -> None:
        if not len(table):
            return
        stretch = self.stretch
        headers = columns.header_bytes(view, table)
        self._digest.update(headers)
        if self._keeps_headers:
            self.headers += [
                (int(offset), headers[at * HEADER_BYTES : (at + 1) * HEADER_BYTES])
                for at, offset in enumerate(table[:, columns.BASE_OFFSET])
            ]
        self._check_order(table)
        for row in table.tolist():
            self._check_batch(view, row)
        if not stretch.batches:
            stretch.first_offset = int(table[0, columns.BASE_OFFSET])
            stretch.first_epoch = int(table[0, columns.EPOCH])
        stretch.batches += len(table)
        stretch.records += int(table[:, columns.RECORD_COUNT].sum())
        stretch.bytes += int(table[:, columns.SIZE].sum())
        stretch.next_offset = int(table[-1, columns.LAST_OFFSET]) + 1
        stretch.last_epoch = int(table[-1, columns.EPOCH])

    def _check_order(self, table: columns.Longs) -> None:
        stretch = self.stretch
        bases = table[:, columns.BASE_OFFSET]
        expected = table[:, columns.LAST_OFFSET] + 1
        epochs = table[:, columns.EPOCH]
        if stretch.batches:
            self._join(int(bases[0]), stretch.next_offset, int(epochs[0]), stretch.last_epoch)
        self._is_next_cut_off = False
        wrong = bases[1:] < expected[:-1] if self._is_compacted else bases[1:] != expected[:-1]
        for at in wrong.nonzero()[0].tolist():
            stretch.note("offsets", int(bases[at + 1]), gap(int(bases[at + 1]), int(expected[at])))
        for at in (epochs[1:] < epochs[:-1]).nonzero()[0].tolist():
            stretch.note("epochs", int(bases[at + 1]), back(int(epochs[at + 1]), int(epochs[at])))

    def _join(self, base: int, expected: int, epoch: int, epoch_before: int) -> None:
        for finding in joined(base, expected, epoch, epoch_before, self._is_compacted or self._is_next_cut_off):
            self.stretch.note(*finding)

    def _check_batch(self, view: memoryview, row: list[Any]) -> None:
        stretch = self.stretch
        position, size, base, last = row[: columns.EPOCH]
        if row[columns.MAGIC_NUMBER] != MAGIC:
            stretch.note("batch", base, f"the batch has format {row[columns.MAGIC_NUMBER]}, not {MAGIC}")
        elif self._checks_sums and crc_of(view, position, size) != row[columns.CRC]:
            stretch.note("checksum", base, "the batch fails its checksum")
        count = row[columns.RECORD_COUNT]
        if last < base or count < 0 or (not self._is_compacted and count != last - base + 1):
            stretch.note("offsets", base, f"the batch says that it has {count} records, and offsets up to {last}")
        sequence = row[columns.BASE_SEQUENCE]
        if row[columns.PRODUCER_ID] >= 0 and sequence >= 0 and not row[columns.ATTRIBUTES] & CONTROL:
            producer = row[columns.PRODUCER_ID], row[columns.PRODUCER_EPOCH]
            now = Sequences(sequence, base, (sequence + last - base) & SEQUENCE_MASK, base)
            self._check_sequence(producer, now)

    def _check_sequence(self, producer: Producer, now: Sequences) -> None:
        before = self._sequences.get(producer)
        if before is None:
            self._sequences[producer] = now
            return
        twice = repeated(producer, before, now)
        if twice is not None:
            self.stretch.note(*twice)
        self._sequences[producer] = Sequences(before.first, before.first_offset, now.last, now.last_offset)


def joined(base: int, expected: int, epoch: int, epoch_before: int, may_have_gap: bool) -> Iterable[Finding]:
    """What is wrong between two batches that follow each other."""
    if base < expected or (base > expected and not may_have_gap):
        yield Finding("offsets", base, gap(base, expected))
    if epoch < epoch_before:
        yield Finding("epochs", base, back(epoch, epoch_before))


def repeated(producer: Producer, before: Sequences, now: Sequences) -> Finding | None:
    """None if the producer has gone on. What it left out is no matter: brokers forget producers, and records expire."""
    step = (now.first - before.last - 1) & SEQUENCE_MASK
    if step <= SEQUENCE_MASK // 2:
        return None
    text = (
        f"sequence {now.first} of producer {producer[0]} (epoch {producer[1]}) comes again: it was at {before.last} "
        f"at offset {before.last_offset}"
    )
    return Finding("sequence", now.first_offset, text)


def gap(base: int, expected: int) -> str:
    return f"the batch has offset {base}, {expected} was expected"


def back(epoch: int, before: int) -> str:
    return f"the batch has leader epoch {epoch}, and the one before it {before}"
