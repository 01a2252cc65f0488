"""The metadata store in an etcd cluster.

An answer that does not come says nothing: the transaction may have been applied, and may yet be applied later. So no
transaction is ever sent twice, and a failure after it was sent is OutcomeUnknown.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import grpc
import grpc.aio

from headrace.metadata import etcd_messages as messages
from headrace.metadata.etcd_members import CALL_S_MAX, REFUSALS, EtcdTls, Members, Refused
from headrace.metadata.etcd_watch import STREAM_FAILURES, WatchStream
from headrace.metadata.keeping import Keepers
from headrace.metadata.store import (
    Cmp,
    Lease,
    MetadataStoreError,
    NotOffered,
    OutcomeUnknown,
    Put,
    Revision,
    Snapshot,
    TxnResult,
    check_txn,
)
from headrace.runtime import Clock

PAGE_KEYS = 5_000
"""Keys in one answer of a load: an answer stays small however many there are."""
PAGE_S_MAX = 10.0
TXN_S_MAX = 3.0
LEASE_TTL_MS_MIN = 9_000
"""An etcd cluster may take seconds to elect a leader; a shorter lease would run out for its holder meanwhile."""
_LOAD_ATTEMPTS = 5
_PAUSE_S = 0.05


class EtcdStore:
    def __init__(self, members: Members, clock: Clock, lease_ttl_ms_min: int = LEASE_TTL_MS_MIN) -> None:
        self._members = members
        self._clock = clock
        self._lease_ttl_ms_min = lease_ttl_ms_min
        self._keepers = Keepers(clock, self._beat)
        self._streams: set[WatchStream] = set()
        self._closed = False

    @classmethod
    async def open(
        cls,
        addresses: Sequence[str],
        clock: Clock,
        tls: EtcdTls | None = None,
        lease_ttl_ms_min: int = LEASE_TTL_MS_MIN,
    ) -> "EtcdStore":
        """Raises MetadataStoreError with one sentence when none of them answers."""
        members = Members(addresses, tls)
        try:
            await members.ask("KV/Range", messages.range_request(b"/", b"", 1, 0))
        except BaseException:  # also when whoever opens it was cancelled
            await members.close()
            raise
        return cls(members, clock, lease_ttl_ms_min)

    async def load(self, prefix: bytes) -> Snapshot:
        for _ in range(_LOAD_ATTEMPTS):
            self._check_open()
            try:
                return await self._load(prefix)
            except Refused as error:
                if error.code is not grpc.StatusCode.OUT_OF_RANGE:
                    raise
                # Compacted between two pages: begin again at a newer revision.
        raise MetadataStoreError("etcd is compacted faster than it can be read")

    async def txn(self, when: Sequence[Cmp], puts: Sequence[Put] = (), deletes: Sequence[bytes] = ()) -> TxnResult:
        check_txn(when, puts, deletes)
        answer = await self._ask_once("KV/Txn", messages.txn_request(when, puts, deletes))
        try:
            return TxnResult(*messages.read_txn(answer))
        except messages.BadMessage as error:
            raise OutcomeUnknown(str(error)) from error

    async def watch(self, prefix: bytes, after_rev: int) -> AsyncGenerator[Revision, None]:
        position = after_rev
        while not self._closed:
            try:
                stream = WatchStream(await self._members.ready(), prefix, position)
            except MetadataStoreError:  # none is connected; ready() has waited long enough
                continue
            self._streams.add(stream)
            try:
                while not self._closed:
                    for revision in await stream.read():
                        position = revision.rev
                        yield revision
            except STREAM_FAILURES:
                self._members.failed(stream.member)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._closed or task is None or task.cancelling():
                    raise
                return  # the stream was cancelled by close(), not its reader
            finally:
                self._streams.discard(stream)
                stream.cancel()
            await asyncio.sleep(_PAUSE_S)

    async def grant(self, ttl_ms: int, beat_ms: int) -> Lease:
        self._check_open()
        if ttl_ms < self._lease_ttl_ms_min:
            raise NotOffered(
                f"A lease of {ttl_ms} ms is too short for etcd, whose elections take seconds: "
                f"give it {self._lease_ttl_ms_min} ms or more"
            )
        sent_ms = self._clock.boot_ms()
        answer = await self._members.ask("Lease/LeaseGrant", messages.grant_request(-(-ttl_ms // 1000)))
        lease_id, _ = messages.read_lease(answer)
        lease = Lease(lease_id, ttl_ms, sent_ms)
        self._keepers.keep(lease, beat_ms)
        return lease

    async def revoke(self, lease_id: int) -> None:
        given_up = await self._keepers.give_up(lease_id)
        try:
            await self._ask_once("Lease/LeaseRevoke", messages.lease_request(lease_id))
        except Refused as error:
            if error.code is not grpc.StatusCode.NOT_FOUND:
                raise
        if given_up is not None:
            given_up.lost.set()

    async def compact(self, rev: int) -> None:
        self._check_open()
        try:
            await self._members.ask("KV/Compact", messages.compaction_request(rev))
        except Refused as error:
            if "has been compacted" not in error.details:
                raise

    async def close(self) -> None:
        self._closed = True
        await self._keepers.close()
        for stream in self._streams:
            stream.cancel()
        await self._members.close()

    async def _load(self, prefix: bytes) -> Snapshot:
        (key, end), rev = messages.key_range(prefix), 0
        kvs = []
        while True:
            request = messages.range_request(key, end, PAGE_KEYS, rev)
            page = messages.read_range(await self._members.ask("KV/Range", request, PAGE_S_MAX))
            rev = rev or page.rev
            kvs += page.kvs
            if not page.has_more:
                return Snapshot(kvs, rev)
            key = page.kvs[-1].key + b"\0"

    async def _ask_once(self, method: str, request: bytes) -> bytes:
        """For what must not be done twice."""
        self._check_open()
        member = await self._members.ready()
        try:
            return await member.ask(method, request, TXN_S_MAX)
        except grpc.aio.AioRpcError as error:
            if error.code() in REFUSALS:
                raise Refused(error.code(), error.details()) from error
            self._members.failed(member)
            raise OutcomeUnknown(f"etcd did not say whether it wrote: {error.details()}") from error

    async def _beat(self, lease_id: int) -> bool:
        member = await self._members.ready()
        # A stream of its own for each beat: no late answer to an earlier beat can be taken for this one's.
        call = member.stream("Lease/LeaseKeepAlive", CALL_S_MAX)
        try:
            await call.write(messages.lease_request(lease_id))
            answer = await call.read()
            if answer is grpc.aio.EOF:
                raise ConnectionError("etcd ended the stream of beats")
        except STREAM_FAILURES as error:
            self._members.failed(member)
            raise MetadataStoreError(f"etcd at {member.address} did not acknowledge a beat") from error
        finally:
            call.cancel()
        _, ttl_s = messages.read_lease(answer)
        return ttl_s > 0

    def _check_open(self) -> None:
        if self._closed:
            raise MetadataStoreError("The metadata store is closed")
