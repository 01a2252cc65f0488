"""Producers (acks=all, idempotent) and consumers of three client libraries, who write down what they saw."""

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as RdPartition

from headrace.model import TopicPartition
from headrace.sim.history import Acked, Event, Final, GivenUp, History, Read, Sent, Unhandled
from tests.cluster.ends import end_of
from tests.servers.java import java

OUTSTANDING_MAX = 200
PACE_S = 0.004
END_S_MAX = 180.0


class RdLoad:
    """librdkafka, a thread for each side."""

    name = "librdkafka"

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, history: History, *, is_broken_off: bool = False
    ) -> None:
        """`is_broken_off`: the topic is deleted meanwhile, so that the consumer begins anew and some sends fail."""
        self._topic, self._partitions, self._history = topic, partitions, history
        self._is_broken_off = is_broken_off
        quiet: dict[str, object] = {"bootstrap.servers": bootstrap, "log_level": 2, "reconnect.backoff.max.ms": 200}
        producing = {"acks": "all", "enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": 180_000}
        self._producer = Producer({**quiet, **producing, "socket.timeout.ms": 10_000, "request.timeout.ms": 5_000})
        reset = "earliest" if is_broken_off else "error"
        consuming = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": reset}
        self._consumer = Consumer({**quiet, **consuming, "fetch.wait.max.ms": 100, "socket.timeout.ms": 10_000})
        self._over, self._produced = threading.Event(), threading.Event()
        self._outstanding = 0
        self.acked_somewhere: list[tuple[TopicPartition, bytes]] = []
        """Without an offset: an idempotent producer of librdkafka takes a record whose answer was lost for stored when
        a later one of the same partition is."""
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(END_S_MAX)
            assert not thread.is_alive(), "librdkafka does not come to an end"

    def _produce(self) -> None:
        number = 0
        while not self._over.is_set():
            self._producer.poll(PACE_S)
            if self._outstanding < OUTSTANDING_MAX:
                self._send(number)
                number += 1
        if left := self._producer.flush(END_S_MAX):
            self._history.add(Unhandled(f"librdkafka has no answer for {left} records"))
        self._produced.set()

    def _send(self, number: int) -> None:
        partition, value = TopicPartition(self._topic, number % self._partitions), b"rd-%d" % number
        history = self._history
        history.add(Sent(history.now_s(), self.name, partition, value))
        self._outstanding += 1

        def answered(error: KafkaError | None, message: Message) -> None:
            self._outstanding -= 1
            now_s, offset = history.now_s(), message.offset()
            if error is not None:
                history.add(GivenUp(now_s, f"{self.name}: {error}", partition, value))
            elif offset is None:
                self.acked_somewhere.append((partition, value))
            else:
                history.add(Acked(now_s, self.name, partition, offset, value))

        self._producer.produce(self._topic, value, partition=partition.partition, on_delivery=answered)

    def _consume(self) -> None:
        self._consumer.assign([RdPartition(self._topic, at, 0) for at in range(self._partitions)])
        while not self._produced.is_set():
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                _note_read(self._history, self.name, message)
            elif not (self._is_broken_off or error.retriable() or error.code() in PASSING):
                self._history.add(Unhandled(f"the consumer of librdkafka: {error}"))
        self._consumer.close()


PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE}
"""What librdkafka tells of connections, while it goes on."""


def _note_read(history: History, client: str, message: Message) -> None:
    topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
    assert topic is not None and partition is not None and offset is not None and isinstance(value, bytes)
    history.add(Read(history.now_s(), client, TopicPartition(topic, partition), offset, value))


