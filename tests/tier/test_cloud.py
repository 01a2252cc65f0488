"""What is particular to stores behind a network, against a real S3 server."""

from pathlib import Path
from uuid import uuid4

import pytest

from headrace.storage.os_files import OsFiles
from headrace.system import SystemRandom, ThreadOffload
from headrace.tier import cloud
from headrace.tier.opening import open_object_store
from headrace.tier.store import FilePart, ObjectExists, ObjectStore, SourceUnreadable, StoreUnavailable
from tests.servers.process import lasting_port
from tests.servers.s3 import S3Server


@pytest.fixture
def s3_store(s3_server: S3Server, offload: ThreadOffload, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """Everything above 1 MiB is large."""
    monkeypatch.setattr(cloud, "CONDITIONAL_BYTES_MAX", 1 << 20)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return open_object_store(s3_server.url(f"t{uuid4().hex}"), OsFiles(8), offload, SystemRandom())


async def test_a_large_object_goes_up_in_parts_and_once(s3_store: ObjectStore, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"0123456789abcdef" * (1 << 20) + b"tail")
    size = path.stat().st_size
    await s3_store.put("c/large", [FilePart(str(path), 0, size), b"!"])
    assert await s3_store.size("c/large") == size + 1
    assert await s3_store.get("c/large", size - 4, size + 1) == b"tail!"
    assert await s3_store.get("c/large", cloud.PIECE_BYTES - 2, cloud.PIECE_BYTES + 2) == b"ef01"
    with pytest.raises(ObjectExists):
        await s3_store.put("c/large", [FilePart(str(path), 0, size)])


async def test_a_large_source_that_ends_early_leaves_nothing(s3_store: ObjectStore, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(10 << 20))
    with pytest.raises(SourceUnreadable):
        await s3_store.put("c/large", [FilePart(str(path), 0, 20 << 20)])
    assert [key async for key, _ in s3_store.list("")] == []


async def test_a_server_that_is_away_is_unavailable_in_one_line(
    offload: ThreadOffload, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    url = f"s3://bucket/prefix?endpoint=http://127.0.0.1:{lasting_port()}"
    store = open_object_store(url, OsFiles(8), offload, SystemRandom())
    for call in (store.put("c/a", [b"a"]), store.get("c/a", 0, 1), store.size("c/a"), store.delete("c/a")):
        with pytest.raises(StoreUnavailable) as told:
            await call
        assert "\n" not in str(told.value) and "c/a" in str(told.value)
    with pytest.raises(StoreUnavailable):
        [key async for key, _ in store.list("")]


async def test_objects_outlive_the_server_that_holds_them(s3_store: ObjectStore, s3_server: S3Server) -> None:
    await s3_store.put("c/a", [b"abc"])
    s3_server.kill()
    with pytest.raises(StoreUnavailable):
        await s3_store.size("c/a")
    s3_server.start()
    assert await s3_store.get("c/a", 0, 3) == b"abc"
