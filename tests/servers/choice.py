"""Which broker a suite runs against: Headrace, or Apache Kafka with HEADRACE_TEST_BROKER=kafka."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.servers.headrace import headrace_broker
from tests.servers.kafka import kafka_broker
from tests.servers.process import BrokerProcess

CHOICES = {"headrace": headrace_broker, "kafka": kafka_broker}


def chosen() -> str:
    name = os.environ.get("HEADRACE_TEST_BROKER", "headrace")
    assert name in CHOICES, f"HEADRACE_TEST_BROKER is {name!r}, which is neither of {sorted(CHOICES)}"
    return name


@contextmanager
def running_broker(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[BrokerProcess]:
    """Starts it, and at the end stops it, takes its files away and looks into its log."""
    broker = CHOICES[chosen()](directory, settings)
    try:
        broker.start()
        yield broker
        assert broker.process is not None and broker.process.poll() is None, f"it ended: {broker.log_tail()}"
        broker.stop()
        log = broker.log_text()
    finally:
        broker.kill()
        shutil.rmtree(directory)
    assert "Traceback" not in log, log
