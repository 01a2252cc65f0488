"""The shop: a producer with acks=all that sends orders until it closes, and notes every acknowledgement."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from demo.evidence import Acked
from demo.orders import CLOSING_STEP, Order, encode, order
from demo.plan import AHEAD_MAX, ORDERS, ORDERS_PER_S, PARTITIONS
from headrace.client import Producer, RecordMetadata
from headrace.core.murmur2 import partition_for

TICK_S = 0.05
LINGER_MS = 50
ABANDONED_S_MAX = 5.0


class Shop:
    """In a thread of its own. `acked` grows while it is open."""

    def __init__(self, bootstrap: str, now_s: Callable[[], float]) -> None:
        self.acked: list[Acked] = []
        self.sent = 0
        """The number of the next order."""
        self.closing = -1
        self.failure: BaseException | None = None
        self._bootstrap = bootstrap
        self._now_s = now_s
        self._loss: BaseException | None = None
        self._under_way: set[int] = set()
        self._closing = threading.Event()
        self._selling: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._thread = threading.Thread(target=self._run, name="shop", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Returns when every order is acknowledged, the closing one too; raises what went wrong with one."""
        self._closing.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def abandon(self) -> None:
        """For who does not wait for its orders: what is left of it when the process ends, Python complains of."""
        if self._selling is not None:
            loop, selling = self._selling
            with suppress(RuntimeError):  # it has just ended by itself
                loop.call_soon_threadsafe(selling.cancel)
        self._thread.join(ABANDONED_S_MAX)

    def under_way(self, partition: int, since: int) -> int:
        """How many orders for it, of that number or a higher one, are sent and not acknowledged yet."""
        keys = [order(number).customer.encode() for number in list(self._under_way) if number >= since]
        return sum(partition_for(key, PARTITIONS) == partition for key in keys)

    def _run(self) -> None:
        try:
            asyncio.run(self._sell())
        except BaseException as failure:  # whatever it was, who closes the shop hears of it
            self.failure = failure

    async def _sell(self) -> None:
        self._selling = asyncio.get_running_loop(), cast("asyncio.Task[None]", asyncio.current_task())
        async with Producer(self._bootstrap, acks="all", linger_ms=LINGER_MS) as producer:
            number, began_s = 0, self._now_s()
            while not self._closing.is_set():
                due = int((self._now_s() - began_s) * ORDERS_PER_S)
                end = min(due, min(self._under_way, default=number) + AHEAD_MAX)
                while number < end:
                    self._send(producer, order(number))
                    number += 1
                self.sent = number
                began_s = max(began_s, self._now_s() - number / ORDERS_PER_S - 1)  # no rush after a stop
                await asyncio.sleep(TICK_S)
                self._raise_loss()
            await producer.flush()
            self.closing = number + CLOSING_STEP
            self._send(producer, order(self.closing))
            await producer.flush()
            await asyncio.sleep(0)  # whoever waits for a future hears of it one turn later
            self._raise_loss()

    def _send(self, producer: Producer, one: Order) -> None:
        sent_s = self._now_s()
        self._under_way.add(one.number)

        def done(future: "asyncio.Future[RecordMetadata]") -> None:
            self._under_way.discard(one.number)
            if (lost := future.exception()) is not None:
                self._loss = lost
                return
            stored = future.result()
            self.acked.append(Acked(self._now_s(), one.number, stored.partition, stored.offset, sent_s))

        producer.send(ORDERS, encode(one), one.customer.encode()).add_done_callback(done)

    def _raise_loss(self) -> None:
        if self._loss is not None:
            raise self._loss
