"""Ways between one process and all others that lead nowhere on demand: a cut link, where namespaces are not allowed.

Whoever is behind such a way does not notice: connections stand, and what was sent arrives when the way is open again.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.servers.process import lasting_port

CHUNK_BYTES = 1 << 16
ESTABLISHED = "01"


class BlockedSockets:
    """Every way is a port of its own, served by a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="blocked sockets", daemon=True)
        self._thread.start()
        self._open = asyncio.Event()
        self._open.set()
        self._servers: list[asyncio.Server] = []
        self._ends: set[asyncio.StreamWriter] = set()

    def way(self, target_port: int, process: Callable[[], int] | None = None) -> int:
        """Its port. With a process (its number, when it is needed), others who go this way are never cut off."""
        port = lasting_port()

        async def listen() -> None:
            server = await asyncio.start_server(
                lambda *ends: self._lead(target_port, process, *ends), "127.0.0.1", port
            )
            self._servers.append(server)

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)
        return port

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._open.clear)

    def heal(self) -> None:
        self._loop.call_soon_threadsafe(self._open.set)

    def close(self) -> None:
        async def end() -> None:
            for server in self._servers:
                server.close()
            self._open.set()
            for one in self._ends:
                one.transport.abort()
            if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(tasks)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _lead(
        self,
        target_port: int,
        process: Callable[[], int] | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        is_cut = process is None or is_of(process(), writer.get_extra_info("peername")[1])
        ends = {writer}
        self._ends |= ends
        try:
            there, back = await asyncio.open_connection("127.0.0.1", target_port)
            ends.add(back)
            self._ends.add(back)
            await asyncio.gather(self._copy(reader, back, is_cut), self._copy(there, writer, is_cut))
        except OSError:
            pass  # both ends are told below
        finally:
            self._ends -= ends
            for end in ends:
                end.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_cut: bool) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if is_cut:
                await self._open.wait()
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def is_of(process: int, local_port: int) -> bool:
    """Whether a connection that begins at this port of the machine is that process's."""
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    inodes = {row[9] for row in rows if row[3] == ESTABLISHED and int(row[1].rpartition(":")[2], 16) == local_port}
    held = set()
    with contextlib.suppress(FileNotFoundError):  # it has ended
        for descriptor in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                held.add(os.readlink(f"/proc/{process}/fd/{descriptor}"))
    return any(f"socket:[{inode}]" in held for inode in inodes)
