"""A recorder between a client and a broker: keeps one request and one response of every API version it sees.

    python -m tests.wire.golden.record LISTEN_PORT BROKER_PORT FILE

The broker must advertise the listening port. Clients see only the versions of our own table, so that they speak
what we speak. Ctrl-C or SIGTERM ends it and writes FILE.
"""

import asyncio
import signal
import struct
import sys
from pathlib import Path

from headrace.wire.apis import APIS
from headrace.wire.compiler import encode
from headrace.wire.frames import decode_request_header, decode_response
from headrace.wire.messages.versions import ApiVersion, ApiVersionsResponse

FRAME_BYTES_MAX = 4096


class Recorder:
    def __init__(self, broker_port: int) -> None:
        self.broker_port = broker_port
        self.kept: dict[tuple[str, int, int], bytes] = {}

    def keep(self, kind: str, key: int, version: int, frame: bytes) -> None:
        """The longest frame that is not too long tells most."""
        known = self.kept.get((kind, key, version), b"")
        if len(known) < len(frame) <= FRAME_BYTES_MAX:
            self.kept[kind, key, version] = frame

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self.broker_port)
        asked: dict[int, tuple[int, int]] = {}
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._requests(reader, broker_writer, asked))
                tasks.create_task(self._responses(broker_reader, writer, asked))
        finally:
            writer.close()
            broker_writer.close()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[int, int]]
    ) -> None:
        while frame := await _frame(reader):
            header = decode_request_header(frame)
            if header.body_at >= 0:
                asked[header.correlation_id] = (header.api_key, header.api_version)
                self.keep("request", header.api_key, header.api_version, frame)
            _send(writer, frame)
        writer.close()

    async def _responses(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[int, int]]
    ) -> None:
        while frame := await _frame(reader):
            key, version = asked.pop(struct.unpack_from(">i", frame)[0], (-1, -1))
            if key >= 0:
                self.keep("response", key, version, frame)
            if key == ApiVersionsResponse.api:
                frame = _narrowed(frame, version)
            _send(writer, frame)
        writer.close()


def _narrowed(frame: bytes, version: int) -> bytes:
    """The broker's versions, as far as we speak them too."""
    _, message = decode_response(ApiVersionsResponse, version, frame)
    both = []
    for spoken in message.api_keys:
        ours = APIS[spoken.api_key].advertised if spoken.api_key in APIS else None
        if ours is None:
            both.append(spoken)
            continue
        low, high = max(spoken.min_version, ours[0]), min(spoken.max_version, ours[-1])
        both.append(ApiVersion(api_key=spoken.api_key, min_version=low, max_version=high))
    message.api_keys = both
    return frame[:4] + encode(message, version)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    try:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(struct.pack(">i", len(frame)) + frame)


async def record(listen_port: int, broker_port: int) -> dict[tuple[str, int, int], bytes]:
    recorder = Recorder(broker_port)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    server = await asyncio.start_server(recorder.connected, "127.0.0.1", listen_port)
    async with server:
        await ended.wait()
    return recorder.kept


def main() -> None:
    listen_port, broker_port, path = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    kept = asyncio.run(record(listen_port, broker_port))
    order = sorted(kept, key=lambda about: (about[1], about[2], about[0]))
    lines = [
        f"{APIS[key].name} {key} {version} {kind} {kept[kind, key, version].hex()}\n" for kind, key, version in order
    ]
    path.write_text("".join(lines))


if __name__ == "__main__":
    main()
