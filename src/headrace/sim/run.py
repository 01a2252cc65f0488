"""One seed, from the first start of a cluster to the verdict of the checkers."""

import asyncio
import gc
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from headrace.client import Admin, NewTopic, Outside, Producer
from headrace.errors import KafkaError
from headrace.model import TopicPartition
from headrace.sim import (
    batches,
    clerk,
    clients,
    driving,
    errands,
    members,
    owners,
    owning,
    settling,
    tiering,
    transacting,
)
from headrace.sim.boss import command
from headrace.sim.checkers import Violation, check
from headrace.sim.clients import Work
from headrace.sim.faults import Faults
from headrace.sim.history import Acked, History, NotRecovered, Unhandled
from headrace.sim.loop import Stuck
from headrace.sim.observer import Observer
from headrace.sim.plan import Fault, draw_plan, draw_surroundings, without
from headrace.sim.probing import probe
from headrace.sim.tier_part import TierPart
from headrace.sim.tiering import draw_tier
from headrace.sim.world import World

SECONDS = 12.0
RECOVERY_S_MAX = 60.0
TOPIC = "t"
TRANSACTIONS_TOPIC = "x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a run is made of, apart from its seed."""

    brokers: int = 3
    partitions: int = 2
    producers: int = 2
    transactors: int = 0
    """Clients that write in transactions, to a topic of their own."""
    drivers: int = 0
    """Drivers of one Spark query, each of which believes to be the only one, with tasks that write in transactions."""
    owners: int = 0
    """Clients that claim two partitions and a name from each other, and go on too long."""
    members: int = 0
    """Clients in one consumer group, every third of them a static member."""
    clerks: int = 0
    """Clients that ask for everything that administrators do, with mistakes."""
    tier: bool = False
    """Topics have a tier, and nodes are wiped."""
    seconds: float = SECONDS
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def has_transactions(self) -> bool:
        return self.transactors > 0 or self.drivers > 0


@dataclass(frozen=True, slots=True)
class Verdict:
    seed: int
    plan: list[Fault]
    violations: list[Violation]
    story: list[str]
    digest: int
    handles: int
    acked: int

    @property
    def kinds(self) -> set[str]:
        return {violation.kind for violation in self.violations}


