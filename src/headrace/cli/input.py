"""Records to produce: lines of a file or of standard input, or made up. Given in chunks, as they come."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable

from headrace.cli.outcome import Failure
from headrace.cli.records import Written

READ_BYTES = 1 << 16
LINE_BYTES_MAX = 16 << 20
CHUNK_RECORDS = 500
CHUNKS_AHEAD_MAX = 8
THREAD = "headrace-input"


async def read_lines(fd: int, parse: Callable[[bytes], Written]) -> AsyncIterator[list[Written]]:
    """A terminal or a slow pipe must not hold up what was already sent, so a thread reads. It is a daemon: nobody
    waits for a person's next line when the command ends."""
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_AHEAD_MAX)
    loop = asyncio.get_running_loop()
    threading.Thread(target=_feed, args=(fd, room, loop, chunks), name=THREAD, daemon=True).start()
    number = 0
    rest = b""
    while data := await chunks.get():
        room.release()
        if isinstance(data, OSError):
            raise data
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise Failure(f"line {number + len(lines) + 1} is longer than {LINE_BYTES_MAX} bytes")
        yield [_parsed(parse, line, number + at) for at, line in enumerate(lines, start=1)]
        number += len(lines)
    if rest:
        yield [_parsed(parse, rest, number + 1)]


def _feed(
    fd: int,
    room: threading.Semaphore,
    loop: asyncio.AbstractEventLoop,
    chunks: asyncio.Queue[bytes | OSError],
) -> None:
    """Hands over what it reads, an empty one at the end; waits while too much is read ahead."""
    data: bytes | OSError = b"more"
    while data and not isinstance(data, OSError):
        room.acquire()
        try:
            data = os.read(fd, READ_BYTES)
        except OSError as error:
            data = error
        try:
            loop.call_soon_threadsafe(chunks.put_nowait, data)
        except RuntimeError:
            return  # The command has ended, and its loop with it.


def _parsed(parse: Callable[[bytes], Written], line: bytes, number: int) -> Written:
    try:
        return parse(line.removesuffix(b"\r"))
    except Failure as failure:
        raise Failure(f"line {number}: {failure}") from None


async def make_up(count: int, size_bytes: int, rate: float | None) -> AsyncIterator[list[Written]]:
    """Numbered values of one size, at most `rate` of them a second."""
    clock = asyncio.get_running_loop().time
    begun = clock()
    filler = bytes(33 + at * 7 % 94 for at in range(size_bytes))
    made = 0
    while made < count:
        due = count
        if rate is not None:
            await asyncio.sleep(max(0.0, begun + made / rate - clock()))
            due = min(count, max(made, int((clock() - begun) * rate)) + 1)
        numbers = range(made, min(due, made + CHUNK_RECORDS))
        yield [Written(None, (b"%d " % number + filler)[:size_bytes]) for number in numbers]
        made = numbers.stop
