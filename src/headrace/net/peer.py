"""The asking side of a connection: requests go out one after another, answers come back in that order."""

import asyncio
import os
from collections import deque
from typing import NamedTuple, TypeVar, cast

from headrace import __version__
from headrace.errors import ErrorCode
from headrace.net.connection import Connection
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.transport import Network
from headrace.wire.errors import ProtocolError
from headrace.wire.frames import decode_response, encode_request
from headrace.wire.messages.versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.struct import Message

M = TypeVar("M", bound=Message)

CONNECT_MS_MAX = 10_000
REQUEST_MS_MAX = 30_000
CORRELATION_MASK = 0x7FFFFFFF

SOFTWARE = "headrace"

ASKING = Limits(frame_bytes_max=1 << 30, unsent_bytes_max=(1 << 31) - 1)
"""Who asks keeps reading whatever it has to write still: a broker that waits for us to read would wait for ever.
What is unsent is bounded by those who ask."""


class PeerLost(ConnectionError):
    """There is no connection, or there was one. Whether the last requests were done is unknown."""


class _Asked(NamedTuple):
    correlation_id: int
    answer: type[Message]
    version: int
    future: "asyncio.Future[Message]"


class Peer:
    """A broker that we ask. Made by `connect`; after a failure it is closed and another one has to be made.

    An answer that is late closes the connection, because later answers can only come behind it. The hub must be one
    without a bound for requests, so not the one of a listener: answers that were asked for are not kept waiting.
    """

    def __init__(self, hub: Hub, host: str, port: int, client_id: str) -> None:
        self._hub = hub
        self._client_id = client_id
        self._connection = Connection(hub, self._on_frame, on_closed=self._on_closed, limits=ASKING)
        self._asked: deque[_Asked] = deque()
        self._correlation_id = 0
        self._reason = ""
        self._spoken: dict[int, range] = {}
        self.address = f"{host}:{port}"

    @classmethod
    async def connect(
        cls, network: Network, hub: Hub, host: str, port: int, client_id: str, timeout_ms: int = CONNECT_MS_MAX
    ) -> "Peer":
        """PeerLost when there is nobody, or nobody who speaks Kafka's protocol."""
        peer = cls(hub, host, port, client_id)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await network.connect(host, port, lambda: peer._connection)
                await peer._negotiate()
        except TimeoutError:
            peer.close("it does not answer")
            raise PeerLost(f"no answer from {peer.address} within {timeout_ms} ms") from None
        except PeerLost:
            raise
        except OSError as error:
            # The loop's own text repeats the address; a negative number is one of name lookup, whose text is good.
            reason = os.strerror(number) if (number := error.errno or 0) > 0 else error.strerror or error
            raise PeerLost(f"cannot connect to {peer.address}: {reason}") from error
        except ProtocolError as error:
            peer.close("it speaks another protocol")
            raise PeerLost(f"{peer.address} does not speak Kafka's protocol: {error}") from error
        except asyncio.CancelledError:
            peer.close("nobody waits for it any more")
            raise
        return peer

    @property
    def closed(self) -> bool:
        return bool(self._reason)

    @property
    def in_flight(self) -> int:
        return len(self._asked)

    def version_of(self, message: type[Message], version_max: int = 0x7FFF) -> int:
        """The highest version that both sides speak. ProtocolError when there is none."""
        spoken = self._spoken.get(message.api, range(0))
        version = min(version_max, spoken.stop - 1, message.versions.stop - 1)
        if version not in spoken or version not in message.versions:
            name = message.__name__.removesuffix("Request")
            raise ProtocolError(f"{self.address} does not speak a version of {name} that we know")
        return version

    def speaks(self, message: type[Message]) -> bool:
        """In whatever version."""
        return message.api in self._spoken

    async def request(
        self, message: Message, answer: type[M], version: int | None = None, timeout_ms: int = REQUEST_MS_MAX
    ) -> M:
        """The answer. PeerLost, ProtocolError, or TimeoutError; after each of them the peer is closed."""
        future = self.send(message, answer, version)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            self.close(f"no answer within {timeout_ms} ms")
            raise TimeoutError(f"no answer from {self.address} within {timeout_ms} ms") from None

    def send(self, message: Message, answer: type[M], version: int | None = None) -> "asyncio.Future[M]":
        """Queues the request; what is queued in one turn of the loop leaves together. PeerLost if closed."""
        version = self.version_of(type(message)) if version is None else version
        correlation_id = self._write(message, version)
        future: asyncio.Future[M] = self._hub.loop.create_future()
        self._asked.append(_Asked(correlation_id, answer, version, cast("asyncio.Future[Message]", future)))
        return future

    def tell(self, message: Message, version: int | None = None) -> None:
        """For a request that is not answered (Produce with acks=0)."""
        self._write(message, self.version_of(type(message)) if version is None else version)

    def close(self, reason: str = "closed") -> None:
        if not self._reason:
            self._reason = reason
            self._connection.close()
            self._fail(PeerLost(f"the connection to {self.address} is closed: {reason}"))

    def _write(self, message: Message, version: int) -> int:
        if self._reason:
            raise PeerLost(f"the connection to {self.address} is closed: {self._reason}")
        self._correlation_id = (self._correlation_id + 1) & CORRELATION_MASK
        self._connection.write(encode_request(message, version, self._correlation_id, self._client_id))
        return self._correlation_id

    async def _negotiate(self) -> None:
        """A broker older than our question answers in version 0, and says what it speaks."""
        newest = ApiVersionsRequest.versions.stop - 1
        question = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=__version__)
        answer = await self.send(question, ApiVersionsResponse, newest)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = max((api.max_version for api in answer.api_keys if api.api_key == question.api), default=0)
            answer = await self.send(question, ApiVersionsResponse, min(newest, theirs))
        if answer.error_code:
            raise ProtocolError(f"ApiVersions was answered with error {answer.error_code}")
        self._spoken = {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}

    def _on_frame(self, _connection: Connection, frame: bytearray) -> None:
        if not self._asked:
            self.close("it answered a request that nobody made")
            return
        asked = self._asked[0]
        version = asked.version
        if asked.answer is ApiVersionsResponse and int.from_bytes(frame[4:6]) == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        try:
            correlation_id, message = decode_response(asked.answer, version, frame)
            if correlation_id != asked.correlation_id:
                raise ProtocolError(f"answer {correlation_id} came where {asked.correlation_id} was due")
        except ProtocolError as error:
            self._asked.popleft()
            if not asked.future.done():
                asked.future.set_exception(error)
            self.close("its answer cannot be read")
            return
        self._asked.popleft()
        if not asked.future.done():
            asked.future.set_result(message)

    def _on_closed(self, _connection: Connection) -> None:
        if not self._reason:
            self._reason = "the other side closed it"
        self._fail(PeerLost(f"the connection to {self.address} is closed: {self._reason}"))

    def _fail(self, error: PeerLost) -> None:
        while self._asked:
            future = self._asked.popleft().future
            if not future.done():
                future.set_exception(error)
