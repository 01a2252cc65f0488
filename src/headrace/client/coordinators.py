"""Which brokers coordinate a client's groups and transactional ids, asked when it is needed first."""

from enum import IntEnum
from typing import TypeVar

from headrace.client.cluster import Cluster
from headrace.client.errors import NotReachable
from headrace.errors import ErrorCode, KafkaError
from headrace.net.peer import PeerLost
from headrace.net.transport import Address
from headrace.wire.errors import ProtocolError, Unencodable
from headrace.wire.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.struct import Message

M = TypeVar("M", bound=Message)

FIND_VERSION_MAX = 3
"""Later ones ask for many keys at once."""


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[KeyType, str], Address] = {}

    def forget(self, kind: KeyType, key: str) -> None:
        """Somebody said that it is another broker, or that none is there."""
        self._known.pop((kind, key), None)

    def forget_all(self) -> None:
        self._known.clear()

    async def ask(self, kind: KeyType, key: str, message: Message, answer: type[M], version_max: int = 0x7FFF) -> M:
        """Once, of the key's coordinator. NotReachable when it does not answer; KafkaError when there is none."""
        name = type(message).__name__.removesuffix("Request")
        try:
            address = self._known.get((kind, key))
            if address is None:
                address = self._known[kind, key] = await self._find(kind, key)
            peer = await self._cluster.peer_at(address)
            return await peer.request(message, answer, peer.version_of(type(message), version_max))
        except Unencodable as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        except ProtocolError as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{self._cluster.bootstrap}: {error}") from error
        except (PeerLost, TimeoutError) as error:
            self.forget(kind, key)
            raise NotReachable(f"{name} was not answered by the coordinator of {key!r}: {error}") from error

    async def _find(self, kind: KeyType, key: str) -> Address:
        peer = await self._cluster.any_peer()
        version = peer.version_of(FindCoordinatorRequest, FIND_VERSION_MAX)
        found = await peer.request(FindCoordinatorRequest(key=key, key_type=kind), FindCoordinatorResponse, version)
        if found.error_code:
            raise KafkaError(found.error_code, f"{key!r} has no coordinator: {found.error_message or 'none is known'}")
        return Address(found.host, found.port)
