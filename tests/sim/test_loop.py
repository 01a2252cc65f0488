"""Virtual time, and processes that pause, die and have clocks of their own."""

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headrace.sim.loop import MachineClock, Process, SimLoop, Stuck


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop()
    yield loop
    loop.close()


async def tick(loop: SimLoop, seen: list[float], period_s: float) -> None:
    while True:
        seen.append(round(loop.time(), 3))
        await asyncio.sleep(period_s)


def test_an_hour_passes_at_once(loop: SimLoop) -> None:
    loop.run(asyncio.sleep(3600))
    assert loop.now_s == pytest.approx(3600)
    assert loop.handles_run < 10


def test_a_paused_process_does_nothing_and_then_what_was_due(loop: SimLoop) -> None:
    process, seen = Process(loop, "node"), list[float]()

    async def scenario() -> None:
        loop.spawn(process, tick(loop, seen, 1))
        await asyncio.sleep(2.5)
        loop.pause(process)
        await asyncio.sleep(5)
        loop.resume(process)
        await asyncio.sleep(2)

    loop.run(scenario())
    assert seen == [0, 1, 2, 7.5, 8.5, 9.5]


def test_a_dead_process_does_not_even_clean_up(loop: SimLoop) -> None:
    process, said = Process(loop, "node"), list[str]()

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            said.append("cleaned up")

    async def scenario() -> None:
        loop.spawn(process, work())
        await asyncio.sleep(1)
        loop.kill(process)
        await asyncio.sleep(100)
        assert said == []

    loop.run(scenario())


def test_timers_run_by_the_clock_of_their_machine(loop: SimLoop) -> None:
    clock = MachineClock(loop, wall_ms=1_000_000)
    process, seen = Process(loop, "node", clock), list[float]()
    clock.set_rate(2.0)

    async def scenario() -> None:
        loop.spawn(process, tick(loop, seen, 1))
        await asyncio.sleep(1.75)
        start_ms = clock.monotonic_ms()
        clock.jump(-3_600_000)
        await asyncio.sleep(1)
        assert clock.monotonic_ms() - start_ms == 2_000
        assert clock.wall_ms() < 1_000_000

    loop.run(scenario())
    assert seen == [0, 0.5, 1, 1.5, 2, 2.5]


def test_a_clock_may_stand_still_and_go_on(loop: SimLoop) -> None:
    clock = MachineClock(loop, wall_ms=1_000_000)
    process, seen = Process(loop, "node", clock), list[float]()

    async def scenario() -> None:
        loop.spawn(process, tick(loop, seen, 1))
        await asyncio.sleep(1.5)
        clock.set_rate(0.0)
        before = clock.monotonic_ms(), clock.boot_ms(), clock.wall_ms()
        await asyncio.sleep(2)
        assert (clock.monotonic_ms(), clock.boot_ms(), clock.wall_ms()) == before
        clock.set_rate(1.0)
        await asyncio.sleep(1)
        assert clock.monotonic_ms() - before[0] == 1_000
        with pytest.raises(ValueError, match="backwards"):
            clock.set_rate(-1.0)

    loop.run(scenario())
    assert seen == [0, 1, 2, 3, 4]


def test_time_outs_of_asyncio_work(loop: SimLoop) -> None:

    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        assert loop.time() == pytest.approx(5)

    loop.run(scenario())


def test_waiting_for_nothing_is_stuck_and_says_so(loop: SimLoop) -> None:
    with pytest.raises(Stuck, match="nothing is left"):
        loop.run(asyncio.Event().wait())


def test_an_endless_loop_is_stuck_and_names_its_process(loop: SimLoop) -> None:

    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="outside"):
        loop.run(spin())


def test_exceptions_that_nobody_handles_are_kept(loop: SimLoop) -> None:

    async def scenario() -> None:
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    loop.run(scenario())
    assert len(loop.failures) == 1 and "ZeroDivisionError" in loop.failures[0]


WORLD = """
import asyncio
from headrace.sim.loop import Process, SimLoop
loop = SimLoop()
async def work(name):
    for round in range(50):
        await asyncio.sleep(0.001 * round)
        await asyncio.gather(*(asyncio.sleep(0.01) for _ in range(3)))
async def main():
    await asyncio.gather(*(loop.spawn(Process(loop, name), work(name)) for name in "abc"))
loop.run(main())
print(loop.digest)
loop.close()
"""


def test_two_runs_have_the_same_digest_whatever_the_hash_seed() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", WORLD],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
