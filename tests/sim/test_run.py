"""Whole seeds: they keep every promise, go the same way twice, and find what is planted."""

import os
import subprocess
import sys
from random import Random

import pytest

from headrace.sim.plan import POWER, Fault, draw_plan
from headrace.sim.run import Run, Scenario, run_seed, shorten
from headrace.storage.log import Log

SHORT = Scenario(brokers=1, seconds=20.0)
THREE = Scenario()


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_seed_keeps_every_promise(seed: int) -> None:
    verdict = run_seed(seed, SHORT)
    assert [str(violation) for violation in verdict.violations] == []
    assert verdict.acked > 0


def test_a_seed_goes_the_same_way_twice() -> None:
    for scenario in (SHORT, THREE):
        one, other = run_seed(3, scenario), run_seed(3, scenario)
        assert one.digest == other.digest and one.story == other.story
        assert run_seed(4, scenario).digest != one.digest


def test_a_seed_goes_the_same_way_in_every_process() -> None:
    code = (
        "from headrace.sim.run import *; "
        "all_of = lambda t: Scenario("
        "transactors=t, drivers=t, owners=t, members=t, clerks=t, tier=t > 0); "
        "print([run_seed(3, all_of(t)).digest for t in (0, 2)])"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert digests[0] == digests[1] != ""


def flushed_seed() -> int:
    for seed in range(100):
        run = Run(seed, SHORT)
        run.world.close()
        if run.around.is_flushed:
            return seed
    raise AssertionError


def test_a_missing_sync_is_found_and_its_story_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "needs_flush_before_ack", lambda _log: False)
    seed = flushed_seed()
    plan = [
        Fault(5.0, "pause", (1,), 1.0, 0.5),
        Fault(8.0, POWER, (1,), 1.0, 0.5),
        Fault(12.0, "resets", (1,), 1.0, 0.5),
        Fault(15.0, "clock jump", (1,), 1.0, 0.5),
    ]
    failed = run_seed(seed, SHORT, plan)
    assert failed.kinds & {"lost write", "inconsistent offsets"}
    short = shorten(failed, SHORT)
    assert [fault.kind for fault in short.plan] == [POWER]
    assert any("loses power" in line for line in short.story)


def test_a_cluster_that_does_not_come_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sim.faults.Faults._start", lambda *_: None)
    verdict = run_seed(1, SHORT, [Fault(8.0, "kill", (1,), 1.0, 0.5)])
    assert verdict.kinds == {"no recovery"}


def test_plans_are_drawn_from_the_seed_alone() -> None:
    plan = draw_plan(Random(7), 3, 60.0, with_power_loss=True)
    assert plan == draw_plan(Random(7), 3, 60.0, with_power_loss=True)
    assert plan != draw_plan(Random(8), 3, 60.0, with_power_loss=True)
    assert all(fault.at_s < 60 and fault.at_s + fault.for_s < 61 for fault in plan)


def test_power_is_lost_only_where_that_is_survived() -> None:
    kinds = {fault.kind for seed in range(50) for fault in draw_plan(Random(seed), 1, 60.0, with_power_loss=False)}
    assert POWER not in kinds and "kill" in kinds and "cut one way" not in kinds
