"""What a client of etcd must do because etcd, or grpc, does what it does."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.metadata import etcd, etcd_members, etcd_watch
from headrace.metadata import etcd_messages as messages
from headrace.metadata.etcd import EtcdStore
from headrace.metadata.etcd_members import EtcdTls, Members
from headrace.metadata.store import Cmp, MetadataStoreError, NotOffered, OutcomeUnknown, Put
from headrace.system import SystemClock
from tests.metadata.conftest import DEADLINE_S, empty, open_etcd, started_etcd, until
from tests.metadata.fake_etcd import FakeEtcd, silence, watch_answer
from tests.servers.etcd import EtcdCluster


@pytest.fixture
async def fake() -> AsyncIterator[FakeEtcd]:
    async with FakeEtcd() as server:
        yield server


@pytest.fixture
async def store(fake: FakeEtcd) -> AsyncIterator[EtcdStore]:
    opened = await EtcdStore.open([fake.address], SystemClock())
    yield opened
    await opened.close()


# A transaction that failed may have been applied, or be applied later


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN", "INTERNAL", "RESOURCE_EXHAUSTED"])
async def test_a_transaction_that_may_have_been_applied_is_reported_so_and_not_sent_again(
    fake: FakeEtcd, store: EtcdStore, code: str
) -> None:
    fake.txn_failure = grpc.StatusCode[code]
    with pytest.raises(OutcomeUnknown):
        await store.txn([Cmp(b"k", 0)], [Put(b"k", b"")])
    assert len(fake.requests("KV/Txn")) == 1


async def test_an_answer_that_cannot_be_read_leaves_the_outcome_unknown(fake: FakeEtcd, store: EtcdStore) -> None:
    fake.txn_answer = b"\x0f\xff"
    with pytest.raises(OutcomeUnknown):
        await store.txn([Cmp(b"k", 0)], [Put(b"k", b"")])


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED"])
async def test_a_transaction_that_etcd_refused_wrote_nothing(fake: FakeEtcd, store: EtcdStore, code: str) -> None:
    fake.txn_failure = grpc.StatusCode[code]
    with pytest.raises(MetadataStoreError, match="scripted"):
        await store.txn([Cmp(b"k", 0)], [Put(b"k", b"")])


async def test_a_transaction_that_no_member_could_be_sent_wrote_nothing(
    fake: FakeEtcd, store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_members, "READY_S_MAX", 0.5)
    await fake.__aexit__()
    await until(lambda: not store._members._members[0].is_ready())
    with pytest.raises(MetadataStoreError, match="No etcd can be reached"):
        await store.txn([Cmp(b"k", 0)], [Put(b"k", b"")])


# A member that hangs is found out


async def test_a_watch_that_hears_nothing_begins_again_elsewhere(
    fake: FakeEtcd, store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_watch, "SILENCE_S_MAX", 0.3)

    async def speaks() -> AsyncIterator[bytes]:
        yield watch_answer(6, (b"k", b"v", 6))
        await asyncio.Event().wait()

    fake.watches = [silence, speaks]
    async with contextlib.aclosing(store.watch(b"", 5)) as watch, asyncio.timeout(DEADLINE_S):
        assert (await anext(watch)).rev == 6
    assert fake.requests("Watch/Watch") == [messages.watch_request(b"", 5)] * 2


async def test_a_connection_to_a_member_that_hangs_is_given_up(tmp_path: Path) -> None:
    cluster = started_etcd(tmp_path, 1)
    members = Members(cluster.addresses, None)
    try:
        member = await members.ready()
        call = member.stream("Watch/Watch")  # a node always has one: without calls a connection may not ping
        await call.write(messages.watch_request(b"", 0))
        cluster.members[0].pause()
        await until(lambda: not member.is_ready())
        call.cancel()
    finally:
        await members.close()
        cluster.close()


# Every call asks whether there is a leader, and a stream may be finished when it is written to


async def test_every_call_says_that_it_wants_a_leader(fake: FakeEtcd, store: EtcdStore) -> None:
    fake.watches = [silence]
    await store.load(b"")
    await store.txn([Cmp(b"k", 0)], [Put(b"k", b"")])
    await store.compact(3)
    lease = await store.grant(9_000, 10)
    async with contextlib.aclosing(store.watch(b"", 5)) as watch:
        listening = asyncio.ensure_future(anext(watch))
        await until(lambda: {"Lease/LeaseKeepAlive", "Watch/Watch"} <= {method for method, _ in fake.metadata})
        listening.cancel()
        await asyncio.wait([listening])
    await store.revoke(lease.id)
    methods = {method for method, metadata in fake.metadata if metadata.get("hasleader") == "true"}
    assert methods == {method for method, _ in fake.metadata}
    assert len(methods) == 7


async def test_a_watch_survives_streams_that_end_at_once(fake: FakeEtcd, store: EtcdStore) -> None:
    async def ends() -> AsyncIterator[bytes]:
        for _ in ():
            yield b""

    async def speaks() -> AsyncIterator[bytes]:
        yield watch_answer(6, (b"k", b"v", 6))
        await asyncio.Event().wait()

    fake.watches = [ends, ends, ends, speaks]
    async with contextlib.aclosing(store.watch(b"", 5)) as watch, asyncio.timeout(DEADLINE_S):
        assert (await anext(watch)).rev == 6


class FinishedCall:
    def __init__(self) -> None:
        self.is_cancelled = False

    async def write(self, _: bytes) -> None:
        raise asyncio.InvalidStateError("The stream is finished")

    def cancel(self) -> None:
        self.is_cancelled = True


async def test_writing_to_a_finished_stream_is_a_failure_like_others(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[FinishedCall] = []

    def stream(*_: Any) -> FinishedCall:
        calls.append(FinishedCall())
        return calls[-1]

    monkeypatch.setattr(etcd_members.Member, "stream", stream)
    with pytest.raises(MetadataStoreError, match="did not acknowledge a beat"):
        await store._beat(77)
    watch = store.watch(b"", 5)
    listening = asyncio.ensure_future(anext(watch))
    await until(lambda: len(calls) >= 3)
    listening.cancel()
    await asyncio.wait([listening])
    assert all(call.is_cancelled for call in calls)


class AnsweringCall(FinishedCall):
    def __init__(self) -> None:
        super().__init__()
        self.answer = asyncio.get_running_loop().create_future()

    async def write(self, _: bytes) -> None:
        pass

    async def read(self) -> bytes:
        answer: bytes = await self.answer
        return answer


@pytest.mark.parametrize("turns", range(5))
async def test_a_reader_that_is_cancelled_while_an_answer_comes_ends(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    call = AnsweringCall()
    monkeypatch.setattr(etcd_members.Member, "stream", lambda *_: call)

    async def read_on() -> None:
        async for _ in store.watch(b"", 5):
            call.answer = asyncio.get_running_loop().create_future()

    reading = asyncio.create_task(read_on())
    await asyncio.sleep(0.05)
    call.answer.set_result(watch_answer(6, (b"k", b"v", 6)))
    for _ in range(turns):
        await asyncio.sleep(0)
    reading.cancel()
    done, _ = await asyncio.wait([reading], timeout=DEADLINE_S)
    assert reading in done


# Progress is a sign of life and no point to go on from


async def test_a_watch_goes_on_from_the_last_event_not_from_the_last_progress(fake: FakeEtcd, store: EtcdStore) -> None:
    async def runs_ahead() -> AsyncIterator[bytes]:
        yield watch_answer(7, (b"k", b"7", 7))
        yield watch_answer(50)

    async def tells_the_rest() -> AsyncIterator[bytes]:
        yield watch_answer(9, (b"k", b"7", 7), (b"k", b"8", 8), (b"k", b"9", 9))
        await asyncio.Event().wait()

    fake.watches = [runs_ahead, tells_the_rest]
    async with contextlib.aclosing(store.watch(b"", 5)) as watch, asyncio.timeout(DEADLINE_S):
        assert [(await anext(watch)).rev for _ in range(3)] == [7, 8, 9]
    assert fake.requests("Watch/Watch") == [messages.watch_request(b"", 5), messages.watch_request(b"", 7)]


# Leases are long enough for an election


async def test_a_lease_that_an_election_would_outlast_is_refused(store: EtcdStore) -> None:
    with pytest.raises(NotOffered, match="8999 ms is too short for etcd"):
        await store.grant(8_999, 1_000)
    lease = await store.grant(9_000, 1_000)
    assert (lease.id, lease.ttl_ms) == (77, 9_000)


# A load comes in pages of one revision


async def test_a_load_in_pages_is_one_snapshot(etcd_of_one: EtcdCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await empty(etcd_of_one.addresses)
    monkeypatch.setattr(etcd, "PAGE_KEYS", 10)
    store = await open_etcd(etcd_of_one.addresses)
    keys = [b"/p/%02d" % n for n in range(35)]
    _, rev = await store.txn([Cmp(key, 0) for key in keys], [Put(key, b"old") for key in keys])
    asked, ask = 0, store._members.ask

    async def ask_and_write_between(method: str, request: bytes, timeout_s: float = 9.0) -> bytes:
        nonlocal asked
        answer = await ask(method, request, timeout_s)
        asked += 1
        if asked == 1:
            await store.txn([Cmp(keys[20], rev), Cmp(keys[30], rev)], [Put(keys[20], b"new")], [keys[30]])
        return answer

    monkeypatch.setattr(store._members, "ask", ask_and_write_between)
    assert await store.load(b"/p/") == ([(key, b"old", rev, rev) for key in keys], rev)
    assert asked == 4
    await store.close()


async def test_a_load_that_is_overtaken_by_compaction_begins_again(
    etcd_of_one: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await empty(etcd_of_one.addresses)
    monkeypatch.setattr(etcd, "PAGE_KEYS", 10)
    store = await open_etcd(etcd_of_one.addresses)
    keys = [b"/p/%02d" % n for n in range(15)]
    _, rev = await store.txn([Cmp(key, 0) for key in keys], [Put(key, b"old") for key in keys])
    asked, ask = 0, store._members.ask

    async def ask_and_compact_between(method: str, request: bytes, timeout_s: float = 9.0) -> bytes:
        nonlocal asked
        answer = await ask(method, request, timeout_s)
        asked += 1
        if asked == 1:
            _, newer = await store.txn([Cmp(keys[0], rev)], [Put(keys[0], b"new")])
            await ask("KV/Compact", messages.compaction_request(newer))
        return answer

    monkeypatch.setattr(store._members, "ask", ask_and_compact_between)
    kvs, found = await store.load(b"/p/")
    assert found > rev
    assert [kv.value for kv in kvs] == [b"new", *[b"old"] * 14]
    await store.close()


# Names of protobuf messages are one process's common good


def test_the_client_of_etcd_registers_no_protobuf_names() -> None:
    program = "import sys, headrace.metadata.etcd; print([name for name in sys.modules if 'protobuf' in name])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


def test_who_does_not_use_etcd_does_not_import_grpc() -> None:
    program = "import sys, headrace.metadata.opening; print('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


# TLS with keys that grpc accepts


def certificates(directory: Path) -> EtcdTls:
    """An authority on P-256, and one certificate for both sides."""
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    sign = ["openssl", "x509", "-req", "-days", "2", "-in", "etcd.csr"]
    for command in (
        [*new, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"],
        [*new, "-subj", "/CN=etcd", "-keyout", "etcd.key", "-out", "etcd.csr"],
        [*sign, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-out", "etcd.pem"],
    ):
        subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return EtcdTls(*((directory / name).read_bytes() for name in ("ca.pem", "etcd.pem", "etcd.key")))


async def test_a_store_behind_tls_is_used_with_a_certificate_and_not_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_etcd(tmp_path / "is there an etcd", 1).close()
    tls = certificates(tmp_path)
    options = ["--cert-file", "etcd.pem", "--key-file", "etcd.key", "--trusted-ca-file", "ca.pem"]
    options = [str(tmp_path / option) if "." in option else option for option in options]
    cluster = EtcdCluster(tmp_path / "tls", scheme="https", extra=[*options, "--client-cert-auth"])
    monkeypatch.setattr(etcd_members, "READY_S_MAX", DEADLINE_S)
    try:
        store = await EtcdStore.open(cluster.addresses, SystemClock(), tls)
        assert (await store.txn([Cmp(b"k", 0)], [Put(b"k", b"v")])).ok
        await store.close()
        monkeypatch.setattr(etcd_members, "READY_S_MAX", 1.0)
        with pytest.raises(MetadataStoreError):
            await EtcdStore.open(cluster.addresses, SystemClock())
    finally:
        cluster.close()
