"""What is special about the store in an SQLite file: the file itself, commits in groups, failures of the disk."""

import asyncio
import contextlib
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.metadata import sqlite_file
from headrace.metadata.sqlite import SqliteStore
from headrace.metadata.store import Cmp, Compacted, Event, MetadataStoreError, OutcomeUnknown, Put
from headrace.system import SystemClock, ThreadOffload


class FailingConnection(sqlite3.Connection):
    """Raises at the statements that are told, before or after they ran; counts commits."""

    fail_before = ""
    fail_after = ""
    commits = 0

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        self.commits += sql == "commit"
        if self.fail_before and sql.startswith(self.fail_before):
            raise sqlite3.OperationalError("disk I/O error")
        cursor = super().execute(sql, *args)
        if self.fail_after and sql.startswith(self.fail_after):
            raise sqlite3.OperationalError("disk I/O error")
        return cursor


async def failing_store(path: Path, offload: ThreadOffload) -> tuple[SqliteStore, FailingConnection]:
    await (await SqliteStore.open(path, offload, SystemClock())).close()
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=FailingConnection)
    return SqliteStore(connection, path, offload, SystemClock()), connection


def put(key: bytes, value: bytes = b"v") -> tuple[list[Cmp], list[Put]]:
    return [Cmp(key, 0)], [Put(key, value)]


async def test_operations_that_wait_are_committed_together(tmp_path: Path, offload: ThreadOffload) -> None:
    store, connection = await failing_store(tmp_path / "m.db", offload)
    results = await asyncio.gather(*(store.txn(*put(b"%d" % n)) for n in range(200)))
    assert all(result.ok for result in results)
    assert [result.rev for result in results] == list(range(1, 201))
    assert connection.commits <= 3
    await store.close()


async def test_a_commit_that_raises_leaves_the_outcome_unknown(tmp_path: Path, offload: ThreadOffload) -> None:
    store, connection = await failing_store(tmp_path / "m.db", offload)
    connection.fail_after = "commit"
    with pytest.raises(OutcomeUnknown):
        await store.txn(*put(b"applied"))
    connection.fail_after, connection.fail_before = "", "commit"
    with pytest.raises(OutcomeUnknown):
        await store.txn(*put(b"dropped"))
    with pytest.raises(MetadataStoreError):
        await store.load(b"")
    with pytest.raises(MetadataStoreError):
        await store.txn([Cmp(b"applied", 0)], [Put(b"applied", b"again")])
    connection.fail_before = ""
    assert [kv.key for kv in (await store.load(b"")).kvs] == [b"applied"]
    await store.close()


@pytest.mark.parametrize("statement", ["begin", "savepoint", "update meta", "select rev"])
async def test_a_failure_before_the_commit_wrote_nothing(
    tmp_path: Path, offload: ThreadOffload, statement: str
) -> None:
    store, connection = await failing_store(tmp_path / "m.db", offload)
    connection.fail_before = statement
    with pytest.raises(MetadataStoreError, match="disk I/O error"):
        await store.txn(*put(b"k"))
    connection.fail_before = ""
    assert (await store.load(b"")).kvs == []
    assert (await store.txn(*put(b"k"))).ok
    await store.close()


async def test_one_failed_operation_does_not_fail_those_committed_with_it(
    tmp_path: Path, offload: ThreadOffload
) -> None:
    store, connection = await failing_store(tmp_path / "m.db", offload)
    connection.fail_before = "delete"
    first = asyncio.create_task(store.txn(*put(b"a")))
    second = asyncio.create_task(store.txn([Cmp(b"x", 0)], deletes=[b"x"]))
    third = asyncio.create_task(store.txn(*put(b"b")))
    await asyncio.wait([first, second, third])
    assert first.result().ok and third.result().ok
    assert isinstance(second.exception(), MetadataStoreError)
    connection.fail_before = ""
    assert [kv.key for kv in (await store.load(b"")).kvs] == [b"a", b"b"]
    await store.close()


async def test_a_cancelled_caller_disturbs_nobody(tmp_path: Path, offload: ThreadOffload) -> None:
    store = await SqliteStore.open(tmp_path / "m.db", offload, SystemClock())
    one = asyncio.create_task(store.txn(*put(b"a")))
    await asyncio.sleep(0)
    one.cancel()
    assert (await store.txn(*put(b"b"))).ok
    await store.close()


async def test_close_waits_for_what_is_under_way(tmp_path: Path, offload: ThreadOffload) -> None:
    store = await SqliteStore.open(tmp_path / "m.db", offload, SystemClock())
    writes = [asyncio.create_task(store.txn(*put(b"%d" % n))) for n in range(300)]
    await asyncio.sleep(0)
    await store.close()
    assert all([(await write).ok for write in writes])


