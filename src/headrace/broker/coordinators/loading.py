"""Reading a partition of an internal topic back into memory, a few milliseconds in each turn of the loop.

One partition after another: a node that takes over many leaderships at once serves everything else meanwhile.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from headrace.broker.broker import Broker
from headrace.broker.partitions import Hosted
from headrace.errors import CorruptLog
from headrace.model import Buffer
from headrace.wire.batch import BatchHeader, headers
from headrace.wire.errors import ProtocolError

SLICE_MS = 3
READ_BYTES = 256 << 10
AGAIN_S = 1.0
"""After a shortage of the machine, which says nothing about the log."""

STEP_BYTES = 16 << 10
"""Of batches, between two looks at the clock."""

Replay = Callable[[int, BatchHeader, Buffer, int], None]
"""The batch at a position of a buffer, of the partition with this index. May raise ProtocolError."""


class Load(Protocol):
    """A leadership whose state is to be read."""

    @property
    def hosted(self) -> Hosted: ...
    @property
    def is_over(self) -> bool: ...
    def begin(self) -> None:
        """Whatever was read before counts no more."""

    def was_read(self, end_offset: int) -> None: ...


class Loading:
    def __init__(self, broker: Broker, replay: Replay) -> None:
        self._broker = broker
        self._replay = replay
        self._due: deque[Load] = deque()
        self._steps: Iterator[None] | None = None
        self._scheduled = False

    def start(self, load: Load) -> None:
        self._due.append(load)
        self._schedule()

    def _schedule(self) -> None:
        if self._due and not self._scheduled:
            self._scheduled = True
            self._broker.loop.call_soon(self._slice)

    def _slice(self) -> None:
        self._scheduled = False
        clock = self._broker.clock
        until_ms = clock.monotonic_ms() + SLICE_MS
        while self._due and clock.monotonic_ms() <= until_ms:
            self._step(self._due[0])
        self._schedule()

    def _step(self, load: Load) -> None:
        if load.is_over:
            self._finish()
            return
        try:
            if self._steps is None:
                load.begin()
                self._steps = _read(load, self._replay)
            next(self._steps)
        except StopIteration:
            self._finish()
        except (OSError, CorruptLog) as failure:
            self._failed(load, failure)

    def _failed(self, load: Load, failure: OSError | CorruptLog) -> None:
        self._finish()
        self._broker.faults.failed(load.hosted, "loading its groups or transactions", failure)
        if not load.is_over:
            self._broker.loop.call_later(AGAIN_S, self.start, load)

    def _finish(self) -> None:
        self._due.popleft()
        self._steps = None


def _read(load: Load, replay: Replay) -> Iterator[None]:
    hosted = load.hosted
    end_offset = hosted.log.log_end_offset  # Opening it may have corrected what was remembered.
    offset = hosted.log_start_offset
    while offset < end_offset:
        try:
            chunk = bytes(hosted.log.read(offset, READ_BYTES, end_offset, True))
            before, stop_at = offset, STEP_BYTES
            for pos, header in headers(chunk):
                replay(hosted.index, header, chunk, pos)
                offset = header.base_offset + header.last_offset_delta + 1
                if pos >= stop_at:
                    stop_at = pos + STEP_BYTES
                    yield
            yield
        except ProtocolError as error:
            raise CorruptLog(f"{hosted} cannot be read at offset {offset}: {error}") from error
        if not chunk:
            break  # Compaction left nothing behind this offset.
        if offset == before:
            raise CorruptLog(f"{hosted} holds no whole batch at offset {offset}")
    load.was_read(end_offset)
