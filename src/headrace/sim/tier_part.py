"""The part of a run that is about the tier: its topics, its clients, and who looks at it."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any

from headrace.client import Admin, Consumer, NewTopic, Outside
from headrace.model import TopicPartition
from headrace.sim.clients import Work
from headrace.sim.electing import ElectionObserver
from headrace.sim.history import History
from headrace.sim.observer import find
from headrace.sim.tier_history import EXPIRES, Began, DeleteAsked
from headrace.sim.tier_observer import TierObserver
from headrace.sim.tier_readers import Seeker, read_all, reread
from headrace.sim.tier_writers import come_and_go, delete_oldest, scribble
from headrace.sim.tiering import KEPT, PARTITIONS, SHORT, UNCLEAN, UNCLEAN_PARTITIONS, Tier
from headrace.sim.world import World

Job = Callable[[Outside], Coroutine[Any, Any, None]]
READERS = 2


class TierPart:
    def __init__(
        self,
        world: World,
        history: History,
        tier: Tier,
        work: Work,
        copies: int,
        others: Sequence[TopicPartition] = (),
    ) -> None:
        """The partitions of `work` are read again and again: those of the kept topic and of the short one.
        `others` are tiered too."""
        self._world = world
        self._history = history
        self._tier = tier
        self._work = work
        self._copies = copies
        self._observer = TierObserver(world, history, [*work.partitions, *UNCLEAN_PARTITIONS, *others])

    def start(self, muddled_s: Callable[[], float]) -> None:
        self._observer.start()
        ElectionObserver(self._world, self._history, (KEPT, SHORT, UNCLEAN), muddled_s).start()

    async def create_topics(self, admin: Admin, configs: dict[str, str]) -> None:
        for topic in (SHORT, UNCLEAN):
            wanted = {**configs, **self._tier.configs[topic]}
            await admin.create_topics([NewTopic(topic, 1, self._copies, configs=wanted)])
        # Who leads without all that was committed may have to begin where it can.
        for partition in (*UNCLEAN_PARTITIONS, *(PARTITIONS if self._tier.expires else ())):
            self._history.add(DeleteAsked(self._history.now_s(), partition, EXPIRES))

    def log_start(self, partition: TopicPartition) -> int:
        """The latest beginning that anybody knows of."""
        truth = self._world.truth
        topic_id = truth.topic_id(partition.topic)
        pointer = None if topic_id is None else truth.pointer(topic_id, partition.partition)
        known = [0 if pointer is None else pointer.log_start_offset]
        known += [
            hosted.log_start_offset for node in self._world.nodes if (hosted := find(node, partition)) is not None
        ]
        return max(known)

    def jobs(self) -> Sequence[tuple[str, Job]]:
        random_for, work = self._world.random_for, self._work
        jobs: list[tuple[str, Job]] = [
            (name, partial(self._reread, name, random_for(name))) for name in (f"r{n + 1}" for n in range(READERS))
        ]
        jobs.append(("seeker", self._seek))
        jobs.append(("scribe", lambda o: scribble(work, "scribe", o, random_for("scribe"), UNCLEAN_PARTITIONS)))
        if not self._tier.expires:
            jobs.append(("deleter", self._delete))
        configs = self._tier.configs[KEPT]
        jobs.append(("guest", lambda o: come_and_go(work, "guest", o, random_for("guest"), configs, self._copies)))
        return jobs

    def _reread(self, name: str, random: Random, outside: Outside) -> Coroutine[Any, Any, None]:
        return reread(self._work, name, outside, random, self.log_start)

    def _seek(self, outside: Outside) -> Coroutine[Any, Any, None]:
        random = self._world.random_for("seeker")
        unclean = UNCLEAN_PARTITIONS
        return Seeker(self._world, self._work, "seeker", outside, random, self.log_start, unclean).run()

    def _delete(self, outside: Outside) -> Coroutine[Any, Any, None]:
        random = self._world.random_for("deleter")
        return delete_oldest(self._work, "deleter", outside, random, PARTITIONS, self.log_start)

    async def look_in_the_end(self, outside: Outside) -> None:
        """When everything else has been read."""
        await read_all(self._work, "last reader", outside, self._world.random_for("last reader"), self.log_start)
        await self._observer.until_clean()
        await self._observer.verify()
        async with Consumer(self._world.bootstrap, outside=outside, client_id="beginnings") as consumer:
            for partition, offset in (await consumer.beginning_offsets(self._work.partitions)).items():
                self._history.add(Began(partition, offset))
