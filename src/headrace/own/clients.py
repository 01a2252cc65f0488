"""Producers and consumers that work only while what they were made for is held."""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol

from headrace.client import Consumer, ConsumerRecord, Producer, RecordMetadata
from headrace.client.sender import Sender
from headrace.own.errors import OwnershipLost


class Hold(Protocol):
    """What a client has to know of the ownership that it belongs to."""

    listeners: list[Callable[[], None]]

    def check(self) -> None:
        """OwnershipLost when it is not held."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether it is lost for good."""
        ...

    def loss(self) -> OwnershipLost: ...


class OwnedProducer(Producer):
    """`send` raises OwnershipLost while the ownership is not held. What was taken before waits, and is sent when it is
    held again; once it is lost for good, it fails with OwnershipLost."""

    def __init__(self, hold: Hold, bootstrap: str, **settings: Any) -> None:
        super().__init__(bootstrap, **settings)
        self._hold = hold

    async def __aenter__(self) -> "OwnedProducer":
        self._hold.check()
        await super().__aenter__()
        self._hold.listeners.append(self._heard)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            self._hold.listeners.remove(self._heard)

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> "asyncio.Future[RecordMetadata]":
        self._hold.check()
        return super().send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)

    def _heard(self) -> None:
        if self._sender is None:
            return
        if self._hold.is_gone:
            self._give_up(self._sender)
        else:
            self._sender.schedule()

    def _give_up(self, sender: Sender) -> None:
        sender.give_up(self._hold.loss())
        for task in self._placing.values():
            task.cancel()
        for records in self._unplaced.values():
            for pending, _ in records:
                self._lose(pending, self._hold.loss())
        self._unplaced.clear()


class OwnedConsumer(Consumer):
    """`poll` raises OwnershipLost while the ownership is not held, and hands out nothing then that was fetched before;
    when it is held again, it goes on where it stood."""

    def __init__(self, hold: Hold, bootstrap: str, **settings: Any) -> None:
        super().__init__(bootstrap, **settings)
        self._hold = hold

    async def __aenter__(self) -> "OwnedConsumer":
        self._hold.check()
        self._hold.listeners.append(self._heard_of_hold)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hold.listeners.remove(self._heard_of_hold)
        await super().__aexit__(kind, error, trace)

    def _take(self, records_max: int) -> list[ConsumerRecord]:
        self._hold.check()
        return super()._take(records_max)

    def _heard_of_hold(self) -> None:
        """What was fetched while it was held is fetched again, if it is held again."""
        for assigned in self._assigned.values():
            if not assigned.paused:
                self._stop(assigned)
                self._unsettled[assigned] = None
        self._news.set()
