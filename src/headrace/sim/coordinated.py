"""A connection to whoever coordinates a group, with none of the patience of a real client."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import TypeVar

from headrace.client import Outside
from headrace.errors import ErrorCode
from headrace.model import TopicPartition
from headrace.net.hub import Hub
from headrace.net.limits import Limits
from headrace.net.peer import Peer
from headrace.wire.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from headrace.wire.struct import Message

M = TypeVar("M", bound=Message)

CONNECT_MS_MAX = 1_000
ANSWER_MS_MAX = 4_000
FIND_VERSION = 3
OFFSETS_VERSION = 7
"""The last ones that ask for one group."""


class Lost(Exception):
    """It has to be found anew, or what it coordinates has to begin anew."""


class Coordinated:
    def __init__(
        self, bootstrap: str, group: str, name: str, outside: Outside, random: Random, versions: Mapping[int, int]
    ) -> None:
        self._addresses = bootstrap.split(",")
        self._group = group
        self._name = name
        self._outside = outside
        self._random = random
        self._versions = versions
        self._hub = Hub(asyncio.get_running_loop(), Limits())
        self._peer: Peer | None = None

    def forget(self) -> None:
        self.close()
        self._peer = None

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()

    async def ask(self, request: Message, answer: type[M], within_ms: int, *, version_max: int = 0x7FFF) -> M:
        """PeerLost, ProtocolError, TimeoutError or Lost when it is not answered."""
        if self._peer is None or self._peer.closed:
            self._peer = await self._found()
        version = self._peer.version_of(type(request), self._versions.get(request.api, version_max))
        return await self._peer.request(request, answer, version, within_ms)

    async def committed(self, partition: TopicPartition) -> int:
        """-1: no offset is committed. As `ask`."""
        topics = [OffsetFetchRequestTopic(name=partition.topic, partition_indexes=[partition.partition])]
        request = OffsetFetchRequest(group_id=self._group, topics=topics)
        answer = await self.ask(request, OffsetFetchResponse, ANSWER_MS_MAX, version_max=OFFSETS_VERSION)
        if answer.error_code or answer.topics[0].partitions[0].error_code:
            self.forget()
            raise Lost
        return answer.topics[0].partitions[0].committed_offset

    async def _found(self) -> Peer:
        peer = await self._connected(*self._random.choice(self._addresses).rsplit(":", 1))
        try:
            request = FindCoordinatorRequest(key=self._group)
            answer = await peer.request(request, FindCoordinatorResponse, FIND_VERSION, ANSWER_MS_MAX)
        finally:
            peer.close()
        if answer.error_code != ErrorCode.NONE:
            raise Lost
        return await self._connected(answer.host, str(answer.port))

    async def _connected(self, host: str, port: str) -> Peer:
        return await Peer.connect(self._outside.network, self._hub, host, int(port), self._name, CONNECT_MS_MAX)
