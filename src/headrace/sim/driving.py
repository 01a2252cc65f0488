"""Drivers of one Spark query in a simulated cluster, with their tasks, in processes that are paused, cut off, killed.

Each driver believes that it is the only one: it goes on behind the last batch that the query's checkpoint knows of,
which may be one less than was committed. Some attempts at tasks are late, or go on when their batch is over.
"""

import asyncio
from random import Random

from headrace.client import CommitGroups, Handle, Outside, Producer, TimedOut
from headrace.client.commit_group import transactional_id
from headrace.errors import KafkaError
from headrace.sim.batches import Row, rows_of, value_of
from headrace.sim.clients import Work
from headrace.sim.history import BatchCommitted, BatchTold, Unhandled
from headrace.sim.mishaps import befall
from headrace.sim.world import World

SCOPE, QUERY = "sim", "q"
TIMEOUT_MS = 4_000
"""Of attempts whose process is gone; and of some that are only slow."""


class Driving:
    """What the drivers of one world share."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.checkpoint = -1
        """The last batch that a driver has written down as done. Whoever dies before that does it again."""


class Driver:
    def __init__(self, driving: Driving, name: str, outside: Outside, random: Random) -> None:
        self._driving = driving
        self._work = driving.work
        self._name = name
        self._outside = outside
        self._random = random
        self._attempts = 0
        self._zombies: set[asyncio.Task[Handle | None]] = set()

    async def run(self) -> None:
        async with CommitGroups(
            self._work.bootstrap, timeout_ms=8_000, client_id=self._name, outside=self._outside
        ) as groups:
            while not self._work.is_over:
                await asyncio.sleep(self._random.expovariate(6))
                try:
                    await self._batch(groups, self._driving.checkpoint + 1)
                except KafkaError:
                    continue  # Spark starts the query again, which does the batch again
        await asyncio.gather(*self._zombies, return_exceptions=True)

    async def _batch(self, groups: CommitGroups, batch_id: int) -> None:
        random = self._random
        tasks = [self._task(groups, rows) for rows in rows_of(batch_id)]
        written = await asyncio.gather(*tasks, return_exceptions=True)
        handles = [handle for handle in written if isinstance(handle, Handle)]
        failures = [failure for failure in written if isinstance(failure, BaseException)]
        for failure in failures:
            if not isinstance(failure, KafkaError):
                raise failure
        if failures or random.random() < 0.1:
            await groups.abort(SCOPE, QUERY, batch_id, self._name, handles)
            return
        await self._commit(groups, batch_id, handles)
        if random.random() < 0.2:
            await groups.abort(SCOPE, QUERY, batch_id, self._name, handles)
        if random.random() < 0.8:
            self._driving.checkpoint = max(self._driving.checkpoint, batch_id)

    async def _commit(self, groups: CommitGroups, batch_id: int, handles: list[Handle]) -> None:
        while True:
            try:
                await groups.commit(SCOPE, QUERY, batch_id, self._name, handles)
                break
            except TimedOut:
                if self._work.is_over:
                    raise
        history = self._work.history
        history.add(BatchCommitted(history.now_s(), self._name, batch_id))

    async def _task(self, groups: CommitGroups, rows: list[Row]) -> Handle | None:
        """None: there is nothing to write, or it is committed already."""
        if not rows:
            return None
        random = self._random
        if random.random() < 0.5 and await told_last(self._work, groups, self._name) >= rows[0].batch_id:
            return None
        if random.random() < 0.2:
            zombie = asyncio.ensure_future(self._attempt(rows, random.choice((0.1, 1.0, 3.0))))
            self._zombies.add(zombie)
            zombie.add_done_callback(_forget_failure)
        return await self._attempt(rows, random.choice((0.0, 0.0, 0.1, 1.0)))

    async def _attempt(self, rows: list[Row], slowness_s: float) -> Handle | None:
        self._attempts += 1
        number = self._attempts
        batch_id, task, _ = rows[0]
        name = transactional_id(SCOPE, QUERY, batch_id, task, self._name, number)
        partitions = self._work.partitions
        async with Producer(
            self._work.bootstrap,
            outside=self._outside,
            client_id=self._name,
            transactional_id=name,
            transaction_timeout_ms=TIMEOUT_MS,
            delivery_ms_max=6_000,
            request_ms_max=3_000,
            linger_ms=0,
        ) as producer:
            await producer.begin()
            for row in rows:
                partition = partitions[sum(row) % len(partitions)]
                value = value_of(row, f"{self._name}#{number}")
                producer.send(partition.topic, value, partition=partition.partition)
                if slowness_s:
                    await producer.flush()
                    await asyncio.sleep(self._random.expovariate(1 / slowness_s))
            return await producer.handle()


def _forget_failure(task: "asyncio.Task[Handle | None]") -> None:
    if not task.cancelled():
        task.exception()


async def told_last(work: Work, groups: CommitGroups, name: str) -> int:
    asked_s = work.history.now_s()
    last = await groups.last_committed(SCOPE, QUERY)
    work.history.add(BatchTold(asked_s, work.history.now_s(), name, last))
    return last


async def keep_driving(world: World, driving: Driving, name: str) -> None:
    """One run after another: a driver that is killed is started again, on the same checkpoint."""
    random = world.random_for(name)
    number = 0
    while not driving.work.is_over:
        number += 1
        host = f"{name}.{number}"
        process, outside = world.new_client(host)
        driver = Driver(driving, host, outside, Random(random.random()))
        try:
            await befall(world, process, host, world.loop.spawn(process, driver.run()), random)
        except Exception as error:  # whatever the client lets through that it should not
            driving.work.history.add(Unhandled(f"{host}: {error!r}"))
        await asyncio.sleep(0.1)


async def ask_in_the_end(driving: Driving, outside: Outside) -> None:
    async with CommitGroups(driving.work.bootstrap, client_id="last", outside=outside) as groups:
        await told_last(driving.work, groups, "last")
