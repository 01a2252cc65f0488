"""Each kind of object store, opened as several nodes would open it."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import pytest

from headrace.storage.os_files import OsFiles
from headrace.system import SystemRandom, ThreadOffload
from headrace.tier.memory import MemoryBucket, MemoryStore
from headrace.tier.opening import open_object_store
from headrace.tier.store import ObjectStore
from tests.servers.s3 import S3Missing, S3Server

Opener: TypeAlias = Callable[[], ObjectStore]


@pytest.fixture
def offload() -> Iterator[ThreadOffload]:
    threads = ThreadOffload()
    yield threads
    threads.close()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        server = S3Server(tmp_path_factory.mktemp("s3"))
    except S3Missing as missing:
        pytest.skip(str(missing))
    yield server
    server.kill()


@pytest.fixture(params=["memory", "directory", "s3"])
async def opener(
    request: pytest.FixtureRequest, tmp_path: Path, offload: ThreadOffload, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Opener]:
    """Opens the same store again with every call, as another node would."""
    bucket, opened = MemoryBucket(), []
    url = (tmp_path / "objects").as_uri()
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        url = server.url(f"t{uuid4().hex}")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)

    def open_store() -> ObjectStore:
        files = OsFiles(open_files_max=8)
        store: ObjectStore
        if request.param == "memory":
            store = MemoryStore(bucket, files)
        else:
            store = open_object_store(url, files, offload, SystemRandom())
        opened.append(store)
        return store

    await open_store().begin()
    yield open_store
    for store in opened:
        await store.close()


@pytest.fixture
def store(opener: Opener) -> ObjectStore:
    return opener()
