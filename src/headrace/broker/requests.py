"""A request on its way through the broker."""

from typing import Generic, TypeVar

from headrace.net.connection import Connection
from headrace.net.reply import Reply
from headrace.wire.frames import RequestHeader, encode_response
from headrace.wire.struct import Message

M = TypeVar("M", bound=Message, covariant=True)


class Request(Generic[M]):
    """What a handler gets: the decoded body, who sent it, and the one place where the answer goes."""

    __slots__ = ("_reply", "body", "connection", "header", "received_ms", "version")

    def __init__(self, header: RequestHeader, body: M, connection: Connection, reply: Reply, received_ms: int) -> None:
        self.header = header
        self.body = body
        self.connection = connection
        self.received_ms = received_ms
        self._reply = reply
        self.version = header.api_version

    @property
    def principal(self) -> str:
        return self.connection.principal

    def reply(self, message: Message) -> None:
        self._reply.send(encode_response(message, self.header.api_version, self.header.correlation_id))

    def forget_body(self) -> None:
        """It may wait long for its answer, and must not hold memory meanwhile."""
        self._reply.forget_request()
        del self.body

    def no_reply(self) -> None:
        """acks=0: the client waits for nothing."""
        self._reply.skip()
