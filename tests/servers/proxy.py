"""A way to a port that breaks on demand: whoever went through it has to connect again."""

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Self

from tests.servers.process import lasting_port

CHUNK_BYTES = 1 << 16


class Proxy:
    """Listens on `port`, and leads to `target_port`; from a thread of its own."""

    def __init__(self, target_port: int) -> None:
        self.port = lasting_port()
        self.broken = 0
        self._target_port = target_port
        self._writers: dict[asyncio.StreamWriter, None] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._listening = threading.Event()
        self._over = asyncio.Event()
        self._thread.start()
        self._listening.wait(10)

    def break_connections(self) -> None:
        self._loop.call_soon_threadsafe(self._break)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._lead, "127.0.0.1", self.port)
        self._listening.set()
        await self._over.wait()
        server.close()
        self._break()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks)

    def _break(self) -> None:
        self.broken += len(self._writers)
        for writer in self._writers:
            writer.transport.abort()

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer: None, back: None}
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        for one in (writer, back):
            self._writers.pop(one, None)
            one.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
