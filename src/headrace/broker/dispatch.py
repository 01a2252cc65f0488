"""From a frame to its handler, and from a handler to the reply.

A frame that cannot be understood closes its connection with one line in the log; nobody else notices.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any

from headrace.broker.broker import Broker
from headrace.broker.forwarding import RefuseAll, at_controller
from headrace.broker.requests import Request
from headrace.errors import ErrorCode
from headrace.net.connection import Connection, Reply
from headrace.wire.apis import APIS, Api
from headrace.wire.compiler import decode
from headrace.wire.errors import ProtocolError
from headrace.wire.frames import RequestHeader, decode_request_header, encode_response
from headrace.wire.messages.versions import ApiVersion, ApiVersionsResponse
from headrace.wire.struct import Message

log = logging.getLogger(__name__)

FETCH_KEY = 1
"""One at a time per connection: an answer may hold tens of megabytes."""
API_VERSIONS_KEY = 18
SLOW_REQUESTS_MAX = 1_000
"""Requests that wait for the metadata store at one time; more are refused by closing their connection."""

SyncHandler = Callable[[Broker, Request[Any]], None]
AsyncHandler = Callable[[Broker, Request[Any]], Coroutine[Any, Any, Message]]


class Dispatcher:
    def __init__(
        self,
        broker: Broker,
        handlers: Mapping[int, SyncHandler | AsyncHandler],
        decided: Mapping[int, RefuseAll] = MappingProxyType({}),
    ) -> None:
        """`decided`: what only the controller may do, and how each is refused when that does not answer."""
        self._broker = broker
        self._now: dict[int, tuple[Api, SyncHandler]] = {}
        self._later: dict[int, tuple[Api, AsyncHandler]] = {}
        for key, handler in handlers.items():
            if inspect.iscoroutinefunction(handler):
                refuse_all = decided.get(key)
                self._later[key] = (APIS[key], handler if refuse_all is None else at_controller(handler, refuse_all))
            else:
                self._now[key] = (APIS[key], handler)  # type: ignore[assignment]  # told apart just above
        self._tasks: set[asyncio.Task[None]] = set()

    def on_frame(self, connection: Connection, frame: bytearray) -> None:
        header = decode_request_header(frame)
        hot = self._now.get(header.api_key)
        if hot is not None and header.api_version in hot[0].versions:
            api, handle = hot
            body = decode(api.request, header.api_version, frame, header.body_at)
            self._broker.metrics.received(header.api_key, len(frame))
            reply = connection.open_reply(alone=header.api_key == FETCH_KEY)
            request = Request(header, body, connection, reply, 0)
            handle(self._broker, request)
            return
        slow = self._later.get(header.api_key)
        if slow is not None and header.api_version in slow[0].versions:
            self._start(slow, connection, header, frame)
        elif header.api_key == API_VERSIONS_KEY:
            connection.open_reply().send(_versions_for_newer_client(header))
        else:
            raise ProtocolError(f"API {header.api_key} version {header.api_version} is not served here")

    def _start(
        self, slow: tuple[Api, AsyncHandler], connection: Connection, header: RequestHeader, frame: bytearray
    ) -> None:
        if len(self._tasks) >= SLOW_REQUESTS_MAX:
            raise ProtocolError(f"more than {SLOW_REQUESTS_MAX} administrative requests are waiting")
        api, handle = slow
        body = decode(api.request, header.api_version, frame, header.body_at)
        self._broker.metrics.received(header.api_key, len(frame))
        reply = connection.open_reply()
        request = Request(header, body, connection, reply, self._broker.clock.monotonic_ms())
        task = self._broker.loop.create_task(self._finish(api, handle, request, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, api: Api, handle: AsyncHandler, request: Request[Any], reply: Reply) -> None:
        try:
            parts = encode_response(await handle(self._broker, request), request.version, request.header.correlation_id)
        except Exception:  # a bug in one handler must not leave its caller waiting for ever
            log.exception("%s v%d failed", api.name, request.version)
            reply.skip()
            request.connection.close(f"{api.name} failed")
            return
        reply.send(parts)

    async def drain(self) -> None:
        """Waits for the administrative requests that are under way."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=30)


def _versions_for_newer_client(header: RequestHeader) -> list[Any]:
    """A client newer than us asks in a form that we do not know: version 0 is what every client reads."""
    own = APIS[API_VERSIONS_KEY].versions
    body = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=API_VERSIONS_KEY, min_version=own.start, max_version=own.stop - 1)],
    )
    return encode_response(body, 0, header.correlation_id)
