"""People who wait are told why: once when something is tried again for a while, and once when it works."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from headrace.cli import output
from headrace.cli.commands import BOOTSTRAP
from headrace.cli.outcome import Failure
from headrace.client import Admin, NotReachable

PATIENCE_S = 2.0
LOOK_S = 0.2
FIRST_CONTACT_MS_MAX = 10_000
"""A cluster that just starts is waited for; an address where nobody is should not cost a person much longer."""


class Client(Protocol):
    @property
    def trouble(self) -> str | None: ...

    async def reach(self, timeout_ms: int) -> None: ...


@asynccontextmanager
async def watched(client: Client, what: str) -> AsyncIterator[None]:
    """Inside, a broker has answered. `what` begins a sentence: "writing to orders"."""
    watch = _Watch(client, what)
    watching = asyncio.ensure_future(watch.run())
    try:
        try:
            await client.reach(FIRST_CONTACT_MS_MAX)
        except NotReachable as error:
            hint = "; `headrace up` starts one" if BOOTSTRAP in error.message else ""
            raise Failure(f"{error.message}{hint}") from error
        yield
        watch.look()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@asynccontextmanager
async def administrator(bootstrap: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap) as admin, watched(admin, f"asking {bootstrap}"):
        yield admin


class _Watch:
    def __init__(self, client: Client, what: str) -> None:
        self._client = client
        self._what = what
        self._since: float | None = None
        self._told = False

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        trouble = self._client.trouble
        now = asyncio.get_running_loop().time()
        if trouble is None:
            if self._told:
                output.say(f"headrace: {self._what} goes on")
            self._since, self._told = None, False
        elif self._since is None:
            self._since = now
        elif not self._told and now - self._since >= PATIENCE_S:
            output.say(f"headrace: {self._what} is held up, and tried again: {trouble}")
            self._told = True
