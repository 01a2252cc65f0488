"""Runs a test on each event loop that a node may run on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def on_both_loops(test: Callable[[], Awaitable[None]]) -> Callable[[str], None]:
    """For a test without fixtures."""

    @pytest.mark.parametrize("loop_name", list(LOOPS))
    def run(loop_name: str) -> None:
        async def with_deadline() -> None:
            async with asyncio.timeout(60):
                await test()

        with asyncio.Runner(loop_factory=LOOPS[loop_name]) as runner:
            runner.run(with_deadline())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


async def until(condition: Callable[[], Any], deadline_s: float = 30.0) -> None:
    """Waits for a condition that other tasks bring about."""
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110  # what tests wait for has no event of its own
            await asyncio.sleep(0.002)
