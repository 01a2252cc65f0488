"""A broker of its own for every test here: they kill it, or try to."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.choice import broker_under_test
from tests.servers.process import BrokerProcess


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    directory = tmp_path / "broker"
    broker = broker_under_test(directory)
    try:
        broker.start()
        yield broker
        broker.stop()
        log = broker.log_text()
    finally:
        broker.kill()
        shutil.rmtree(directory)
    assert "Traceback" not in log, log
