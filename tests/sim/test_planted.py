"""Clusters of three: bugs that are planted are found, and without them every promise is kept."""

from random import SystemRandom

import pytest

from headrace.sim.run import Scenario, run_seed
from tests.sim.planted import DRIVING, GROUPING, OWNING, PLANTS, TRANSACTING, planted
from tests.sim.search import told

FRESH_SEEDS = 100
TRANSACTING_SEEDS = 30
DRIVING_SEEDS = 30
OWNING_SEEDS = 30
GROUPING_SEEDS = 30
PARTS = 10
SEEDS_MAX = 300


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_found_by_its_seed_and_not_without_it(name: str) -> None:
    """What else changes in a node changes what happens in a seed: then one of the next ones finds it."""
    first = PLANTS[name].seed
    for seed in range(first, first + SEEDS_MAX):
        with planted(name) as plant:
            found = run_seed(seed, plant.scenario)
        if found.kinds & plant.shows:
            break
    else:
        pytest.fail(f"nothing in {SEEDS_MAX} seeds")
    if seed != first:
        print(f"without {name}: write down that seed {seed} finds it now")
    clean = run_seed(seed, plant.scenario)
    assert not clean.violations, told(clean, plant.scenario)


@pytest.mark.parametrize("part", range(PARTS))
def test_fresh_seeds_keep_every_promise(part: int) -> None:
    first = SystemRandom().getrandbits(31)
    print(f"part {part}: seeds from {first}")
    for seed in range(first, first + FRESH_SEEDS // PARTS):
        verdict = run_seed(seed, Scenario())
        assert not verdict.violations, told(verdict)


@pytest.mark.parametrize("part", range(PARTS))
def test_transactions_of_fresh_seeds_are_whole_or_not_there(part: int) -> None:
    """Ttxn-7, and with it 1, 2 and 3, in whatever order chance brings them."""
    first = SystemRandom().getrandbits(31)
    print(f"part {part}: seeds from {first}")
    for seed in range(first, first + TRANSACTING_SEEDS // PARTS):
        verdict = run_seed(seed, TRANSACTING)
        assert not verdict.violations, told(verdict, TRANSACTING)


@pytest.mark.parametrize("part", range(PARTS))
def test_batches_of_fresh_seeds_are_there_once_and_whole(part: int) -> None:
    """Tcg-1, 2, 3, 4, 6, 8 and 9, in whatever order chance brings them."""
    first = SystemRandom().getrandbits(31)
    print(f"part {part}: seeds from {first}")
    for seed in range(first, first + DRIVING_SEEDS // PARTS):
        verdict = run_seed(seed, DRIVING)
        assert not verdict.violations, told(verdict, DRIVING)


@pytest.mark.parametrize("part", range(PARTS))
def test_owners_of_fresh_seeds_are_one_at_a_time(part: int) -> None:
    """Town-17, and with it 9, 10, 11, 20, 27 and 34, in whatever order chance brings them."""
    first = SystemRandom().getrandbits(31)
    print(f"part {part}: seeds from {first}")
    for seed in range(first, first + OWNING_SEEDS // PARTS):
        verdict = run_seed(seed, OWNING)
        assert not verdict.violations, told(verdict, OWNING)


@pytest.mark.parametrize("part", range(PARTS))
def test_groups_of_fresh_seeds_lose_no_commit_and_share_no_partition(part: int) -> None:
    """Tgrp-1, 2 and 4, in whatever order chance brings them."""
    first = SystemRandom().getrandbits(31)
    print(f"part {part}: seeds from {first}")
    for seed in range(first, first + GROUPING_SEEDS // PARTS):
        verdict = run_seed(seed, GROUPING)
        assert not verdict.violations, told(verdict, GROUPING)
