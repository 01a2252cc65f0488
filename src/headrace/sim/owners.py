"""Claimers of a simulated cluster: the real library `headrace.own`, in processes that are paused, cut off, killed."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from random import Random

from headrace import own
from headrace.client import Outside, RecordMetadata
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.own.questions import Claimer
from headrace.sim import clients
from headrace.sim.history import Final, OwnRead, OwnSent, OwnStored, Seen, Unhandled
from headrace.sim.mishaps import befall
from headrace.sim.owning import EXCLUSIVE, GATED, GROUP, LAMP, PARTITIONS, Grant, Owning
from headrace.sim.world import World
from headrace.sim.zombies import Zombie
from headrace.wire.messages.own import OwnResult

CHOICES = ((str(GATED),), (str(GATED),), (str(EXCLUSIVE),), (str(GATED), str(EXCLUSIVE)), (LAMP,))
CLAIM_S_MAX = 8.0
RECORDS_MAX = 4
LOOK_BACK_OFFSETS = 5
GONE = float("inf")
BEYOND = 1_000
"""More generations than claims of which nobody heard."""
PAUSES_S = (0.0, 0.02, 0.1, 0.4)


class Life:
    """One process that claims, works, and does not always notice when it should stop."""

    def __init__(self, owning: Owning, name: str, outside: Outside, random: Random) -> None:
        self._owning = owning
        self._work = owning.work
        self._history = owning.work.history
        self._name = name
        self._outside = outside
        self._random = random
        self._zombies: list[asyncio.Task[None]] = []
        self._numbers = 0

    async def run(self) -> None:
        while not self._work.is_over:
            await asyncio.sleep(self._random.expovariate(3))
            await self._once()
        await asyncio.gather(*self._zombies)

    async def _once(self) -> None:
        resources = self._random.choice(CHOICES)
        generations = None
        if self._random.random() < 0.5 and all(name in self._owning.last for name in resources):
            # Now and then one that is not the last.
            generations = {name: max(1, self._owning.last[name] - (self._random.random() < 0.2)) for name in resources}
        asked = self._owning.now()
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(CLAIM_S_MAX):
                    ownership = await stack.enter_async_context(self._claim(resources, generations))
                stack.callback(self._leave, ownership)
                await self._hold(ownership, asked.at_s)
        except own.AlreadyOwned as error:
            self._owning.last[error.resource] = max(self._owning.last.get(error.resource, 0), error.generation)
            if len(resources) > 1:
                self._owning.released(resources, asked)  # what it had got already
        except own.OwnershipLost:
            if generations is None or len(resources) > 1:
                self._owning.released(resources, asked)
        except (KafkaError, TimeoutError):
            self._owning.released(resources, asked)

    def _claim(
        self, resources: Sequence[str], generations: dict[str, int] | None
    ) -> AbstractAsyncContextManager[own.Ownership]:
        return own.claim(
            self._work.bootstrap,
            GROUP,
            resources,
            generations,
            wait=generations is None and self._random.random() < 0.6,
            exclusive=str(EXCLUSIVE) in resources,
            client_id=self._name,
            timeout_ms=int(CLAIM_S_MAX * 1000),
            outside=self._outside,
        )

    def _leave(self, ownership: own.Ownership) -> None:
        resource = str(EXCLUSIVE)
        if resource in ownership.generations:
            self._owning.released([resource], self._owning.now(), ownership.generations[resource])

    async def _hold(self, ownership: own.Ownership, asked_s: float) -> None:
        self._watch(ownership, asked_s)
        partitions = [partition for partition in PARTITIONS if str(partition) in ownership.generations]
        for partition in partitions:
            if self._random.random() < 0.7:
                self._wake_zombie(ownership, partition)
        until_s = self._history.now_s() + self._random.uniform(0.3, 6)
        if not partitions:
            while self._history.now_s() < until_s and not self._work.is_over:
                await ownership.regained()
                await asyncio.sleep(0.3)
            return
        granted_s = self._history.now_s()
        settings = {"delivery_ms_max": 8_000, "request_ms_max": 4_000, "linger_ms": 0}
        async with ownership.producer(**settings) as producer, ownership.consumer(max_wait_ms=500) as consumer:
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, max(0, ownership.fence_offsets[str(partition)] - LOOK_BACK_OFFSETS))
            while self._history.now_s() < until_s and not self._work.is_over:
                try:
                    if self._random.random() < 0.6:
                        self._write(ownership, producer, self._random.choice(partitions))
                    else:
                        await self._read(ownership, consumer, granted_s)
                except own.OwnershipLost:
                    await ownership.regained()
                await asyncio.sleep(self._random.choice(PAUSES_S))

    def _watch(self, ownership: own.Ownership, asked_s: float) -> None:
        """Writes down what is granted, now and whenever it comes back."""
        since_s: float | None = asked_s
        noted: dict[str, Grant] = {}

        def note(asked_s: float) -> None:
            for resource in ownership.generations:
                grant = Grant.held(ownership, resource)
                if noted.get(resource) != grant:
                    noted[resource] = grant
                    self._owning.granted(asked_s, self._name, ownership.client_id, grant)

        def heard() -> None:
            nonlocal since_s
            if ownership.is_gone:
                if since_s != GONE:
                    self._owning.tell(self._name, f"has lost what it had: {ownership.reason}")
                since_s = GONE
            elif ownership.lost.is_set():
                since_s = self._history.now_s() if since_s is None else since_s
            elif since_s is not None:
                note(since_s)
                since_s = None

        note(asked_s)
        since_s = None
        ownership.listeners.append(heard)

    def _write(self, ownership: own.Ownership, producer: own.OwnedProducer, partition: TopicPartition) -> None:
        history, generation = self._history, ownership.generations[str(partition)]
        for _ in range(self._random.randint(1, RECORDS_MAX)):
            self._numbers += 1
            value = f"{self._name}-{self._numbers}".encode()
            ownership.check()
            history.add(OwnSent(history.now_s(), ownership.client_id, partition, generation, value))
            future = clients.send(history, ownership.client_id, producer, partition, value)
            future.add_done_callback(partial(self._settled, value))

    def _settled(self, value: bytes, future: "asyncio.Future[RecordMetadata]") -> None:
        if not future.cancelled() and future.exception() is None:
            self._history.add(OwnStored(self._history.now_s(), value, True))

    async def _read(self, ownership: own.Ownership, consumer: own.OwnedConsumer, granted_s: float) -> None:
        history, holder = self._history, ownership.client_id
        for record in await consumer.poll(200):
            partition, value = TopicPartition(record.topic, record.partition), record.value or b""
            generation, now_s = ownership.generations[str(partition)], history.now_s()
            history.add(Seen(now_s, holder, partition, record.offset, value))
            history.add(OwnRead(granted_s, now_s, holder, partition, generation, record.offset, value))

    def _wake_zombie(self, ownership: own.Ownership, partition: TopicPartition) -> None:
        claimer = ownership._holdings.claimer  # it knows all that its owner knows

        def resumed(asked_s: float, result: OwnResult) -> None:
            self._owning.granted(asked_s, self._name, claimer.client_id, Grant.answered(result))

        self._numbers += 1
        zombie = Zombie(
            self._owning,
            f"{self._name}z{self._numbers}",
            claimer,
            partition,
            ownership.generations[str(partition)],
            self._outside,
            Random(self._random.random()),
            resumed,
        )
        until_s = self._history.now_s() + self._random.uniform(1, 9)
        self._zombies.append(asyncio.ensure_future(zombie.run(until_s)))


async def keep_owning(world: World, owning: Owning, name: str) -> None:
    """One life after another: whoever is killed is started again, as somebody else."""
    random = world.random_for(name)
    number = 0
    while not owning.work.is_over:
        number += 1
        host = f"{name}.{number}"
        process, outside = world.new_client(host)
        life = Life(owning, host, outside, Random(random.random()))
        try:
            await befall(world, process, host, world.loop.spawn(process, life.run()), random)
        except Exception as error:  # whatever the library lets through that it should not
            owning.work.history.add(Unhandled(f"{host}: {error!r}"))
        await asyncio.sleep(0.1)


async def intrude(owning: Owning, name: str, outside: Outside, random: Random) -> None:
    """Somebody who never owned anything tries all the same."""
    nobody = Claimer(GROUP, name, bytes(16), 0)
    zombies = [
        Zombie(owning, f"{name}z{partition.topic}", nobody, partition, 0, outside, Random(random.random()))
        for partition in PARTITIONS
    ]
    await asyncio.gather(*(zombie.run(owning.work.until_s) for zombie in zombies))


async def prepare(owning: Owning, outside: Outside) -> None:
    """What a setting of its topic closes, and the name, have had an owner before anything goes wrong."""
    owning.unclaimed()
    asked_s = owning.work.history.now_s()
    names = [str(GATED), LAMP]
    async with own.claim(owning.work.bootstrap, GROUP, names, client_id="first", outside=outside) as ownership:
        for name in names:
            owning.granted(asked_s, "first", ownership.client_id, Grant.held(ownership, name))


async def read_in_the_end(owning: Owning, outside: Outside) -> None:
    """The last owner takes over, since a dead one whose end nobody heard of may still stand there, and reads what all
    others left."""
    history = owning.work.history
    while True:
        asked_s, names = history.now_s(), [*map(str, PARTITIONS), LAMP]
        numbers = {name: owning.last.get(name, 0) + BEYOND for name in names}
        try:
            async with own.claim(
                owning.work.bootstrap, GROUP, names, numbers, client_id="heir", outside=outside
            ) as ownership:
                for name in names:
                    owning.granted(asked_s, "heir", ownership.client_id, Grant.held(ownership, name))
                found = [
                    Final(partition, record.offset, record.value or b"")
                    for partition in PARTITIONS
                    async for record in ownership.backlog(partition)
                ]
        except KafkaError:
            await asyncio.sleep(0.2)
            continue
        for final in found:
            history.add(final)
        return
