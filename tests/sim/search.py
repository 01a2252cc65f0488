"""Looks through many seeds with all cores."""

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from multiprocessing import get_context

from headrace.sim.run import Scenario, Verdict, run_seed
from tests.sim.planted import planted


def verdicts(seeds: Iterable[int], plant: str | None = None) -> Iterator[Verdict]:
    """In the order of the seeds; whoever has seen enough stops asking."""
    with get_context("spawn").Pool(os.cpu_count(), initializer=_be_quiet) as pool:
        yield from pool.imap(_judge, ((seed, plant) for seed in seeds))


def _be_quiet() -> None:
    logging.disable(logging.CRITICAL)  # nodes that are killed all the time have much to say


def _judge(asked: tuple[int, str | None]) -> Verdict:
    seed, plant = asked
    with nullcontext() if plant is None else planted(plant):
        return run_seed(seed, Scenario())


def told(verdict: Verdict) -> str:
    """For a failing assertion."""
    violations = "\n".join(str(violation) for violation in verdict.violations[:5])
    return f"headrace sim --seed {verdict.seed}\n{violations}"
