"""`claim_sync`: the same for programs without an event loop. One runs in a thread beside them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from headrace.client import ConsumerRecord, Outside, RecordMetadata
from headrace.model import TopicPartition
from headrace.own.claims import CLAIM_MS_MAX, Exclusive, Resources, claim
from headrace.own.clients import OwnedConsumer, OwnedProducer
from headrace.own.ownership import Ownership

T = TypeVar("T")

CLOSING_TURNS = 3
"""Of the loop, until sockets that were closed are."""


class _Beside:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headrace-own", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        future = self.start(work)
        try:
            return future.result(timeout_s)
        except BaseException:  # Ctrl-C too: nothing goes on behind the caller's back
            future.cancel()
            raise

    def call(self, work: Callable[[], T]) -> T:
        async def called() -> T:
            return work()

        return self.run(called())

    def stop(self) -> None:
        self.run(_end_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    for _ in range(CLOSING_TURNS):
        await asyncio.sleep(0)


class SyncProducer:
    """`OwnedProducer`, whose futures are those of threads."""

    def __init__(self, beside: _Beside, producer: OwnedProducer) -> None:
        self._beside = beside
        self._producer = producer

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> "Future[RecordMetadata]":
        """Waits while there is no room for the record. OwnershipLost at once, or from the future."""
        settings: dict[str, Any] = {"partition": partition, "timestamp_ms": timestamp_ms, "headers": headers}

        async def take() -> "Future[RecordMetadata]":
            await self._producer.ready()
            return self._beside.start(_result_of(self._producer.send(topic, value, key, **settings)))

        return self._beside.run(take())

    def flush(self) -> None:
        self._beside.run(self._producer.flush())


class SyncConsumer:
    """`OwnedConsumer`, whose calls return when they are done."""

    def __init__(self, beside: _Beside, consumer: OwnedConsumer) -> None:
        self._beside = beside
        self._consumer = consumer

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._beside.call(lambda: self._consumer.assign(partitions))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._beside.call(lambda: self._consumer.seek(partition, offset))

    def position(self, partition: TopicPartition) -> int:
        return self._beside.run(self._consumer.position(partition))

    def poll(self, timeout_ms: int, records_max: int = 500) -> list[ConsumerRecord]:
        return self._beside.run(self._consumer.poll(timeout_ms, records_max))


class SyncOwnership:
    """`Ownership`; its `lost` is an event of threads."""

    def __init__(self, beside: _Beside, ownership: Ownership) -> None:
        self._beside = beside
        self._ownership = ownership
        self.lost = threading.Event()

    @property
    def group(self) -> str:
        return self._ownership.group

    @property
    def client_id(self) -> str:
        return self._ownership.client_id

    @property
    def generations(self) -> Mapping[str, int]:
        return dict(self._ownership.generations)

    @property
    def fence_offsets(self) -> Mapping[str, int]:
        return dict(self._ownership.fence_offsets)

    @property
    def reason(self) -> str:
        return self._ownership.reason

    @property
    def is_gone(self) -> bool:
        return self._ownership.is_gone

    @contextmanager
    def producer(self, **settings: Any) -> Iterator[SyncProducer]:
        made = self._beside.call(lambda: self._ownership.producer(**settings))
        with _entered(self._beside, made) as producer:
            yield SyncProducer(self._beside, producer)

    @contextmanager
    def consumer(self, **settings: Any) -> Iterator[SyncConsumer]:
        made = self._beside.call(lambda: self._ownership.consumer(**settings))
        with _entered(self._beside, made) as consumer:
            yield SyncConsumer(self._beside, consumer)

    @property
    def generation(self) -> int:
        return self._ownership.generation

    @property
    def fence_offset(self) -> int:
        return self._ownership.fence_offset

    def backlog(
        self, resource: str | TopicPartition, start: int | None = None, **settings: Any
    ) -> Iterator[ConsumerRecord]:
        records = self._ownership.backlog(resource, start, **settings)
        while (record := self._beside.run(_next_of(records))) is not None:
            yield record

    def check(self) -> None:
        self._beside.call(self._ownership.check)

    def regained(self, timeout_s: float | None = None) -> None:
        self._beside.run(self._ownership.regained(), timeout_s)

    def heard(self) -> None:
        """Called in the thread of the loop when something was lost, or came back."""
        if self._ownership.lost.is_set():
            self.lost.set()
        else:
            self.lost.clear()


@contextmanager
def claim_sync(
    bootstrap: str,
    group: str,
    resources: Resources,
    generation: int | Mapping[str, int] | None = None,
    wait: bool = False,
    exclusive: Exclusive = False,
    *,
    client_id: str = "headrace",
    timeout_ms: int = CLAIM_MS_MAX,
    outside: Outside | None = None,
) -> Iterator[SyncOwnership]:
    """As `claim`, with the same arguments."""
    beside = _Beside()
    settings: dict[str, Any] = {"client_id": client_id, "timeout_ms": timeout_ms, "outside": outside}
    try:
        claimed = claim(bootstrap, group, resources, generation, wait, exclusive, **settings)
        with _entered(beside, claimed) as ownership:
            sync = SyncOwnership(beside, ownership)
            ownership.listeners.append(sync.heard)
            beside.call(sync.heard)
            yield sync
    finally:
        beside.stop()


@contextmanager
def _entered(beside: _Beside, manager: Any) -> Iterator[Any]:
    """An async context, entered and left in the other thread."""
    entered = beside.run(manager.__aenter__())
    try:
        yield entered
    except BaseException as error:  # it hears of whatever ends the block, as in `async with`
        if not beside.run(manager.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        beside.run(manager.__aexit__(None, None, None))


async def _result_of(future: "asyncio.Future[RecordMetadata]") -> RecordMetadata:
    return await future


async def _next_of(records: AsyncIterator[ConsumerRecord]) -> ConsumerRecord | None:
    return await anext(records, None)
