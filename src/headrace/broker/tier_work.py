"""The leader's work on the tier, in rounds: of each partition in turn what is to be copied, and what is to go.

A few partitions at a time. One whose work fails waits for the next round, and holds up nobody else.
"""

import asyncio
import logging

from headrace.broker.broker import Broker
from headrace.broker.tier import Tier, TierLog
from headrace.broker.tier_copier import Copier
from headrace.broker.tier_expiry import Expiry
from headrace.broker.tier_publishing import Stopped
from headrace.broker.tier_topics import TierTopics
from headrace.errors import CorruptLog
from headrace.runtime import tell_bug

log = logging.getLogger(__name__)

PARTITIONS_AT_ONCE = 4
REMIND_MS = 600_000


class TierWork:
    def __init__(self, broker: Broker, tier: Tier) -> None:
        self._broker = broker
        self._tier = tier
        self._copier = Copier(tier)
        self._expiry = Expiry(broker, tier)
        self._topics = TierTopics(broker.controller, tier)
        self._busy: dict[TierLog, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(PARTITIONS_AT_ONCE)
        self._tasks: list[asyncio.Task[None]] = []
        self._hindered: dict[TierLog, None] = {}
        """Whose last round was stopped."""
        self._told_ms = 0
        tier.on_loaded.append(self._found)

    def start(self) -> None:
        self._tasks = [self._broker.loop.create_task(work()) for work in (self._run, self._delete_topics)]

    async def close(self) -> None:
        tasks = [*self._busy.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        await self._tier.is_proven.wait()
        while True:
            self.look()
            await asyncio.sleep(self._interval_s)

    @property
    def _interval_s(self) -> float:
        return self._broker.config.remote_log_manager_task_interval_ms / 1000

    async def _delete_topics(self) -> None:
        await self._tier.is_proven.wait()
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._topics.look()
            except Exception as bug:  # in one round: it must not end it for the rest of the node's life
                tell_bug("deleting the objects of deleted topics failed, and is tried again", bug)

    def look(self) -> None:
        """At every partition that this node leads, and that nobody works on yet.

        Not for an earlier leadership either: what that has stored, and is about to publish, would be swept.
        """
        busy = {tier_log.partition for tier_log in self._busy}
        for tier_log in self._tier.logs():
            if not tier_log.is_loaded.is_set():
                continue
            if tier_log.partition in busy:
                self._measure(tier_log)
            else:
                self._busy[tier_log] = self._broker.loop.create_task(self._work(tier_log))

    def _measure(self, tier_log: TierLog) -> None:
        """A round that takes long began with less than there is to copy now."""
        try:
            self._copier.measure(tier_log)
        except (OSError, CorruptLog):
            return  # the round meets it too, and says so

    async def _work(self, tier_log: TierLog) -> None:
        partition = tier_log.partition
        try:
            async with self._slots:
                await self._take_turn(tier_log)
            self._went_through(tier_log)
        except Stopped as reason:
            if not tier_log.is_over:
                self._stopped(tier_log, str(reason))
        except (OSError, CorruptLog) as failure:
            self._broker.faults.failed(partition, "work on the tier", failure)
        except Exception as bug:  # in one round: it must not end the work of the node on its tier
            tier_log.stopped = f"Something unexpected happened: {str(bug) or type(bug).__name__}."
            tell_bug(f"work on the tier of {partition} failed, and is tried again", bug)
        finally:
            del self._busy[tier_log]
            if tier_log.is_over:
                self._hindered.pop(tier_log, None)
                self._tier.metrics.ended(partition)

    def _stopped(self, tier_log: TierLog, reason: str) -> None:
        """A store that is away stops all partitions in every round: that is one line, and one now and then."""
        tier_log.stopped = reason
        now_ms = self._broker.clock.monotonic_ms()
        for over in [one for one in self._hindered if one.is_over]:
            del self._hindered[over]
        is_news = not self._hindered or now_ms - self._told_ms >= REMIND_MS
        self._hindered[tier_log] = None
        if is_news:
            self._told_ms = now_ms
            others = f" (and of {len(self._hindered) - 1} others)" if len(self._hindered) > 1 else ""
            log.info("%s: work on its tier%s goes on later: %s", tier_log.partition, others, reason)
        else:
            log.debug("%s: work on its tier goes on later: %s", tier_log.partition, reason)

    def _went_through(self, tier_log: TierLog) -> None:
        tier_log.stopped = ""
        if tier_log in self._hindered:
            del self._hindered[tier_log]
            if not self._hindered:
                log.info("work on the tier goes on")

    async def _take_turn(self, tier_log: TierLog) -> None:
        failures = []
        for step in (self._copier.copy, self._expiry.expire, self._expiry.sweep):
            if tier_log.is_over or tier_log.partition.fault or not tier_log.is_loaded.is_set():
                return
            try:
                await step(tier_log)  # one that fails does not keep the others back
            except Stopped as reason:
                failures.append(reason)
        if failures:
            raise failures[0]
        manifest = tier_log.manifest
        if manifest is not None:
            self._tier.metrics.sized(tier_log.partition, manifest.bytes, len(manifest.rows))
        if await self._expiry.withdraw(tier_log):
            self._tier.ended(tier_log.partition)

    def _found(self, tier_log: TierLog) -> None:
        try:
            self._expiry.found(tier_log)
        except (OSError, CorruptLog) as failure:
            self._broker.faults.failed(tier_log.partition, "work on the tier", failure)
