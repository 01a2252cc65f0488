"""A client that knows nothing: it asks every node, leader or not, with no leader epoch or with one that it has seen.

What it is told has to fit to what everybody else is told; real clients would rarely ask the wrong node at the wrong
moment.
"""

import asyncio
from random import Random

from headrace.client import Outside
from headrace.model import TopicPartition
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.peer import Peer, PeerLost
from headrace.sim.clients import Work
from headrace.sim.history import Seen, ToldEnd
from headrace.wire.batch import headers, read_records
from headrace.wire.errors import ProtocolError
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

PACE_S = 0.2
ANSWER_MS_MAX = 1_500
FETCH_VERSION = 12
"""The last one that names topics."""
LOOK_BACK_OFFSETS = 6


class Prober:
    def __init__(self, work: Work, name: str, outside: Outside, random: Random) -> None:
        self._work = work
        self._name = name
        self._outside = outside
        self._random = random
        self._epochs: dict[TopicPartition, int] = {}
        self._ends = dict.fromkeys(work.partitions, 0)
        self._hub = Hub(asyncio.get_running_loop(), Limits())

    async def run(self) -> None:
        addresses = self._work.bootstrap.split(",")
        await asyncio.gather(*(self._ask_on(*address.rsplit(":", 1)) for address in addresses))

    async def _ask_on(self, host: str, port: str) -> None:
        peer: Peer | None = None
        while not self._work.is_over:
            await asyncio.sleep(self._random.expovariate(1 / PACE_S))
            try:
                if peer is None or peer.closed:
                    peer = await Peer.connect(self._outside.network, self._hub, host, int(port), self._name, 1_000)
                partition = self._random.choice(self._work.partitions)
                await (self._list(peer, partition) if self._random.random() < 0.7 else self._fetch(peer, partition))
            except (PeerLost, ProtocolError, TimeoutError):
                continue

    async def _list(self, peer: Peer, partition: TopicPartition) -> None:
        history = self._work.history
        asked_epoch = self._random.choice((-1, -1, self._epochs.get(partition, -1)))
        asked = ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=asked_epoch, timestamp=-1
        )
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])])
        asked_s = history.now_s()
        answer = await peer.request(request, ListOffsetsResponse, None, ANSWER_MS_MAX)
        told = answer.topics[0].partitions[0]
        if told.error_code or told.offset < 0:
            return
        self._epochs[partition] = max(self._epochs.get(partition, -1), told.leader_epoch)
        self._ends[partition] = max(self._ends[partition], told.offset)
        who = f"{self._name} at {peer.address.split(':', 1)[0]}"
        history.add(ToldEnd(asked_s, history.now_s(), who, partition, told.offset, asked_epoch, told.leader_epoch))

    async def _fetch(self, peer: Peer, partition: TopicPartition) -> None:
        offset = max(0, self._ends[partition] - self._random.randrange(LOOK_BACK_OFFSETS))
        asked = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=4_096)
        topics = [FetchTopic(topic=partition.topic, partitions=[asked])]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)
        answer = await peer.request(request, FetchResponse, FETCH_VERSION, ANSWER_MS_MAX)
        part = answer.responses[0].partitions[0]
        if part.error_code or not part.records:
            return
        history = self._work.history
        who = f"{self._name} at {peer.address.split(':', 1)[0]}"
        for position, _ in headers(part.records):
            for record in read_records(part.records, position):
                history.add(Seen(history.now_s(), who, partition, record.offset, record.value or b""))


async def probe(work: Work, name: str, outside: Outside, random: Random) -> None:
    await Prober(work, name, outside, random).run()