class Run:
    def __init__(self, seed: int, scenario: Scenario, plan: Sequence[Fault] | None = None) -> None:
        self.seed = seed
        self.scenario = scenario
        random = Random(f"{seed} plan")
        self.around = draw_surroundings(random, scenario.brokers)
        self.tier = draw_tier(Random(f"{seed} tier"), scenario.brokers) if scenario.tier else None
        self.world = world = World(seed, scenario.brokers, {**self._settings(), **scenario.settings})
        # One copy survives a power loss only if it is on disk.
        with_power_loss = self.around.is_flushed or scenario.brokers > 1
        drawn = draw_plan(
            random,
            scenario.brokers,
            scenario.seconds,
            with_power_loss=with_power_loss,
            with_owners=scenario.owners > 0,
            with_tier=scenario.tier,
        )
        self.plan = drawn if plan is None else list(plan)
        self.history = History(world.loop.time)
        self.partitions = [TopicPartition(TOPIC, index) for index in range(scenario.partitions)]
        if self.tier is not None:
            self.partitions += tiering.PARTITIONS
        self.work = Work(world.bootstrap, self.partitions, self.history, scenario.seconds)
        copies = scenario.partitions if scenario.transactors else 0
        self.transacted = [TopicPartition(TRANSACTIONS_TOPIC, index) for index in range(copies)]
        self.transactions = Work(world.bootstrap, self.transacted, self.history, scenario.seconds)
        batched = scenario.partitions if scenario.drivers else 0
        self.batched = [TopicPartition(batches.TOPIC, index) for index in range(batched)]
        self.driving = driving.Driving(Work(world.bootstrap, self.batched, self.history, scenario.seconds))
        self.owned = list(owning.PARTITIONS) if scenario.owners else []
        self.owning = owning.Owning(Work(world.bootstrap, self.owned, self.history, scenario.seconds), world)
        grouped = members.PARTITIONS if scenario.members else []
        working = Work(world.bootstrap, grouped, self.history, scenario.seconds)
        self.membership = members.Members(working, world.story.tell)
        isr_min = int(self.around.topic_configs.get("min.insync.replicas", "1"))
        self.observer = Observer(world, self.history, self._copies, isr_min)
        self.tiered = None
        if self.tier is not None:
            others = [*self.transacted, *self.batched]
            self.tiered = TierPart(world, self.history, self.tier, self.work, self._copies, others)

    def _settings(self) -> dict[str, str]:
        settings = dict(self.around.settings)
        if self.scenario.has_transactions:
            settings.update(transacting.SETTINGS)
        if self.scenario.members:
            settings.update(members.SETTINGS)
        if self.scenario.clerks:
            settings.update(clerk.SETTINGS)
        if self.tier is not None:
            settings.update(self.tier.settings)
        if (self.scenario.has_transactions or self.scenario.members) and self.around.is_flushed:
            settings["log.flush.interval.messages"] = "1"  # also of what coordinators write
        return settings

    @property
    def _kept(self) -> list[TopicPartition]:
        """All partitions that must lose nothing."""
        if not self.scenario.has_transactions and not self.scenario.members:
            return [*self.owned, *self.partitions]
        internal = [members.COORDINATING] if self.scenario.members else []
        if self.scenario.has_transactions:
            internal += [
                TopicPartition(topic, at)
                for topic, setting in transacting.INTERNAL_PARTITIONS.items()
                for at in range(int(transacting.SETTINGS[setting]))
            ]
        # Faults that are aimed strike the leaders of the first two: a coordinator, and one of those who hear from it.
        written = [*self.transacted, *self.batched, *self.partitions]
        return [*self.owned[:1], internal[0], *written, *self.owned[1:], *internal[1:]]

    @property
    def _configs(self) -> dict[str, str]:
        """Of topics that lose nothing."""
        tiered = {} if self.tier is None else self.tier.configs[TOPIC]
        return {**self.around.topic_configs, **tiered}

    @property
    def _copies(self) -> int:
        return min(3, self.scenario.brokers)

    def verdict(self) -> Verdict:
        world = self.world
        was_collecting = gc.isenabled()
        gc.disable()  # a collector would run finalisers at moments of its own
        try:
            world.loop.run(self._main(), self.scenario.seconds + 10 * RECOVERY_S_MAX)
        except Stuck as error:
            self.history.add(NotRecovered(world.loop.now_s, str(error)))
        finally:
            if was_collecting:
                gc.enable()
            world.close()
        for failure in world.loop.failures:
            self.history.add(Unhandled(failure))
        events = self.history.events
        acked = sum(isinstance(event, Acked) for event in events)
        return Verdict(
            self.seed,
            self.plan,
            check(events),
            world.story.lines(),
            world.loop.digest,
            world.loop.handles_run,
            acked,
        )

    async def _main(self) -> None:
        world = self.world
        for node in world.nodes:
            node.start()
        await world.until_serving()
        _, outside = world.new_client("admin")
        await self._create_topic(outside)
        self.observer.start()
        jobs = [self._start(name, job) for name, job in self._jobs()]
        for number in range(1, self.scenario.owners + 1):
            keeping = owners.keep_owning(world, self.owning, f"o{number}")
            jobs.append(world.loop.spawn(world.loop.outside, keeping))
        for number in range(1, self.scenario.drivers + 1):
            jobs.append(world.loop.spawn(world.loop.outside, driving.keep_driving(world, self.driving, f"d{number}")))
        for number in range(1, self.scenario.members + 1):
            staying = members.keep_member(world, self.membership, f"m{number}", static=number % 3 == 1)
            jobs.append(world.loop.spawn(world.loop.outside, staying))
        around = self.around
        aims = [self._kept[0], *tiering.UNCLEAN_PARTITIONS] if self.tiered is not None else ()
        faults = Faults(world, self._kept, is_flushed=around.is_flushed, delay_s_max=around.delay_s_max, aims=aims)
        if self.tiered is not None:
            self.tiered.start(lambda: faults.muddled_s)
        for fault in self.plan:
            await asyncio.sleep(max(0.0, fault.at_s - world.loop.now_s))
            faults.happen(fault)
        await asyncio.sleep(max(0.0, self.scenario.seconds - world.loop.now_s))
        faults.heal()
        try:
            async with asyncio.timeout(RECOVERY_S_MAX):
                await self._recover(outside, jobs)
            if self.tiered is not None:
                async with asyncio.timeout(RECOVERY_S_MAX):
                    await self.tiered.look_in_the_end(outside)
        except (TimeoutError, KafkaError) as error:
            self.history.add(NotRecovered(world.loop.now_s, f"{RECOVERY_S_MAX:.0f} s after the last fault: {error!r}"))

    async def _create_topic(self, outside: Outside) -> None:
        configs = self.around.topic_configs
        async with Admin(self.world.bootstrap, outside=outside) as admin:
            wanted = NewTopic(TOPIC, self.scenario.partitions, self._copies, configs=self._configs)
            await admin.create_topics([wanted])
            if self.tiered is not None:
                await self.tiered.create_topics(admin, configs)
            for work in (self.transactions, self.driving.work):
                if work.partitions:
                    topic = work.partitions[0].topic
                    await admin.create_topics(
                        [NewTopic(topic, len(work.partitions), self._copies, configs=self._configs)]
                    )
                    await transacting.prepare(work, outside)
            for partition in self.owned:
                wanted = NewTopic(
                    partition.topic, 1, self._copies, configs={**configs, **owning.CONFIGS[partition.topic]}
                )
                await admin.create_topics([wanted])
            if self.scenario.clerks:
                await admin.create_topics([NewTopic(errands.TOPIC, 3, min(2, self._copies))])
            if self.membership.work.partitions:
                await admin.create_topics([NewTopic(members.TOPIC, len(members.PARTITIONS), self._copies)])
                await settling.prepare(self.membership, outside, self.world.random_for("group"))
        if self.owned:
            await owners.prepare(self.owning, outside)

    def _jobs(self) -> list[tuple[str, Any]]:
        random_for = self.world.random_for
        jobs: list[tuple[str, Any]] = [
            (name, lambda outside, name=name: clients.produce(self.work, name, outside, random_for(name)))
            for name in (f"p{number}" for number in range(1, self.scenario.producers + 1))
        ]
        jobs.append(("c1", lambda outside: clients.consume(self.work, "c1", outside)))
        jobs.append(("asker", lambda outside: clients.ask_ends(self.work, "asker", outside, random_for("asker"))))
        jobs.append(("prober", lambda outside: probe(self.work, "prober", outside, random_for("prober"))))
        for name in (f"x{number}" for number in range(1, self.scenario.transactors + 1)):
            jobs.append((name, partial(self._transact, name)))
        if self.transacted:
            jobs.append(("c2", lambda outside: transacting.consume_committed(self.transactions, "c2", outside)))
        if self.batched:
            jobs.append(("c3", lambda outside: transacting.consume_committed(self.driving.work, "c3", outside)))
        if self.owned:
            jobs.append(("thief", lambda outside: owners.intrude(self.owning, "thief", outside, random_for("thief"))))
        for name in (f"k{number}" for number in range(1, self.scenario.clerks + 1)):
            jobs.append((name, partial(self._inquire, name)))
        if self.tiered is not None:
            jobs += self.tiered.jobs()
        jobs.append(("boss", lambda outside: command(self.work, "boss", outside, random_for("boss"))))
        return jobs

    def _transact(self, name: str, outside: Outside) -> Coroutine[Any, Any, None]:
        return transacting.transact(self.transactions, name, outside, self.world.random_for(name))

    def _inquire(self, name: str, outside: Outside) -> Coroutine[Any, Any, None]:
        return clerk.inquire(self.work, name, outside, self.world.random_for(name))

    def _start(self, name: str, job: Any) -> "asyncio.Task[None]":
        process, outside = self.world.new_client(name)
        work: Coroutine[Any, Any, None] = job(outside)
        return self.world.loop.spawn(process, work)

    async def _recover(self, outside: Outside, jobs: list["asyncio.Task[None]"]) -> None:
        """Every partition takes a write again, every client comes to its end, all replicas are the same."""
        await self.world.until_serving(RECOVERY_S_MAX)
        async with Producer(self.world.bootstrap, outside=outside, client_id="last", linger_ms=0) as producer:
            await asyncio.gather(
                *(
                    clients.send(self.history, "last", producer, partition, f"last-{partition}".encode())
                    for partition in self.partitions
                )
            )
        if self.scenario.members:
            await settling.settle(self.membership, self.scenario.members)
        await asyncio.gather(*jobs)
        if self.scenario.members:
            await settling.look_in_the_end(self.membership, outside, self.world.random_for("group"))
        if self.transacted:
            await transacting.read_committed_in_the_end(self.transactions, outside)
            groups = [f"x{number}" for number in range(1, self.scenario.transactors + 1)]
            await transacting.find_offsets(self.transactions, groups, outside)
        if self.batched:
            await transacting.read_committed_in_the_end(self.driving.work, outside)
            await driving.ask_in_the_end(self.driving, outside)
        if self.owned:
            await owners.read_in_the_end(self.owning, outside)
        everything = [*self.partitions, *self.transacted, *self.batched, *self.owned]
        await self.observer.until_in_sync(everything)
        await clients.read_everything(self.work, outside)
        await self.observer.until_informed()
        async with Admin(self.world.bootstrap, outside=outside) as admin:
            await clients.find_topics(self.history, admin)
        self.observer.add_replicas(everything)


def run_seed(seed: int, scenario: Scenario, plan: Sequence[Fault] | None = None) -> Verdict:
    return Run(seed, scenario, plan).verdict()


def shorten(failed: Verdict, scenario: Scenario, runs_max: int = 60) -> Verdict:
    """The same violation with fewer faults: takes away halves, quarters, and so on, while it still fails."""
    kind = failed.violations[0].kind
    size = max(1, len(failed.plan) // 2)
    runs = 0
    while failed.plan and runs < runs_max:
        at = 0
        while at < len(failed.plan) and runs < runs_max:
            runs += 1
            tried = run_seed(failed.seed, scenario, without(failed.plan, at, size))
            if kind in tried.kinds:
                failed = tried
            else:
                at += size
        if size == 1:
            break
        size = max(1, size // 2)
    return failed
