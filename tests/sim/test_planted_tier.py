"""The same with a tier: rules of it that are taken away are missed."""

import pytest

from tests.sim.planted import PLANTS, TIERED
from tests.sim.search import find_planted


@pytest.mark.parametrize("name", [name for name in PLANTS if PLANTS[name].scenario is TIERED])
def test_a_planted_bug_is_found_by_its_seed_and_not_without_it(name: str) -> None:
    find_planted(name)
