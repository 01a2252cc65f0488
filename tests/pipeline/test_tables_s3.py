"""The same tables in a bucket of a real S3 server."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from headrace.pipeline.parquet_table import ParquetTable
from headrace.pipeline.place import place_of
from tests.pipeline.test_tables import DAY, Bench
from tests.servers.s3 import S3Server
from tests.tier.conftest import s3_server

__all__ = ["s3_server"]


@pytest.fixture(params=["parquet", "delta"])
def bench(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> "BucketBench":
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return BucketBench(s3_server.url(f"t{uuid4().hex}"), request.param)


class BucketBench(Bench):
    def __init__(self, url: str, format: str) -> None:
        self.place = place_of(url, "/")
        self.format = format

    def ids(self) -> list[int]:
        import pyarrow.dataset as ds
        from deltalake import DeltaTable as Log

        if self.format == "delta":
            found = Log(self.place.delta_uri, storage_options=self.place.delta_options).to_pyarrow_table()
        else:
            there = self.place.file_system()
            found = ds.dataset(self.place.path, format="parquet", partitioning="hive", filesystem=there).to_table()
        return sorted(found.column("id").to_pylist()) if found.num_rows else []


def test_batches_come_once_and_small_files_become_one(bench: BucketBench) -> None:
    one, two = bench.driver(), bench.driver()
    for batch in range(3):
        mine, other = bench.files(one, batch, [batch]), bench.files(two, batch, [batch])
        assert two.commit(batch, other) and not one.commit(batch, mine)
    assert bench.ids() == [0, 1, 2]
    bench.place.refuse_foreign()
    assert one.merge([DAY], 2) == 3
    assert bench.driver().has(2) and bench.ids() == [0, 1, 2]


@pytest.fixture
def parquet(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> BucketBench:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return BucketBench(s3_server.url(f"t{uuid4().hex}"), "parquet")


def test_a_file_that_is_copied_and_not_yet_deleted_is_not_merged(
    parquet: BucketBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 has no rename. The driver that died in between moves the file again when it is back, after any merge."""
    dying, other = parquet.driver(), parquet.driver("scope.another")

    def copies_and_dies(_: ParquetTable, source: str, target: str) -> None:
        parquet.place.file_system().copy_file(parquet.place.within(source), parquet.place.within(target))
        raise OSError("it was told to die")

    with monkeypatch.context() as patch:
        patch.setattr(ParquetTable, "_move", copies_and_dies)
        with pytest.raises(OSError, match="told to die"):
            dying.commit(0, parquet.files(dying, 0, [0]))
    for batch in range(2):
        other.commit(batch, parquet.files(other, batch, [batch + 1]))
    assert other.small_files([DAY]) == {DAY: 2}
    assert other.merge([DAY], 2) == 2 and parquet.ids() == [0, 1, 2]
    assert parquet.driver().has(0) and parquet.ids() == [0, 1, 2]
    assert other.merge([DAY], 2) == 2 and parquet.ids() == [0, 1, 2]


def test_who_comes_second_to_a_move_takes_it_as_done(parquet: BucketBench, monkeypatch: pytest.MonkeyPatch) -> None:
    late, other = parquet.driver(), parquet.driver()
    monkeypatch.setattr(late, "_fs", OvertakenMoves(parquet.place.file_system(), lambda: other.has(0)))
    assert late.commit(0, parquet.files(late, 0, [1, 2])) and parquet.ids() == [1, 2]


class OvertakenMoves:
    """Between the look at a file and its copy another driver has moved it."""

    def __init__(self, there: Any, overtake: Callable[[], bool]) -> None:
        self._there = there
        self._overtake = overtake

    def __getattr__(self, name: str) -> Any:
        return getattr(self._there, name)

    def move(self, source: str, target: str) -> None:
        assert self._overtake()
        self._there.move(source, target)
