"""The same tables in a bucket of a real S3 server."""

from uuid import uuid4

import pytest

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
