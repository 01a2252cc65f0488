"""Who writes to a file is heard of, told by the kernel or seen by looking; two writes at one moment are one."""

import asyncio
import os
from pathlib import Path

import pytest

from headrace.metadata import written as module
from headrace.metadata.written import Written

SILENT_MS = 50
LONG_MS = 60_000


@pytest.fixture(params=["told", "looking"])
def is_told(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "looking":
        monkeypatch.setattr(module, "_notifications", lambda _path: None)
    return bool(request.param == "told")


async def test_a_write_ends_the_waiting(tmp_path: Path, is_told: bool) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a")
    written = Written(path)
    assert written.is_told is is_told
    waiting = asyncio.ensure_future(written.wait(LONG_MS))
    await asyncio.sleep(0)
    path.write_bytes(b"more")
    async with asyncio.timeout(30):
        assert await waiting
    written.close()


@pytest.mark.usefixtures("is_told")
async def test_what_was_written_before_the_call_is_told_by_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a")
    written = Written(path)
    path.write_bytes(b"more")
    async with asyncio.timeout(30):
        assert await written.wait(LONG_MS)
    written.close()


@pytest.mark.usefixtures("is_told")
async def test_without_a_write_it_ends_after_its_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a")
    written = Written(path)
    for _ in range(2):
        async with asyncio.timeout(30):
            assert not await written.wait(SILENT_MS)
    written.close()


async def test_a_file_that_is_not_there_is_looked_for(tmp_path: Path) -> None:
    written = Written(tmp_path / "log")
    assert not written.is_told
    (tmp_path / "log").write_bytes(b"a")
    async with asyncio.timeout(30):
        assert await written.wait(LONG_MS)
    written.close()


async def test_closing_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a")
    before = len(os.listdir("/proc/self/fd"))
    written = Written(tmp_path / "log")
    assert len(os.listdir("/proc/self/fd")) > before
    written.close()
    assert len(os.listdir("/proc/self/fd")) == before
