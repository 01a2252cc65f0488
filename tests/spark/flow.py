"""Numbers that come one after the other while a test does something else; all of them are acknowledged in the end."""

import threading
import time
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

OUTSTANDING_MAX = 500
END_S_MAX = 180.0


class Flow:
    """0, 1, 2 ... into partition after partition, with acks=all; `per_s` of them at most, in that `form`."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_s: int = 400, form: bytes = b"%d") -> None:
        settings: dict[str, object] = {"bootstrap.servers": bootstrap, "log_level": 2, "reconnect.backoff.max.ms": 200}
        settings |= {"acks": "all", "enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 180_000}
        self._producer = Producer(settings)
        self._topic, self._partitions, self._pace_s, self._form = topic, partitions, 1 / per_s, form
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = self.acked = 0
        self.failures: list[KafkaError] = []

    def finish(self) -> int:
        """How many there are."""
        self._over.set()
        self._thread.join(END_S_MAX)
        assert not self._thread.is_alive() and self.failures == [] and self.acked == self.sent
        return self.sent

    def _run(self) -> None:
        while not self._over.wait(self._pace_s):
            if self.sent - self.acked < OUTSTANDING_MAX:
                value, partition = self._form % self.sent, self.sent % self._partitions
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._answered)
                self.sent += 1
            self._producer.poll(0)
        deadline = time.monotonic() + END_S_MAX
        while self._producer.flush(1.0) and time.monotonic() < deadline:
            pass

    def _answered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.acked += 1
        else:
            self.failures.append(error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(END_S_MAX)
