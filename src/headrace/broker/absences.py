"""Nodes that have just gone, or have just stopped answering: another leader is about to be elected.

Clients ask who leads in the very moment in which a leader dies. Told of the dead one, or of none, librdkafka asks no
more for a second; and when the node that it is leaving is not listed any more, it loses the same second on its way to
the next. So answers wait for the election, but not for long, and for two seconds the node is listed still.
"""

import asyncio
from collections.abc import Collection

from headrace.core.cluster import ClusterImage, RegisteredBroker, Topic
from headrace.runtime import Clock

ELECTION_MS = 200
"""A leader that is known to be dead has a successor within this time; of any other nothing is known after it."""
LOOK_S = 0.005
LOOKED_AT_MAX = 5_000
"""Partitions: whoever asks for more of them is answered at once, since looking them through would hold up everybody."""
LISTED_MS = 2_000


class Absences:
    def __init__(self, image: ClusterImage, clock: Clock) -> None:
        self._image = image
        self._clock = clock
        self._present = dict(image.brokers)
        self._gone: dict[int, tuple[RegisteredBroker, int]] = {}
        self._silent_ms: dict[int, int] = {}

    def nodes_changed(self, broker_ids: Collection[int]) -> None:
        now_ms = self._clock.monotonic_ms()
        for broker_id in broker_ids:
            broker, before = self._image.brokers.get(broker_id), self._present.pop(broker_id, None)
            if broker is not None:
                self._present[broker_id] = broker
                self._gone.pop(broker_id, None)
            elif before is not None:
                self._gone[broker_id] = (before, now_ms)

    def stopped_answering(self, broker_id: int) -> None:
        self._silent_ms[broker_id] = self._clock.monotonic_ms()

    def listed(self) -> list[RegisteredBroker]:
        """Those that are registered, and those that were a moment ago."""
        self._forget()
        return [*self._image.brokers.values(), *(broker for broker, _ in self._gone.values())]

    def awaiting_election(self, topics: Collection[Topic]) -> list[tuple[Topic, int]]:
        """Their partitions that are led, by what is known here, by a node that has just gone or gone silent."""
        absent = self._absent()
        if not absent or sum(len(topic.partitions) for topic in topics) > LOOKED_AT_MAX:
            return []
        return [
            (topic, index)
            for topic in topics
            for index, record in enumerate(topic.partitions)
            if record.leader in absent
        ]

    async def await_election(self, topics: Collection[Topic]) -> None:
        """For ELECTION_MS at most, whatever happens meanwhile."""
        waiting = self.awaiting_election(topics)
        deadline_ms = self._clock.monotonic_ms() + ELECTION_MS
        while waiting and self._clock.monotonic_ms() < deadline_ms:
            await asyncio.sleep(LOOK_S)
            absent = self._absent()
            waiting = [(topic, index) for topic, index in waiting if topic.partitions[index].leader in absent]

    def _absent(self) -> set[int]:
        if not self._gone and not self._silent_ms:
            return set()
        self._forget()
        since_ms = self._clock.monotonic_ms() - ELECTION_MS
        return {*self._silent_ms, *(known for known, (_, gone_ms) in self._gone.items() if gone_ms > since_ms)}

    def _forget(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._gone = {known: gone for known, gone in self._gone.items() if now_ms - gone[1] < LISTED_MS}
        self._silent_ms = {known: ms for known, ms in self._silent_ms.items() if now_ms - ms < ELECTION_MS}
