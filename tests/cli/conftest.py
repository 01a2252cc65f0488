"""One broker for the commands that talk to one."""

from collections.abc import Iterator

import pytest

from headrace.testing import Cluster


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Cluster() as cluster:
        yield cluster.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name for this test alone."""
    return str(request.node.name).replace("[", "-").replace("]", "")[:200]
