"""The object store of a simulated world: shared, slow, silent, and alive when nodes are not."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from headrace.sim.loop import Process, SimLoop
from headrace.sim.objects import LATE_S_MAX, SimObjects, SimObjectStore, Weather
from headrace.storage.memory_files import MemoryFiles
from headrace.tier.probing import probe
from headrace.tier.store import FilePart, ObjectExists, ObjectMissing, StoreUnavailable


class Stage:
    def __init__(self) -> None:
        self.loop = SimLoop()
        self.objects = SimObjects(self.loop, Random(1))
        self.files = MemoryFiles()
        self.weather = Weather()
        self.process = Process(self.loop, "node1")
        self.store = self.open(self.process)

    def open(self, process: Process) -> SimObjectStore:
        return self.objects.open(process, self.files, self.weather)

    def play(self, main: Coroutine[Any, Any, None]) -> None:
        try:
            self.loop.run(main, 600)
            assert self.loop.failures == []
        finally:
            self.loop.close()


def test_it_is_an_object_store_and_takes_its_time() -> None:
    stage = Stage()

    async def main() -> None:
        stage.files.create("/a").write(0, [b"012345"])
        await probe(stage.store, 1)
        await stage.store.put("c/a", [b"x", FilePart("/a", 1, 3)])
        with pytest.raises(ObjectExists):
            await stage.store.put("c/a", [b"y"])
        assert await stage.store.get("c/a", 0, 4) == b"x123" and await stage.store.size("c/a") == 4
        for number in range(5):
            await stage.store.put(f"c/b{number}", [b"z"])
        other = stage.open(Process(stage.loop, "node2"))
        assert len([key async for key, _ in other.list("c/")]) == 6
        await stage.store.delete("c/a")
        with pytest.raises(ObjectMissing):
            await stage.store.size("c/a")
        assert stage.loop.now_s > 0.05

    stage.play(main())


def test_a_store_that_is_away_or_fails_does_nothing() -> None:
    stage = Stage()

    async def main() -> None:
        for weather in (Weather(away=True), Weather(failing=1.0)):
            stage.weather.away, stage.weather.failing = weather.away, weather.failing
            with pytest.raises(StoreUnavailable):
                await stage.store.put("c/a", [b"x"])
        stage.weather.clear()
        assert not stage.objects.bucket.objects

    stage.play(main())


def test_a_write_whose_answer_is_lost_is_done() -> None:
    stage = Stage()

    async def main() -> None:
        stage.weather.silent = 1.0
        with pytest.raises(StoreUnavailable):
            await stage.store.put("c/a", [b"x"])
        assert stage.objects.bucket.objects == {"c/a": b"x"}

    stage.play(main())


@pytest.mark.parametrize("late", [0.0, 1.0])
def test_a_write_that_was_sent_happens_though_its_node_be_dead(late: float) -> None:
    stage = Stage()

    async def put() -> None:
        with suppress(StoreUnavailable):
            await stage.store.put("c/a", [b"x"])
        raise AssertionError("a dead process goes on")

    async def main() -> None:
        stage.weather.late = late
        stage.loop.spawn(stage.process, put())
        await until(stage, lambda: stage.objects.under_way == 1, 0.001)
        stage.loop.kill(stage.process)
        assert not stage.objects.bucket.objects
        await until(stage, lambda: not stage.objects.under_way, 2 * LATE_S_MAX)
        assert stage.objects.bucket.objects == {"c/a": b"x"}

    stage.play(main())


async def until(stage: Stage, condition: Callable[[], bool], within_s: float) -> None:
    end_s = stage.loop.now_s + within_s
    while not condition():
        assert stage.loop.now_s < end_s
        await asyncio.sleep(0.0005)
