"""Clusters of three with clients of every kind: every promise is kept.

The seeds are the same in every run, and go another way with every change of a node. `make hunt` tries fresh ones.
"""

import logging
from collections.abc import Iterator

import pytest

from headrace.sim.run import Scenario, run_seed
from tests.sim.planted import DRIVING, GROUPING, OWNING, TIERED, TRANSACTING
from tests.sim.search import told

TRANSACTING_SEEDS = 10
DRIVING_SEEDS = 10
OWNING_SEEDS = 10
GROUPING_SEEDS = 10
TIERED_SEEDS = 10
PARTS = 10
FIRST_SEED = 5_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Nodes that are killed all the time have so much to say that nobody would find the verdict in it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def keep_every_promise(part: int, seeds: int, scenario: Scenario) -> None:
    size = seeds // PARTS
    for seed in range(FIRST_SEED + part * size, FIRST_SEED + (part + 1) * size):
        verdict = run_seed(seed, scenario)
        if verdict.violations:
            pytest.fail(told(verdict, scenario), pytrace=False)


@pytest.mark.parametrize("part", range(PARTS))
def test_transactions_are_whole_or_not_there(part: int) -> None:
    """Ttxn-7, and with it 1, 2 and 3, in the order that these seeds bring them."""
    keep_every_promise(part, TRANSACTING_SEEDS, TRANSACTING)


@pytest.mark.parametrize("part", range(PARTS))
def test_batches_of_queries_are_there_once_and_whole(part: int) -> None:
    """Tcg-1, 2, 3, 4, 6, 8 and 9, in the order that these seeds bring them."""
    keep_every_promise(part, DRIVING_SEEDS, DRIVING)


@pytest.mark.parametrize("part", range(PARTS))
def test_owners_are_one_at_a_time(part: int) -> None:
    """Town-17, and with it 9, 10, 11, 20, 27 and 34, in the order that these seeds bring them."""
    keep_every_promise(part, OWNING_SEEDS, OWNING)


@pytest.mark.parametrize("part", range(PARTS))
def test_groups_lose_no_commit_and_share_no_partition(part: int) -> None:
    """Tgrp-1, 2 and 4, in the order that these seeds bring them."""
    keep_every_promise(part, GROUPING_SEEDS, GROUPING)


@pytest.mark.parametrize("part", range(PARTS))
def test_tiers_have_no_hole_and_no_orphan(part: int) -> None:
    """T8-1 to T8-6, T9-7 and the properties of T1303-5, 8 and 13, in the order that these seeds bring them."""
    keep_every_promise(part, TIERED_SEEDS, TIERED)
