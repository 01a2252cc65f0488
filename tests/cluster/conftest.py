"""A broker of its own for every test that kills it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.choice import running_broker
from tests.servers.process import BrokerProcess


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path / "broker") as broker:
        yield broker