async def test_the_log_holds_each_change_and_is_trimmed(
    tmp_path: Path, offload: ThreadOffload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "LOG_REVISIONS", 3)
    store = await SqliteStore.open(tmp_path / "m.db", offload, SystemClock())
    _, rev = await store.txn(*put(b"k", b"1"))
    for value in (b"2", b"3", b"4"):
        _, rev = await store.txn([Cmp(b"k", rev)], [Put(b"k", value)])
    await store.txn([Cmp(b"k", rev)], deletes=[b"k"])
    await store.close()
    with sqlite3.connect(tmp_path / "m.db") as connection:
        assert connection.execute("select rev, k, v from log").fetchall() == [
            (3, b"k", b"3"),
            (4, b"k", b"4"),
            (5, b"k", None),
        ]
        assert connection.execute("select format, rev, trimmed from meta").fetchall() == [(2, 5, 2)]
    connection.close()


async def refusal(path: Path, offload: ThreadOffload) -> str:
    with pytest.raises(MetadataStoreError) as refused:
        await SqliteStore.open(path, offload, SystemClock())
    return str(refused.value)


async def test_a_newer_format_is_refused_with_both_numbers(tmp_path: Path, offload: ThreadOffload) -> None:
    path = tmp_path / "m.db"
    await (await SqliteStore.open(path, offload, SystemClock())).close()
    with sqlite3.connect(path) as connection:
        connection.execute("update meta set format = 7")
    connection.close()
    assert await refusal(path, offload) == f"{path} has metadata format 7; this program reads up to format 2"


async def test_files_that_cannot_be_used_are_refused_in_one_sentence(tmp_path: Path, offload: ThreadOffload) -> None:
    (tmp_path / "text").write_bytes(b"not a database, but long enough to look at" * 100)
    assert await refusal(tmp_path / "text", offload) == (
        f"Cannot use {tmp_path / 'text'} as metadata store: file is not a database"
    )
    assert "directory" in await refusal(tmp_path / "no" / "m.db", offload)
    assert "it is a directory" in await refusal(tmp_path, offload)
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("create table albums(id)")
    connection.close()
    assert "another program's" in await refusal(tmp_path / "other.db", offload)


async def test_a_damaged_file_is_refused_in_one_sentence(tmp_path: Path, offload: ThreadOffload) -> None:
    path = tmp_path / "m.db"
    await (await SqliteStore.open(path, offload, SystemClock())).close()
    damaged = bytearray(path.read_bytes())
    damaged[100:] = b"\x5a" * (len(damaged) - 100)
    path.write_bytes(damaged)
    assert (await refusal(path, offload)).startswith(f"Cannot use {path} as metadata store: ")


