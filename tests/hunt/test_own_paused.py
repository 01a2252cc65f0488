"""Town-27 with pauses as long as the rule book has them: the tests of tests/cluster, half a minute each."""

import pytest

from tests.cluster.test_own_paused import stage, test_a_paused_broker, test_a_paused_claimer, test_a_paused_owner

__all__ = ["stage", "test_a_paused_broker", "test_a_paused_claimer", "test_a_paused_owner"]
pytestmark = pytest.mark.hunt


@pytest.fixture
def pause_s() -> float:
    return 30.0