class AioLoad:
    """aiokafka, both sides on one loop in one thread."""

    name = "aiokafka"

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, history: History, *, is_broken_off: bool = False
    ) -> None:
        self._bootstrap, self._topic, self._partitions, self._history = bootstrap, topic, partitions, history
        self._reset = "earliest" if is_broken_off else "none"
        self._over = threading.Event()
        self._produced = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    def finish(self) -> None:
        self._over.set()
        self._thread.join(END_S_MAX)
        assert not self._thread.is_alive(), "aiokafka does not come to an end"

    async def _run(self) -> None:
        consuming = asyncio.ensure_future(self._guarded(self._consume, "consumer"))
        await self._guarded(self._produce, "producer")
        self._produced = True
        await consuming

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]], side: str) -> None:
        try:
            await work()
        except Exception as error:  # whatever it is, it belongs into the verdict
            self._history.add(Unhandled(f"the {side} of aiokafka: {error!r}"))

    async def _produce(self) -> None:
        # A batch that is not stored within the request's time is given up, which an idempotent producer never mends.
        async with AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=2,
            request_timeout_ms=60_000,
            metadata_max_age_ms=2_000,
        ) as producer:
            answers: set[asyncio.Future[Any]] = set()
            number = 0
            while not self._over.is_set():
                if len(answers) < OUTSTANDING_MAX:
                    answers.add(answer := await self._send(producer, number))
                    answer.add_done_callback(answers.discard)
                    number += 1
                await asyncio.sleep(PACE_S)
            if answers:
                await asyncio.wait(answers, timeout=END_S_MAX / 2)

    async def _send(self, producer: AIOKafkaProducer, number: int) -> "asyncio.Future[Any]":
        """Returns when the producer has given it its place in the order."""
        history = self._history
        partition, value = TopicPartition(self._topic, number % self._partitions), b"aio-%d" % number
        history.add(Sent(history.now_s(), self.name, partition, value))

        def settled(answer: "asyncio.Future[Any]") -> None:
            if answer.cancelled() or answer.exception() is not None:
                history.add(GivenUp(history.now_s(), f"{self.name}: {answer}", partition, value))
            else:
                history.add(Acked(history.now_s(), self.name, partition, answer.result().offset, value))

        answer: asyncio.Future[Any] = await producer.send(self._topic, value, partition=partition.partition)
        answer.add_done_callback(settled)
        return answer

    async def _consume(self) -> None:
        async with AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset=self._reset,
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            request_timeout_ms=5_000,
            metadata_max_age_ms=2_000,
        ) as consumer:
            partitions = [AioPartition(self._topic, at) for at in range(self._partitions)]
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 0)
            while not self._produced:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for one in records:
                        partition = TopicPartition(self._topic, one.partition)
                        self._history.add(Read(self._history.now_s(), self.name, partition, one.offset, one.value))


class JavaLoad:
    """The Java client, in a process of its own; what it saw comes at the end."""

    name = "java"

    def __init__(self, bootstrap: str, topic: str, partitions: int, history: History, scratch: Path) -> None:
        self._topic, self._history = topic, history
        self._events = scratch / "java.events"
        self._log_path = scratch / "java.log"
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                java("Load", bootstrap, topic, str(partitions), str(self._events)),
                stdin=subprocess.PIPE,
                stderr=log,
                stdout=log,
            )

    def finish(self) -> None:
        try:
            self.process.communicate(b"\n", END_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise AssertionError(f"Java does not come to an end: {self._log_path.read_text()[-3000:]}") from None
        assert self.process.returncode == 0, self._log_path.read_text()[-3000:]
        for line in self._events.read_text("latin-1").splitlines():
            self._history.add(self._event(line.split("\t")))

    def _event(self, words: list[str]) -> Event:
        at_s, kind, *rest = int(words[0]) / 1e9, *words[1:]
        if kind == "E":
            return Unhandled(f"the consumer of Java: {rest[0]}")
        partition = TopicPartition(self._topic, int(rest[0]))
        match kind:
            case "S":
                return Sent(at_s, self.name, partition, rest[1].encode())
            case "A":
                return Acked(at_s, self.name, partition, int(rest[1]), rest[2].encode())
            case "R":
                return Read(at_s, self.name, partition, int(rest[1]), rest[2].encode())
        return GivenUp(at_s, f"{self.name}: {rest[2]}", partition, rest[1].encode())


def read_everything(bootstrap: str, topic: str, partitions: int, history: History) -> None:
    """What is there in the end."""
    quiet = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 2}
    consumer = Consumer({**quiet, "auto.offset.reset": "error"})
    ends = [end_of(consumer, RdPartition(topic, at)) for at in range(partitions)]
    consumer.assign([RdPartition(topic, at, 0) for at in range(partitions)])
    left, deadline = sum(ends), time.monotonic() + END_S_MAX
    while left > 0:
        assert time.monotonic() < deadline, f"{left} records could not be read"
        for message in consumer.consume(min(left, 10_000), timeout=1):
            if message.error() is not None:
                continue
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None and offset is not None and isinstance(value, bytes)
            history.add(Final(TopicPartition(topic, partition), offset, value))
            left -= 1
    consumer.close()
