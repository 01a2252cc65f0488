"""One round of compaction over one log, apart from the loop: it reads the log's segments and writes others beside them.

First the newest offset of each key is found, in as much of the dirty part as memory allows. Then the log is rewritten
from its beginning up to there, a group of segments at a time. Whoever takes the steps decides when the next one is
done, and puts each new segment in the place of its sources before the next group is begun.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TypeAlias

from headrace.errors import CorruptLog
from headrace.storage.compaction import GONE, LastOfProducer, NewestOffsets, Rules
from headrace.storage.compaction_txns import Transactions
from headrace.storage.files import File, Files
from headrace.storage.log_config import LogConfig
from headrace.storage.residency import Residency
from headrace.storage.segment import (
    BESIDE_SUFFIXES,
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    SUFFIXES,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    Segment,
    file_name,
)
from headrace.storage.txn_index import AbortedTransaction, CorruptTransactionIndex, decode_entries
from headrace.wire.batch import HEADER_BYTES, MAGIC, SIZE_MIN, BatchHeader, crc_of, read_header

STEP_BYTES = 4 << 20
"""How much is read between two steps: so soon does a round end when it is no longer wanted."""

SEGMENT_BYTES_MAX = 2**31 - 1
"""Positions in an index have 31 bits."""


@dataclass(frozen=True, slots=True)
class Source:
    """A segment as it is when the round begins. It does not change: nothing is appended to it any more."""

    base_offset: int
    end_offset: int
    size: int
    index_bytes: int
    """Of the larger one of its two indexes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a round is to do; it can be pickled."""

    directory: str
    config: LogConfig
    sources: tuple[Source, ...]
    """All segments from the log's first one on."""
    first_dirty_offset: int
    txn_indexes: tuple[str, ...]
    """Of the sources and of all segments after them, as far as there are any."""
    last_of_producers: Mapping[int, LastOfProducer]
    now_ms: int
    delete_retention_ms: int
    keys_max: int
    chunk_bytes: int


@dataclass(frozen=True, slots=True)
class Worked:
    """So many bytes more were read, or written."""

    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True)
class Mapped:
    """The keys are known. The round will have cleaned everything up to `end_offset`."""

    end_offset: int
    fill: float
    """Of the memory for keys."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A segment lies beside its sources, durable, under names that end in `.cleaned` (the log) and `.swap`."""

    base_offset: int
    end_offset: int
    """It replaces all segments between these two."""
    size: int


Step: TypeAlias = Worked | Mapped | Rewritten


def clean(files: Files, plan: Plan) -> Iterator[Step]:
    """Raises CorruptLog if a batch is damaged, and OSError."""
    aborted = _aborted(files, plan.txn_indexes)
    newest = NewestOffsets(plan.first_dirty_offset, plan.keys_max, Transactions(aborted))
    yield from _map(files, plan, newest)
    yield Mapped(newest.end_offset, newest.fill)
    rules = Rules(newest, Transactions(aborted), plan.last_of_producers, plan.now_ms, plan.delete_retention_ms)
    sources = [source for source in plan.sources if source.size]
    for group in groups(sources, plan.config, newest.end_offset):
        yield from _rewrite(files, plan, rules, group)


def groups(sources: Sequence[Source], config: LogConfig, end_offset: int) -> Iterator[list[Source]]:
    """Neighbours that fit into one segment, by size, by what indexes hold, and by distance from its first offset."""
    group: list[Source] = []
    for source in sources:
        if source.base_offset >= end_offset:
            break
        if group and not (
            sum(member.size for member in group) + source.size <= config.segment_bytes
            and sum(member.index_bytes for member in group) + source.index_bytes <= config.index_bytes_max
            and source.end_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
        ):
            yield group
            group = []
        group.append(source)
    if group:
        yield group


def _aborted(files: Files, paths: Sequence[str]) -> list[AbortedTransaction]:
    try:
        return [aborted for path in paths for aborted in decode_entries(files.read(path))]
    except CorruptTransactionIndex as error:
        raise CorruptLog(f"{error}") from None


def _map(files: Files, plan: Plan, newest: NewestOffsets) -> Iterator[Step]:
    read = 0
    for source in plan.sources:
        if source.end_offset <= plan.first_dirty_offset:
            continue
        with _opened(files, plan.directory, source) as file:
            for chunk, pos, header in batches(file, source.size, plan.chunk_bytes):
                if header.last_offset < plan.first_dirty_offset:
                    continue
                if not newest.add(chunk, pos, header):
                    return
                read += header.size
                if read >= STEP_BYTES:
                    yield Worked(bytes_read=read)
                    read = 0
        # A segment may end before the next one begins.
        newest.end_offset = source.end_offset
    yield Worked(bytes_read=read)