async def test_a_read_only_file_is_refused_in_one_sentence(
    tmp_path: Path, offload: ThreadOffload, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.db"
    await (await SqliteStore.open(path, offload, SystemClock())).close()
    connect = sqlite3.connect
    # Not by the file's mode: root may write everywhere.
    monkeypatch.setattr(sqlite3, "connect", lambda path, **more: connect(f"file:{path}?mode=ro", uri=True, **more))
    assert "readonly" in await refusal(path, offload)


async def test_a_file_that_somebody_else_is_just_creating_is_waited_for(
    tmp_path: Path, offload: ThreadOffload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_MS", 1)
    somebody = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
    somebody.execute("begin exclusive")
    opening = asyncio.create_task(SqliteStore.open(tmp_path / "m.db", offload, SystemClock()))
    await asyncio.wait([opening], timeout=0.1)
    assert not opening.done()
    somebody.execute("rollback")
    await (await opening).close()
    somebody.close()


async def test_a_file_that_stays_locked_is_refused_in_one_sentence(
    tmp_path: Path, offload: ThreadOffload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_MS", 1)
    monkeypatch.setattr("headrace.metadata.sqlite._OPEN_ATTEMPTS", 2)
    somebody = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
    somebody.execute("begin exclusive")
    assert "another process holds it locked" in await refusal(tmp_path / "m.db", offload)
    somebody.close()


FORMAT_1 = """
create table meta(id integer primary key check(id = 0), format int not null, rev int not null, trimmed int not null);
create table kv(k blob primary key, v blob not null, create_rev int not null, mod_rev int not null) without rowid;
create table log(rev int, k blob, v blob, primary key(rev, k)) without rowid;
insert into meta values(0, 1, 9, 2);
insert into kv values(x'6b', x'76', 4, 9);
insert into log values(9, x'6b', x'76');
"""


async def test_an_older_file_is_brought_up_to_date(tmp_path: Path, offload: ThreadOffload) -> None:
    old = sqlite3.connect(tmp_path / "m.db")
    old.executescript(FORMAT_1)
    old.close()
    store = await SqliteStore.open(tmp_path / "m.db", offload, SystemClock())
    assert await store.load(b"") == ([(b"k", b"v", 4, 9)], 9)
    lease = await store.grant(9_000, 1_000)
    _, rev = await store.txn([Cmp(b"k", 9)], [Put(b"k", b"2", lease.id)])
    async with contextlib.aclosing(store.watch(b"", 9)) as watch:
        assert await anext(watch) == (rev, (Event(b"k", b"2", rev, 4),))
    with pytest.raises(Compacted):
        await anext(store.watch(b"", 8))
    await store.close()
    again = await SqliteStore.open(tmp_path / "m.db", offload, SystemClock())
    assert [kv.value for kv in (await again.load(b"")).kvs] == [b"2"]
    await again.close()


class ClockOfBoot(SystemClock):
    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id

    def boot_id(self) -> str:
        return self._boot_id


async def test_leases_do_not_outlive_the_boot_of_their_machine(tmp_path: Path, offload: ThreadOffload) -> None:
    before = await SqliteStore.open(tmp_path / "m.db", offload, ClockOfBoot("one"))
    lease = await before.grant(3_600_000, 1_000)
    await before.txn([Cmp(b"k", 0)], [Put(b"k", b"", lease.id)])
    await before.close()
    same = await SqliteStore.open(tmp_path / "m.db", offload, ClockOfBoot("one"))
    assert [kv.key for kv in (await same.load(b"")).kvs] == [b"k"]
    await same.close()
    after = await SqliteStore.open(tmp_path / "m.db", offload, ClockOfBoot("two"))
    assert (await after.load(b"")).kvs == []
    await after.close()


async def test_a_watch_reads_a_long_log_in_parts(
    tmp_path: Path, offload: ThreadOffload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "READ_REVISIONS", 3)
    store = await SqliteStore.open(tmp_path / "m.db", offload, SystemClock())
    for n in range(20):  # the second half of the keys are another prefix's
        await store.txn(*put(b"/%d/%02d" % (n % 10 // 5, n)))
    async with contextlib.aclosing(store.watch(b"/0/", 0)) as watch:
        told = [(await anext(watch)).rev for _ in range(10)]
    assert told == [1, 2, 3, 4, 5, 11, 12, 13, 14, 15]
    await store.close()


async def test_a_watch_is_silent_while_the_disk_fails_and_then_goes_on(tmp_path: Path, offload: ThreadOffload) -> None:
    store, connection = await failing_store(tmp_path / "m.db", offload)
    other = await SqliteStore.open(tmp_path / "m.db", offload, SystemClock())
    connection.fail_before = "begin"
    async with contextlib.aclosing(store.watch(b"", 0)) as watch:
        listening = asyncio.ensure_future(anext(watch))
        await other.txn(*put(b"k"))
        await asyncio.wait([listening], timeout=0.1)
        assert not listening.done()
        connection.fail_before = ""
        assert (await listening).events[0].key == b"k"
    await other.close()
    await store.close()


async def test_nobody_polls_when_nobody_watches(tmp_path: Path, offload: ThreadOffload) -> None:
    store = await SqliteStore.open(tmp_path / "m.db", offload, SystemClock())
    await store.txn(*put(b"k"))
    async with contextlib.aclosing(store.watch(b"", 0)) as watch:
        await anext(watch)
        assert store._poller is not None
    assert store._poller is None
    await store.close()


COUNT_IN_ANOTHER_PROCESS = """
import asyncio, pathlib, sys
from headrace.metadata.sqlite import SqliteStore
from headrace.metadata.store import Cmp, Put
from headrace.system import SystemClock, ThreadOffload
async def main():
    offload = ThreadOffload()
    store = await SqliteStore.open(pathlib.Path(sys.argv[1]), offload, SystemClock())
    done = 0
    while done < 20:
        kvs, _ = await store.load(b"n")
        value, rev = (int(kvs[0].value), kvs[0].mod_rev) if kvs else (0, 0)
        done += (await store.txn([Cmp(b"n", rev)], [Put(b"n", b"%d" % (value + 1))])).ok
    await store.close()
    offload.close()
asyncio.run(main())
"""


async def test_processes_share_the_file_from_its_creation_on(tmp_path: Path, offload: ThreadOffload) -> None:
    path = tmp_path / "m.db"
    command = [sys.executable, "-c", COUNT_IN_ANOTHER_PROCESS, str(path)]
    processes = [await asyncio.create_subprocess_exec(*command) for _ in range(3)]
    assert await asyncio.gather(*(process.wait() for process in processes)) == [0, 0, 0]
    store = await SqliteStore.open(path, offload, SystemClock())
    assert (await store.load(b"n")).kvs[0].value == b"60"
    await store.close()


async def test_what_other_processes_commit_is_told(tmp_path: Path, offload: ThreadOffload) -> None:
    path = tmp_path / "m.db"
    store = await SqliteStore.open(path, offload, SystemClock())
    async with contextlib.aclosing(store.watch(b"n", 0)) as watch:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", COUNT_IN_ANOTHER_PROCESS, str(path))
        async with asyncio.timeout(60):
            told = [(await anext(watch)).events[0].value for _ in range(20)]
        assert await process.wait() == 0
    assert told == [b"%d" % n for n in range(1, 21)]
    await store.close()
