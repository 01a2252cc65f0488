"""A client that minds its own business while others do not."""

import threading
import time
import uuid
from types import TracebackType
from typing import Self

from confluent_kafka import TopicPartition

from tests.interop.clients.confluent import Confluent

ROUND_S_MAX = 30.0


class WellBehaved:
    """Produces a record and consumes it, again and again, from a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.rounds = 0
        self.slowest_s = 0.0
        self.complaint = ""
        self._confluent = Confluent(bootstrap)
        self._topic = f"well-behaved-{uuid.uuid4().hex[:8]}"
        self._confluent.create_topic(self._topic, 1, {})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def is_served(self, rounds: int = 3) -> None:
        """Returns after so many more round trips, which must not take long whatever else goes on."""
        goal, deadline = self.rounds + rounds, time.monotonic() + ROUND_S_MAX * rounds
        while self.rounds < goal:
            assert not self.complaint, f"the well-behaved client was not served: {self.complaint}"
            assert time.monotonic() < deadline, "the well-behaved client was not served in time"
            time.sleep(0.005)

    def _run(self) -> None:
        producer = self._confluent.producer(**{"linger.ms": 0, "log_level": 2})
        consumer = self._confluent.consumer(**{"fetch.wait.max.ms": 50, "log_level": 2})
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        while not self._over.is_set():
            began = time.monotonic()
            value = b"%d" % self.rounds
            producer.produce(self._topic, value)
            if producer.flush(ROUND_S_MAX) > 0:
                self.complaint = f"no acknowledgement in {ROUND_S_MAX:.0f} s"
                break
            message = consumer.poll(ROUND_S_MAX)
            if message is None or message.error() is not None or message.value() != value:
                self.complaint = f"{message} instead of its record"
                break
            self.rounds += 1
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        consumer.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
