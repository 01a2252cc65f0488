"""Looks through many seeds with all cores."""

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from multiprocessing import get_context

import pytest

from headrace.sim.run import Scenario, Verdict, run_seed
from tests.sim.planted import PLANTS, planted

SEEDS_MAX = 300
"""In which a planted bug is found."""
SEEDS_PER_PROCESS = 50
"""Then another one goes on: what a seed leaves behind in memory is bounded."""


def verdicts(seeds: Iterable[int], plant: str | None = None, scenario: Scenario | None = None) -> Iterator[Verdict]:
    """In the order of the seeds; whoever has seen enough stops asking. A plant has its own scenario."""
    wanted = PLANTS[plant].scenario if plant is not None else scenario or Scenario()
    with get_context("spawn").Pool(os.cpu_count(), _be_quiet, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield from pool.imap(_judge, ((seed, plant, wanted) for seed in seeds))


def _be_quiet() -> None:
    logging.disable(logging.CRITICAL)  # nodes that are killed all the time have much to say


def _judge(asked: tuple[int, str | None, Scenario]) -> Verdict:
    seed, plant, scenario = asked
    with nullcontext() if plant is None else planted(plant):
        return run_seed(seed, scenario)


def told(verdict: Verdict, scenario: Scenario | None = None) -> str:
    """For a failing assertion: its first line is how to see it again."""
    violations = "\n".join(str(violation) for violation in verdict.violations[:5])
    wanted = scenario or Scenario()
    transactors = f" --transactors {wanted.transactors}" if wanted.transactors else ""
    drivers = f" --drivers {wanted.drivers}" if wanted.drivers else ""
    owners = f" --owners {wanted.owners}" if wanted.owners else ""
    members = f" --members {wanted.members}" if wanted.members else ""
    clerks = f" --clerks {wanted.clerks}" if wanted.clerks else ""
    tier = " --tier" if wanted.tier else ""
    return f"headrace sim --seed {verdict.seed}{transactors}{drivers}{owners}{members}{clerks}{tier}\n{violations}"


def find_planted(name: str) -> None:
    """By the seed that is known for it, which finds nothing without it.

    What else changes in a node changes what happens in a seed: then one of the next ones finds it.
    """
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
