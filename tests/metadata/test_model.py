"""The SQLite store answers every sequence of operations as the model in memory does."""

import sqlite3
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata import sqlite_file
from headrace.metadata.memory import MemoryData
from headrace.metadata.store import Cmp, Compacted, MetadataStoreError, Put, Revision, TxnResult
from tests.broker.stepped import SteppedClock

KEYS = [b"/a", b"/a/1", b"/b"]

compares = st.builds(Cmp, st.sampled_from(KEYS), st.integers(0, 8), st.sampled_from(["mod", "create"]))
writes = st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=2))


@given(st.lists(st.tuples(st.lists(compares, max_size=2), writes, st.booleans()), max_size=12))
def test_sqlite_agrees_with_the_model(steps: list[tuple[list[Cmp], dict[bytes, bytes | None], bool]]) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    sqlite_file.create_tables(connection)
    model = MemoryData()
    for compared, written, aims_well in steps:
        if aims_well:  # else nearly every transaction would be refused
            compared = [Cmp(key, model.kvs[key].mod_rev if key in model.kvs else 0) for key in written]
        puts = [Put(key, value) for key, value in written.items() if value is not None]
        deletes = [key for key, value in written.items() if value is None]
        assert sqlite_file.txn(connection, compared, puts, deletes) == model.txn(compared, puts, deletes)
        for prefix in (b"", b"/a", b"/b"):
            assert sqlite_file.load(connection, prefix) == model.load(prefix)
    connection.close()


lease_steps = st.one_of(
    st.tuples(st.just("grant"), st.integers(1, 5)),
    st.tuples(st.just("beat"), st.integers(1, 4)),
    st.tuples(st.just("revoke"), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.integers(1, 4)),
    st.tuples(st.just("compact"), st.integers(0, 12)),
    st.tuples(st.sampled_from(["put /a", "put /a/1", "put /b"]), st.integers(0, 4)),
)


class SqliteTwin:
    """The file's statements, as the store runs them: leases run out first."""

    def __init__(self, clock: SteppedClock) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        sqlite_file.create_tables(self.connection)
        self._clock = clock

    def now(self) -> sqlite_file.BootTime:
        return sqlite_file.BootTime(self._clock.boot_ms(), self._clock.boot_id())

    def step(self, step: str, number: int) -> object:
        connection = self.connection
        sqlite_file.expire_leases(connection, self.now())
        if step == "grant":
            return sqlite_file.grant(connection, number, self.now())
        if step == "beat":
            return sqlite_file.beat(connection, number, self.now())
        if step == "revoke":
            sqlite_file.revoke(connection, number)
        elif step == "compact":
            sqlite_file.compact(connection, number)
        elif step != "wait":
            return written(lambda *txn: sqlite_file.txn(connection, *txn), step, number)
        return None

    def since(self, rev: int) -> list[Revision] | None:
        try:
            return sqlite_file.read_log(self.connection, b"", rev).revisions
        except Compacted:
            return None


def written(txn: Callable[..., TxnResult], step: str, lease: int) -> object:
    try:
        return txn([], [Put(step.removeprefix("put ").encode(), b"v", lease)], [])
    except MetadataStoreError as error:
        return str(error)


def step_of_model(model: MemoryData, step: str, number: int) -> object:
    if step == "grant":
        return model.grant(number)
    if step == "beat":
        return model.beat(number)
    if step == "revoke":
        model.expire()
        model.revoke(number)
    elif step == "compact":
        model.expire()
        model.compact(number)
    elif step != "wait":
        return written(model.txn, step, number)
    return None


def since_in_model(model: MemoryData, rev: int) -> list[Revision] | None:
    revisions = []
    try:
        while revision := model.next_revision(rev):
            revisions.append(revision)
            rev = revision.rev
    except Compacted:
        return None
    return revisions


@given(st.lists(lease_steps, max_size=25))
def test_sqlite_agrees_with_the_model_on_leases_and_on_what_is_told(steps: list[tuple[str, int]]) -> None:
    clock = SteppedClock()
    model, twin = MemoryData(clock), SqliteTwin(clock)
    for step, number in steps:
        if step == "wait":
            clock.now_ms += number
        assert twin.step(step, number) == step_of_model(model, step, number)
        assert sqlite_file.load(twin.connection, b"") == model.load(b"")
        for rev in (0, 3, model.rev):
            assert twin.since(rev) == since_in_model(model, rev)
    twin.connection.close()
