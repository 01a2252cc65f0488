"""Stock clients that write, or read, one partition on and on, until they are told to stop: what they were told."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from kafka.errors import KafkaError as KafkaPythonError

from tests.interop.clients.line_program import LineProgram

OUTSTANDING_MAX = 1_000
"""So many writes are under way at any time, as far as the library lets us."""

END_S_MAX = 60.0


class _Threaded:
    """`told` are the names of the errors that the library raised, `count` is how much was sent or read so far."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.told: set[str] = set()
        self.values: list[bytes] = []
        self.count = 0
        self.over = threading.Event()
        self._thread = threading.Thread(target=work)
        self._thread.start()

    @property
    def is_told(self) -> bool:
        return bool(self.told)

    def _got(self, value: bytes) -> None:
        self.values.append(value)
        self.count += 1

    def stop(self) -> None:
        self.over.set()
        self._thread.join(END_S_MAX)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not come to an end"


class RdWriter(_Threaded):
    def __init__(self, bootstrap: str, topic: str, client_id: str, acks: str, prefix: str) -> None:
        self._topic, self._prefix = topic, prefix
        settings = {"enable.idempotence": True} if acks == "all" else {"max.in.flight.requests.per.connection": 1_000}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "acks": acks,
                "linger.ms": 0,
                "batch.num.messages": 1,
                "log_level": 2,
                "message.timeout.ms": 30_000,
                **settings,
            }
        )
        super().__init__(self._write)

    def _write(self) -> None:
        outstanding = 0

        def answered(error: KafkaError | None, _: Message) -> None:
            nonlocal outstanding
            outstanding -= 1
            if error is not None and not self.over.is_set():
                self.told.add(error.name())

        while not self.over.is_set():
            if outstanding < OUTSTANDING_MAX and not self.told:
                self._producer.produce(self._topic, f"{self._prefix} {self.count}", partition=0, on_delivery=answered)
                self.count += 1
                outstanding += 1
                self._producer.poll(0)
            else:
                self._producer.poll(0.01)
        self._producer.purge()
        self._producer.flush(10)


class KafkaPythonWriter(_Threaded):
    def __init__(self, bootstrap: str, topic: str, client_id: str, acks: str, prefix: str) -> None:
        self._topic, self._prefix = topic, prefix
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            client_id=client_id,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=acks == "all",
            max_in_flight_requests_per_connection=5 if acks == "all" else 1_000,
            linger_ms=0,
            batch_size=0,
            delivery_timeout_ms=30_000,
            request_timeout_ms=20_000,
        )
        super().__init__(self._write)

    def _write(self) -> None:
        under_way: list[Any] = []
        while not self.over.is_set() and not self.told:
            with contextlib.suppress(KafkaPythonError):
                under_way.append(self._producer.send(self._topic, f"{self._prefix} {self.count}".encode(), partition=0))
                self.count += 1
            if len(under_way) >= OUTSTANDING_MAX:
                self._hear(under_way.pop(0))
        self.over.wait(END_S_MAX)
        with contextlib.suppress(KafkaPythonError):
            self._producer.close(timeout=5)
        # Which close leaves running, and sending, when its time is over.
        self._producer._sender.force_close()
        self._producer._sender.join(END_S_MAX)
        for future in under_way:
            if future.is_done:
                self._hear(future)

    def _hear(self, future: Any) -> None:
        try:
            future.get(END_S_MAX)
        except KafkaPythonError as error:
            self.told.add(type(error).__name__)


