"""Clusters of three with clients of every kind, from seeds that nobody has tried: every promise is kept."""

import logging
from collections.abc import Iterable, Iterator
from random import SystemRandom

import pytest

from headrace.sim.run import Scenario, run_seed
from tests.sim.planted import GROUPING, OWNING, TIERED, TRANSACTING
from tests.sim.search import told

TRANSACTING_SEEDS = 30
OWNING_SEEDS = 30
GROUPING_SEEDS = 30
TIERED_SEEDS = 10
PARTS = 10


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Nodes that are killed all the time have so much to say that nobody would find the verdict in it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def keep_every_promise(seeds: Iterable[int], scenario: Scenario) -> None:
    for seed in seeds:
        verdict = run_seed(seed, scenario)
        if verdict.violations:
            pytest.fail(told(verdict, scenario), pytrace=False)


def fresh(part: int, seeds: int) -> Iterable[int]:
    first = SystemRandom().getrandbits(31)
    print(f"part {part}: seeds from {first}")
    return range(first, first + seeds // PARTS)


@pytest.mark.parametrize("part", range(PARTS))
def test_transactions_of_fresh_seeds_are_whole_or_not_there(part: int) -> None:
    """Ttxn-7, and with it 1, 2 and 3, in whatever order chance brings them."""
    keep_every_promise(fresh(part, TRANSACTING_SEEDS), TRANSACTING)


@pytest.mark.parametrize("part", range(PARTS))
def test_owners_of_fresh_seeds_are_one_at_a_time(part: int) -> None:
    """Town-17, and with it 9, 10, 11, 20, 27 and 34, in whatever order chance brings them."""
    keep_every_promise(fresh(part, OWNING_SEEDS), OWNING)


@pytest.mark.parametrize("part", range(PARTS))
def test_groups_of_fresh_seeds_lose_no_commit_and_share_no_partition(part: int) -> None:
    """Tgrp-1, 2 and 4, in whatever order chance brings them."""
    keep_every_promise(fresh(part, GROUPING_SEEDS), GROUPING)


@pytest.mark.parametrize("part", range(PARTS))
def test_tiers_of_fresh_seeds_have_no_hole_and_no_orphan(part: int) -> None:
    """T8-1 to T8-6, T9-7 and the properties of T1303-5, 8 and 13, in whatever order chance brings them."""
    keep_every_promise(fresh(part, TIERED_SEEDS), TIERED)
