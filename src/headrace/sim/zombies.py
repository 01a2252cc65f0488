"""A client that goes on in the name of an ownership, whatever has become of it: with connections of its own, which ask
whoever answers, and no library that would stop it."""

import asyncio
from collections.abc import Callable
from random import Random

from headrace.client import Outside
from headrace.errors import ErrorCode
from headrace.model import TopicPartition
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.peer import Peer, PeerLost
from headrace.own.questions import Claimer
from headrace.sim.history import Acked, OwnRead, OwnSent, OwnStored, Seen
from headrace.sim.owning import Owning
from headrace.wire.batch import build, headers, read_records
from headrace.wire.errors import ProtocolError
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.messages.own import OwnResponse, OwnResult
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from headrace.wire.records import NewRecord

ANSWER_MS_MAX = 4_000
FETCH_VERSION = 12
PRODUCE_VERSION = 12
"""The last ones that name topics."""
STEPS_MAX = 8
PIPELINED_MAX = 4
LOOK_BACK_OFFSETS = 4
PAUSES_S = (0.0, 0.01, 0.1, 0.4)


class Zombie:
    def __init__(
        self,
        owning: Owning,
        name: str,
        claimer: Claimer,
        partition: TopicPartition,
        generation: int,
        outside: Outside,
        random: Random,
        resumed: Callable[[float, OwnResult], None] | None = None,
    ) -> None:
        """`resumed` is told when a resumption was granted; without it none is asked for."""
        self._owning = owning
        self._work = owning.work
        self._history = owning.work.history
        self._name = name
        self._claimer = claimer
        self._partition = partition
        self._generation = generation
        self._outside = outside
        self._random = random
        self._resumed = resumed
        self._hub = Hub(asyncio.get_running_loop(), Limits())
        self._number = 0
        self._end = 0

    async def run(self, until_s: float) -> None:
        address = self._random.choice(self._work.bootstrap.split(","))
        while self._history.now_s() < until_s and not self._work.is_over:
            host, port = address.rsplit(":", 1)
            name = self._claimer.client_id
            try:
                peer = await Peer.connect(self._outside.network, self._hub, host, int(port), name, 1_000)
                try:
                    is_leader = await self._go_on(peer, until_s)
                finally:
                    peer.close()
            except (PeerLost, ProtocolError, TimeoutError):
                is_leader = self._random.random() < 0.7  # it was cut off: it tries again
            if not is_leader:
                address = self._random.choice(self._work.bootstrap.split(","))
            await asyncio.sleep(self._random.expovariate(10))

    async def _go_on(self, peer: Peer, until_s: float) -> bool:
        """Whether it is of use to come back to this node."""
        for _ in range(self._random.randint(1, STEPS_MAX)):
            if self._history.now_s() >= until_s:
                break
            draw = self._random.random()
            if draw < 0.5:
                code = await self._write(peer)
            elif draw < 0.93 or self._resumed is None:
                code = await self._read(peer)
            else:
                code = await self._resume(peer)
            if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self._random.random() < 0.5:
                return False
            await asyncio.sleep(self._random.choice(PAUSES_S))
        return True

    async def _write(self, peer: Peer) -> int:
        answers = [self._send(peer) for _ in range(self._random.randint(1, PIPELINED_MAX))]
        codes = await asyncio.gather(*answers)
        return codes[0]

    async def _send(self, peer: Peer) -> int:
        self._number += 1
        value = f"{self._name}!{self._number}".encode()
        acks = self._random.choice((-1, -1, 1, 0))
        topic, index = self._partition
        batch = build([NewRecord(self._outside.clock.wall_ms(), None, value)])
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])]
        request = ProduceRequest(acks=acks, timeout_ms=ANSWER_MS_MAX // 2, topic_data=data)
        history = self._history
        history.add(OwnSent(history.now_s(), self._claimer.client_id, self._partition, self._generation, value))
        if not acks:
            peer.tell(request, PRODUCE_VERSION)
            return 0
        epoch = self._epoch_at(peer)
        answer = await peer.request(request, ProduceResponse, PRODUCE_VERSION, ANSWER_MS_MAX)
        told = answer.responses[0].partition_responses[0]
        if not told.error_code:
            epoch = self._epoch_at(peer) if epoch < 0 else epoch
            history.add(OwnStored(history.now_s(), value, acks == -1, epoch))
            if acks == -1:
                history.add(Acked(history.now_s(), self._name, self._partition, told.base_offset, value))
        return told.error_code

    async def _read(self, peer: Peer) -> int:
        topic, index = self._partition
        offset = max(0, self._end - self._random.randrange(LOOK_BACK_OFFSETS))
        asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=4_096)
        wait_ms = self._random.choice((0, 0, 1_000))
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[asked])])
        history = self._history
        asked_s, epoch = history.now_s(), self._epoch_at(peer)
        answer = await peer.request(request, FetchResponse, FETCH_VERSION, ANSWER_MS_MAX)
        part = answer.responses[0].partitions[0]
        if part.error_code or not part.records:
            return part.error_code
        epoch = self._epoch_at(peer) if epoch < 0 else epoch
        now_s, holder = history.now_s(), self._claimer.client_id
        for position, _ in headers(part.records):
            for record in read_records(part.records, position):
                value = record.value or b""
                self._end = max(self._end, record.offset + 1)
                history.add(Seen(now_s, self._name, self._partition, record.offset, value))
                read = OwnRead(asked_s, now_s, holder, self._partition, self._generation, record.offset, value, epoch)
                history.add(read)
        return 0

    def _epoch_at(self, peer: Peer) -> int:
        """Between this and the answer it may have changed; then what is older counts."""
        return self._owning.epoch_known_at(peer.address, self._partition)

    async def _resume(self, peer: Peer) -> int:
        """It never evicts anybody: it is granted only to the last one who had it."""
        assert self._resumed is not None
        asked_s = self._history.now_s()
        question = self._claimer.resume({str(self._partition): self._generation})
        answer = await peer.request(question, OwnResponse, None, question.wait_ms + 2 * ANSWER_MS_MAX)
        for result in answer.resources:
            if not result.error_code:
                self._resumed(asked_s, result)
        return answer.resources[0].error_code if answer.resources else answer.error_code
