"""A way to an S3 server on which calls get lost, take long, or fail; and a count of what is asked for.

One call per connection: whoever asks is told so, and connects again.
"""

import asyncio
import contextlib
import random
import threading
from types import TracebackType
from typing import NamedTuple, Self

from tests.servers.process import lasting_port

HEAD_BYTES_MAX = 1 << 20
CHUNK_BYTES = 1 << 18
UNAVAILABLE = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class _Call(NamedTuple):
    method: str
    path: str
    sent: bytes
    """Head and body, as they go on to the server."""


class S3Proxy:
    """Listens on `port`, and leads to `target_port`; from a thread of its own. The faults may be set at any time."""

    def __init__(self, target_port: int, seed: int = 1) -> None:
        self.port = lasting_port()
        self.is_down = False
        """Every connection breaks at once."""
        self.delay_s = 0.0
        """So much later each call goes on to the server."""
        self.failing_share = 0.0
        """Of such a share of the calls half are refused, and half are done but their answers are lost."""
        self.calls = 0
        self.failed = 0
        self.segment_bytes = 0
        """Of segments, in the answers to those who read them."""
        self._chance = random.Random(seed)
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._listening.wait(10)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", self.port, limit=HEAD_BYTES_MAX)
        self._listening.set()
        await self._over.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                if not self.is_down:
                    await self._pass_on(await _read_call(reader), writer)
        finally:
            await _end(writer, is_broken=self.is_down)
            self._tasks.discard(task)

    async def _pass_on(self, call: _Call, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        await asyncio.sleep(self.delay_s)
        fate = self._chance.random()
        if fate < self.failing_share:
            self.failed += 1
        if fate < self.failing_share / 2:
            writer.write(UNAVAILABLE)
            await writer.drain()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._target_port, limit=HEAD_BYTES_MAX)
        try:
            back.write(call.sent)
            head = await there.readuntil(b"\r\n\r\n")
            if fate < self.failing_share or self.is_down:
                writer.transport.abort()
                return
            writer.write(head)
            while data := await there.read(CHUNK_BYTES):
                if call.method == "GET" and ".segment" in call.path:
                    self.segment_bytes += len(data)
                writer.write(data)
                await writer.drain()
        finally:
            await _end(back)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


async def _end(writer: asyncio.StreamWriter, is_broken: bool = False) -> None:
    if is_broken:
        writer.transport.abort()
    else:
        writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _read_call(reader: asyncio.StreamReader) -> _Call:
    """The server is asked to close afterwards: so its answer ends where its bytes do."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    size = next((int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")), 0)
    body = await reader.readexactly(size)
    method, path, _ = first.decode("latin-1").split(" ")
    return _Call(method, path, b"\r\n".join([first, *kept, b"Connection: close", b"", b""]) + body)
