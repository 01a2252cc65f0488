"""The shop: a producer with acks=all that sends orders until it closes, and notes every acknowledgement."""

import asyncio
import threading
from collections.abc import Callable

from demo.evidence import Acked
from demo.orders import CLOSING_STEP, Order, encode, order
from demo.plan import ORDERS, ORDERS_PER_S, UNACKNOWLEDGED_MAX
from headrace.client import Producer

TICK_S = 0.05
LINGER_MS = 20


class Shop:
    """In a thread of its own. `acked` grows while it is open."""

    def __init__(self, bootstrap: str, now_s: Callable[[], float]) -> None:
        self.acked: list[Acked] = []
        self.closing = -1
        self.failure: BaseException | None = None
        self._bootstrap = bootstrap
        self._now_s = now_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shop", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Returns when every order is acknowledged, the closing one too; raises what went wrong with one."""
        self._closing.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            asyncio.run(self._sell())
        except BaseException as failure:  # whatever it was, who closes the shop hears of it
            self.failure = failure

    async def _sell(self) -> None:
        async with Producer(self._bootstrap, acks="all", linger_ms=LINGER_MS) as producer:
            number, sending = 0, set[asyncio.Task[None]]()
            began_s = self._now_s()
            while not self._closing.is_set():
                due = int((self._now_s() - began_s) * ORDERS_PER_S)
                while number < due and len(sending) < UNACKNOWLEDGED_MAX:
                    self._send(producer, order(number), sending)
                    number += 1
                began_s = max(began_s, self._now_s() - (number + ORDERS_PER_S) / ORDERS_PER_S)  # no rush after a stop
                await asyncio.sleep(TICK_S)
                _raise_failure(sending)
            await _all_of(sending)
            self.closing = number + CLOSING_STEP
            self._send(producer, order(self.closing), sending)
            await _all_of(sending)

    def _send(self, producer: Producer, one: Order, sending: "set[asyncio.Task[None]]") -> None:
        async def noted() -> None:
            stored = await future
            self.acked.append(Acked(self._now_s(), one.number, stored.partition, stored.offset))

        future = producer.send(ORDERS, encode(one), one.customer.encode())
        task = asyncio.ensure_future(noted())
        sending.add(task)
        task.add_done_callback(lambda done: None if done.cancelled() or done.exception() else sending.discard(done))


async def _all_of(sending: "set[asyncio.Task[None]]") -> None:
    await asyncio.gather(*sending)
    sending.clear()


def _raise_failure(sending: "set[asyncio.Task[None]]") -> None:
    """One that failed stays among those that are sent."""
    for task in sending:
        if task.done():
            task.result()
