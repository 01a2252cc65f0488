"""Work that is long because somebody asked for much takes many turns of the loop."""

import asyncio

TURN_US = 5_000


class Pace:
    """Of one piece of work. Costs are rough, and known beforehand, so that the same work takes the same turns."""

    def __init__(self) -> None:
        self._spent_us = 0

    async def spend(self, us: int) -> None:
        """Lets others run when this work has had its turn."""
        self._spent_us += us
        if self._spent_us >= TURN_US:
            self._spent_us = 0
            await asyncio.sleep(0)