class AioWriter(_Threaded):
    def __init__(self, bootstrap: str, topic: str, client_id: str, acks: str, prefix: str) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "client_id": client_id,
            "acks": acks if acks == "all" else int(acks),
            "enable_idempotence": acks == "all",
            "max_batch_size": 1,
            "request_timeout_ms": 20_000,
        }
        self._topic, self._prefix = topic, prefix
        super().__init__(lambda: asyncio.run(self._write()))

    async def _write(self) -> None:
        producer = AIOKafkaProducer(**self._settings)
        await producer.start()
        try:
            under_way: list[Any] = []
            while not self.over.is_set() and not self.told:
                try:
                    value = f"{self._prefix} {self.count}".encode()
                    under_way.append(await producer.send(self._topic, value, partition=0))
                    self.count += 1
                    if len(under_way) >= 20:  # it sends one batch of a partition at a time
                        await under_way.pop(0)
                except AioError as error:
                    self.told.add(type(error).__name__)
            await asyncio.to_thread(self.over.wait, END_S_MAX)
            for future in under_way:
                future.add_done_callback(lambda done: done.cancelled() or done.exception())
        finally:
            with contextlib.suppress(AioError, TimeoutError):
                await asyncio.wait_for(producer.stop(), 10)


class JavaWriter(_Threaded):
    def __init__(self, program: LineProgram, scratch: Path, topic: str, client_id: str, acks: str, prefix: str) -> None:
        self._program = program
        self._words = ("write", topic, client_id, acks, prefix)
        self._end = scratch / f"{topic}-{client_id}.end"
        self._sent = scratch / f"{topic}-{client_id}.sent"
        super().__init__(self._write)

    @property
    def is_told(self) -> bool:
        return self._sent.with_suffix(".told").exists()

    def _write(self) -> None:
        self._program.ask(*self._words, self._sent, self._end)
        count, *told = self._sent.read_text().split()
        self.count = int(count)
        self.told |= set(told)

    def stop(self) -> None:
        self._end.touch()
        super().stop()


class RdReader(_Threaded):
    def __init__(self, bootstrap: str, topic: str, client_id: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "log_level": 2,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        super().__init__(self._read)

    def _read(self) -> None:
        while not self.over.is_set():
            try:
                message = self._consumer.poll(0.05)
            except KafkaException as raised:
                self.told.add(raised.args[0].name())
                continue
            if message is not None and (error := message.error()) is not None:
                self.told.add(error.name())
            elif message is not None:
                self._got(message.value() or b"")
        self._consumer.close()


class KafkaPythonReader(_Threaded):
    def __init__(self, bootstrap: str, topic: str, client_id: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=client_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )
        self._consumer.assign([kafka.TopicPartition(topic, 0)])
        super().__init__(self._read)

    def _read(self) -> None:
        while not self.over.is_set():
            try:
                for polled in self._consumer.poll(timeout_ms=50).values():
                    for record in polled:
                        self._got(record.value)
            except KafkaPythonError as error:
                self.told.add(type(error).__name__)
                time.sleep(0.05)
        self._consumer.close()


class AioReader(_Threaded):
    def __init__(self, bootstrap: str, topic: str, client_id: str) -> None:
        settings = {"fetch_max_wait_ms": 100, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        self._settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "client_id": client_id, **settings}
        self._topic = topic
        super().__init__(lambda: asyncio.run(self._read()))

    async def _read(self) -> None:
        async with AIOKafkaConsumer(**self._settings) as consumer:
            consumer.assign([AioPartition(self._topic, 0)])
            while not self.over.is_set():
                try:
                    for polled in (await consumer.getmany(timeout_ms=50)).values():
                        for record in polled:
                            self._got(record.value)
                except AioError as error:
                    self.told.add(type(error).__name__)
                    await asyncio.sleep(0.05)


class JavaReader(_Threaded):
    def __init__(self, program: LineProgram, scratch: Path, topic: str, client_id: str) -> None:
        self._program = program
        self._topic, self._client_id = topic, client_id
        self._end = scratch / f"{topic}-{client_id}.end"
        self._read_by_it = scratch / f"{topic}-{client_id}.read"
        super().__init__(self._read)

    @property
    def is_told(self) -> bool:
        return self._read_by_it.with_suffix(".told").exists()

    def _read(self) -> None:
        self._program.ask("read", self._topic, self._client_id, self._read_by_it, self._end)
        told, _, values = self._read_by_it.read_text().partition("\n\n")
        self.told |= set(told.split())
        for value in values.splitlines():
            self._got(value.encode())

    def stop(self) -> None:
        self._end.touch()
        super().stop()
