"""Thousands of simulated clusters, and every planted bug within its share of them."""

import os
import time

import pytest

from headrace.sim.run import Scenario
from tests.hunt.budget import seed as hunt_seed
from tests.sim.planted import DRIVING, GROUPING, OWNING, PLANTS, TIERED, TRANSACTING
from tests.sim.search import told, verdicts

SEEDS = int(os.environ.get("HUNT_SEEDS", "2000"))
SEEDS_PER_PLANT = 300


@pytest.mark.hunt
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_found(plant: str) -> None:
    first = hunt_seed()
    for tried, verdict in enumerate(verdicts(range(first, first + SEEDS_PER_PLANT), plant), 1):
        if verdict.violations:
            print(f"without {plant}: found after {tried} seeds, by {verdict.seed}: {sorted(verdict.kinds)}")
            return
    pytest.fail(f"nothing in {SEEDS_PER_PLANT} seeds")


@pytest.mark.hunt
@pytest.mark.parametrize(
    ("scenario", "seeds"),
    [
        (Scenario(), SEEDS),
        (TRANSACTING, SEEDS // 5),
        (DRIVING, SEEDS // 5),
        (OWNING, SEEDS // 5),
        (GROUPING, SEEDS // 5),
        (Scenario(transactors=2, owners=3), SEEDS // 20),
        (Scenario(transactors=2, members=4), SEEDS // 20),
        (TIERED, SEEDS // 5),
        (Scenario(tier=True, transactors=2, owners=3), SEEDS // 20),
    ],
    ids=[
        "records",
        "transactions",
        "batches",
        "owners",
        "groups",
        "transactions and owners",
        "transactions and groups",
        "tier",
        "tier, transactions and owners",
    ],
)
def test_seeds_keep_every_promise(scenario: Scenario, seeds: int) -> None:
    first, begun = hunt_seed(), time.monotonic()
    acked = faults = 0
    for verdict in verdicts(range(first, first + seeds), scenario=scenario):
        assert not verdict.violations, told(verdict, scenario)
        acked += verdict.acked
        faults += len(verdict.plan)
    seconds = time.monotonic() - begun
    print(
        f"{seeds} seeds from {first}, {seeds / seconds:.1f} per second: {faults} faults, {acked} acknowledged records"
    )
