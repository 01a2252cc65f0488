"""One log while a round of compaction works on it: what the loop does between the steps that are taken apart from it.

A new segment takes the place of its sources in four moves, with a sync of the directory after each. From the first one
on a death ends with the new segment in place, see `swapping.py`; before it, with the old ones. Whoever cuts segments
meanwhile, or drops some that the round still needs, ends it: moves that were begun are finished at once.
"""

from collections.abc import Iterator

from headrace.storage.cleanable import Dirt
from headrace.storage.cleaning import Plan, Rewritten, Source, remove_output
from headrace.storage.compaction import LastOfProducer
from headrace.storage.log import Log
from headrace.storage.segment import (
    BESIDE_SUFFIXES,
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    Segment,
    file_name,
)


class LogCleaning:
    def __init__(
        self, log: Log, dirt: Dirt, now_ms: int, *, delete_retention_ms: int, keys_max: int, chunk_bytes: int
    ) -> None:
        assert log.cleaning is None
        self._log = log
        self._moves: Iterator[None] | None = None
        self.is_wanted = True
        """Whether the segments are still those that the round began with."""
        self.plan = Plan(
            directory=log.directory,
            config=log.config,
            sources=tuple(_source(segment) for segment in log.segments if segment.base_offset < dirt.end_offset),
            first_dirty_offset=dirt.first_dirty_offset,
            txn_indexes=tuple(segment.path_of(TXN_INDEX_SUFFIX) for segment in log.segments if segment.aborted.size),
            last_of_producers=_last_of_producers(log),
            now_ms=now_ms,
            delete_retention_ms=delete_retention_ms,
            keys_max=keys_max,
            chunk_bytes=chunk_bytes,
        )
        self._in_place_up_to = log.segments[0].base_offset
        """Segments before that offset have been through the round."""
        log.cleaning = self

    # Putting a segment in its place

    def begin_swap(self, made: Rewritten) -> None:
        assert self.is_wanted and self._moves is None
        self._moves = self._swap(made)
        self._in_place_up_to = made.end_offset
        self.move()

    @property
    def is_swapping(self) -> bool:
        return self._moves is not None

    def sync(self) -> None:
        """To be done after each move, in any thread."""
        self._log.shared.files.sync_directory(self._log.directory)

    def move(self) -> None:
        if self._moves is not None and next(self._moves, self) is self:
            self._moves = None

    def finish_moves(self) -> None:
        """At once, and so on the loop."""
        while self._moves is not None:
            self.sync()
            self.move()

    def _swap(self, made: Rewritten) -> Iterator[None]:
        log, files = self._log, self._log.shared.files
        log.shared.changing()
        stem = f"{log.directory}/{file_name(made.base_offset, LOG_SUFFIX)}"
        files.rename(stem + CLEANED_SUFFIX, stem + SWAP_SUFFIX)
        yield
        replacement = log.segments.replace(made.base_offset, made.end_offset, made.size)
        log.segments_replaced()
        yield
        for suffix in BESIDE_SUFFIXES:
            replacement.give_name(suffix)
        yield
        replacement.give_name(LOG_SUFFIX)
        yield
        replacement.drop_empty_aborted()

    # The end of a round

    def interrupt(self) -> None:
        """The segments are about to change."""
        self.is_wanted = False
        self._log.cleaning = None
        self.finish_moves()

    def dropping(self, first_offset: int) -> None:
        """The round goes on if it needs none of them any more."""
        assert self._moves is None
        if first_offset > self._in_place_up_to:
            self.interrupt()

    def abandon(self) -> None:
        """The files stay as they are, as after a death."""
        self.is_wanted = False
        self._log.cleaning = None
        self._moves = None

    def finished(self, end_offset: int) -> None:
        """All groups are in their places."""
        assert self.is_wanted
        self._log.first_dirty_offset = end_offset
        self._log.cleaning = None

    def discard(self, made: Rewritten) -> None:
        """It came too late. May run in any thread, as long as no other round has begun."""
        remove_output(self._log.shared.files, self._log.directory, made.base_offset)


def _source(segment: Segment) -> Source:
    offset_index, time_index = segment.open_indexes()
    return Source(segment.base_offset, segment.end_offset, segment.size, max(offset_index.size, time_index.size))


def _last_of_producers(log: Log) -> dict[int, LastOfProducer]:
    """Of each active producer the last batch that is written."""
    found = {}
    for producer_id, producer in log.producers.items():
        offsets = [batch.last_offset for batch in producer.held if batch.last_offset < log.log_end_offset]
        found[producer_id] = (offsets[-1] if offsets else -1, producer.epoch)
    return found
