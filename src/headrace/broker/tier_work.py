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

log = logging.getLogger(__name__)

PARTITIONS_AT_ONCE = 4


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
            except Exception:  # a bug in one round must not end it for the rest of the node's life
                log.exception("deleting the objects of deleted topics failed, and is tried again")

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
        except Stopped as reason:
            if not tier_log.is_over:
                log.info("%s: work on its tier goes on later: %s", partition, reason)
        except (OSError, CorruptLog) as failure:
            self._broker.faults.failed(partition, "work on the tier", failure)
        except Exception:  # a bug in one round must not end the work of the node on its tier
            log.exception("work on the tier of %s failed, and is tried again", partition)
        finally:
            del self._busy[tier_log]
            if tier_log.is_over:
                self._tier.metrics.ended(partition)

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
