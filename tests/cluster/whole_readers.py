"""Stock consumers that read a topic from offset 0 to its end, over and over, whatever happens to the cluster."""

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.cluster.tiered import TOPIC, value_of
from tests.servers.java import java

ROUND_S_MAX = 120.0
PAUSE_S = 0.2
PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
"""What librdkafka tells of connections, while it goes on."""


class Reads(Protocol):
    """All records below `end`: each once, in order, with its value."""

    name: str

    def read(self, end: int) -> None: ...

    def close(self) -> None: ...


class RdReads:
    name = "librdkafka"

    def __init__(self, bootstrap: str, fetch_bytes: int = 1 << 20) -> None:
        self._settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 2,
            "reconnect.backoff.max.ms": 200,
            "socket.timeout.ms": 10_000,
            "max.partition.fetch.bytes": fetch_bytes,
        }

    def read(self, end: int, value: Callable[[int], bytes] = value_of) -> None:
        consumer = Consumer(self._settings)
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        try:
            due, deadline = 0, time.monotonic() + ROUND_S_MAX
            while due < end:
                message = consumer.poll(1)
                assert time.monotonic() < deadline, f"nothing came after offset {due}"
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    assert error.retriable() or error.code() in PASSING, error
                    continue
                assert (message.offset(), message.value()) == (due, value(due)), f"instead of offset {due}"
                due += 1
        finally:
            consumer.close()

    def close(self) -> None:
        pass


class JavaReads:
    name = "Java"

    def __init__(self, bootstrap: str, scratch: Path) -> None:
        self._log_path = scratch / "java.log"
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                java("Whole", bootstrap, TOPIC), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )

    def read(self, end: int) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"%d\n" % end)
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer == b"%d\n" % end, self._log_path.read_text()[-3000:]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class WholeReaders:
    """A thread for each of them, from now to the end."""

    def __init__(self, end: int, *readers: Reads) -> None:
        self.end = end
        self.rounds = {reader.name: 0 for reader in readers}
        self._readers = readers
        self._failures: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=[reader], daemon=True) for reader in readers]
        for thread in self._threads:
            thread.start()

    def until_all_read_it(self) -> None:
        """Each of them all of it, from a beginning after this call."""
        goals = {name: rounds + 2 for name, rounds in self.rounds.items()}
        deadline = time.monotonic() + ROUND_S_MAX
        while any(self.rounds[name] < goal for name, goal in goals.items()):
            assert not self._failures, self._failures
            assert time.monotonic() < deadline, f"rounds {self.rounds}, goals {goals}"
            time.sleep(0.02)

    def _run(self, reader: Reads) -> None:
        try:
            while not self._over.wait(PAUSE_S):
                reader.read(self.end)
                self.rounds[reader.name] += 1
        except Exception as failure:  # whatever it is, it belongs into the verdict
            if not self._over.is_set():
                self._failures.append(f"{reader.name}: {failure!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        for reader in self._readers:
            reader.close()
        for thread in self._threads:
            thread.join(ROUND_S_MAX)
        assert kind is not None or not self._failures, self._failures
