"""A broker, or three nodes, of its own for every test that kills them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.choice import running_broker
from tests.servers.cluster import HeadraceCluster, running_cluster
from tests.servers.process import BrokerProcess


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HeadraceCluster]:
    """With sessions of 3 s: what nobody reports is noticed soon."""
    with running_cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def patient_cluster(tmp_path: Path) -> Iterator[HeadraceCluster]:
    """With sessions so long that none of them ends during a test."""
    settings = {"broker.session.timeout.ms": "600000"}
    with running_cluster(tmp_path / "cluster", settings=settings) as cluster:
        yield cluster
