"""The answer to one request."""

from typing import Protocol

from headrace.model import Buffer


class Answering(Protocol):
    """The connection that the request came by."""

    def answered(self, reply: "Reply") -> None: ...

    def give_back(self, size: int) -> None: ...


class Reply:
    """The answer to one request. Answers leave in the order in which they were opened."""

    __slots__ = ("_connection", "_request_bytes", "alone", "next", "parts")

    def __init__(self, connection: Answering, request_bytes: int, alone: bool) -> None:
        self._connection = connection
        self._request_bytes = request_bytes
        self.alone = alone
        self.parts: list[Buffer] | None = None
        self.next: Reply | None = None

    def send(self, parts: list[Buffer]) -> None:
        """The whole answer with its length prefix. Nobody may change these buffers afterwards."""
        assert self.parts is None, "answered twice"
        self.parts = parts
        connection = self._connection
        connection.give_back(self._request_bytes)
        self._request_bytes = 0
        connection.answered(self)

    def skip(self) -> None:
        """No answer is due (acks=0)."""
        self.send([])

    def forget_request(self) -> None:
        """The request's bytes are not needed any more: a fetch that waits must not hold memory."""
        size, self._request_bytes = self._request_bytes, 0
        self._connection.give_back(size)
