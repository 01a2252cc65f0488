"""Clusters of three: bugs that are planted are found, and without them every promise is kept."""

from random import SystemRandom

import pytest

from headrace.sim.run import Scenario, run_seed
from tests.sim.planted import PLANTS, TIERED
from tests.sim.search import find_planted, told

FRESH_SEEDS = 100
PARTS = 10


@pytest.mark.parametrize("name", [name for name in PLANTS if PLANTS[name].scenario is not TIERED])
def test_a_planted_bug_is_found_by_its_seed_and_not_without_it(name: str) -> None:
    find_planted(name)


@pytest.mark.parametrize("part", range(PARTS))
def test_fresh_seeds_keep_every_promise(part: int) -> None:
    first = SystemRandom().getrandbits(31)
    print(f"part {part}: seeds from {first}")
    for seed in range(first, first + FRESH_SEEDS // PARTS):
        verdict = run_seed(seed, Scenario())
        assert not verdict.violations, told(verdict)
