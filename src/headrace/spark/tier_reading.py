"""What a task does with a piece of the tier: it reads objects, and asks brokers only if it cannot."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from headrace.core.producers import AbortedTransaction
from headrace.errors import CorruptLog
from headrace.spark.door import Door, door
from headrace.spark.options import Connection
from headrace.spark.planning import Range
from headrace.spark.tier_planning import Part, TierPiece
from headrace.spark.worker_memory import keep_what_is_loaded
from headrace.system import SystemRandom, ThreadOffload
from headrace.tier.opening import open_for_tools
from headrace.tier.segment_reading import SegmentReader, aborted_between
from headrace.tier.store import ObjectMissing, ObjectStore, Refused, StoreUnavailable, what_is_missing
from headrace.wire.batch import end_of

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
log = logging.getLogger(__name__)

STORES_MAX = 4
"""That one process keeps open."""

ATTEMPTS = 6
RETRY_S = 0.1
"""Before the second attempt; twice as long before each one after it."""

Fetch = Callable[[Range], "Iterator[pa.RecordBatch]"]


class NotToBeHad(Exception):
    """From the objects; brokers may know more."""


def read_tier(
    piece: TierPiece, connection: Connection, schema: "pa.Schema", fetch: Fetch
) -> "Iterator[pa.RecordBatch]":
    """What objects do not give any more is fetched, so that a broker says what became of it."""
    from headrace.spark.decode.aborted import Aborted, AbortedRanges  # the driver needs no compiler
    from headrace.spark.decode.decoding import Decoder

    keep_what_is_loaded()
    decoder = Decoder(schema, *piece.range.partition)
    last: tuple[Part, memoryview] | None = None
    entrance = door()
    try:
        store = _opened(piece.url, entrance)
        aborted = entrance.run(_patiently(lambda: _aborted(piece, store))) if connection.is_read_committed else ()
        left_out = [Aborted(one.first_offset, one.producer_id, one.last_offset) for one in aborted]
        for part, data in _chunks(piece, store, entrance):
            ranges = AbortedRanges(left_out) if left_out else None
            yield from decoder.decode(data, part.start, part.end, ranges)
            last = part, data
    except NotToBeHad as error:
        log.warning("%s is fetched from brokers: %s", piece.range.partition, error)
        position = piece.range.start if last is None else min(last[0].end, end_of(last[1]))
        if position < piece.range.end:
            yield from fetch(replace(piece.range, start=position))


def _chunks(piece: TierPiece, store: ObjectStore, entrance: Door) -> Iterator[tuple[Part, memoryview]]:
    """Each is read while the one before is decoded. Raises NotToBeHad."""
    reading = _Reading(piece.parts, store)
    coming = entrance.begin(reading.next())
    try:
        while (found := coming.result()) is not None:
            coming = entrance.begin(reading.next())
            yield found
    finally:
        coming.cancel()


class _Reading:
    """Part after part."""

    def __init__(self, parts: Iterable[Part], store: ObjectStore) -> None:
        self._readers = [(part, SegmentReader(store, part.key, part.row, part.start, part.end)) for part in parts]
        self._readers.reverse()

    async def next(self) -> tuple[Part, memoryview] | None:
        while self._readers:
            part, reader = self._readers[-1]
            data = await _patiently(reader.next)
            if data is not None:
                return part, data
            self._readers.pop()
        return None


async def _aborted(piece: TierPiece, store: ObjectStore) -> list[AbortedTransaction]:
    indexes, across, is_whole = piece.aborts
    start, end = piece.range.start, piece.range.end
    found, is_complete = await aborted_between(store, indexes, start, end)
    if not is_complete and not is_whole:
        raise NotToBeHad("the ends of its transactions are too far away")
    return [*found, *(one for one in across if one.first_offset < end)]


async def _patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Raises NotToBeHad."""
    for attempt in range(ATTEMPTS):
        try:
            return await work()
        except StoreUnavailable as error:
            if attempt + 1 == ATTEMPTS:
                raise NotToBeHad(str(error)) from error
            await asyncio.sleep(RETRY_S * 2**attempt)
        except ObjectMissing as error:
            raise NotToBeHad(what_is_missing(error)) from error
        except CorruptLog as error:
            raise NotToBeHad(str(error)) from error
    raise AssertionError


_stores: dict[tuple[int, str], ObjectStore] = {}
"""Of this process, the one that was used last at the end; STORES_MAX at most."""


def _opened(url: str, entrance: Door) -> ObjectStore:
    """Raises NotToBeHad."""
    key = (entrance.process_id, url)
    store = _stores.pop(key, None)
    if store is None:
        try:
            store = entrance.call(lambda: open_store(url))
        except Refused as refused:
            raise NotToBeHad(str(refused)) from refused
    _stores[key] = store
    while len(_stores) > STORES_MAX:
        process_id, oldest = next(iter(_stores))
        gone = _stores.pop((process_id, oldest))
        if process_id == entrance.process_id:
            entrance.run(gone.close())
    return store


def open_store(url: str) -> ObjectStore:
    """With threads of its own, which end with the process. Raises Refused."""
    return open_for_tools(url, ThreadOffload(), SystemRandom())
