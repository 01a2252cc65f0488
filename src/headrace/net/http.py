"""A side port for monitoring: GET and HEAD over HTTP/1.1, nothing more.

A page is written slice by slice, with a turn of the loop between two slices, so that a scrape of a large node
does not hold up its clients.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import NamedTuple, cast

from headrace.net.transport import Address, Listening, Network

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8 << 10
CONNECTIONS_MAX = 64
SECONDS_MAX = 60
"""For a request and its answer, and for silence between two."""

PLAIN = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """What is answered. Each chunk is made in a turn of the loop of its own."""

    status: int
    content_type: str
    chunks: Iterable[str]


class HttpServer:
    """`handle` gets the path, without what follows a question mark; None is a page that does not exist."""

    def __init__(self, loop: asyncio.AbstractEventLoop, handle: Callable[[str], Page | None]) -> None:
        self.loop = loop
        self.handle = handle
        self.connections: set[HttpConnection] = set()
        self._listening: Listening | None = None

    async def start(self, network: Network, host: str, port: int) -> Address:
        self._listening = await network.listen(host, port, lambda: HttpConnection(self))
        return self._listening.address

    def close(self) -> None:
        """At once: what is half sent is cut off."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self.connections):
            connection.abort()


class Request(NamedTuple):
    method: str
    path: str
    keep_alive: bool
    chunked: bool  # an HTTP/1.0 client learns the end of the answer from the end of the connection


class HttpConnection(asyncio.Protocol):
    """One request at a time; what a client sends ahead waits, within the bound of a request."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._request: Request | None = None
        self._chunks: Iterator[str] = iter(())
        self._writable = True
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._server.connections.add(self)
        self._restart_timer()
        if len(self._server.connections) > CONNECTIONS_MAX:
            self.abort()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        self._server.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) > 2 * REQUEST_BYTES_MAX:
            self.abort()
        elif self._request is None:
            self._next_request()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        if self._request is not None:
            self._server.loop.call_soon(self._write_slice)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _restart_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._server.loop.call_later(SECONDS_MAX, self.abort)

    def _next_request(self) -> None:
        head, separator, rest = self._received.partition(b"\r\n\r\n")
        if not separator or len(head) > REQUEST_BYTES_MAX:
            if len(self._received) > REQUEST_BYTES_MAX:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return
        self._received = rest
        self._restart_timer()
        request = _parse(head)
        if request is None:
            self._refuse(HTTPStatus.BAD_REQUEST)
        elif request.method not in ("GET", "HEAD"):
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)
        else:
            page = self._server.handle(request.path)
            self._begin(request, page or Page(HTTPStatus.NOT_FOUND, PLAIN, ["There is no such page.\n"]))

    def _refuse(self, status: HTTPStatus) -> None:
        request = Request("GET", "", keep_alive=False, chunked=False)
        self._begin(request, Page(status, PLAIN, [f"{status.phrase}\n"]))

    def _begin(self, request: Request, page: Page) -> None:
        assert self._transport is not None
        self._request = request
        head = [
            f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}",
            f"Content-Type: {page.content_type}",
            f"Connection: {'keep-alive' if request.keep_alive else 'close'}",
        ]
        if request.chunked:
            head.append("Transfer-Encoding: chunked")
        self._transport.write("\r\n".join([*head, "\r\n"]).encode())
        self._chunks = iter(page.chunks if request.method == "GET" else ())
        self._write_slice()

    def _write_slice(self) -> None:
        if self._transport is None or self._request is None or not self._writable:
            return
        try:
            chunk = next(self._chunks, None)
        except Exception:  # a page that cannot be made must not stop the node; its reader sees a cut answer
            log.exception("a page of the monitoring port failed")
            self.abort()
            return
        if chunk is None:
            self._end(self._transport, self._request)
            return
        data = chunk.encode()
        if data and self._request.chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._transport.write(data)
        self._server.loop.call_soon(self._write_slice)

    def _end(self, transport: asyncio.Transport, request: Request) -> None:
        if request.chunked and request.method == "GET":
            transport.write(b"0\r\n\r\n")
        self._request = None
        if not request.keep_alive:
            transport.close()
        elif self._received:
            self._server.loop.call_soon(self._next_request)


def _parse(head: bytes) -> Request | None:
    """None for what is no request that this server takes; one with a body is none."""
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return None
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            return None
        headers[name.strip().lower()] = value.strip().lower()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        return None
    chunked = parts[2] != "HTTP/1.0"
    wish = headers.get("connection", "keep-alive" if chunked else "close")
    return Request(parts[0], parts[1].partition("?")[0], chunked and "close" not in wish, chunked)
