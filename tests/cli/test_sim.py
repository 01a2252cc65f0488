"""`headrace sim`, as a user runs it."""

import json
from math import nan
from typing import Any

import pytest

from headrace.cli.outcome import UsageError
from headrace.cli.sim import sim
from tests.sim.planted import planted


def test_a_seed_that_keeps_its_promises_says_so_the_same_way_twice(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert sim(seed=5) == 0
    once = capfdbinary.readouterr().out
    assert b"every promise kept" in once
    assert sim(seed=5) == 0
    assert capfdbinary.readouterr().out == once


def test_many_seeds_are_counted(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert sim(seed=5, seeds=2, json=True) == 0
    said = json.loads(capfdbinary.readouterr().out)
    assert (said["first_seed"], said["seeds"], said["failed"]) == (5, 2, None)


def test_a_broken_promise_is_a_story(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with planted("epoch gate") as plant:
        assert sim(seed=plant.seed, seeds=100) == 1
    said = capfdbinary.readouterr().out.decode()
    assert "leads t-" in said and "answer of another epoch" in said
    assert "To play it again: headrace sim --seed" in said


def test_owners_are_part_of_the_story_and_of_the_command(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with planted("own: gate of writes") as plant:
        assert sim(seed=plant.seed, owners=plant.scenario.owners) == 1
    said = capfdbinary.readouterr().out.decode()
    assert "owns o-0 at generation" in said and "behind a fence" in said
    assert f"headrace sim --seed {plant.seed} --brokers 3 --owners 3" in said


@pytest.mark.parametrize(
    "asked", [{"seeds": 0}, {"minutes": 0.0}, {"minutes": nan}, {"brokers": 0}, {"owners": -1}, {"members": -1}]
)
def test_there_is_no_search_of_nothing(asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        sim(**asked)


def test_members_are_part_of_the_story_and_of_the_command(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with planted("group: generation") as plant:
        assert sim(seed=plant.seed, members=plant.scenario.members) == 1
    said = capfdbinary.readouterr().out.decode()
    assert "is in generation 1 of n" in said and "late commit" in said
    assert f"headrace sim --seed {plant.seed} --brokers 3 --members 3" in said


def test_a_tier_is_part_of_the_command(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with planted("tier: log start"):
        assert sim(seed=19, tier=True) == 1
    said = capfdbinary.readouterr().out.decode()
    assert "records gone too early" in said and "headrace sim --seed 19 --brokers 3 --tier" in said
