"""From a frame to its handler, and from a handler to the reply.

A frame that cannot be understood closes its connection with one line in the log; nobody else notices.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any

from headrace.broker.broker import Broker
from headrace.broker.forwarding import RefuseAll, at_controller
from headrace.broker.requests import Request
from headrace.core.ownership_tokens import PREFIX as TOKEN_PREFIX
from headrace.errors import ErrorCode
from headrace.net.connection import Connection
from headrace.net.reply import Reply
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
"""Administrative requests under way at one time. More wait for their turn: after a restart everybody asks at once."""
SLOW_REQUESTS_DUE_MAX = 20_000
"""Waiting for their turn; more are refused by closing their connection."""

DRAIN_S_MAX = 30

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
        self._due: deque[tuple[Api, AsyncHandler, Request[Any], Reply]] = deque()

    def on_frame(self, connection: Connection, frame: bytearray) -> None:
        header = decode_request_header(frame)
        api_key, version, _, client_id, body_at = header
        if client_id != connection.client_id:
            connection.client_id = client_id
            connection.claims = client_id is not None and client_id.startswith(TOKEN_PREFIX)
        hot = self._now.get(api_key)
        if hot is not None and body_at >= 0:
            api, handle = hot
            body = decode(api.request, version, frame, body_at)
            self._broker.metrics.received(api_key, len(frame))
            reply = connection.open_reply(api_key == FETCH_KEY)
            handle(self._broker, Request(header, body, connection, reply, 0))
            return
        slow = self._later.get(api_key)
        if slow is not None and body_at >= 0:
            self._start(slow, connection, header, frame)
        elif api_key == API_VERSIONS_KEY:
            connection.open_reply().send(_versions_for_newer_client(header))
        else:
            raise ProtocolError(f"API {api_key} version {version} is not served here")

    def _start(
        self, slow: tuple[Api, AsyncHandler], connection: Connection, header: RequestHeader, frame: bytearray
    ) -> None:
        if len(self._due) >= SLOW_REQUESTS_DUE_MAX:
            raise ProtocolError(f"more than {SLOW_REQUESTS_DUE_MAX} administrative requests are waiting")
        api, handle = slow
        body = decode(api.request, header.api_version, frame, header.body_at)
        self._broker.metrics.received(header.api_key, len(frame))
        reply = connection.open_reply()
        request = Request(header, body, connection, reply, self._broker.clock.monotonic_ms())
        self._due.append((api, handle, request, reply))
        self._start_due()

    def _start_due(self) -> None:
        while self._due and len(self._tasks) < SLOW_REQUESTS_MAX:
            if self._due[0][2].connection.closing:
                self._due.popleft()[3].skip()  # nobody would hear of it
                continue
            task = self._broker.loop.create_task(self._finish(*self._due.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._start_due()

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
        deadline_s = self._broker.loop.time() + DRAIN_S_MAX
        while self._tasks and self._broker.loop.time() < deadline_s:
            await asyncio.wait(self._tasks, timeout=deadline_s - self._broker.loop.time())


def _versions_for_newer_client(header: RequestHeader) -> list[Any]:
    """A client newer than us asks in a form that we do not know: version 0 is what every client reads."""
    own = APIS[API_VERSIONS_KEY].versions
    body = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=API_VERSIONS_KEY, min_version=own.start, max_version=own.stop - 1)],
    )
    return encode_response(body, 0, header.correlation_id)