def _rewrite(files: Files, plan: Plan, rules: Rules, group: Sequence[Source]) -> Iterator[Step]:
    output = _Output(files, plan, group[0].base_offset)
    is_done = False
    try:
        read = 0
        for source in group:
            with _opened(files, plan.directory, source) as file:
                position = 0
                for chunk, pos, header in batches(file, source.size, plan.chunk_bytes):
                    position += header.size
                    is_last = source is group[-1] and position == source.size
                    left = rules.apply(chunk, pos, header, is_last=is_last)
                    if left is None:
                        output.add(memoryview(chunk)[pos : pos + header.size], header)
                    elif left is not GONE:
                        output.add(left, read_header(left))
                    if rules.aborted:
                        output.add_aborted(rules.aborted)
                        rules.aborted.clear()
                    read += header.size
                    if read >= STEP_BYTES:
                        yield Worked(read, output.take_written())
                        read = 0
        size = output.finish()
        yield Worked(read, output.take_written())
        is_done = True
        yield Rewritten(group[0].base_offset, group[-1].end_offset, size)
    finally:
        output.close()
        if not is_done:
            remove_output(files, plan.directory, group[0].base_offset)


def remove_output(files: Files, directory: str, base_offset: int) -> None:
    """What a round wrote that is not wanted any more, or left half done."""
    for suffix in SUFFIXES:
        for ending in (CLEANED_SUFFIX, SWAP_SUFFIX):
            with suppress(FileNotFoundError):
                files.remove(f"{directory}/{file_name(base_offset, suffix + ending)}")


class _Output:
    """A segment that comes into being beside the log."""

    def __init__(self, files: Files, plan: Plan, base_offset: int) -> None:
        remove_output(files, plan.directory, base_offset)
        self._files = files
        self._directory = plan.directory
        self._base_offset = base_offset
        self._chunk_bytes = plan.chunk_bytes
        self._segment = Segment(
            files,
            plan.directory,
            base_offset,
            plan.config,
            Residency(plan.config.index_bytes_max * 4),
            size=None,
            end_offset=base_offset,
            created_ms=None,
            ending=CLEANED_SUFFIX,
        )
        # There always is one: a death in the middle of a swap must leave no doubt whose an index is.
        files.create(self._segment.path_of(TXN_INDEX_SUFFIX))
        self._waiting: list[tuple[bytes | memoryview, BatchHeader]] = []
        self._waiting_bytes = 0
        self._told_bytes = 0

    def add(self, batch: bytes | memoryview, header: BatchHeader) -> None:
        self._waiting.append((batch, header))
        self._waiting_bytes += header.size
        if self._waiting_bytes >= self._chunk_bytes:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            segment = self._segment
            if segment.size + self._waiting_bytes > SEGMENT_BYTES_MAX:
                raise CorruptLog(f"{segment.log.path} would become longer than a segment can be.")
            segment.append(self._waiting)
            self._waiting, self._waiting_bytes = [], 0

    def add_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        for aborted in transactions:
            self._segment.aborted.append(aborted)

    def take_written(self) -> int:
        """Bytes since this was asked last."""
        written = self._segment.size - self._told_bytes
        self._told_bytes = self._segment.size
        return written

    def finish(self) -> int:
        """All of it is on the disk, and its names, except that of the log, are as the swap expects them."""
        self._write()
        segment = self._segment
        _ = segment.aborted  # opened, so that it is synced with the others
        for file in segment.complete():
            file.sync()
        stem = f"{self._directory}/{file_name(self._base_offset, '')}"
        for suffix in BESIDE_SUFFIXES:
            self._files.rename(stem + suffix + CLEANED_SUFFIX, stem + suffix + SWAP_SUFFIX)
        self._files.sync_directory(self._directory)
        return segment.size

    def close(self) -> None:
        self._segment.close()


def _opened(files: Files, directory: str, source: Source) -> "closing[File]":
    return closing(files.open(f"{directory}/{file_name(source.base_offset, LOG_SUFFIX)}"))


def batches(file: File, size: int, chunk_bytes: int) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Every batch with its header, and where it lies in a piece of the file. CorruptLog if one is not whole."""
    position = 0
    wanted_bytes = chunk_bytes = max(chunk_bytes, HEADER_BYTES)
    while position < size:
        chunk = file.read(position, min(wanted_bytes, size - position))
        wanted_bytes = chunk_bytes
        pos = 0
        while pos + HEADER_BYTES <= len(chunk):
            header = read_header(chunk, pos)
            if header.magic != MAGIC or not SIZE_MIN <= header.size <= size - position - pos:
                raise CorruptLog(f"{file.path} has no whole batch at byte {position + pos}.")
            if pos + header.size > len(chunk):
                wanted_bytes = max(header.size, chunk_bytes)
                break
            if crc_of(chunk, pos, header.size) != header.crc:
                raise CorruptLog(f"{file.path}, byte {position + pos}: the batch fails its checksum.")
            yield chunk, pos, header
            pos += header.size
        if len(chunk) < HEADER_BYTES:
            raise CorruptLog(f"{file.path} ends inside a batch, at byte {position}.")
        position += pos
