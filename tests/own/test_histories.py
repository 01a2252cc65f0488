"""Claimers that come, write, take over and go, through pauses, broken connections and changes of leaders.

Whatever happens: each generation has one writer, and what was acknowledged is there. Where claims are exclusive,
generations only rise along the log, and nothing of an earlier one is at or after the fence that a later one was told;
otherwise what was on the wire when its owner was cut off may arrive late.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from headrace import own
from headrace.errors import KafkaError
from tests.own.stage import T0, Claimer, Stage, play

SECONDS = 40.0
CLAIMERS = ("anna", "ben", "cleo")


@dataclass
class History:
    """What claimers were told."""

    fences: list[tuple[int, int]] = field(default_factory=list)  # generation and offset
    acknowledged: dict[str, int] = field(default_factory=dict)  # offset by value
    owners: dict[int, str] = field(default_factory=dict)  # by generation
    generation: int = 0  # the last one that anybody knows of
    losses: int = 0
    returns: int = 0

    def granted(self, name: str, ownership: own.Ownership) -> None:
        generation = ownership.generation
        assert self.owners.setdefault(generation, name) == name
        self.fences.append((generation, ownership.fence_offset))
        self.generation = max(self.generation, generation)


async def live(claimer: Claimer, history: History, random: Random, exclusive: own.Exclusive) -> None:
    while True:
        await asyncio.sleep(random.uniform(0, 2))
        generation = history.generation if history.generation and random.random() < 0.5 else None
        try:
            wait = generation is None and random.random() < 0.5
            async with claimer.claim(T0, generation, wait=wait, exclusive=exclusive, timeout_ms=8_000) as ownership:
                name = f"{claimer.name} {ownership.client_id}"
                history.granted(name, ownership)
                await write(name, ownership, history, random)
        except KafkaError as error:
            history.generation = max(history.generation, getattr(error, "generation", 0))


async def write(name: str, ownership: own.Ownership, history: History, random: Random) -> None:
    """For a while, on and on, also through losses that are mended."""
    end_s = asyncio.get_running_loop().time() + random.uniform(1, 8)
    async with ownership.producer(linger_ms=0, delivery_ms_max=20_000, request_ms_max=4_000) as producer:
        number = 0
        while asyncio.get_running_loop().time() < end_s:
            if ownership.lost.is_set():
                history.losses += 1
                await ownership.regained()
                history.returns += 1
                history.granted(name, ownership)
            for _ in range(random.randint(1, 5)):
                number += 1
                value = json.dumps([ownership.generation, name, number])
                producer.send("t", value.encode(), partition=0).add_done_callback(noting(history, value))
            await asyncio.sleep(random.uniform(0, 0.2))


def noting(history: History, value: str) -> Callable[[Any], None]:
    def note(future: Any) -> None:
        if not future.cancelled() and future.exception() is None:
            history.acknowledged[value] = future.result().offset

    return note


async def disturb(stage: Stage, claimers: list[Claimer], random: Random) -> None:
    """One thing at a time, so that there is always a majority."""
    world = stage.world
    while True:
        await asyncio.sleep(random.uniform(0, 2))
        claimer, node = random.choice(claimers), random.choice(world.nodes)
        match random.choice(["pause", "break", "break", "cut", "kill", "stop"]):
            case "pause":
                world.loop.pause(claimer.process)
                await asyncio.sleep(random.uniform(0, 9))
                world.loop.resume(claimer.process)
            case "break":
                claimer.break_connections()
            case "cut":
                claimer.cut_off()
                await asyncio.sleep(random.uniform(0, 9))
                world.network.heal_all()
            case "kill":
                node.kill()
                await asyncio.sleep(random.uniform(0, 6))
                node.start()
            case "stop":
                node.pause()
                await asyncio.sleep(random.uniform(0, 9))
                node.resume()


@pytest.mark.parametrize(
    ("seed", "exclusive"), [*[(seed, "produce") for seed in range(8)], *[(seed, False) for seed in range(3)]]
)
def test_no_history_has_two_owners(seed: int, exclusive: own.Exclusive) -> None:
    history = History()

    async def scenario(stage: Stage) -> None:
        await stage.create(min_insync_replicas="2")
        random = stage.world.random_for("claimers")
        claimers = [stage.claimer(name) for name in CLAIMERS]
        lives = [claimer.start(live(claimer, history, Random(random.random()), exclusive)) for claimer in claimers]
        trouble = asyncio.create_task(disturb(stage, claimers, random))
        await asyncio.sleep(SECONDS)
        trouble.cancel()
        for claimer in claimers:
            stage.world.loop.resume(claimer.process)
        stage.world.network.heal_all()
        for node in stage.world.nodes:
            node.resume()
            if not node.is_alive:
                node.start()
        await stage.world.until_serving()
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        log = [json.loads(value) for value in await stage.read()]
        check(history, log)
        if exclusive:
            check_fences(history, log)

    play(scenario, brokers=3, seed=seed)


def check_fences(history: History, log: list[list[Any]]) -> None:
    generations = [generation for generation, _, _ in log]
    assert generations == sorted(generations)
    for generation, fence in history.fences:
        assert all(later >= generation for later in generations[fence:])


def check(history: History, log: list[list[Any]]) -> None:
    for generation, name, _ in log:
        assert history.owners[generation] == name
    for value, offset in history.acknowledged.items():
        assert log[offset] == json.loads(value)
    assert len({json.dumps(entry) for entry in log}) == len(log)
    assert len(history.owners) >= 2 and len(log) >= 20
