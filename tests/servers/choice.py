"""Which broker a suite runs against: Headrace, or Apache Kafka with HEADRACE_TEST_BROKER=kafka."""

import os
from collections.abc import Mapping
from pathlib import Path

from tests.servers.headrace import headrace_broker
from tests.servers.kafka import kafka_broker
from tests.servers.process import BrokerProcess

CHOICES = {"headrace": headrace_broker, "kafka": kafka_broker}


def chosen() -> str:
    name = os.environ.get("HEADRACE_TEST_BROKER", "headrace")
    assert name in CHOICES, f"HEADRACE_TEST_BROKER is {name!r}, which is neither of {sorted(CHOICES)}"
    return name


def broker_under_test(directory: Path, settings: Mapping[str, str] | None = None) -> BrokerProcess:
    return CHOICES[chosen()](directory, settings)
