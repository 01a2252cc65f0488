"""Random histories: at no instant two owners are served, and generations only rise. Scenarios by their ids."""

import asyncio
import random
from itertools import count

import pytest

from tests.broker.own_history import TROUBLE, History, Process, TokenProcess, mischief
from tests.broker.owning import ME, owner_at
from tests.broker.test_own_cluster import GATED
from tests.broker.trio import Trio, play

LASTS_S = 90.0


@pytest.mark.parametrize("seed", [1, 7, 14, 21])
def test_at_no_instant_two_owners_are_served(seed: int) -> None:
    """Town-17."""

    async def scenario(trio: Trio) -> None:
        chance = random.Random(seed)
        await trio.topic([1, 2, 3], settings={"min.insync.replicas": "2", **GATED})
        await trio.until(lambda: len(trio.record().isr_ids) == 3)
        history, end_s = History(), trio.world.loop.now_s + LASTS_S
        processes = [Process(trio, name, random.Random(seed * 10 + n), history, end_s) for n, name in enumerate("abcd")]
        await asyncio.gather(mischief(trio, chance, end_s), *(process.run() for process in processes))
        log = await whole_log(trio)
        assert history.violations(log) == []
        assert len(history.granted) > 4 and len(log) > 4, (len(history.granted), len(log))

    play(scenario, replicates=True, until_s=900, seed=seed + 1)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_highest_token_wins_and_no_lower_one_is_served_after_it(seed: int) -> None:
    """Town-17, Town-19, Town-39, without any setting of the topic."""

    async def scenario(trio: Trio) -> None:
        chance, numbers = random.Random(seed), count(1)
        await trio.topic([1, 2, 3], settings={"min.insync.replicas": "2"})
        await trio.until(lambda: len(trio.record().isr_ids) == 3)
        history, end_s = History(), trio.world.loop.now_s + LASTS_S
        processes = [TokenProcess(trio, name, random.Random(seed * 10 + ord(name)), history, end_s) for name in "abcd"]
        for process in processes:
            process.numbers = numbers
        await asyncio.gather(mischief(trio, chance, end_s), *(process.run() for process in processes))
        log = await whole_log(trio)
        assert history.violations(log) == []
        assert len(history.granted) > 4 and len(log) > 4, (len(history.granted), len(log))

    play(scenario, replicates=True, until_s=900, seed=seed + 1)


async def whole_log(trio: Trio) -> list[int]:
    while True:
        await trio.until(lambda: all(node.is_serving for node in trio.world.nodes) and trio.record().leader > 0)
        try:
            reader = await owner_at(trio, trio.record().leader)
            await reader.granted(0, holder=ME)
            return [int(value) for value in await reader.read_all() if value is not None]
        except (*TROUBLE, AssertionError):
            await asyncio.sleep(0.2)


def test_a_history_with_two_owners_is_found_out() -> None:
    history = History()
    history.granted += [(1.0, 1, "a"), (2.0, 2, "b"), (3.0, 1, "a")]
    history.served += [(2.5, 2, "a write"), (2.5, 1, "a write"), (1.5, 1, "a read")]
    assert history.violations([1, 2, 1]) == [
        "generation 1 is behind 2 in the log",
        "a write for 1, asked at 2.500, after 2 was granted",
    ]
    history.granted.append((4.0, 2, "c"))
    assert "generation 2 has ['b', 'c']" in history.violations([])
