"""The members of an etcd cluster, and which of them is asked."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc
import grpc.aio

from headrace.metadata.store import MetadataStoreError

HAS_LEADER = (("hasleader", "true"),)
"""Sent with every call: a member that has lost the others then says so, where it would be silent for ever."""

CALL_S_MAX = 2.0
READY_S_MAX = 5.0
RETRY_S_MAX = 10.0
_PAUSE_S = 0.02

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A member that hangs is found out after 8 s. It is the ping's own time-out that works in grpcio, not the
    # keepalive's; and etcd refuses those who ping more often than every 5 s.
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.ping_timeout_ms", 2000),
    # Nor may a connection without calls ping at all: it would be closed, again and again.
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
]

REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.FAILED_PRECONDITION,
    }
)
"""With these nothing was done. RESOURCE_EXHAUSTED is none of them: a full etcd may say so of what it has written."""


class EtcdTls(NamedTuple):
    """PEM. Keys on the curve P-256 work; those on P-521, which `etcd --auto-tls` makes, are refused by grpc."""

    authority: bytes
    certificate: bytes
    key: bytes


class Refused(MetadataStoreError):
    """etcd said no, and did nothing."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"etcd refused: {details}")
        self.code = code
        self.details = details


class Member:
    def __init__(self, address: str, tls: EtcdTls | None) -> None:
        self.address = address
        if tls is None:
            self._channel = grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
            self._channel = grpc.aio.secure_channel(address, credentials, options=_CHANNEL_OPTIONS)

    def is_ready(self) -> bool:
        """Also begins to connect, when it is not."""
        return bool(self._channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY)

    async def ask(self, method: str, request: bytes, timeout_s: float) -> bytes:
        call = self._channel.unary_unary(f"/etcdserverpb.{method}")
        answer: bytes = await call(request, timeout=timeout_s, metadata=HAS_LEADER)
        return answer

    def stream(self, method: str, timeout_s: float | None = None) -> Any:
        return self._channel.stream_stream(f"/etcdserverpb.{method}")(timeout=timeout_s, metadata=HAS_LEADER)

    async def close(self) -> None:
        await self._channel.close()


class Members:
    """One member is asked until it fails; then the next that is connected."""

    def __init__(self, addresses: Sequence[str], tls: EtcdTls | None) -> None:
        self._members = [Member(address, tls) for address in addresses]
        self._asked = 0
        self._closed = False

    async def ready(self) -> Member:
        """One that is connected: an operation that fails before this was not even sent."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_S_MAX
        while not self._closed:
            for step in range(len(self._members)):
                member = self._members[(self._asked + step) % len(self._members)]
                if member.is_ready():
                    self._asked = self._members.index(member)
                    return member
            if loop.time() > deadline:
                names = ", ".join(member.address for member in self._members)
                raise MetadataStoreError(f"No etcd can be reached at {names}")
            await asyncio.sleep(_PAUSE_S)
        raise MetadataStoreError("The metadata store is closed")

    def failed(self, member: Member) -> None:
        """The next one is asked from now on."""
        if self._members[self._asked] is member:
            self._asked = (self._asked + 1) % len(self._members)

    async def ask(self, method: str, request: bytes, timeout_s: float = CALL_S_MAX) -> bytes:
        """For what may be done twice: asks one member after the other. Raises MetadataStoreError, or Refused."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETRY_S_MAX
        while True:
            member = await self.ready()
            try:
                return await member.ask(method, request, timeout_s)
            except grpc.aio.AioRpcError as error:
                if error.code() in REFUSALS:
                    raise Refused(error.code(), error.details()) from error
                self.failed(member)
                if loop.time() > deadline:
                    raise MetadataStoreError(f"etcd at {member.address} failed: {error.details()}") from error
            await asyncio.sleep(_PAUSE_S)

    async def close(self) -> None:
        self._closed = True
        for member in self._members:
            await member.close()
