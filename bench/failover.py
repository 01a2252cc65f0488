"""How long writes are held up when a leader dies, and when it hangs."""

import sys
import threading
import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, Message, Producer

from bench.clusters import Nodes, wait_until
from bench.raw import RawClient

TOPIC = "fail-over"
SETTLE_S = 1.0
PACE_S = 0.01
VALUE = b"x" * 100

PATIENCE = {"socket.timeout.ms": 1_000}
"""For a hang: by default librdkafka waits for an answer for a minute before it asks who leads now."""


class Pump(threading.Thread):
    """A librdkafka producer with acks=all and otherwise default settings: one record every 10 ms, to one partition."""

    def __init__(self, bootstrap: str, settings: Mapping[str, int]) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 2, **settings})
        self._ending = False
        self._lock = threading.Lock()
        self._since_s = 0.0
        self._first_ack_s: float | None = None
        self.errors = 0

    def run(self) -> None:
        while not self._ending:
            given_s = time.monotonic()

            def delivered(error: KafkaError | None, _: Message, given_s: float = given_s) -> None:
                self._delivered(error, given_s)

            self._producer.produce(TOPIC, VALUE, on_delivery=delivered)
            self._producer.poll(PACE_S)
        self._producer.flush(10)

    def await_ack(self, since_s: float) -> float:
        """Seconds from then to the first acknowledgement of a record that was handed over after it."""
        with self._lock:
            self._since_s, self._first_ack_s = since_s, None
        wait_until(lambda: self._first_ack_s is not None, "a record is acknowledged")
        assert self._first_ack_s is not None
        return self._first_ack_s - since_s

    def end(self) -> None:
        self._ending = True
        self.join()

    def _delivered(self, error: KafkaError | None, given_s: float) -> None:
        if error is not None:
            self.errors += 1
            return
        now_s = time.monotonic()
        with self._lock:
            if self._first_ack_s is None and given_s > self._since_s:
                self._first_ack_s = now_s


def fail_over(nodes: Nodes, deaths: int, hangs: int) -> tuple[list[float], list[float]]:
    """Seconds from kill -9 of the leader to the next acknowledged write, and the same from SIGSTOP."""
    with RawClient(nodes.port) as client:
        client.create_replicated(TOPIC, 1)
    nodes.wait_whole(TOPIC, 1)
    died_s = [_one(nodes, hang=False) for _ in range(deaths)]
    hung_s = [_one(nodes, hang=True) for _ in range(hangs)]
    return died_s, hung_s


def _one(nodes: Nodes, *, hang: bool) -> float:
    """With a producer of its own: one that has seen a node die waits ever longer before it tries it again."""
    pump = Pump(nodes.bootstrap, PATIENCE if hang else {})
    pump.start()
    pump.await_ack(time.monotonic())
    time.sleep(SETTLE_S)
    with RawClient(nodes.port) as client:
        victim = client.describe(TOPIC)[0].leader
    began = time.monotonic()
    if hang:
        nodes.pause(victim)
    else:
        nodes.die(victim)
    seconds = pump.await_ack(began)
    what = "hang" if hang else "death"
    print(f"  fail-over after a {what} | {nodes.name} | {seconds:.3f} s", file=sys.stderr, flush=True)
    if hang:
        nodes.resume(victim)
    else:
        nodes.revive(victim)
    pump.end()
    if pump.errors:
        print(f"  fail-over | {nodes.name} | {pump.errors} records were not stored", file=sys.stderr)
    nodes.wait_ready()
    nodes.wait_whole(TOPIC, 1)
    return seconds
