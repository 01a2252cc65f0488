"""Fixtures for projects that test against an embedded Headrace.

pytest loads this file in every run of every project that has Headrace installed, so it imports nothing until a test
asks for the fixture.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing.cluster import Cluster


@pytest.fixture
def headrace_cluster() -> "Iterator[Cluster]":
    """A fresh broker for one test: `headrace_cluster.bootstrap` is its address."""
    from headrace.testing.cluster import Cluster

    with Cluster() as cluster:
        yield cluster
