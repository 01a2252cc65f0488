"""Clients of a simulated cluster that read what is old: from the beginning on, again and again, or here and there."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from headrace.broker.partitions import Hosted
from headrace.client import Consumer, Outside
from headrace.errors import ErrorCode, KafkaError
from headrace.model import TopicPartition
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.peer import Peer, PeerLost
from headrace.sim.clients import Work
from headrace.sim.history import Read, Seen
from headrace.sim.observer import find
from headrace.sim.tier_history import Answered, Passed, Span, TurnedAway
from headrace.sim.world import World
from headrace.wire.batch import headers, read_records
from headrace.wire.errors import ProtocolError
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from headrace.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

PASS_S_MAX = 20.0
PACE_S = 0.15
ANSWER_MS_MAX = 3_000
SPECIAL_TIMES = (-2, -3, -4, -5, -6)
FETCH_VERSION = 12
"""The last one that names topics."""

LogStart = Callable[[TopicPartition], int]


async def reread(work: Work, name: str, outside: Outside, random: Random, log_start: LogStart) -> None:
    """Each time another consumer, which has nothing and wants all."""
    number = 0
    while not work.is_over:
        number += 1
        await asyncio.sleep(random.expovariate(1.0))
        try:
            async with asyncio.timeout(PASS_S_MAX):
                await read_all(work, f"{name}.{number}", outside, random, log_start)
        except (KafkaError, TimeoutError):
            continue


async def read_all(work: Work, who: str, outside: Outside, random: Random, log_start: LogStart) -> None:
    """From the beginning to where the partitions end now. KafkaError when it cannot be asked where that is."""
    history = work.history
    max_partition_bytes = random.choice((1, 500, 1 << 20))
    async with Consumer(
        work.bootstrap,
        outside=outside,
        client_id=who,
        max_wait_ms=random.choice((100, 1_000)),
        max_partition_bytes=max_partition_bytes,
        max_bytes=random.choice((max_partition_bytes, 1 << 20)),
    ) as consumer:
        asked_s = history.now_s()
        ends = await consumer.end_offsets(work.partitions)
        left = {partition: end for partition, end in ends.items() if end > log_start(partition)}
        consumer.assign(left)
        while left:
            try:
                records = await consumer.poll(500)
            except KafkaError:
                await asyncio.sleep(0.2)
                continue
            for record in records:
                partition = TopicPartition(record.topic, record.partition)
                history.add(Read(history.now_s(), who, partition, record.offset, record.value or b""))
                if record.offset >= ends[partition] - 1 and left.pop(partition, None) is not None:
                    start = log_start(partition)
                    history.add(Passed(asked_s, history.now_s(), who, partition, start, ends[partition]))
            for partition in [gone for gone, end in left.items() if log_start(gone) >= end]:
                del left[partition]


class Seeker:
    """Asks leaders for records at any offset, several partitions at once, and compares with what they know."""

    def __init__(
        self,
        world: World,
        work: Work,
        name: str,
        outside: Outside,
        random: Random,
        log_start: LogStart,
        unclean: Sequence[TopicPartition],
    ) -> None:
        """What is in `unclean` may change."""
        self._world = world
        self._work = work
        self._name = name
        self._outside = outside
        self._random = random
        self._log_start = log_start
        self._unclean = unclean
        self._hub = Hub(asyncio.get_running_loop(), Limits())
        self._peers: dict[int, Peer] = {}

    async def run(self) -> None:
        while not self._work.is_over:
            await asyncio.sleep(self._random.expovariate(1 / PACE_S))
            leaders: dict[int, list[TopicPartition]] = {}
            for partition in (*self._work.partitions, *self._unclean):
                leader = self._world.truth.leader(partition)
                if leader is not None:
                    leaders.setdefault(leader, []).append(partition)
            if leaders:
                leader, led = self._random.choice(sorted(leaders.items()))
                chosen = self._random.sample(led, self._random.randint(1, len(led)))
                try:
                    await (self._ask(leader, chosen) if self._random.random() < 0.8 else self._list(leader, chosen))
                except (PeerLost, ProtocolError, TimeoutError):
                    continue

    async def _peer(self, leader: int) -> Peer:
        peer = self._peers.get(leader)
        if peer is None or peer.closed:
            host, port = self._world.nodes[leader - 1].config.listen.rsplit(":", 1)
            peer = await Peer.connect(self._outside.network, self._hub, host, int(port), self._name, 1_000)
            self._peers[leader] = peer
        return peer

    async def _list(self, leader: int, partitions: Sequence[TopicPartition]) -> None:
        """Where logs begin, how far the tier reaches, what came first since some time: asked, and not judged."""
        since_ms = self._outside.clock.wall_ms() - self._random.randrange(10_000)
        asked = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=index, timestamp=self._random.choice((*SPECIAL_TIMES, since_ms, since_ms, 0))
                    )
                ],
            )
            for topic, index in partitions
        ]
        request = ListOffsetsRequest(topics=asked, timeout_ms=self._random.choice((100, 2_000)))
        await (await self._peer(leader)).request(request, ListOffsetsResponse, None, ANSWER_MS_MAX)

    async def _ask(self, leader: int, partitions: Sequence[TopicPartition]) -> None:
        node, peer = self._world.nodes[leader - 1], await self._peer(leader)
        known = {partition: hosted for partition in partitions if (hosted := find(node, partition)) is not None}
        asked = {
            partition: self._random.randint(
                max(0, min(self._log_start(partition) - 1, hosted.high_watermark)), hosted.high_watermark
            )
            for partition, hosted in known.items()
        }
        before = {partition: (hosted.leader_epoch, hosted.high_watermark) for partition, hosted in known.items()}
        if not asked:
            return
        request = FetchRequest(
            max_wait_ms=self._random.choice((0, 200)),
            min_bytes=1,
            max_bytes=self._random.choice((1, 700, 1 << 20)),
            topics=[_wanted(self._random, partition, offset) for partition, offset in asked.items()],
        )
        answer = await peer.request(request, FetchResponse, FETCH_VERSION, ANSWER_MS_MAX)
        for topic in answer.responses:
            for part in topic.partitions:
                partition = TopicPartition(topic.topic, part.partition_index)
                hosted = find(node, partition)
                is_same = hosted is known[partition] and (hosted.leader_epoch, hosted.is_leading) == (
                    before[partition][0],
                    True,
                )
                self._see(part, partition, asked[partition], before[partition][1], hosted if is_same else None)

    def _see(
        self, part: PartitionData, partition: TopicPartition, asked: int, committed: int, leader: Hosted | None
    ) -> None:
        """`leader` is who answered, if it leads on."""
        history, name = self._work.history, self._name
        now_s = history.now_s()
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and leader is not None:
            history.add(TurnedAway(now_s, name, partition, asked, self._log_start(partition), committed))
        if part.error_code or not part.records:
            return
        spans = []
        for position, header in headers(part.records):
            leaders_epoch = -1 if leader is None else leader.log.epochs.epoch_at(header.base_offset)
            spans.append(Span(header.base_offset, header.last_offset, header.leader_epoch, leaders_epoch))
            if partition not in self._unclean:
                for record in read_records(part.records, position):
                    history.add(Seen(now_s, name, partition, record.offset, record.value or b""))
        history.add(Answered(now_s, name, partition, asked, tuple(spans)))


def _wanted(random: Random, partition: TopicPartition, offset: int) -> FetchTopic:
    max_bytes = random.choice((1, 400, 1 << 20))
    asked = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchTopic(topic=partition.topic, partitions=[asked])
